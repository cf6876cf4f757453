"""The big tables, in Apache Iceberg: every one a collection of diff triples.

Readers pin the snapshots of a ledger row. A run writes to a branch of its own in each table, made from its parent's
snapshot, so that dead and losing runs leave nothing that a reader could see; publish moves `main` to the branch (a
convenience for Spark SQL: the ledger decides). A stage that is tried again makes its branches anew: safe to retry.

`edges` keeps signed validity intervals: a row is the two diff triples `(epoch, +diff)` and `(until, -diff)`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from . import iceberg, place
from .config import Home
from .errors import AltneuError, Unavailable, UsageError
from .ledger import Ledger, Revision
from .spark import catalog

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
    "motif_edges": "relation string, a bigint, b bigint, until bigint",  # what they are made of beside the edges
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
LANDED = ("upserts", "quarantine", "names")  # as they came; all others are computed from them


def quoted(column: str) -> str:
    """A column's name as SQL takes it, whatever is in it."""
    return "`" + column.replace("`", "``") + "`"


def ddl(fields: Mapping[str, str]) -> str:
    """Column → type, as SQL declares them."""
    return ", ".join(f"{quoted(name)} {type_}" for name, type_ in fields.items())


def value_columns(home: Home) -> dict[str, str]:
    """Value column → its type in SQL."""
    return {name: SQL_TYPES[type_] for name, type_ in home.config.values.items()}


