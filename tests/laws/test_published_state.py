"""Laws 1 to 4 on the published state: many small random graphs in one home, at every epoch, against plain Python.

The graphs share a home (their vertices are apart), so that one run of the pipeline carries them all. The batches arrive
out of order, in groups, wrong and then corrected, and again unchanged; after every revision the totals of every epoch
up to the frontier, and at the end every vertex and every edge at every epoch, equal a recomputation from the batches.
One home of the ordinary suite has all at once: values, a filter, a window and motifs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession

from altneu.pipeline.checking import audit
from altneu.pipeline.reading import explain, views
from altneu.pipeline.run.stages import edges
from altneu.pipeline.state import schema as books
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage.duckdb_tables import DuckTables
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers, maintained, reference, seeds
from tests.builders import draw_batches
from tests.laws.test_motifs import MOTIFS
from tests.reference import Row

EPOCHS = 6
GRAPHS = 20


BATCH: dict[str, Any] = {"vertices": range(3, 9), "most": 11, "values": range(-2, 4), "deletes": 1 / 4}


Config = tuple[str, int | None, Callable[[int | None], bool]]  # settings, and the window and the filter in them


def declare_motifs(*names: str) -> Config:
    """Return a configuration with a window, a filter and motifs."""
    toml = '[values]\nw = "long"\n[edges]\nlive_for = 3\nwhere = "w > -2"\n[triangles]\nplan = "delta"\n[motifs]\n'
    motifs = "".join(f"{name} = {MOTIFS[name][0]}\n" for name in names)
    return toml + motifs, 3, lambda value: value is not None and value > -2


ALWAYS = "a window, a filter and motifs"
CONFIGS: dict[str, Config] = {
    "kept until deleted": ('[triangles]\nplan = "delta"\n', None, lambda value: True),
    "kept until deleted, from cached graphs": ('[triangles]\nplan = "resume"\n', None, lambda value: True),
    "a window": ('[edges]\nlive_for = 2\n[triangles]\nplan = "bulk"\nlimit_edges = 300\n', 2, lambda value: True),
    "a window and a filter": (
        '[values]\nw = "long"\n[edges]\nlive_for = 3\nwhere = "w > 0"\n',
        3,
        lambda value: value is not None and value > 0,
    ),
    ALWAYS: declare_motifs("loop", "mutual"),
    "a window, a filter and more motifs": declare_motifs("square", "loop", "mutual"),
}


IN_TWO = pytest.param(ALWAYS, True, id=f"{ALWAYS}, in two runs")


@pytest.mark.law(1, 2, 3, 4)
@pytest.mark.dear("every law of the state, with whole runs in random order")
@pytest.mark.parametrize(
    ("name", "in_two"), [IN_TWO, *(pytest.param(n, False, marks=pytest.mark.slow, id=n) for n in CONFIGS)]
)
def test_any_order_equals_recomputation(
    spark: SparkSession, tmp_path: Path, name: str, in_two: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two epochs are wrong at first, others are late; `in_two`: they are corrected by the run that brings the late
    ones."""
    toml, live_for, where = CONFIGS[name]
    if name != "a window and a filter":  # as in large homes: the stored rows that a change touches, and no others
        monkeypatch.setattr(edges, "WHOLE_ROWS", -1)
    seed = seeds.one()
    rng = random.Random(seed)
    home, ledger = home_helpers.make(tmp_path / "home", toml)
    if not home.config.values:  # without value columns all values are alike
        where = lambda value: True  # noqa: E731
    motifs = list(home.config.motifs)
    final = {epoch: draw_batches(rng, GRAPHS, **BATCH) for epoch in range(EPOCHS)}
    final[rng.randrange(EPOCHS)] = []  # an empty epoch
    landed: dict[int, list[Row]] = {}

    def deliver(epochs: list[int], batches: dict[int, list[Row]]) -> None:
        for epoch in epochs:
            landed[epoch] = batches[epoch]
            home_helpers.put(home, epoch, landed[epoch])
        home_helpers.run(ledger, epochs)
        for point in views.select_totals(ledger, all_epochs=True):
            expected = reference.totals(reference.edges(landed, point["epoch"], live_for, where))
            assert {key: point[key] for key in expected} == expected, (seed, point["epoch"])
            counted = {each: count_motif(each, landed, point["epoch"], live_for, where)[0] for each in motifs}
            assert point["motifs"] == counted, (seed, point["epoch"])

    order = rng.sample(range(EPOCHS), EPOCHS)
    deliver(order[:2], {epoch: draw_batches(rng, GRAPHS, **BATCH) for epoch in order[:2]})  # a group, wrong at first
    forget_wedges(ledger)
    deliver(order if in_two else order[2:], final)
    before = ledger.revisions.get()
    assert home_helpers.run(ledger, order[2:]) is None  # law 2: the same batches again publish nothing
    assert ledger.revisions.get() == before
    if not in_two:
        deliver(order[:2], final)  # the correction: a late replacement of two epochs at once
    assert_everything(spark, ledger, landed, live_for, where, seed)
    if motifs:
        assert_motif_counts(spark, ledger, landed, live_for, where, seed)


