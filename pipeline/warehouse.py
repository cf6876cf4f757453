"""The big tables, in Apache Iceberg: every one a collection of diff triples.

Readers pin the snapshots of a ledger row. A run writes to a branch of its own in each table, made from its parent's
snapshot, so that dead and losing runs leave nothing that a reader could see; publish moves `main` to the branch (a
convenience for Spark SQL: the ledger decides). A stage that is tried again makes its branches anew: safe to retry.

`edges` keeps signed validity intervals: a row is the two diff triples `(epoch, +diff)` and `(until, -diff)`.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from .config import Home
from .errors import AltneuError
from .ledger import Revision
from .spark import catalog

NAMESPACE = "graph"
_TIME = "epoch bigint, revision bigint, diff bigint"
_SQL_TYPES = {"long": "bigint", "double": "double", "string": "string", "boolean": "boolean"}

# table -> its data columns; the time columns and diff follow in every one
TABLES = {
    "upserts": "src bigint, dst bigint, {values} op string, seq bigint, file string, line bigint",
    "quarantine": "file string, line bigint, reason string, text string",
    "names": "id bigint, name string",
    "edges": "a bigint, b bigint, until bigint",
    "degrees": "vertex bigint",  # diff = change of the degree
    "triangle_counts": "vertex bigint",  # diff = change of the number of triangles at the vertex
    "trussness": "a bigint, b bigint, k bigint",
}


class Warehouse:
    """The tables of a home, in one Spark session."""

    def __init__(self, spark: SparkSession, home: Home) -> None:
        self.spark = spark
        self.home = home
        self.catalog = catalog(spark, home.database, home.warehouse)

    def name(self, table: str) -> str:
        return f"{self.catalog}.{NAMESPACE}.{table}"

    def columns(self, table: str) -> str:
        """The table's columns as a Spark DDL string."""
        values = "".join(f"{name} {_SQL_TYPES[type_]}, " for name, type_ in self.home.config.values.items())
        return f"{TABLES[table].format(values=values)}, {_TIME}"

    def ensure(self) -> None:
        """Make the tables that are not there, each with a first, empty snapshot, so that it can be branched."""
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.catalog}.{NAMESPACE}")
        there = {row.tableName for row in self.spark.sql(f"SHOW TABLES IN {self.catalog}.{NAMESPACE}").collect()}
        for table in TABLES:
            if table not in there:
                self.spark.sql(
                    f"CREATE TABLE IF NOT EXISTS {self.name(table)} ({self.columns(table)}) USING iceberg "
                    "TBLPROPERTIES ('format-version'='2', 'write.parquet.compression-codec'='zstd', "
                    "'write.distribution-mode'='none', 'commit.retry.num-retries'='20')"
                )
            if not self._refs(table):
                self.spark.sql(f"SELECT * FROM {self.name(table)} LIMIT 0").writeTo(self.name(table)).append()
        upserts = set(self.spark.table(self.name("upserts")).columns)
        for column, type_ in self.home.config.values.items():
            if column not in upserts:
                self.spark.sql(f"ALTER TABLE {self.name('upserts')} ADD COLUMN {column} {_SQL_TYPES[type_]} AFTER dst")

    def _refs(self, table: str) -> dict[str, int]:
        """Branches and tags of a table → snapshot id."""
        rows = self.spark.sql(f"SELECT name, snapshot_id FROM {self.name(table)}.refs").collect()
        return {row.name: row.snapshot_id for row in rows}

    # -- readers ------------------------------------------------------------------------------------------------

    def empty(self, table: str) -> DataFrame:
        return self.spark.createDataFrame([], self.columns(table))

    def at(self, table: str, revision: Revision) -> DataFrame:
        """A table as a ledger row pins it."""
        if table not in revision.snapshots:
            return self.empty(table)
        return self._snapshot(table, revision.snapshots[table])

    def _snapshot(self, table: str, snapshot: int) -> DataFrame:
        frame = self.spark.read.option("versionAsOf", snapshot).table(self.name(table))
        columns = [field.strip().split(" ")[0] for field in self.columns(table).split(",")]
        missing = [column for column in columns if column not in frame.columns]  # value columns declared later
        for column in missing:
            frame = frame.withColumn(column, F.lit(None).cast(_SQL_TYPES[self.home.config.values[column]]))
        return frame.select(*columns)

    def staged(self, table: str, run_id: str) -> DataFrame:
        """A table as the run sees it: its parent's rows and its own."""
        return self._snapshot(table, self.head(table, run_id))

    def delta(self, table: str, run_id: str, parent: Revision) -> DataFrame:
        """Only the rows that the run has appended."""
        head = self.head(table, run_id)
        base = parent.snapshots.get(table, self._first(table))
        if head == base:
            return self.empty(table)
        reader = self.spark.read.format("iceberg").option("start-snapshot-id", base).option("end-snapshot-id", head)
        return reader.load(self.name(table))

    def head(self, table: str, run_id: str) -> int:
        refs = self._refs(table)
        if _branch(run_id) not in refs:
            raise AltneuError(f"run {run_id} has not written {table}.", "altneu status")
        return refs[_branch(run_id)]

    def _first(self, table: str) -> int:
        """The empty snapshot that `ensure` made."""
        history = self.spark.sql(
            f"SELECT snapshot_id FROM {self.name(table)}.snapshots WHERE parent_id IS NULL ORDER BY committed_at"
        )
        return int(history.first()[0])  # type: ignore[index]

    # -- writers ------------------------------------------------------------------------------------------------

    def stage(self, table: str, run_id: str, parent: Revision, frame: DataFrame | None, revision: int) -> int:
        """Write a run's rows of one table, stamped with its revision; return how many. Replaces an earlier try."""
        base = parent.snapshots.get(table, self._first(table))
        name = self.name(table)
        self.spark.sql(f"ALTER TABLE {name} CREATE OR REPLACE BRANCH {_branch(run_id)} AS OF VERSION {base}")
        if frame is None:
            return 0
        columns = [field.strip().split(" ")[0] for field in self.columns(table).split(",")]
        stamped = frame.withColumn("revision", F.lit(revision)).select(*columns)
        stamped.writeTo(f"{name}.branch_{_branch(run_id)}").append()
        head = self.head(table, run_id)
        if head == base:
            return 0
        summary = self.spark.sql(f"SELECT summary FROM {name}.snapshots WHERE snapshot_id = {head}").first()
        return int(summary[0].get("added-records", 0)) if summary else 0

    def publish(self, tables: dict[str, int], run_id: str, revision: int) -> None:
        """After the ledger row: let `main` and a tag follow it. The tag keeps the snapshot from being expired."""
        for table, snapshot in tables.items():
            name, refs = self.name(table), self._refs(table)
            self.spark.sql(f"ALTER TABLE {name} CREATE OR REPLACE TAG r{revision} AS OF VERSION {snapshot}")
            if refs.get("main") != snapshot:
                self.spark.sql(f"ALTER TABLE {name} CREATE OR REPLACE BRANCH main AS OF VERSION {snapshot}")
            if _branch(run_id) in refs:
                self.spark.sql(f"ALTER TABLE {name} DROP BRANCH IF EXISTS {_branch(run_id)}")

    def discard(self, run_ids: list[str]) -> None:
        """Drop the branches of runs that will never be published."""
        for table in TABLES:
            refs = self._refs(table)
            for run_id in run_ids:
                if _branch(run_id) in refs:
                    self.spark.sql(f"ALTER TABLE {self.name(table)} DROP BRANCH IF EXISTS {_branch(run_id)}")


def _branch(run_id: str) -> str:
    return f"run_{run_id}"
