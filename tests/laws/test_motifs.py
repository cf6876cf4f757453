"""Motifs as published: random histories out of order and corrected, under every plan, against plain Python.

As `test_published_state`, which has some of them in the ordinary suite, several graphs share a home; after every
revision the totals of every epoch, and at the end the counts of every vertex at every epoch, equal a recomputation.
"""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.pipeline.checking import audit
from altneu.pipeline.errors import UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.reading import views
from altneu.pipeline.run import planning
from altneu.pipeline.run.forecast import forecast_run
from altneu.pipeline.run.stages import edges
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.stage_results import TrianglesFacts
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers, maintained, reference, seeds
from tests.builders import draw_batches
from tests.reference import PatternEdge, Row

EPOCHS = 5
GRAPHS = 8


def anything(value: int | None) -> bool:
    return True


def positive(value: int | None) -> bool:
    return value is not None and value > 0


def negative(value: int | None) -> bool:
    return value is not None and value < 0


def plain(text: str) -> list[PatternEdge]:
    return [(pair[0], pair[1], False, anything) for pair in text.split()]


MOTIFS: dict[str, tuple[str, list[PatternEdge]]] = {
    "clique": ('"a-b, a-c, a-d, b-c, b-d, c-d"', plain("ab ac ad bc bd cd")),
    "square": ('"a-b, b-c, c-d, d-a"', plain("ab bc cd da")),
    "diamond": ('"a-b, a-c, b-c, b-d, c-d"', plain("ab ac bc bd cd")),
    "loop": (
        '"a->b where w > 0, b->c where w > 0, c->a where w < 0"',
        [("a", "b", True, positive), ("b", "c", True, positive), ("c", "a", True, negative)],
    ),
    "mutual": ('"a->b, b->a, b-c where w > 0"', [*[("a", "b", True, anything), ("b", "a", True, anything)],
                                                ("b", "c", False, positive)]),
    "quarrel": (
        '["a-b where w > 0, b-c where w > 0, a-c where w < 0"]',
        [("a", "b", False, positive), ("b", "c", False, positive), ("a", "c", False, negative)],
    ),
}  # fmt: skip

HOMES = {
    "delta": ('[triangles]\nplan = "delta"\n', list(MOTIFS)),
    "bulk, with a window": ('[triangles]\nplan = "bulk"\n[edges]\nlive_for = 2\n', list(MOTIFS)),
    "delta, with a window and a filter": (
        '[triangles]\nplan = "delta"\n[edges]\nlive_for = 3\nwhere = "w > -2"\n', ["square", "loop", "mutual"]
    ),
    "joins": ('[triangles]\nlimit_edges = 1\n[edges]\nlive_for = 3\n', ["loop"]),
}  # fmt: skip


def home_with(path: Path, toml: str, names: list[str]) -> tuple[Home, Ledger]:
    motifs = "".join(f"{name} = {MOTIFS[name][0]}\n" for name in names)
    return home_helpers.make(path, f'[values]\nw = "long"\n{toml}[motifs]\n{motifs}')


# dense, with loops and ties of seq
BATCH: dict[str, Any] = {"vertices": range(3, 6), "most": 13, "values": range(-3, 4), "deletes": 1 / 5}
TOUCHED_ROWS = "delta, with a window and a filter"


