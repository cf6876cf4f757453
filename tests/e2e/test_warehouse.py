"""The tables as a reader of one revision finds them, and as they are made: columns that come and change, properties,
what is hidden, folded or expired."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from altneu.algorithms.sql_text import quote_identifier
from altneu.pipeline.errors import AltneuError, UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.home.queries import QueryDefinition
from altneu.pipeline.state.records import EMPTY, Revision
from altneu.pipeline.storage.table_schemas import MOTIFS, TABLES, ddl_schema
from altneu.pipeline.storage.warehouse import PROPERTIES, Warehouse
from tests import home_helpers

TRIPLES = [(7, 1, revision, revision) for revision in (1, 2, 3, 4)]  # vertex, epoch, revision, diff


def made(spark: SparkSession, home: Home, retype: bool = False) -> Warehouse:
    warehouse = Warehouse(spark, home)
    warehouse.ensure_tables(retype=retype)
    return warehouse


def with_settings(home: Home, toml: str) -> Home:
    (home.path / "altneu.toml").write_text(toml)
    return Home.open(home.path)


def upserts(spark: SparkSession, values: str) -> DataFrame:
    """One row, its columns in another order than the table's."""
    rest = "'upsert' AS op, 0L AS seq, 'a.csv' AS file, 7L AS line, 1L AS epoch, 1L AS revision, 1L AS diff"
    return spark.range(1).selectExpr(*f"{rest}, 5L AS src, 6L AS dst{values}".split(", "))


def test_a_reader_of_a_revision_sees_its_rows_alone(tiny: SparkSession, tmp_path: Path) -> None:
    home, _ = home_helpers.make(tmp_path / "home")
    warehouse = made(tiny, home)
    first = warehouse.load_metadata("degrees").first_snapshot()
    rows = tiny.createDataFrame(TRIPLES, "vertex bigint, epoch bigint, revision bigint, diff bigint")
    snapshot = warehouse.write_to_branch("degrees", "r", first, rows.select("diff", "revision", "epoch", "vertex"))
    pinned = replace(EMPTY, revision=3, frontier=1, snapshots={"degrees": snapshot})

    def seen(revision: Revision) -> list[tuple[int, ...]]:
        return sorted(map(tuple, warehouse.read_table("degrees", revision).collect()))

    assert seen(pinned) == TRIPLES[:3]  # the compacted snapshot holds a later one
    assert seen(replace(pinned, hidden=((2, 2),))) == [TRIPLES[0], TRIPLES[2]]
    assert seen(replace(pinned, revision=4, hidden=((1, 1), (3, 4)))) == [TRIPLES[1]]
    assert seen(replace(pinned, frontier=None)) == []  # rolled back to nothing
    assert seen(replace(pinned, snapshots={"degrees": first})) == []
    with pytest.raises(AltneuError, match="revision 3 cannot be read any more: a compaction kept only the newest"):
        warehouse.read_table("edges", pinned)
    assert warehouse.read_snapshot("degrees", snapshot) is warehouse.read_snapshot("degrees", snapshot)
    assert warehouse.empty_rows("edges").columns == ["a", "b", "until", "epoch", "revision", "diff"]
    recomputed = warehouse.rewrite_on_branch(
        "degrees", "again", snapshot, rows.where("revision = 4").select("revision", *rows.columns[:2], "diff")
    )
    assert seen(replace(pinned, revision=4, snapshots={"degrees": recomputed})) == TRIPLES[3:]
    assert warehouse.write_to_branch("degrees", "nothing", snapshot, None) == snapshot


def test_rows_of_a_query_keep_their_columns_whatever_another_text_declares(tiny: SparkSession, tmp_path: Path) -> None:
    """A run with another text was held and discarded, or works at the same time: its columns have come and gone."""
    home, _ = home_helpers.make(tmp_path / "home")

    def tables_for(**columns: str) -> Warehouse:
        query = QueryDefinition("sent", "", "", columns, {}, ("arcs",))
        warehouse = Warehouse(tiny, home, {"sent": query})
        warehouse.ensure_tables()
        return warehouse

    def rows(**values: str) -> DataFrame:
        listed = [f"{value} AS {name}" for name, value in values.items()]
        return tiny.range(1).selectExpr(*listed, "1L AS epoch", "1L AS revision", "1L AS diff")

    warehouse = tables_for(src="bigint", n="bigint")
    first = warehouse.load_metadata("query_sent").first_snapshot()
    old = warehouse.write_to_branch("query_sent", "r1", first, rows(src="5L", n="7L"))
    other = tables_for(src="bigint", n="string", far="bigint")  # the two work at the same time from here on
    new = warehouse.write_to_branch("query_sent", "r2", old, rows(src="6L", n="8L"), 1)
    assert sorted(row.n for row in warehouse.read_snapshot("query_sent", new).collect()) == [7, 8]
    held = other.write_to_branch("query_sent", "r3", first, rows(src="5L", n="'x'", far="9L"))
    again = tables_for(src="bigint", n="bigint").write_to_branch("query_sent", "r4", new, rows(src="1L", n="9L"))
    assert sorted(row.n for row in warehouse.read_snapshot("query_sent", again).collect()) == [7, 8, 9]
    assert [(row.n, row.far) for row in warehouse.read_snapshot("query_sent", held).collect()] == [("x", 9)]


