"""The big tables, in Apache Iceberg: every one a collection of diff triples.

Readers pin the snapshots of a ledger row; what writers do with branches is in `branches`.

`edges` keeps signed validity intervals: a row is the two diff triples `(epoch, +diff)` and `(until, -diff)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from ..errors import AltneuError, UsageError, full, transient
from ..home.directory import Home
from ..home.s3 import in_s3
from ..state import place
from ..state.records import Revision
from . import few, iceberg
from .branches import Branches
from .session import catalog, plans_for

NAMESPACE = "graph"
_TIME = "epoch bigint, revision bigint, diff bigint"
SQL_TYPES = {"long": "bigint", "double": "double", "string": "string", "boolean": "boolean"}

# table -> its data columns; the time columns and diff follow in every one
TABLES = {
    "upserts": "src bigint, dst bigint, {values}, op string, seq bigint, file string, line bigint",
    "quarantine": "file string, line bigint, reason string, text string",
    "names": "id bigint, name string",
    "edges": "a bigint, b bigint, until bigint",
    "degrees": "vertex bigint",  # diff = change of the degree
    "triangle_counts": "vertex bigint",  # diff = change of the number of triangles at the vertex
    "trussness": "a bigint, b bigint, k bigint",
}
MOTIFS = {  # of homes that have some
    "motif_edges": "relation string, a bigint, b bigint, until bigint",  # what they are made of besides the edges
    "motif_counts": "motif string, vertex bigint",  # diff = change of the number of occurrences at the vertex
}
PROPERTIES = {
    "write.parquet.compression-codec": "zstd",
    "write.distribution-mode": "none",
    "commit.retry.num-retries": "20",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    # A revision is a small file and a manifest of its own. Every query opens every manifest (90 of them: 0.3 s, before
    # it has read a row), and a small file counts as 4 MiB when files are dealt out to tasks (24 where two would do).
    "commit.manifest.min-count-to-merge": "4",
    "read.split.open-file-cost": str(256 << 10),
}
INTERVALS = ("edges", "motif_edges")  # whose rows are intervals


def quoted(column: str) -> str:
    """A column's name as SQL takes it, whatever is in it."""
    return "`" + column.replace("`", "``") + "`"


def ddl(fields: Mapping[str, str]) -> str:
    """Column → type, as SQL declares them."""
    return ", ".join(f"{quoted(name)} {type_}" for name, type_ in fields.items())


def value_columns(home: Home) -> dict[str, str]:
    """Value column → its type in SQL."""
    return {name: SQL_TYPES[type_] for name, type_ in home.config.values.items()}


def shown(rows: DataFrame, revision: Revision) -> DataFrame:
    """Without the rows of revisions that a rollback has taken back."""
    for first, last in revision.hidden:
        rows = rows.where(~F.col("revision").between(first, last))
    return rows


