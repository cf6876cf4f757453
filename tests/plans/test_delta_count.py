"""The plan's shape is a test: the stored edge index is scanned where it lies, never exchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from altneu.algorithms.graph import edge_derivation, triangles
from altneu.pipeline.checking import audited_rows
from altneu.pipeline.storage.warehouse import Warehouse
from tests.canonical import History


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path, numbers: History) -> Warehouse:
    home, _ = numbers.copy(tmp_path / "home")
    return Warehouse(spark, home)


def physical(frame: DataFrame) -> str:
    """The physical plan before it runs, without AQE, as an indented tree."""
    spark = frame.sparkSession
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        return frame.select("*")._jdf.queryExecution().executedPlan().treeString()
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "true")


def shuffled_scans(plan: str, table: str) -> list[str]:
    """Scans of a table that have a shuffle above them before any join or aggregate made them small."""
    lines = plan.splitlines()
    depth = [len(re.match(r"[\s:+\-|]*", line)[0]) for line in lines]  # type: ignore[index]
    bad = []
    for i, line in enumerate(lines):
        if "BatchScan" not in line or table not in line:
            continue
        at = depth[i]
        for j in range(i - 1, -1, -1):
            if depth[j] < at:
                at = depth[j]
                if "Join" in lines[j]:
                    break  # met by the broadcast side: what goes on is bounded by the delta
                if re.search(r"\bExchange\b", lines[j]) or "Sort " in lines[j]:
                    bad.append(lines[j].strip())
                    break
    return bad


@pytest.mark.law(8)
def test_the_index_is_never_exchanged(spark: SparkSession, tables: Warehouse) -> None:
    index = spark.table(tables.table_name("edges"))
    delta = spark.createDataFrame([(0, 5, 1, 9, 1)], "a bigint, b bigint, epoch bigint, until bigint, diff bigint")
    plan = physical(triangles.triangle_changes(index, delta))
    assert plan.count("BatchScan") >= 3  # count, propose, validate each read it
    assert shuffled_scans(plan, "edges") == []
    # a test of the test: a join that may not broadcast does exchange it
    slow = physical(triangles.triangle_changes(index.hint("merge"), delta, broadcast=False))
    assert shuffled_scans(slow, "edges") != []


def test_the_stored_upserts_are_never_exchanged(spark: SparkSession, tables: Warehouse) -> None:
    base = spark.table(tables.table_name("upserts"))
    delta = base.limit(1)
    pairs = spark.createDataFrame([(0, 1)], "a bigint, b bigint")
    plan = physical(edge_derivation.edge_changes(base, spark.createDataFrame(delta.collect(), base.schema), pairs, []))
    assert shuffled_scans(plan, "upserts") == []


def test_the_audit_moves_each_row_once(tables: Warehouse) -> None:
    def read(table: str) -> DataFrame:
        return tables.spark.table(tables.table_name(table))

    def exchanges(frame: DataFrame) -> list[str]:
        return re.findall(r"\bExchange \w+", physical(frame))

    assert len(exchanges(audited_rows.recompute_edges(read("upserts"), tables.home, [0]))) == 1
    assert len(exchanges(audited_rows.select_stored_rows(read, [0]))) == 1  # of four tables


@pytest.mark.law(8)
def test_no_python_in_the_delta_query(spark: SparkSession, tables: Warehouse) -> None:
    index = spark.table(tables.table_name("edges"))
    delta = spark.createDataFrame([(0, 5, 1, 9, 1)], "a bigint, b bigint, epoch bigint, until bigint, diff bigint")
    found = triangles.vertex_triangle_changes(triangles.triangle_changes(index, delta))
    assert "Python" not in physical(found) and "Arrow" not in physical(found)
