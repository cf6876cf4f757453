"""Faults planted one by one into a run, between its stages: each is found by a named check of the right severity, says
the row, blocks publish when it is critical, and stands on the epoch's page. A clean run raises none.

Tables are changed on the run's own branches, behind the back of the stages, as a bug, a lost file or a foreign writer
would; landed files are changed as they lie. Two of each sort run always, all of them with `infra/test --all`.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from altneu.pipeline.errors import CheckFailed, RunFailed
from altneu.pipeline.home.home import Home
from altneu.pipeline.report import epoch_document
from altneu.pipeline.run import planning, runner
from altneu.pipeline.run.stages import audit
from altneu.pipeline.state import schema as books
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage.branches import branch_of
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers, seeds
from tests.builders import draw_batch
from tests.fingerprint_helpers import stage
from tests.reference import Row

pytestmark = pytest.mark.usefixtures("tiny")

LAST = 8  # the epoch of the run; those before it are published
TOML = """
[edges]
live_for = 6

[motifs]
clique = "a-b, a-c, a-d, b-c, b-d, c-d"
square = "a-b, b-c, c-d, a-d"
"""
CLIQUE = list(combinations(range(100, 105), 2))  # lands with it: 10 edges of trussness 5, 10 triangles
Change = Callable[[DataFrame], DataFrame]
BATCH: dict[str, Any] = {"vertices": range(12), "size": 40, "deletes": 1 / 6, "loops": False}


@dataclass
class Scene:
    """A home with a run that has reached its audit."""

    home: Home
    ledger: Ledger
    warehouse: Warehouse
    run_id: str

    def rows(self, table: str) -> DataFrame:
        return self.warehouse.read_snapshot(table, self.warehouse.branch_snapshot(table, self.run_id, 0))

    def change(self, table: str, change: Change) -> int:
        """Replace the table on the run's branch; return the snapshot that it had."""
        before = self.warehouse.branch_snapshot(table, self.run_id, 0)
        rows = change(self.rows(table)).localCheckpoint()
        rows.writeTo(f"{self.warehouse.table_name(table)}.branch_{branch_of(self.run_id)}").overwrite(F.lit(True))
        self._left(table, self.warehouse.branch_snapshot(table, self.run_id, 0))
        return before

    def restore(self, table: str, snapshot: int) -> None:
        self.warehouse.load_metadata(table).commit_steps([("replaceBranch", branch_of(self.run_id), snapshot)])
        self._left(table, snapshot)

    def _left(self, table: str, snapshot: int) -> None:
        """Let the run's stages have left the table like that: what somebody else wrote would be refused before it is
        looked at."""
        for row in self.ledger.stages.select(self.run_id):
            if table in row.facts.snapshots:
                facts = {**row.stored_facts, "snapshots": {**row.stored_facts["snapshots"], table: str(snapshot)}}
                mine = (books.stages.c.run_id == self.run_id) & (books.stages.c.stage == row.stage)
                with self.ledger.database.engine.begin() as connection:
                    connection.execute(sa.update(books.stages).where(mine).values(facts=facts))