class Warehouse(Branches):
    """The tables of a home, in one Spark session."""

    def __init__(self, spark: SparkSession, home: Home) -> None:
        self.spark = spark
        self.home = home
        self.catalog = place.settled(home).catalog
        catalog(spark, self.catalog, home.database, home.warehouse)
        tables = iceberg.Tables(spark, home.database)
        self._looked_up: dict[tuple[str, int], DataFrame] = {}
        super().__init__(TABLES | (MOTIFS if home.config.motifs else {}), lambda table: tables.of(self.name(table)))

    def name(self, table: str) -> str:
        return f"{self.catalog}.{NAMESPACE}.{table}"

    def columns(self, table: str) -> str:
        """The table's columns as a Spark DDL string."""
        return ddl(self._fields(table))

    def column_names(self, table: str) -> list[str]:
        return list(self._fields(table))

    def _fields(self, table: str) -> dict[str, str]:
        """Column → its type in SQL."""
        before, values, after = f"{(TABLES | MOTIFS)[table]}, {_TIME}".partition("{values}")
        own = [dict(column.split() for column in part.split(",") if column.strip()) for part in (before, after)]
        return own[0] | (value_columns(self.home) if values else {}) | own[1]

    def ensure(self, retype: bool = False) -> None:
        """Make the tables that are not there, each with a first, empty snapshot, so that it can be branched.

        A value column that was declared since is added. One with another type is an error, or with `retype` replaced
        (old snapshots keep theirs): only for a run that writes all upserts again. Another process may do the same at
        the same moment: whoever comes second is refused by the catalog, and finds all there when it looks again.
        """
        place.claim(self.home)
        retry = Retrying(
            retry=retry_if_exception(_raced),
            wait=wait_random_exponential(multiplier=0.5, max=8),
            stop=stop_after_attempt(MAKES),
            reraise=True,
        )
        retry(self._make, retype)

    def _make(self, retype: bool) -> None:
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.catalog}.{NAMESPACE}")
        there = {row.tableName for row in self.spark.sql(f"SHOW TABLES IN {self.catalog}.{NAMESPACE}").collect()}
        for table in self.tables:
            if table not in there:
                self.spark.sql(
                    f"CREATE TABLE IF NOT EXISTS {self.name(table)} ({self.columns(table)}) USING iceberg "
                    f"TBLPROPERTIES ('format-version'='2', {_sql(PROPERTIES)})"
                )
        for table in self.tables:
            self.change(table, lambda metadata: metadata.begin() if metadata.main() is None else None)
            if not PROPERTIES.items() <= self.metadata(table).properties().items():  # made by an earlier version
                self.spark.sql(f"ALTER TABLE {self.name(table)} SET TBLPROPERTIES ({_sql(PROPERTIES)})")
        upserts = self.metadata("upserts").types()
        for column, type_ in self.home.config.values.items():
            wanted = SQL_TYPES[type_]
            if column in upserts and upserts[column] != type_:  # Iceberg has our names of them
                if not retype:
                    raise UsageError(
                        f"[values] {column} is {type_} in altneu.toml and {upserts[column]} in what is stored.",
                        "altneu rebuild --from-landing",
                    )
                self.spark.sql(f"ALTER TABLE {self.name('upserts')} DROP COLUMN {quoted(column)}")
                del upserts[column]
            if column not in upserts:
                self.spark.sql(f"ALTER TABLE {self.name('upserts')} ADD COLUMN {quoted(column)} {wanted} AFTER dst")

    # -- readers ------------------------------------------------------------------------------------------------

    def plans(self, revision: Revision) -> AbstractContextManager[None]:
        """Inside, plans fit the size of what a revision pins (`plans_for`)."""
        return plans_for(self.spark, sum(self.size(*pin).rows for pin in revision.snapshots.items()))

    def empty(self, table: str) -> DataFrame:
        return few.frame(self.spark, self._fields(table))

    def at(self, table: str, revision: Revision) -> DataFrame:
        """A table as a ledger row pins it. Raises `AltneuError` when a compaction has expired the revision."""
        if revision.frontier is None:
            return self.empty(table)
        return self._visible(self.snapshot(table, self._pinned(table, revision)), revision)

    def as_written(self, table: str, revision: Revision) -> DataFrame:
        """The same with the columns that the snapshot has, whatever value columns altneu.toml declares by now."""
        return self._visible(self._written(table, self._pinned(table, revision)), revision)

    def _pinned(self, table: str, revision: Revision) -> int:
        if table not in revision.snapshots:
            raise AltneuError(
                f"revision {revision.revision} cannot be read any more: a compaction kept only the newest ones "
                "([retention] revisions). Its totals can.",
                "altneu status",
            )
        return revision.snapshots[table]

    @staticmethod
    def _visible(rows: DataFrame, revision: Revision) -> DataFrame:
        # A compacted snapshot serves all revisions that were kept then.
        return shown(rows.where(F.col("revision") <= revision.revision), revision)

    def snapshot(self, table: str, snapshot: int) -> DataFrame:
        """A snapshot's rows: looked up once, since it does not change."""
        if (table, snapshot) not in self._looked_up:
            self._looked_up[table, snapshot] = self._snapshot(table, snapshot)
        return self._looked_up[table, snapshot]

    def _snapshot(self, table: str, snapshot: int) -> DataFrame:
        metadata = self.metadata(table)
        if snapshot in metadata.snapshots() and metadata.summary(snapshot).get("total-records") == "0":
            return self.empty(table)
        frame = self._written(table, snapshot)
        columns = self.column_names(table)
        there = frame.columns
        if there == columns:
            return frame
        for column in columns:
            if column not in there:  # a value column that was declared later
                frame = frame.withColumn(column, F.lit(None).cast(SQL_TYPES[self.home.config.values[column]]))
        return frame.select(*columns)

    def _written(self, table: str, snapshot: int) -> DataFrame:
        return self.spark.read.option("versionAsOf", snapshot).table(self.name(table))

    # -- writers ------------------------------------------------------------------------------------------------

    def stage(self, table: str, run_id: str, base: int, rows: DataFrame | None) -> int:
        return super().stage(table, run_id, base, None if rows is None else rows.select(*self.column_names(table)))

    def rewrite(self, table: str, run_id: str, base: int, rows: DataFrame) -> int:
        return super().rewrite(table, run_id, base, rows.select(*self.column_names(table)))

    def remove_orphans(self, table: str) -> int:
        """Delete files that no snapshot knows (of killed tasks) and that are older than `ORPHAN_DAYS`; how many."""
        before = datetime.now(UTC) - timedelta(days=ORPHAN_DAYS)
        # in S3 the files are listed by Iceberg: Spark's Hadoop does not know how
        listing = ", prefix_listing => true" if in_s3(self.home.warehouse) else ""
        call = f"CALL {self.catalog}.system.remove_orphan_files(table => '{NAMESPACE}.{table}', older_than => TIMESTAMP"
        return len(self.spark.sql(f"{call} '{before:%Y-%m-%d %H:%M:%S}'{listing})").collect())


MAKES = 5  # tries to make the tables
ORPHAN_DAYS = 2  # no write takes longer


def _raced(error: BaseException) -> bool:
    """May another process have been making the same? Not where the disk is full, or the same would come again."""
    if not isinstance(error, (Py4JJavaError, PySparkException)):
        return False
    return "ALREADY_EXISTS" in str(error) or (transient(error) and not full(error))


def _sql(properties: dict[str, str]) -> str:
    return ", ".join(f"'{name}'='{value}'" for name, value in properties.items())
