"""The big tables, in Apache Iceberg: every one a collection of diff triples.

Readers pin the snapshots of a ledger row. A run writes to a branch of its own in each table, made from its parent's
snapshot, so that dead and losing runs leave nothing that a reader could see; publish moves `main` to the branch (a
convenience for Spark SQL: the ledger decides). A stage that is tried again makes its branches anew: safe to retry.

`edges` keeps signed validity intervals: a row is the two diff triples `(epoch, +diff)` and `(until, -diff)`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from .config import Home
from .ledger import Revision
from .spark import catalog

NAMESPACE = "graph"
_TIME = "epoch bigint, revision bigint, diff bigint"
SQL_TYPES = {"long": "bigint", "double": "double", "string": "string", "boolean": "boolean"}

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
        values = "".join(f"{name} {SQL_TYPES[type_]}, " for name, type_ in self.home.config.values.items())
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
            iceberg = self._load(table)
            if iceberg.currentSnapshot() is None:
                iceberg.newAppend().commit()
        upserts = {field.name() for field in self._load("upserts").schema().columns()}
        for column, type_ in self.home.config.values.items():
            if column not in upserts:
                self.spark.sql(f"ALTER TABLE {self.name('upserts')} ADD COLUMN {column} {SQL_TYPES[type_]} AFTER dst")

    def _load(self, table: str) -> Any:
        """Iceberg's own handle of a table: branches and snapshots cost milliseconds there, and a query each in SQL."""
        spark: Any = self.spark
        return spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, self.name(table))

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
            frame = frame.withColumn(column, F.lit(None).cast(SQL_TYPES[self.home.config.values[column]]))
        return frame.select(*columns)

    def staged(self, table: str, run_id: str, parent: Revision) -> DataFrame:
        """A table as the run sees it: its parent's rows and its own."""
        return self._snapshot(table, self.head(table, run_id, parent))

    def delta(self, table: str, run_id: str, parent: Revision) -> DataFrame:
        """Only the rows that the run has appended."""
        head, base = self.head(table, run_id, parent), self._base(table, parent)
        if head == base:
            return self.empty(table)
        reader = self.spark.read.format("iceberg").option("start-snapshot-id", base).option("end-snapshot-id", head)
        return reader.load(self.name(table))

    def head(self, table: str, run_id: str, parent: Revision) -> int:
        """The snapshot that holds what the run made of a table: its branch's, or its parent's when it wrote nothing."""
        branch = self._load(table).snapshot(_branch(run_id))
        return int(branch.snapshotId()) if branch is not None else self._base(table, parent)

    def heads(self, run_id: str, parent: Revision) -> Revision:
        """What the ledger row of a run would pin, were it published now."""
        return replace(parent, snapshots={table: self.head(table, run_id, parent) for table in TABLES})

    def _base(self, table: str, parent: Revision) -> int:
        """The parent's snapshot; before the first revision, the empty one that `ensure` made."""
        if table in parent.snapshots:
            return parent.snapshots[table]
        return min((s.sequenceNumber(), s.snapshotId()) for s in self._load(table).snapshots())[1]

    # -- writers ------------------------------------------------------------------------------------------------

    def stage(self, table: str, run_id: str, parent: Revision, frame: DataFrame | None, revision: int) -> int:
        """Write a run's rows of one table, stamped with its revision; return how many. Replaces an earlier try."""
        iceberg, branch = self._load(table), _branch(run_id)
        if iceberg.snapshot(branch) is not None:
            iceberg.manageSnapshots().removeBranch(branch).commit()
        if frame is None:
            return 0
        base = self._base(table, parent)
        iceberg.manageSnapshots().createBranch(branch, base).commit()
        columns = [field.strip().split(" ")[0] for field in self.columns(table).split(",")]
        stamped = frame.withColumn("revision", F.lit(revision)).select(*columns)
        stamped.writeTo(f"{self.name(table)}.branch_{branch}").append()
        written = self._load(table).snapshot(branch)
        return int(written.summary().get("added-records") or 0) if written.snapshotId() != base else 0

    def publish(self, tables: dict[str, int], run_id: str) -> None:
        """After the ledger row: let `main` follow it, and drop the run's branches."""
        for table, snapshot in tables.items():
            iceberg, branch = self._load(table), _branch(run_id)
            change = iceberg.manageSnapshots()
            if iceberg.currentSnapshot().snapshotId() != snapshot:
                change = change.replaceBranch("main", snapshot)
            if iceberg.snapshot(branch) is not None:
                change = change.removeBranch(branch)
            change.commit()

    def discard(self, run_ids: list[str]) -> None:
        """Drop the branches of runs that will never be published."""
        for table in TABLES:
            iceberg = self._load(table)
            for branch in map(_branch, run_ids):
                if iceberg.snapshot(branch) is not None:
                    iceberg.manageSnapshots().removeBranch(branch).commit()


def _branch(run_id: str) -> str:
    return f"run_{run_id}"