@pytest.fixture(scope="module")
def scene(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    home, ledger = home_helpers.make(tmp_path_factory.mktemp("faults") / "home", TOML)
    rng = random.Random(seeds.one(9))
    for epoch in range(LAST):
        home_helpers.put(home, epoch, draw_batch(rng, **BATCH))
    with pytest.MonkeyPatch.context() as patch:  # what is audited is the run after it
        patch.setattr(audit, "audit_run", stage)
        home_helpers.run(ledger, range(LAST))
    clique: list[Row] = [(a, b, None, "upsert", i) for i, (a, b) in enumerate(CLIQUE)]
    home_helpers.put(home, LAST, draw_batch(rng, **BATCH)[:30] + clique)
    run_id = runner.begin_run(ledger, planning.plan_epochs(ledger, [LAST]))
    assert run_id
    for name in ("ingest", "edges", "triangles", "truss"):
        runner.execute_stage(ledger, run_id, name)
    yield Scene(home, ledger, Warehouse(spark, home), run_id)


def failing(scene: Scene) -> dict[tuple[str, str], Any]:
    """The failed checks of the run's latest audit, without those that only inform."""
    rows = [asdict(row) for row in scene.ledger.checks.select(run_id=scene.run_id)]
    return {(row["suite"], row["name"]): row for row in rows if not row["passed"] and row["severity"] != "info"}


def own(frame: DataFrame, condition: str) -> DataFrame:
    """The rows that this run wrote and that meet a condition."""
    return frame.where(f"revision = 2 AND ({condition})")


def without(condition: str) -> Change:
    return lambda rows: rows.where(f"NOT (revision = 2 AND ({condition}))")


def twice(condition: str) -> Change:
    return lambda rows: rows.unionByName(own(rows, condition))


def altered(condition: str, **columns: str) -> Change:
    """The run's rows of a condition with other values, in place of the true ones."""

    def change(rows: DataFrame) -> DataFrame:
        wrong = own(rows, condition).withColumns({name: F.expr(value) for name, value in columns.items()})
        return without(condition)(rows).unionByName(wrong.select(*rows.columns))

    return change


def added(condition: str, **columns: str) -> Change:
    """More rows: copies of the run's rows of a condition with other values."""

    def change(rows: DataFrame) -> DataFrame:
        more = own(rows, condition).withColumns({name: F.expr(value) for name, value in columns.items()})
        return rows.unionByName(more.select(*rows.columns))

    return change


EDGE, ENDS = "a = 100 AND b = 101", "src = 100 AND dst = 101"
FULL = "incremental_versus_full"
# fault -> table, change, the check that must fail, and what one of its rows must hold
TABLES: dict[str, tuple[str, Change, tuple[str, str], dict[str, Any]]] = {
    "lost diff": ("edges", without(EDGE), (FULL, "edges one by one equal a full recomputation"), {"key": "100-101"}),
    "doubled diff": ("edges", twice(EDGE), ("edges", "an edge is in the edge set once"), {"a": 100, "copies": 2}),
    "wrong sign": ("edges", altered(EDGE, diff="-diff"), ("edges", "an edge is in the edge set once"), {"copies": -1}),
    "zero diff": ("edges", added(EDGE, diff="0L"), ("edges", "no zero diffs"), {"a": 100, "b": 101}),
    "diff of two": ("edges", altered(EDGE, diff="2L"), ("edges", "diffs are +1 or -1"), {"diff": 2}),
    "edge without an end": (
        "edges", altered(EDGE, b="CAST(NULL AS bigint)"), ("edges", "b of a changed interval is there"), {"a": 100},
    ),
    "ends swapped": (
        "edges", altered(EDGE, a="b", b="a"), ("edges", "a is less than b in every changed interval"), {"a": 101},
    ),
    "self-loop": ("edges", altered(EDGE, b="a"), ("edges", "a is less than b in the edge set"), {"a": 100, "b": 100}),
    "interval that ends before it begins": (
        "edges", altered(EDGE, until="epoch - 3"), ("edges", "every changed interval ends after it begins"), {"a": 100},
    ),
    "overlapping intervals": (
        "edges", added(EDGE, epoch="epoch + 1"), ("edges", "changed intervals of an edge do not overlap"), {"a": 100},
    ),
    "edge of no upsert": (
        "edges", altered(EDGE, a="900L", b="901L"),
        ("edges", "every changed edge has an upsert in a batch of this run"), {"a": 900, "b": 901},
    ),
    "swapped epochs": (
        "edges", altered(EDGE, epoch="epoch - 1"),
        ("edges", "every changed edge has an upsert in a batch of this run"), {"a": 100, "epoch": LAST - 1},
    ),
    "degree off by one": (
        "degrees", altered("vertex = 100", diff="diff + 1"),
        ("degrees", "a degree is the number of the vertex's edges"), {"vertex": 100, "degree": 5},
    ),
    "lost degree": (
        "degrees", without("vertex = 100"), ("ledger", "the total of vertices is the number of degrees"), {},
    ),
    "negative degree": ("degrees", altered("vertex = 100", diff="-1L"), ("degrees", "a degree is at least 1"), {}),
    "count off by one at one vertex": (
        "triangle_counts", altered("vertex = 100", diff="diff - 1"),
        (FULL, "triangle counts of vertices equal a full recomputation"),
        {"key": "100", "maintained": 5, "recomputed": 6},
    ),
    "count at the wrong vertex": (
        "triangle_counts", altered("vertex = 100", vertex="101L"),
        (FULL, "triangle counts of vertices equal a full recomputation"), {"key": "100", "maintained": None},
    ),
    "negative count": (
        "triangle_counts", altered("vertex = 100", diff="-1L"), ("triangle_counts", "a count is not negative"), {},
    ),
    "more triangles than a degree allows": (
        "triangle_counts", altered("vertex = 100", diff="7L"),
        ("triangle_counts", "a count fits the vertex's degree"), {"vertex": 100},
    ),
    "trussness one too high": (
        "trussness", altered(EDGE, k="k + 1"), (FULL, "trussness values are not too high"), {"key": "100-101"},
    ),
    "trussness of a set one too low": (
        "trussness", altered("a >= 100", k="k - 1"), (FULL, "trussness values are not too low"), {"key": "100-101"},
    ),
    "lost trussness": ("trussness", without(EDGE), ("trussness", "every edge has a trussness"), {"a": 100, "b": 101}),
    "two trussnesses": ("trussness", added(EDGE, k="2L"), ("trussness", "an edge has one k"), {"a": 100, "b": 101}),
    "trussness twice": ("trussness", twice(EDGE), ("trussness", "a trussness is there once"), {"a": 100, "b": 101}),
    "trussness below two": ("trussness", altered(EDGE, k="1L"), ("trussness", "k is at least 2"), {"a": 100}),
    "trussness of no edge": (
        "trussness", added(EDGE, a="900L", b="901L"), ("trussness", "every trussness has its edge"), {"a": 900},
    ),
    "trussness beyond reason": (
        "trussness", altered(EDGE, k="60L"), ("trussness", "every k-truss is large enough"), {"k": 60},
    ),
    "stale snapshot": (
        "trussness", without("true"), (FULL, "trussness values of edges equal a full recomputation"), {},
    ),
    "motif count off by one at one vertex": (
        "motif_counts", altered("vertex = 100 AND motif = 'clique'", diff="diff - 1"),
        (FULL, "motif counts of vertices equal a full recomputation"),
        {"key": "100-clique", "maintained": 3, "recomputed": 4},
    ),
    "count of the wrong motif": (
        "motif_counts", altered("vertex = 100 AND motif = 'clique'", motif="'square'"),
        (FULL, "motif counts of vertices equal a full recomputation"), {"key": "100-clique", "maintained": None},
    ),
    "lost count of a motif": (
        "motif_counts", without("vertex = 100 AND motif = 'clique'"),
        ("ledger", "the totals of motifs are those of the vertices"), {"motif": "clique"},
    ),
    "lost upsert": ("upserts", without(ENDS), ("volumes", "the stored rows are the landed rows"), {"epoch": LAST}),
    "upsert stored twice": (
        "upserts", twice(ENDS), ("upserts", "a landed row is stored at most once"), {"src": 100, "copies": 2},
    ),
    "upsert of a foreign epoch": (
        "upserts", altered(ENDS, epoch="epoch - 4"), ("upserts", "epoch is one of this run"), {"epoch": LAST - 4},
    ),
    "unknown operation": (
        "upserts", altered(ENDS, op="'merge'"), ("upserts", "op is upsert or delete"), {"src": 100, "op": "merge"},
    ),
    "upsert without a source": (
        "upserts", altered(ENDS, src="CAST(NULL AS bigint)"), ("upserts", "src is there"), {"dst": 101},
    ),
    "upsert that counts double": (
        "upserts", altered(ENDS, diff="2L"), ("upserts", "each row is added once"), {"src": 100, "diff": 2},
    ),
}  # fmt: skip
ALWAYS = {"lost diff"}


@pytest.mark.parametrize("fault", [f if f in ALWAYS else pytest.param(f, marks=pytest.mark.slow) for f in TABLES])
def test_a_wrong_table_is_found_and_blocks_publish(scene: Scene, fault: str) -> None:
    table, change, check, row = TABLES[fault]
    before = scene.change(table, change)
    try:
        found_and_blocked(scene, check, row)
    finally:
        scene.restore(table, before)


MEASURES = {
    "vertices": "the total of vertices is the number of degrees",
    "wedges": "the total of wedges is that of the degrees",
    "edges": "the total of edges is the size of the edge set",
    "triangles": "the total of triangles is possible with so many edges",
    "truss": "the maximum trussness is the greatest k",
    "motif": "the totals of motifs are those of the vertices",
}


@pytest.mark.slow
@pytest.mark.parametrize("measure", MEASURES)
def test_a_wrong_total_is_found_and_blocks_publish(scene: Scene, measure: str) -> None:
    totals = books.totals
    mine = (totals.c.run_id == scene.run_id) & (totals.c.measure == measure)
    k = 60 if measure == "truss" else 0
    wrong = {"run_id": scene.run_id, "measure": measure, "k": k, "epoch": LAST - 4, "diff": 5_000}
    engine = scene.ledger.database.engine
    with engine.begin() as connection:
        connection.execute(sa.insert(totals).values(wrong))
    try:
        found_and_blocked(scene, ("ledger", MEASURES[measure]), {})
    finally:
        with engine.begin() as connection:
            connection.execute(sa.delete(totals).where(mine & (totals.c.k == k) & (totals.c.epoch == LAST - 4)))


def found_and_blocked(scene: Scene, check: tuple[str, str], row: dict[str, Any]) -> None:
    with pytest.raises(CheckFailed, match=r"critical check\(s\) failed") as refused:
        runner.execute_stage(scene.ledger, scene.run_id, "audit")
    assert refused.value.next
    failed = failing(scene)
    assert check in failed, sorted(failed)
    assert failed[check]["severity"] == "critical"
    assert any(row.items() <= found.items() for found in failed[check]["rows"]), failed[check]["rows"]
    assert scene.ledger.revisions.get().revision == 1
    page = epoch_document(scene.ledger, LAST)
    (shown,) = [c for c in page["failed_run"]["checks"] if (c["suite"], c["name"]) == check]
    assert shown["rows"] == failed[check]["rows"]


def test_the_first_difference_is_explained(scene: Scene) -> None:
    """The diffs that are stored, the landed rows and their fate: next to both values, in the check and on the page."""
    before = scene.change("trussness", altered(EDGE, k="k + 1"))
    try:
        with pytest.raises(CheckFailed):
            runner.execute_stage(scene.ledger, scene.run_id, "audit")
        rows = failing(scene)[FULL, "trussness values of edges equal a full recomputation"]["rows"]
    finally:
        scene.restore("trussness", before)
    assert (rows[0]["key"], rows[0]["maintained"], rows[0]["recomputed"]) == ("100-101", 6, 5)
    edges, trussness, landed = rows[0]["why"]
    assert edges == f"diffs stored in edges: +1 at {LAST} (revision 2)"
    assert trussness == f"diffs stored in trussness: +1 of trussness 6 at {LAST} (revision 2)"
    assert landed == f"landed at {LAST}: upsert 100 → 101, epoch={LAST}/rows.csv line 32: in force"


@pytest.mark.slow  # any audited run of the default tier is clean
def test_the_run_itself_is_clean(scene: Scene) -> None:
    runner.execute_stage(scene.ledger, scene.run_id, "audit")
    assert failing(scene) == {}


# fault -> the landed file and its bytes, and what is said: a failed check of a severity, or an error of the run
def rows(*lines: str, header: str = "src,dst,op,seq") -> bytes:
    return ("\n".join([header, *lines]) + "\n").encode()


CALM = [f"{i % 12},{(i * 5 + 1) % 12},upsert,{i}" for i in range(40)]
LANDED: dict[str, tuple[str, bytes, tuple[str, str] | str]] = {
    "empty batch": ("a.csv", rows(), ("volumes", "the batch is not empty")),
    "volume spike": (
        "a.csv", rows(*(f"{i % 300},{i % 299 + 1},upsert,{i}" for i in range(90_000))),
        ("volumes", "as many rows as usual"),
    ),
    "duplicate key": (
        "a.csv", rows(*CALM, "1,2,upsert,99", "1,2,delete,99"), ("upserts", "one value per key and seq"),
    ),
    "some malformed rows": ("a.csv", rows(*CALM, "x,2,upsert,1"), ("volumes", "few rows are malformed")),
    "truncated file": ("a.csv.gz", gzip.compress(rows(*CALM))[:-20], "a.csv.gz"),
    "missing column": ("a.csv", rows("1,upsert,0", header="src,op,seq"), "dst"),
    "poisoned file": ("a.csv", b"\x00\xff\xfe\x00" * 400, "a.csv"),
    "mostly malformed": ("a.csv", rows(*CALM[:10], *(["?,?,?,?"] * 30)), "max_bad_share"),
    "no such operation": ("a.csv", rows(*CALM[:5], *(["1,2,replace,0"] * 9)), "max_bad_share"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("fault", LANDED)
def test_a_wrong_landing_is_found(spark: SparkSession, tmp_path: Path, fault: str) -> None:
    name, content, wanted = LANDED[fault]
    home, ledger = home_helpers.make(tmp_path / "home", "")
    rng = random.Random(seeds.one(1))
    for epoch in range(LAST):
        home_helpers.put(home, epoch, draw_batch(rng, **BATCH))
    home_helpers.run(ledger, range(LAST))
    folder = home.landing / f"epoch={LAST}"
    folder.mkdir()
    (folder / name).write_bytes(content)
    if isinstance(wanted, str):
        with pytest.raises(RunFailed, match=wanted) as refused:
            home_helpers.run(ledger, [LAST])
        assert "Nothing was published" in refused.value.what and refused.value.next
        assert ledger.revisions.get().revision == 1
        return
    home_helpers.run(ledger, [LAST])
    assert (ledger.revisions.get().revision, ledger.revisions.get().mark) == (2, "warning")
    page = epoch_document(ledger, LAST)
    failed = {(c["suite"], c["name"]): c for c in page["checks"] if not c["passed"] and c["severity"] == "warning"}
    assert wanted in failed and failed[wanted]["rows"], sorted(failed)


def test_a_row_of_another_revision_in_a_first_publication_is_found(spark: SparkSession, tmp_path: Path) -> None:
    """The audit reads all rows of the tables, not only those that the run says to have written."""
    home, ledger = home_helpers.make(tmp_path / "home", TOML)
    home_helpers.put(home, 0, draw_batch(random.Random(seeds.one(9)), **BATCH))
    run_id = runner.begin_run(ledger, planning.plan_epochs(ledger, [0]))
    assert run_id
    for name in ("ingest", "edges", "triangles", "truss"):
        runner.execute_stage(ledger, run_id, name)
    first = Scene(home, ledger, Warehouse(spark, home), run_id)

    def add_foreign_row(rows: DataFrame) -> DataFrame:
        return rows.unionByName(rows.limit(1).withColumn("revision", F.lit(0).cast("bigint")))

    for table in ("edges", "degrees", "triangle_counts", "trussness"):
        snapshot = first.change(table, add_foreign_row)
        with pytest.raises(CheckFailed):
            runner.execute_stage(ledger, run_id, "audit")
        first.restore(table, snapshot)
    runner.execute_stage(ledger, run_id, "audit")