class Warehouse:
    """The tables of a home, in one Spark session."""

    def __init__(self, spark: SparkSession, home: Home) -> None:
        self.spark = spark
        self.home = home
        self.catalog = place.settled(home).catalog
        catalog(spark, self.catalog, home.database, home.warehouse)
        self.tables = TABLES | (MOTIFS if home.config.motifs else {})
        self._tables = iceberg.Tables(spark, home.database)

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
        (old snapshots keep theirs): only for a run that writes all upserts anew. Another process may do the same at the
        same moment: whoever comes second is refused by the catalog, and finds all there when it looks again.
        """
        place.claim(self.home)
        for attempt in range(MAKES):
            try:
                self._make(retype)
                return
            except (Py4JJavaError, PySparkException):
                if attempt == MAKES - 1:
                    raise
                time.sleep(random.uniform(0.1, 0.5) * 2**attempt)

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
            self._change(table, lambda metadata: metadata.begin() if metadata.main() is None else None)
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

    def metadata(self, table: str) -> iceberg.Table:
        """Branches, tags and snapshots of a table, as they are now."""
        return self._tables.of(self.name(table))

    def _change(self, table: str, change: Callable[[iceberg.Table], None]) -> None:
        """Change a table's metadata; from what is there then once more when another writer has committed meanwhile:
        Iceberg itself does not try changes of branches and tags again."""
        for attempt in range(COMMITS):
            try:
                change(self.metadata(table))
                return
            except iceberg.Overtaken as error:
                if attempt == COMMITS - 1:
                    raise Unavailable(
                        f"table {table}: other writers committed first, {COMMITS} times in a row.",
                        "run the same command again",
                    ) from error
                time.sleep(random.uniform(0, 0.05 * 2 ** min(attempt, 6)))

    # -- readers ------------------------------------------------------------------------------------------------

    def empty(self, table: str) -> DataFrame:
        return self.spark.createDataFrame([], self.columns(table))

    def at(self, table: str, revision: Revision) -> DataFrame:
        """A table as a ledger row pins it. Raises `AltneuError` when compaction has let go of the revision."""
        if not revision.revision:
            return self.empty(table)
        if table not in revision.snapshots:
            raise AltneuError(
                f"revision {revision.revision} cannot be read any more: a compaction kept only the newest ones "
                "([retention] revisions). Its totals can.",
                "altneu status",
            )
        # A compacted snapshot serves all revisions that were kept then.
        return self.snapshot(table, revision.snapshots[table]).where(F.col("revision") <= revision.revision)

    def snapshot(self, table: str, snapshot: int) -> DataFrame:
        frame = self.spark.read.option("versionAsOf", snapshot).table(self.name(table))
        columns = self.column_names(table)
        there = frame.columns
        if there == columns:
            return frame
        for column in columns:
            if column not in there:  # a value column that was declared later
                frame = frame.withColumn(column, F.lit(None).cast(SQL_TYPES[self.home.config.values[column]]))
        return frame.select(*columns)

    def base(self, table: str, revision: Revision) -> int:
        """The snapshot on which a run after `revision` builds; before the first one the empty one of `ensure`."""
        if table in revision.snapshots:
            return revision.snapshots[table]
        return self.first(table)

    def first(self, table: str) -> int:
        """The empty snapshot with which every table begins."""
        return self.metadata(table).first()

    def head(self, table: str, run_id: str, base: int) -> int:
        """The snapshot that holds what a run made of a table: its branch's, or `base` when it wrote nothing."""
        branch = self.metadata(table).ref(_branch(run_id))
        return base if branch is None else branch

    def size(self, table: str, snapshot: int) -> dict[str, int]:
        """What a reader of a snapshot has to open: files, bytes, rows; from Iceberg's metadata alone."""
        summary = self.metadata(table).summary(snapshot)
        names = {"files": "total-data-files", "bytes": "total-files-size", "rows": "total-records"}
        return {name: int(summary.get(key) or 0) for name, key in names.items()}

    # -- writers ------------------------------------------------------------------------------------------------

    def stage(self, table: str, run_id: str, base: int, frame: DataFrame | None) -> int:
        """Write a run's rows of one table after those of `base`; return how many. Replaces an earlier try."""
        branch = _branch(run_id)
        self._drop(table, [run_id])
        if frame is None:
            return 0
        self._change(table, lambda metadata: metadata.commit([("createBranch", branch, base)]))
        frame.select(*self.column_names(table)).writeTo(f"{self.name(table)}.branch_{branch}").append()
        metadata = self.metadata(table)
        written = metadata.ref(branch)
        return int(metadata.summary(written).get("added-records") or 0) if written not in (None, base) else 0

    def rewrite(self, table: str, run_id: str, base: int, frame: DataFrame) -> int:
        """Write a table anew on the run's branch: these rows instead of those of `base`; return its snapshot."""
        branch = _branch(run_id)
        self._change(table, lambda metadata: metadata.commit([("createBranch", branch, base)]))
        frame.select(*self.column_names(table)).writeTo(f"{self.name(table)}.branch_{branch}").overwrite(F.lit(True))
        return self.head(table, run_id, base)

    def publish(self, tables: dict[str, int], run_id: str) -> None:
        """After the ledger row: let `main` follow it, and drop the run's branches."""
        branch = _branch(run_id)

        def follow(snapshot: int, metadata: iceberg.Table) -> None:
            steps: list[iceberg.Step] = []
            if metadata.main() != snapshot:
                steps.append(("replaceBranch", "main", snapshot))
            if metadata.ref(branch) is not None:
                steps.append(("removeBranch", branch))
            metadata.commit(steps)

        for table, snapshot in tables.items():
            self._change(table, partial(follow, snapshot))

    def discard(self, run_ids: list[str]) -> None:
        """Drop the branches of runs that will never be published."""
        for table in self.tables:
            self._drop(table, run_ids)

    def discard_leftovers(self, ledger: Ledger) -> int:
        """Drop what dead and losing runs have left behind, and note it; how many runs."""
        left = ledger.leftovers()
        if left:
            self.discard(left)
            ledger.discard(left)
        return len(left)

    def _drop(self, table: str, run_ids: list[str]) -> None:
        def drop(metadata: iceberg.Table) -> None:
            there = [branch for branch in map(_branch, run_ids) if metadata.ref(branch) is not None]
            metadata.commit([("removeBranch", branch) for branch in there])

        self._change(table, drop)

    def expire(self, table: str, kept: set[int], before_ms: int) -> int:
        """Drop what no reader can reach: snapshots that are not in `kept`, and the files of theirs alone; how many.

        A snapshot that was let go stays under a tag until a later call finds the tag older than `before_ms`
        (milliseconds since 1970), so that whoever reads it now may finish.
        """
        gone: set[int] = set()
        now = int(time.time() * 1000)

        def tag_and_choose(metadata: iceberg.Table) -> None:
            refs = metadata.refs()
            tags = {snapshot: name for name, snapshot in refs.items() if name.startswith(_GOING)}
            held = {snapshot for name, snapshot in refs.items() if name not in tags.values()}
            keep = kept | held | {metadata.first()}
            steps: list[iceberg.Step] = []
            gone.clear()
            for snapshot in metadata.snapshots():
                tag = tags.get(snapshot)
                going = tag is not None and int(tag.split("_")[1]) <= before_ms
                if snapshot not in keep and not going and now > before_ms:
                    if tag is None:
                        steps.append(("createTag", f"{_GOING}{now}_{snapshot}", snapshot))
                    continue
                if snapshot not in keep:
                    gone.add(snapshot)
                if tag is not None:
                    steps.append(("removeTag", tag))
            metadata.commit(steps)

        self._change(table, tag_and_choose)
        if gone:
            self._change(table, lambda metadata: metadata.expire(gone))
        return len(gone)

    def remove_orphans(self, table: str) -> int:
        """Delete files that no snapshot knows (of killed tasks) and that are older than `ORPHAN_DAYS`; how many."""
        before = datetime.now(UTC) - timedelta(days=ORPHAN_DAYS)
        call = f"CALL {self.catalog}.system.remove_orphan_files(table => '{NAMESPACE}.{table}', older_than => TIMESTAMP"
        return len(self.spark.sql(f"{call} '{before:%Y-%m-%d %H:%M:%S}')").collect())


MAKES = 5  # tries to make the tables
COMMITS = 20  # tries of a commit that other writers overtake
ORPHAN_DAYS = 2  # no write takes longer
_GOING = "going_"


def _sql(properties: dict[str, str]) -> str:
    return ", ".join(f"'{name}'='{value}'" for name, value in properties.items())


def _branch(run_id: str) -> str:
    return f"run_{run_id}"
