"""Lineage: the fate of every landed row agrees with the law of upserts; the commands say what a person can follow."""

from __future__ import annotations

import json
import random
from itertools import combinations
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.reading import explain
from pipeline.storage.warehouse import Warehouse
from tests import homes, reference, seeds
from tests.e2e.conftest import Altneu
from tests.reference import Row

pytestmark = pytest.mark.usefixtures("tiny", "unaudited")


def test_fates_are_those_of_the_law(spark: SparkSession, tmp_path: Path) -> None:
    seed = seeds.one()
    rng = random.Random(seed)
    home, ledger = homes.make(tmp_path / "home", '[values]\nw = "long"\n[edges]\nlive_for = 2\nwhere = "w > 0"\n')

    def batch() -> list[Row]:
        rows: list[Row] = []
        for _ in range(30):
            op = rng.choice(["upsert", "upsert", "upsert", "delete"])
            value = None if op == "delete" else rng.randrange(-2, 4)
            rows.append((rng.randrange(6), rng.randrange(6), value, op, rng.randrange(2)))
        return rows

    landed = {epoch: batch() for epoch in range(4)}
    for epoch in landed:
        homes.put(home, epoch, landed[epoch])
    homes.run(home, ledger, [0, 1, 2, 3])
    landed[1] = batch()
    homes.put(home, 1, landed[1])
    homes.run(home, ledger, [1])
    warehouse, row = Warehouse(spark, home), ledger.at()
    pairs = [(a, b) for a, b in combinations(range(6), 2)] + [(a, a) for a in range(6)]
    for epoch in landed:
        rows = explain._rows(warehouse, row, pairs, epoch)
        there = {tuple(sorted((r["src"], r["dst"]))) for r in rows if r["fate"] == "in force"}
        assert there == reference.edges(landed, epoch, 2, lambda w: w is not None and w > 0), (seed, epoch)
        kept = [r for r in rows if not r["fate"].startswith("taken back")]
        assert len(kept) == sum(len(landed[e]) for e in range(epoch + 1)), (seed, epoch)
        for key in {(r["src"], r["dst"]) for r in kept}:
            mine = [r for r in kept if (r["src"], r["dst"]) == key]
            by = [f"overwritten by {after['file']} line {after['line']}" for after in mine[1:]]
            assert [r["fate"] for r in mine[:-1]] == by, (seed, epoch, key)
    retracted = [r for r in explain._rows(warehouse, row, pairs, 3) if r["fate"].startswith("taken back")]
    assert {r["epoch"] for r in retracted} == {"1"}
    assert {r["fate"] for r in retracted} == {"taken back by the landing published as revision 2"}


def test_what_a_person_types(altneu: Altneu, tmp_path: Path, spark: SparkSession) -> None:
    toml = '[vertices]\nids = "string"\n[edges]\nlive_for = 2\n[motifs]\nwedge = "a-b, b-c"\n'
    home, ledger = homes.make(tmp_path / "home", toml)
    folder = home.landing / "epoch=1"
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("src,dst\nada,bob\nbob,cy\ncy,ada\nada,dee\n")
    homes.run(home, ledger, [1])
    (home.landing / "epoch=2").mkdir()
    (home.landing / "epoch=2" / "b.csv").write_text("src,dst,op\nada,bob,\ncy,ada,delete\n")
    homes.run(home, ledger, [2])
    edge = altneu("explain", "edge", "bob", "ada", "--as-of", "1").out
    assert "there, trussness 3, 1 triangles (with cy)" in edge
    assert "upsert ada → bob (seq 0)  epoch=1/a.csv line 2: in force" in edge
    vertex = json.loads(altneu("explain", "vertex", "ada", "--format", "json").out)
    assert (vertex["degree"], vertex["triangles"]) == (2, 0)
    assert vertex["degree_diffs"][0] == {"epoch": "1", "revision": 1, "diff": 3}
    assert vertex["motifs"] == {"wedge": 2}  # bob, ada, dee and ada, bob, cy
    assert vertex["motif_diffs"]["wedge"][0] == {"epoch": "1", "revision": 1, "diff": 5}
    assert "2 in wedge" in altneu("explain", "vertex", "ada").out
    triangle = altneu("explain", "triangle", "ada", "bob", "cy").out
    assert "triangle ada bob cy is not there at 2" in triangle.replace("triangle bob", "triangle ada bob")
    assert "line 3: a deletion" in triangle and "overwritten by epoch=2/b.csv line 3" in triangle
    assert "is there" in altneu("explain", "triangle", "cy", "bob", "ada", "--as-of", "1").out
    wrong = altneu("explain", "edge", "ada", "ada")
    assert (wrong.code, "2 different vertices" in wrong.err) == (2, True)
    assert "no vertex is called 'eve'" in altneu("explain", "vertex", "eve").err


@pytest.mark.slow  # tests/e2e/test_shown.py repairs in the ordinary tier
def test_repair_replaces_what_differs(altneu: Altneu, tmp_path: Path, spark: SparkSession) -> None:
    home, ledger = homes.make(tmp_path / "home")
    homes.put(home, 1, [(a, b, None, "upsert", 0) for a, b in combinations(range(4), 2)])
    homes.run(home, ledger, [1])
    sound = altneu("repair")
    assert (sound.code, "all equal" in sound.out, ledger.at().revision) == (0, True, 1)
    warehouse, row = Warehouse(spark, home), ledger.at()
    lost = warehouse.at("trussness", row).where("a = 0 AND b = 1").withColumn("diff", -F.col("diff"))
    warehouse.stage("trussness", "fault", row.snapshots["trussness"], lost)
    pins = {**row.snapshots, "trussness": warehouse.head("trussness", "fault", 0)}
    ledger.pin("fault", pins, [1], None, [])
    assert altneu("audit").code == 1
    repaired = altneu("repair", "1")
    assert (repaired.code, "published revision 2" in repaired.out) == (0, True), repaired.err
    assert "differ from the recomputation" in repaired.err
    assert altneu("audit").code == 0
    checks = [check for check in ledger.checks() if check.revision == 1 and not check.passed]
    assert any("0-1" in str(check.rows) for check in checks)  # on record