@pytest.mark.law(3, 4)
@pytest.mark.slow
@pytest.mark.parametrize("name", HOMES)
def test_any_order_equals_recomputation(
    spark: SparkSession, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    toml, names = HOMES[name]
    if name == TOUCHED_ROWS:  # as in large homes: the stored rows that a change touches, and no others
        monkeypatch.setattr(edges, "WHOLE_ROWS", -1)
    live_for = Home.open(home_with(tmp_path / "home", toml, names)[0].path).config.edges.live_for
    where = (lambda value: value is not None and value > -2) if "where" in toml else anything
    home, ledger = home_with(tmp_path / "home", toml, names)
    seed = seeds.one()
    rng = random.Random(seed)
    final = {epoch: draw_batches(rng, GRAPHS, **BATCH) for epoch in range(EPOCHS)}
    landed: dict[int, list[Row]] = {}

    def expected(epoch: int) -> dict[str, tuple[int, dict[int, int]]]:
        return {each: reference.motif(MOTIFS[each][1], landed, epoch, live_for, where) for each in names}

    def deliver(epochs: list[int], wrong: bool = False) -> None:
        for epoch in epochs:
            landed[epoch] = draw_batches(rng, GRAPHS, **BATCH) if wrong else final[epoch]
            home_helpers.put(home, epoch, landed[epoch])
        home_helpers.run(ledger, epochs)
        for point in views.select_totals(ledger, all_epochs=True):
            found = {each: total for each, (total, _) in expected(point["epoch"]).items()}
            assert point["motifs"] == found, (seed, point["epoch"])

    order = rng.sample(range(EPOCHS), EPOCHS)
    deliver(order[:2], wrong=True)
    deliver(order[2:])
    for epoch in order[:2]:
        home_helpers.put(home, epoch, final[epoch])
    planned = forecast_run(ledger, planning.plan_epochs(ledger, order[:2])).choice_descriptions["motifs"]
    deliver(order[:2])  # the correction
    row, warehouse = ledger.revisions.get(), Warehouse(spark, home)
    plan = ledger.stages.get_facts(row.run_id, TrianglesFacts).motif_plan
    assert plan == planned
    assert plan.startswith({"b": "enumeration", "d": "delta query in one task", "j": "delta query in joins"}[name[0]])
    assert row.frontier is not None
    for epoch in range(row.frontier + 1):
        wanted = {vertex: {} for _, counts in expected(epoch).values() for vertex in counts}  # type: ignore[var-annotated]
        for each, (_, counts) in expected(epoch).items():
            for vertex, count in counts.items():
                wanted[vertex][each] = count
        rows = [item.asDict() for item in views.select_as_of(warehouse, row, "vertices", epoch, names).collect()]
        found = {item["vertex"]: {each: item[each] for each in names if item[each]} for item in rows}
        assert {vertex: counts for vertex, counts in found.items() if counts} == wanted, (seed, epoch)
    results = audit.audit_published(warehouse, row, list(range(row.frontier + 1)), lambda text: None)
    assert all(result["passed"] for result in results), f"seed {seed}"
    assert any(result["name"] == "motif counts of vertices equal a full recomputation" for result in results)


@pytest.mark.parametrize("names", [["mutual"], pytest.param(["loop", "diamond", "clique"], marks=pytest.mark.slow)])
def test_joins_find_what_one_task_finds(spark: SparkSession, names: list[str]) -> None:
    """The change of random signed intervals, by both."""
    from altneu.algorithms.graph.motif_patterns import parse_motif
    from altneu.algorithms.graph.motifs import motif_changes, motif_changes_in_joins

    rng = random.Random(seeds.one(4))
    wanted = {name: parse_motif(json.loads(MOTIFS[name][0])) for name in names}
    before, change = [], []
    for name in sorted({edge.relation for (pattern,) in wanted.values() for edge in pattern.edges}):
        for a, b in itertools.permutations(range(7), 2):
            if name.startswith("->") or a < b:
                start, middle, end = sorted(rng.sample(range(12), 3))
                if rng.random() < 0.6:
                    before.append((name, a, b, start, end, 1))
                    change += [(name, a, b, middle, end, -1)] if rng.random() < 0.5 else []
                else:
                    change.append((name, a, b, start, FOREVER if rng.random() < 0.5 else end, 1))
    schema = "relation string, a bigint, b bigint, epoch bigint, until bigint, diff bigint"
    frames = [spark.createDataFrame(rows, schema).coalesce(1) for rows in (before, change)]
    found = [sorted(plan(wanted, *frames).collect()) for plan in (motif_changes, motif_changes_in_joins)]
    assert found[0] == found[1]
    assert {row.motif for row in found[0]} == set(wanted)


@pytest.mark.slow
def test_motifs_declared_later_are_counted_by_a_rebuild_and_taken_back(spark: SparkSession, tmp_path: Path) -> None:
    home, ledger = home_helpers.make(tmp_path / "home")
    square = [(1, 2), (2, 3), (3, 4), (4, 1), (1, 3)]
    home_helpers.put(home, 0, [(a, b, None, "upsert", 0) for a, b in square])
    home_helpers.run(ledger, [0])
    digest = ledger.revisions.get().config_digest

    def declare(text: str) -> Home:
        (home.path / "altneu.toml").write_text(text)
        return Home.open(home.path)

    def restated(now: Home) -> dict[str, int]:
        home_helpers.put(now, 1, [(5, 6, None, "upsert", 0)])
        with pytest.raises(UsageError, match=r"\[motifs\]") as refused:
            home_helpers.run(Ledger(now), [1])
        assert (refused.value.next or "").startswith("altneu rebuild ")
        home_helpers.run_as_planned(Ledger(now), planning.plan_rebuild(Ledger(now), from_landing=False))
        found: dict[str, int] = views.select_totals(Ledger(now))[0]["motifs"]
        return found

    assert restated(declare('[motifs]\nsquare = "a-b, b-c, c-d, d-a"\ntriangle = "a-b, b-c, a-c"\n')) == {
        "square": 1, "triangle": 2,
    }  # fmt: skip
    assert restated(declare("[edges]\nlive_for = 2\n")) == {}
    home_helpers.run_as_planned(Ledger(declare("")), planning.plan_rebuild(Ledger(declare("")), from_landing=False))
    assert ledger.revisions.get().config_digest == digest
    assert home_helpers.run(Ledger(Home.open(home.path)), [1]) is not None


@pytest.mark.slow  # tests/e2e/test_shown.py and test_faults.py have wrong counts in the default tier
def test_the_audit_finds_a_count_that_is_off_by_one(spark: SparkSession, tmp_path: Path) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", '[motifs]\nwedge = "a-b, b-c"\ntriangle = "a-b, b-c, a-c"\n')
    home_helpers.put(home, 0, [(a, b, None, "upsert", 0) for a, b in [(1, 2), (2, 3), (3, 1), (3, 4)]])
    home_helpers.run(ledger, [0])
    row, warehouse = ledger.revisions.get(), Warehouse(spark, home)

    def broken(table: str):  # type: ignore[no-untyped-def]
        frame = warehouse.read_table(table, row)
        if table == "motif_counts":
            frame = frame.selectExpr(
                "motif", "vertex", "epoch", "revision", "diff + int(motif = 'triangle' AND vertex = 2) AS diff"
            )
        return frame

    failed = [
        check
        for check in maintained.check_against_recomputation(warehouse, broken, [0], revision=row)
        if not check["passed"]
    ]
    assert [check["name"] for check in failed] == ["motif counts of vertices equal a full recomputation"]
    assert failed[0]["severity"] == "critical"
    (wrong,) = failed[0]["rows"]
    assert (wrong["key"], wrong["maintained"], wrong["recomputed"]) == ("2-triangle", 2, 1)