@pytest.mark.slow
@pytest.mark.law(3, 4)
@pytest.mark.dear("a history that is corrected before and after every horizon")
@pytest.mark.parametrize("live_for", [3, None])
def test_corrections_at_any_distance_equal_recomputation(
    spark: SparkSession, tmp_path: Path, live_for: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New epochs at the end and corrections at random epochs take turns, so that what a run reads of the past begins
    now before, and now after, what the runs before it have written."""
    monkeypatch.setattr(edges, "WHOLE_ROWS", -1)
    seed = seeds.one()
    rng = random.Random(seed)
    home, ledger = home_helpers.make(tmp_path / "home", "" if live_for is None else f"[edges]\nlive_for = {live_for}\n")
    landed: dict[int, list[Row]] = {}

    def deliver(epochs: list[int]) -> None:
        for epoch in epochs:
            landed[epoch] = draw_batches(rng, GRAPHS // 2, **BATCH)
            home_helpers.put(home, epoch, landed[epoch])
        home_helpers.run(ledger, epochs)
        for point in views.select_totals(ledger, all_epochs=True):
            expected = reference.totals(reference.edges(landed, point["epoch"], live_for, lambda value: True))
            assert {key: point[key] for key in expected} == expected, (seed, point["epoch"])

    deliver(list(range(10)))
    for end in (10, 12, 13):  # an epoch is left out
        deliver([end])
        deliver([rng.randrange(end)])
    deliver(sorted(rng.sample(range(14), 3)))
    assert_everything(spark, ledger, landed, live_for, lambda value: True, seed)


def count_motif(name: str, landed: dict[int, list[Row]], epoch: int, live_for: int | None, where: Any) -> Any:
    """How often a motif occurs, and at which vertices."""
    return reference.motif(MOTIFS[name][1], landed, epoch, live_for, where)


def forget_wedges(ledger: Ledger) -> None:
    """As in a home from before they were counted: the next run counts those of all epochs."""
    with ledger.database.engine.begin() as connection:
        assert connection.execute(sa.delete(books.totals).where(books.totals.c.measure == "wedges")).rowcount


def assert_motif_counts(spark, ledger, landed, live_for, where, seed) -> None:  # type: ignore[no-untyped-def]
    """Of every vertex at every epoch, and as a reader sees those of the last one."""
    home = ledger.home
    row, names = ledger.revisions.get(), list(home.config.motifs)
    warehouse = Warehouse(spark, home)
    rows = warehouse.read_table("motif_counts", row).collect()
    for epoch in range(row.frontier + 1):
        found: Counter[Any] = Counter()
        for r in rows:
            found[r.motif, r.vertex] += r["diff"] if r.epoch <= epoch else 0
        counted = {name: count_motif(name, landed, epoch, live_for, where)[1] for name in names}
        wanted = {(name, vertex): n for name, each in counted.items() for vertex, n in each.items()}
        assert {key: n for key, n in found.items() if n} == wanted, (seed, epoch)
    shown = views.select_as_of(warehouse, row, "vertices", row.frontier, names).collect()
    assert {(name, r.vertex): r[name] for r in shown for name in names if r[name]} == wanted, seed
    for vertex in {vertex for _, vertex in sorted(wanted)[:3]}:
        found = explain.explain_vertex(DuckTables(home), row, row.frontier, str(vertex))
        assert {name: n for name, n in found["motifs"].items() if n} == {
            name: n for (name, each), n in wanted.items() if each == vertex
        }, seed


def assert_everything(spark, ledger, landed, live_for, where, seed) -> None:  # type: ignore[no-untyped-def]
    """Every vertex and edge at every epoch; every collection's diffs are consolidated and its contents sets."""
    row = ledger.revisions.get()
    warehouse = Warehouse(spark, ledger.home)
    epochs = list(range(row.frontier + 1))
    found = {
        (r.epoch, r.what, r.a, r.b): r.value
        for r in maintained.select_maintained(lambda table: warehouse.read_table(table, row), epochs).collect()
        if r.what in ("trussness_of_edge", "triangles_at_vertex")
    }
    expected = {}
    for epoch in epochs:
        graph = reference.edges(landed, epoch, live_for, where)
        for (a, b), k in reference.trussness(graph).items():
            expected[(epoch, "trussness_of_edge", a, b)] = k
        for corners in reference.triangles(graph):
            for v in corners:
                key = (epoch, "triangles_at_vertex", v, None)
                expected[key] = expected.get(key, 0) + 1
    assert found == expected, f"seed {seed}"
    # and what the product's own audit says of it
    results = audit.audit_published(warehouse, row, epochs, lambda text: None)
    assert all(result["passed"] for result in results), f"seed {seed}"


@pytest.mark.slow  # tests/e2e/test_faults.py plants some in the ordinary tier
def test_the_audit_finds_a_seeded_fault(spark: SparkSession, tmp_path: Path) -> None:
    """A test of the tests: one lost diff, one wrong trussness, one wrong count; each is named."""
    home, ledger = home_helpers.make(tmp_path / "home")
    home_helpers.put(home, 0, [(a, b, None, "upsert", 0) for a in range(4) for b in range(a + 1, 4)])
    home_helpers.run(ledger, [0])
    row, warehouse = ledger.revisions.get(), Warehouse(spark, home)
    faults = {
        "edges one by one": ("edges", "a = 0 AND b = 1", 0),
        "trussness values of edges": ("trussness", "a = 0 AND b = 1", 1),
        "triangle counts of vertices": ("triangle_counts", "vertex = 2", 1),
    }
    for kind, (table, at, add) in faults.items():

        def broken(name: str, table: str = table, at: str = at, add: int = add):  # type: ignore[no-untyped-def]
            frame = warehouse.read_table(name, row)
            if name != table:
                return frame
            if add == 0:
                return frame.where(f"NOT ({at})")
            column = "k" if table == "trussness" else "diff"
            return frame.withColumn(column, spark_when(at, f"{column} + {add}", column))

        results = maintained.check_against_recomputation(warehouse, broken, [0])
        failed = {result["name"] for result in results if not result["passed"]}
        assert f"{kind} equal a full recomputation" in failed


def spark_when(condition: str, then: str, otherwise: str):  # type: ignore[no-untyped-def]
    from pyspark.sql import functions as F

    return F.expr(f"CASE WHEN {condition} THEN {then} ELSE {otherwise} END")


@pytest.mark.slow
def test_a_home_from_before_wedges_were_counted_counts_them_all(spark: SparkSession, tmp_path: Path) -> None:
    home, ledger = home_helpers.make(tmp_path / "home")
    rows: dict[int, list[Row]] = {0: [(1, 2, None, "upsert", 0), (2, 3, None, "upsert", 0)]}
    rows[1] = [(1, 3, None, "upsert", 0), (3, 4, None, "upsert", 0)]
    for epoch, batch in rows.items():
        home_helpers.put(home, epoch, batch)
    home_helpers.run(ledger, [0])
    with ledger.database.engine.begin() as connection:
        assert connection.execute(sa.delete(books.totals).where(books.totals.c.measure == "wedges")).rowcount
    home_helpers.run(ledger, [1])
    points = views.select_totals(ledger, all_epochs=True)
    assert [point["wedges"] for point in points] == [1, 5] and points[1]["transitivity"] == 3 / 5
