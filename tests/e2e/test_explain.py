"""Lineage: the fate of every landed row agrees with the law of upserts; the commands say what a person can follow."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from altneu.pipeline.reading import explain
from altneu.pipeline.storage.duckdb_tables import DuckTables
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers, reference, seeds
from tests.builders import Batch, draw_batch
from tests.e2e.conftest import Altneu
from tests.ledger_only import LedgerOnly

ON_TABLES = pytest.mark.usefixtures("tiny", "unaudited")
MOTIFS = '[motifs]\nwedge = "a-b, b-c"\n'


@ON_TABLES
@pytest.mark.law(1, 12)
def test_fates_are_those_of_the_law(spark: SparkSession, tmp_path: Path) -> None:
    seed = seeds.one()
    rng = random.Random(seed)
    home, ledger = home_helpers.make(
        tmp_path / "home", '[values]\nw = "long"\n[edges]\nlive_for = 2\nwhere = "w > 0"\n'
    )

    def draw() -> Batch:
        return draw_batch(rng, range(6), 30, values=range(-2, 4), deletes=1 / 4, seqs=2)

    landed = {epoch: draw() for epoch in range(4)}
    for epoch in landed:
        home_helpers.put(home, epoch, landed[epoch])
    home_helpers.run(ledger, [0, 1, 2, 3])
    landed[1] = draw()
    home_helpers.put(home, 1, landed[1])
    home_helpers.run(ledger, [1])
    warehouse, row = Warehouse(spark, home), ledger.revisions.get()
    pairs = [(a, b) for a, b in combinations(range(6), 2)] + [(a, a) for a in range(6)]
    for epoch in landed:
        tables = warehouse if epoch == row.frontier else DuckTables(home)
        rows = explain.landed_rows_with_fate(tables, row, pairs, epoch)
        there = {tuple(sorted((r["src"], r["dst"]))) for r in rows if r["fate"] == "in force"}
        assert there == reference.edges(landed, epoch, 2, lambda w: w is not None and w > 0), (seed, epoch)
        kept = [r for r in rows if not r["fate"].startswith("taken back")]
        assert len(kept) == sum(len(landed[e]) for e in range(epoch + 1)), (seed, epoch)
        for key in {(r["src"], r["dst"]) for r in kept}:
            mine = [r for r in kept if (r["src"], r["dst"]) == key]
            by = [f"overwritten by {after['file']} line {after['line']}" for after in mine[1:]]
            assert [r["fate"] for r in mine[:-1]] == by, (seed, epoch, key)
    retracted = [
        r for r in explain.landed_rows_with_fate(warehouse, row, pairs, 3) if r["fate"].startswith("taken back")
    ]
    assert {r["epoch"] for r in retracted} == {"1"}
    assert {r["fate"] for r in retracted} == {"taken back by the landing published as revision 2"}


@ON_TABLES
def test_verdicts_are_what_is_published_also_of_values_that_tie(spark: SparkSession, tmp_path: Path) -> None:
    """NaN is the greatest value and no value the least, -0.0 equals 0.0; by every engine, at every epoch."""
    seed = seeds.one()
    rng = random.Random(seed)
    toml = '[values]\nw = "double"\nt = "string"\n[edges]\nwhere = "w < 2 OR t = \'a\'"\n'
    home, ledger = home_helpers.make(tmp_path / "home", toml)
    weights = [math.nan, None, 0.0, -0.0, 1.0, 3.0, math.inf, -math.inf]

    def land(epoch: int) -> None:
        rows = [
            {
                **{"src": rng.randrange(5), "dst": rng.randrange(5), "seq": rng.randrange(2)},
                **{"op": rng.choice(["upsert", "upsert", "upsert", "delete"]), "w": rng.choice(weights)},
                "t": rng.choice(["a", "b", None]),
            }
            for _ in range(60)
        ]
        types = {"src": pa.int64(), "dst": pa.int64(), "w": pa.float64(), "t": pa.string(), "op": pa.string()}
        folder = home.landing / f"epoch={epoch}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, pa.schema({**types, "seq": pa.int64()})), folder / "rows.parquet")

    for epoch in range(6):
        land(epoch)
    home_helpers.run(ledger, range(6))
    row, pairs = ledger.revisions.get(), list(combinations(range(5), 2))
    warehouse = Warehouse(spark, home)
    stored = warehouse.read_table("edges", row).collect()
    landed_rows = [each for each in warehouse.read_table("upserts", row).collect() if each.src != each.dst]
    for epoch in range(6):
        alive = Counter()
        for each in stored:
            alive[each.a, each.b] += each.diff * (each.epoch <= epoch < each.until)
        published = {pair for pair, n in alive.items() if n}
        for tables in (DuckTables(home), warehouse) if epoch == 5 else (DuckTables(home),):
            found = explain.landed_rows_with_fate(tables, row, pairs, epoch)
            there = {tuple(sorted((each["src"], each["dst"]))) for each in found if each["fate"] == "in force"}
            assert there == published, (seed, epoch, tables)
    assert any(each.w is not None and math.isnan(each.w) for each in landed_rows)


def test_what_a_person_types(ledger_only: LedgerOnly, typed: Altneu, tmp_path: Path) -> None:
    assert_explained(typed, tmp_path / "home", "")


@ON_TABLES
@pytest.mark.slow  # the motifs of vertices: tests/laws/test_published_state.py in the default tier
def test_what_a_person_types_where_motifs_are_counted(altneu: Altneu, tmp_path: Path, spark: SparkSession) -> None:
    assert_explained(altneu, tmp_path / "home", MOTIFS)
    vertex = json.loads(altneu("explain", "vertex", "ada", "--format", "json").out)
    assert vertex["motifs"] == {"wedge": 2}  # bob, ada, dee and ada, bob, cy
    assert vertex["motif_diffs"]["wedge"][0] == {"epoch": "1", "revision": 1, "diff": 5}
    assert "2 in wedge" in altneu("explain", "vertex", "ada").out


def assert_explained(altneu: Altneu, path: Path, more: str) -> None:
    """Assert what is said of two epochs of named vertices. `more`: more settings of the home."""
    home, ledger = home_helpers.make(path, f'[vertices]\nids = "string"\n[edges]\nlive_for = 2\n{more}')
    folder = home.landing / "epoch=1"
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("src,dst\nada,bob\nbob,cy\ncy,ada\nada,dee\n")
    (home.landing / "epoch=2").mkdir()
    (home.landing / "epoch=2" / "b.csv").write_text("src,dst,op\nada,bob,\ncy,ada,delete\n")
    home_helpers.run(ledger, [1, 2])
    edge = altneu("explain", "edge", "bob", "ada", "--as-of", "1").out
    assert "there, trussness 3, 1 triangle (with cy)" in edge
    assert "upsert ada → bob (seq 0)  epoch=1/a.csv line 2: in force" in edge
    vertex = json.loads(altneu("explain", "vertex", "ada", "--format", "json").out)
    assert (vertex["degree"], vertex["triangles"]) == (2, 0)
    assert vertex["degree_diffs"][0] == {"epoch": "1", "revision": 1, "diff": 3}
    gone = altneu("explain", "edge", "cy", "ada").out
    assert "edge ada – cy: not there\n" in gone  # and in no triangle, though bob has edges with both
    assert json.loads(altneu("explain", "edge", "cy", "ada", "--format", "json").out)["support"] == 0
    triangle = altneu("explain", "triangle", "ada", "bob", "cy").out
    assert "triangle ada bob cy is not there at 2" in triangle.replace("triangle bob", "triangle ada bob")
    assert "line 3: a deletion" in triangle and "overwritten by epoch=2/b.csv line 3" in triangle
    assert "is there" in altneu("explain", "triangle", "cy", "bob", "ada", "--as-of", "1").out
    wrong = altneu("explain", "edge", "ada", "ada")
    assert (wrong.code, "2 different vertices" in wrong.err) == (2, True)
    assert "no vertex is called 'eve'" in altneu("explain", "vertex", "eve").err


@ON_TABLES
@pytest.mark.slow  # tests/e2e/test_shown.py repairs in the ordinary tier
def test_repair_replaces_what_differs(altneu: Altneu, tmp_path: Path, spark: SparkSession) -> None:
    home, ledger = home_helpers.make(tmp_path / "home")
    home_helpers.put(home, 1, [(a, b, None, "upsert", 0) for a, b in combinations(range(4), 2)])
    home_helpers.run(ledger, [1])
    sound = altneu("repair")
    assert (sound.code, "all equal" in sound.out, ledger.revisions.get().revision) == (0, True, 1)
    warehouse, row = Warehouse(spark, home), ledger.revisions.get()
    lost = warehouse.read_table("trussness", row).where("a = 0 AND b = 1").withColumn("diff", -F.col("diff"))
    warehouse.write_to_branch("trussness", "fault", row.snapshots["trussness"], lost)
    pins = {**row.snapshots, "trussness": warehouse.branch_snapshot("trussness", "fault", 0)}
    ledger.revisions.repin("fault", pins, [1], None, [])
    assert altneu("audit").code == 1
    repaired = altneu("repair", "1")
    assert (repaired.code, "published revision 2" in repaired.out) == (0, True), repaired.err
    assert "differ from the recomputation" in repaired.err
    assert altneu("audit").code == 0
    checks = [check for check in ledger.checks.select() if check.revision == 1 and not check.passed]
    assert any("0-1" in str(check.rows) for check in checks)  # on record