def test_value_columns_come_later_and_change_their_type_only_when_asked(tiny: SparkSession, tmp_path: Path) -> None:
    home, _ = home_helpers.make(tmp_path / "home", '[values]\nw = "long"\n')
    warehouse = made(tiny, home)
    first = warehouse.load_metadata("upserts").first_snapshot()
    old = warehouse.write_to_branch("upserts", "r1", first, upserts(tiny, ", 3L AS w"))
    home = with_settings(home, '[values]\nw = "long"\n"a b" = "string"\n')
    warehouse = made(tiny, home)
    columns = ["src", "dst", "w", "a b", "op", "seq", "file", "line", "epoch", "revision", "diff"]
    assert warehouse.column_names("upserts") == columns == warehouse.empty_rows("upserts").columns
    found = warehouse.read_snapshot("upserts", old)
    assert (found.columns, [tuple(row)[:4] for row in found.collect()]) == (columns, [(5, 6, 3, None)])
    new = warehouse.write_to_branch("upserts", "r2", old, upserts(tiny, ", 'x' AS `a b`, 4L AS w").where("src = 5"))
    assert sorted(row["a b"] or "" for row in warehouse.read_snapshot("upserts", new).collect()) == ["", "x"]

    home = with_settings(home, '[values]\nw = "double"\n"a b" = "string"\n')
    with pytest.raises(UsageError, match=r"\[values\] w is double in altneu\.toml, but long in the stored rows"):
        made(tiny, home)
    warehouse = made(tiny, home, retype=True)
    assert warehouse.load_metadata("upserts").column_types()["w"] == "double"
    assert made(tiny, home).load_metadata("upserts").column_types() == warehouse.load_metadata("upserts").column_types()


def test_the_tables_that_are_made_and_made_again(tiny: SparkSession, tmp_path: Path) -> None:
    home, _ = home_helpers.make(tmp_path / "home")
    warehouse = made(tiny, home)
    firsts = {table: warehouse.load_metadata(table).first_snapshot() for table in TABLES}
    assert warehouse.tables == tuple(TABLES)
    assert all(PROPERTIES.items() <= warehouse.load_metadata(table).properties().items() for table in TABLES)
    tiny.sql(f"ALTER TABLE {warehouse.table_name('edges')} UNSET TBLPROPERTIES ('write.distribution-mode')")
    again = made(tiny, with_settings(home, '[motifs]\nm = "a-b, b-c"\n'))
    assert again.tables == (*TABLES, *MOTIFS)
    assert {table: again.load_metadata(table).first_snapshot() for table in TABLES} == firsts
    assert all(
        again.load_metadata(table).main_snapshot() == again.load_metadata(table).first_snapshot()
        for table in again.tables
    )
    assert again.load_metadata("edges").properties()["write.distribution-mode"] == "none"


def test_files_of_nobody_go_when_no_write_can_be_making_them(tiny: SparkSession, tmp_path: Path) -> None:
    home, _ = home_helpers.make(tmp_path / "home")
    warehouse = made(tiny, home)
    assert warehouse.remove_orphans("degrees") == 0
    folder = next(Path(home.warehouse).glob("*/degrees")) / "data"
    folder.mkdir(exist_ok=True)
    for hours in (1, 47, 49):
        file = folder / f"{hours}.parquet"
        file.touch()
        os.utime(file, (time.time() - hours * 3600,) * 2)
    assert warehouse.remove_orphans("degrees") == 1
    assert sorted(file.name for file in folder.glob("*.parquet")) == ["1.parquet", "47.parquet"]


def test_columns_as_sql_declares_them() -> None:
    assert quote_identifier("a`b c") == "`a``b c`"
    assert ddl_schema({"a b": "bigint", "c": "string"}) == "`a b` bigint, `c` string"
