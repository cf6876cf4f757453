"""`altneu audit` beyond its own recomputation: a third party's count, and maintenance compared with recomputation."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from altneu.algorithms.graph import graphframes_oracle
from altneu.pipeline.checking import audit
from altneu.pipeline.run.cost_comparison import compare_costs
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers, maintained, reference, seeds
from tests.reference import Row

pytestmark = pytest.mark.usefixtures("tiny", "unaudited")


def test_a_third_party_counts_as_the_definition_does(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(seeds.one(3))
    pairs = {(a, b) for a, b in ((rng.randrange(20), rng.randrange(20)) for _ in range(70)) if a < b}
    frame = spark.createDataFrame(sorted(pairs), "a bigint, b bigint")
    rows = graphframes_oracle.triangle_counts(frame, str(tmp_path / "exchange")).where("triangles > 0").collect()
    wanted: dict[int, int] = {}
    for corners in reference.triangles(set(pairs)):
        for v in corners:
            wanted[v] = wanted.get(v, 0) + 1
    assert {row.vertex: row.triangles for row in rows} == wanted and wanted
    assert list((tmp_path / "exchange").glob("*")) == []


@pytest.mark.slow
def test_the_audit_by_a_third_party_and_its_shadow(spark: SparkSession, tmp_path: Path) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", "[edges]\nlive_for = 2\n")
    rng = random.Random(seeds.one(4))
    for epoch in range(2):
        rows: list[Row] = [(rng.randrange(9), rng.randrange(9), None, "upsert", i) for i in range(25)]
        home_helpers.put(home, epoch, rows)
    home_helpers.run(ledger, range(2))
    warehouse, row = Warehouse(spark, home), ledger.revisions.get()
    name = "triangle counts of vertices equal a third party's"
    checks = audit.audit_published(warehouse, row, [0, 1], lambda text: None, third_party=True)
    assert [c["epoch"] for c in checks if c["name"] == name and c["passed"]] == [0, 1]
    assert all(check["passed"] for check in checks)

    def one_off(table: str):  # type: ignore[no-untyped-def]
        frame = warehouse.read_table(table, row)
        if table != "triangle_counts":
            return frame
        busiest = F.col("vertex") == frame.groupBy("vertex").agg(F.max("epoch")).first()[0]
        return frame.unionByName(frame.where(busiest).limit(1).withColumns({"diff": F.lit(1), "epoch": F.lit(1)}))

    wrong = maintained.check_against_recomputation(warehouse, one_off, [1], third_party=True)
    (found,) = [c for c in wrong if c["name"] == name]
    assert not found["passed"] and found["observed"].startswith("1 difference (Graph")
    (offending,) = found["rows"]
    assert (offending["maintained"] or 0) - (offending["recomputed"] or 0) == 1

    said: list[str] = []
    (entry,) = compare_costs(home, [1], spark, said.append)
    assert (entry["epoch"], entry["rows"], entry["differences"]) == (1, 25, 0)
    assert entry["maintained_s"] > 0 and entry["recomputed_s"] > 0 and said
    assert ledger.revisions.get() == row and len(ledger.runs.list_all()) == 1  # the home itself is as it was
