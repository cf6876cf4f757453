"""The Iceberg tables of a home (see `table_schemas`), read and written by Spark.

Readers pin the snapshots of a ledger row. The module `branches` has the branches of writers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from altneu.algorithms.sql_predicates import spark_sql
from altneu.algorithms.sql_text import quote_identifier, quote_text

from ..errors import Unavailable, UsageError, is_disk_full, is_transient
from ..home.columns import SQL_TYPES
from ..home.home import Home
from ..home.queries import Definitions, is_query_table
from ..home.s3_config import in_s3
from ..state import home_identity
from ..state.records import SERVING_TABLES, Revision
from . import catalogs, iceberg, local_frame
from .branches import Branches
from .file_tiers import FilePlan
from .horizons import Horizon
from .session import register_catalog, size_plans
from .table_schemas import (
    MOTIFS,
    TABLES,
    ddl_schema,
    is_made_for_queries,
    query_columns,
    query_inputs,
    require_pinned_snapshot,
    table_columns,
)

if TYPE_CHECKING:
    from ..state.ledger import Ledger

PROPERTIES = {
    "write.parquet.compression-codec": "zstd",
    "write.distribution-mode": "none",
    "commit.retry.num-retries": "20",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    # Each revision adds a small file and a manifest. Every query opens every manifest (90 of them take 0.3 s before a
    # row is read). By default a small file counts as 4 MiB when files are distributed to tasks (24 where two suffice).
    "commit.manifest.min-count-to-merge": "4",
    "read.split.open-file-cost": str(256 << 10),
}
# Rows of serving tables are removed: a delete file lists their positions, so that data files are not written again.
_PLACES = {f"write.{kind}.mode": "merge-on-read" for kind in ("delete", "merge")}
_ICEBERG = {"bigint": "long", "timestamp": "timestamptz"}  # type of SQL → Iceberg's name of it, where they differ


def visible_rows(rows: DataFrame, revision: Revision) -> DataFrame:
    """Leave out the rows of revisions that rollbacks have taken back."""
    for first, last in revision.hidden:
        rows = rows.where(f"revision NOT BETWEEN {first} AND {last}")
    return rows


class Warehouse(Branches):
    """The tables of a home, in one Spark session. `queries` are those that a run maintains; readers need none."""

    distributed = True

    def __init__(self, spark: SparkSession, home: Home, queries: Definitions = MappingProxyType({})) -> None:
        self.spark = spark
        self.home = home
        identity = home_identity.require_identity(home)
        self.catalog, self.namespace = identity.catalog, catalogs.catalog_namespace(home)
        self._tables = iceberg.IcebergTables(spark, catalogs.open_catalog(home, identity))
        register_catalog(spark, self.catalog, catalogs.spark_options(home))
        self._looked_up: dict[tuple[str, int], DataFrame] = {}
        self._query_columns = query_columns(queries)
        collections = [*TABLES, *(MOTIFS if home.config.motifs else ()), *query_inputs(queries), *self._query_columns]
        self.collections = tuple(collections)  # of diff triples
        self.serving_tables = tuple(dict.fromkeys(home.config.publish.serving_tables))
        super().__init__(
            [*self.collections, *self.serving_tables], lambda table: self._tables.load_table(self.table_name(table))
        )

    def table_name(self, table: str) -> str:
        return f"{self.catalog}.{self.namespace}.{table}"

    def columns_ddl(self, table: str) -> str:
        """Return the columns of a table as a DDL string for Spark."""
        return ddl_schema(self._table_columns(table))

    def column_names(self, table: str) -> list[str]:
        return list(self._table_columns(table))

    def _table_columns(self, table: str) -> dict[str, str]:
        return self._query_columns[table] if is_query_table(table) else table_columns(self.home, table)

    def ensure_tables(self, *, retype: bool = False) -> None:
        """Make the missing tables, each with a first, empty snapshot, from which branches can be made.

        A value column that was declared since is added. A value column with another type is an error, or is replaced
        with `retype`, which is only for a run that writes all upserts again (old snapshots keep the old column).
        Another process may do the same at the same time: the catalog refuses the second one, which then tries again and
        finds the tables.
        """
        home_identity.claim_identity(self.home)
        retry = Retrying(
            retry=retry_if_exception(_is_creation_race),
            wait=wait_random_exponential(multiplier=0.5, max=8),
            stop=stop_after_attempt(MAKES),
            reraise=True,
        )
        retry(self._create_tables, retype=retype)

    def _create_tables(self, *, retype: bool) -> None:
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.catalog}.{self.namespace}")
        existing = self._existing_tables()
        if self.home.config.storage.catalog is not None:
            self._refuse_other_home(existing)
        for table in self.tables:
            if table not in existing:
                self.create_table(table, self.columns_ddl(table))
        for table in self.tables:
            self.commit_change(
                table, lambda metadata: metadata.commit_first_snapshot() if metadata.main_snapshot() is None else None
            )
            properties = PROPERTIES | (_PLACES if table in SERVING_TABLES else {})
            # a new table, or one that an earlier version made
            if not properties.items() <= self.load_metadata(table).properties().items():
                self.spark.sql(
                    f"ALTER TABLE {self.table_name(table)} SET TBLPROPERTIES ({_properties_sql(properties)})"
                )
        for table in (*self.serving_tables, *filter(is_made_for_queries, self.collections)):
            self._declare_columns(table)
        upserts = self.load_metadata("upserts").column_types()
        for column, type_ in self.home.config.values.items():
            wanted = SQL_TYPES[type_]
            if column in upserts and upserts[column] != type_:  # here Iceberg's type names are those of the settings
                if not retype:
                    raise UsageError(
                        f"[values] {column} is {type_} in altneu.toml, but {upserts[column]} in the stored rows.",
                        "altneu rebuild --from-landing",
                    )
                self.spark.sql(f"ALTER TABLE {self.table_name('upserts')} DROP COLUMN {quote_identifier(column)}")
                del upserts[column]
            if column not in upserts:
                self.spark.sql(
                    f"ALTER TABLE {self.table_name('upserts')} ADD COLUMN {quote_identifier(column)} {wanted} AFTER dst"
                )

    def _declare_columns(self, table: str) -> None:
        """Add and drop columns of a table, because settings or the text of a query may declare other ones."""
        existing = self.load_metadata(table).column_types()
        wanted = self._iceberg_types(table)
        for column in existing:
            if existing[column] != wanted.get(column):
                self.spark.sql(f"ALTER TABLE {self.table_name(table)} DROP COLUMN {quote_identifier(column)}")
        for column, type_ in self._table_columns(table).items():
            if existing.get(column) != wanted[column]:
                self.spark.sql(f"ALTER TABLE {self.table_name(table)} ADD COLUMN {quote_identifier(column)} {type_}")

    def _iceberg_types(self, table: str) -> dict[str, str]:
        """Return the columns of a table with their types in Iceberg."""
        return {name: _ICEBERG.get(type_, type_) for name, type_ in self._table_columns(table).items()}

    def _existing_tables(self) -> set[str]:
        listed = self.spark.sql(f"SHOW TABLES IN {self.catalog}.{self.namespace}").collect()
        return {row.tableName for row in listed}

    def create_table(self, table: str, columns: str, own: dict[str, str] | None = None) -> None:
        """Make a table, unless it exists. `own` are additional properties of this table."""
        elsewhere, properties = "", PROPERTIES | (own or {})
        if self.home.config.storage.catalog is not None:
            # the catalog may serve other homes, and would itself choose the place of the files
            elsewhere = f"LOCATION '{self.home.warehouse}/{self.namespace}/{table}'"
            properties |= {catalogs.OWNER: self.catalog}
        self.spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self.table_name(table)} ({columns}) USING iceberg {elsewhere} "
            f"TBLPROPERTIES ('format-version'='2', {_properties_sql(properties)})"
        )

    def drop_table(self, table: str, *, damaged: bool = False) -> None:
        """Drop a table of rounds or of a query, or the truss checkpoint, with its files. `damaged`: without reading
        its metadata.
        """
        assert table.startswith(home_identity.ROUNDS) or is_made_for_queries(table)
        if damaged:
            self._tables.drop_table(self.table_name(table))
        else:
            self.spark.sql(f"DROP TABLE IF EXISTS {self.table_name(table)} PURGE")

    def list_query_tables(self) -> list[str]:
        """List the tables of the catalog that exist only for queries, whether or not these are maintained."""
        return sorted(filter(is_made_for_queries, self._existing_tables()))

    def round_table_names(self) -> set[str]:
        """Return the tables that are no state of the home: those of rounds, and the truss checkpoint."""
        return {table for table in self._existing_tables() if table.startswith(home_identity.ROUNDS)}

    def _refuse_other_home(self, there: set[str]) -> None:
        """Raise an error where a REST catalog has another home's tables in our namespace, or has lost ours."""
        where = f"the namespace {self.namespace} of the catalog"
        own_tables = [table for table in self.tables if table in there]
        for table in own_tables:
            if self.load_metadata(table).properties().get(catalogs.OWNER) != self.catalog:
                raise UsageError(
                    f"{where} has a table {table} of another home.",
                    "set another namespace in [storage] catalog",
                )
        if not own_tables:
            home_identity.refuse_full_warehouse(self.home, f"{where} has no tables of this home")

    # -- Reading ------------------------------------------------------------------------------------------------

    def size_plans(self, revision: Revision) -> AbstractContextManager[None]:
        """Run the block with plans that fit the number of rows that a revision pins (`session.size_plans`)."""
        return size_plans(self.spark, sum(self.snapshot_size(*pin).rows for pin in revision.snapshots.items()))

    def empty_rows(self, table: str) -> DataFrame:
        return local_frame.local_frame(self.spark, self._table_columns(table))

    def read_table(self, table: str, revision: Revision) -> DataFrame:
        """Read a table at a revision. Raises `AltneuError` where a compaction has expired the revision."""
        if revision.frontier is None:
            return self.empty_rows(table)
        rows = self.read_snapshot(table, require_pinned_snapshot(table, revision))
        return rows if table in SERVING_TABLES else self._visible_columns(rows, revision)

    def read_as_written(self, table: str, revision: Revision) -> DataFrame:
        """Read a table at a revision with the columns of its snapshot, whichever value columns altneu.toml declares
        now."""
        return self._visible_columns(
            self._read_written_columns(table, require_pinned_snapshot(table, revision)), revision
        )

    def read_as_stored(self, table: str, revision: Revision) -> DataFrame:
        """Read all rows and columns of the snapshot of a revision, including rows that the revision does not show."""
        return self._read_written_columns(table, require_pinned_snapshot(table, revision))

    @staticmethod
    def _visible_columns(rows: DataFrame, revision: Revision) -> DataFrame:
        # A compacted snapshot serves all revisions that the compaction kept.
        return visible_rows(rows.where(f"revision <= {revision.revision}"), revision)

    def read_snapshot(self, table: str, snapshot: int) -> DataFrame:
        """Return the rows of a snapshot. The frame is made once, because a snapshot does not change."""
        if (table, snapshot) not in self._looked_up:
            self._looked_up[table, snapshot] = self._load_snapshot(table, snapshot)
        return self._looked_up[table, snapshot]

    def _load_snapshot(self, table: str, snapshot: int) -> DataFrame:
        if is_query_table(table):  # a revision reads the columns of the text that it was made from
            return self._read_written_columns(table, snapshot)
        metadata = self.describe_snapshot(table, snapshot)
        if metadata.has_snapshot(snapshot) and metadata.snapshot_summary(snapshot).get("total-records") == "0":
            return self.empty_rows(table)
        frame = self._read_written_columns(table, snapshot)
        columns = self.column_names(table)
        written = frame.columns
        if written == columns:
            return frame
        for column in columns:
            if column not in written:  # a value column that was declared later
                frame = frame.withColumn(column, F.lit(None).cast(self._table_columns(table)[column]))
        return frame.select(*columns)

    def stored_columns(self, table: str, snapshot: int) -> list[str]:
        """Return the columns that a snapshot was written with."""
        return self._read_written_columns(table, snapshot).columns

    def _read_written_columns(self, table: str, snapshot: int) -> DataFrame:
        return self.spark.read.option("versionAsOf", snapshot).table(self.table_name(table))

    # -- Queries, as `reading.engine_protocol.Tables` declares them ------------------------------------------------

    def select_rows(self, query: str, **relations: DataFrame) -> DataFrame:
        named: dict[str, Any] = dict(relations)
        return self.spark.sql(query, **named)

    def columns_of(self, rows: DataFrame) -> list[str]:
        return rows.columns

    def collect_rows(self, rows: DataFrame) -> list[dict[str, Any]]:
        return [row.asDict() for row in rows.collect()]

    def apply_in_one_task(self, rows: DataFrame, function: Callable[[pa.Table], pa.Table], schema: str) -> DataFrame:
        return rows.coalesce(1).mapInArrow(partial(_apply_to_all, function), schema)

    def quote_identifier(self, column: str) -> str:
        return quote_identifier(column)

    def text_literal(self, text: str) -> str:
        return _escape_braces(quote_text(text))

    def translate_condition(self, text: str, types: Mapping[str, str]) -> str:
        return _escape_braces(spark_sql(text))

    # -- Writing ------------------------------------------------------------------------------------------------

    def write_to_branch(
        self,
        table: str,
        run_id: str,
        base: int,
        rows: DataFrame | None,
        parent: int | None = None,
        horizon: Horizon | None = None,
    ) -> int:
        if rows is None:
            return super().write_to_branch(table, run_id, base, None, parent, horizon)
        selected = rows.select(*map(quote_identifier, self.column_names(table)))
        schema = self._take_up_columns(table, base)
        return self._require_schema(
            table, super().write_to_branch(table, run_id, base, selected, parent, horizon), schema
        )

    def tables_with_refs(self, ledger: Ledger) -> list[str]:
        """Return our tables, and those serving tables and those of queries that are not maintained any more: their
        `main` becomes empty."""
        return [
            *self.tables,
            *(
                table
                for table in ledger.runs.pinned_snapshots()
                if (table in SERVING_TABLES or is_made_for_queries(table)) and table not in self.tables
            ),
        ]

    def rewrite_on_branch(
        self, table: str, run_id: str, base: int, rows: DataFrame, files: FilePlan | None = None
    ) -> int:
        selected = rows.select(*map(quote_identifier, self.column_names(table)))
        schema = self._take_up_columns(table, base)
        return self._require_schema(table, super().rewrite_on_branch(table, run_id, base, selected, files), schema)

    def _take_up_columns(self, table: str, base: int) -> int | None:
        """Have the next commit to a table of a query write the columns that the snapshot `base` was written with.

        Other texts may have declared other columns since: those of a run that was held, has failed, works at the same
        time, or was rolled back. A column that is declared again is another one, in which the rows of `base` are null.

        Returns:
            The id of these columns, or None where it does not matter.
        """
        if not is_query_table(table):
            return None

        def wanted_schema(metadata: iceberg.IcebergTable) -> int | None:
            if base == metadata.first_snapshot():
                return metadata.find_schema(self._iceberg_types(table))
            return metadata.snapshot_schema(base)

        def restore(metadata: iceberg.IcebergTable) -> None:
            wanted = wanted_schema(metadata)
            if wanted is not None and wanted != metadata.current_schema():
                metadata.set_schema(wanted)

        self.commit_change(table, restore)
        return wanted_schema(self.load_metadata(table))

    def _require_schema(self, table: str, head: int, schema: int | None) -> int:
        """Return a snapshot. Raises `Unavailable` where another run has declared other columns before its commit."""
        if schema is not None and self.load_metadata(table).snapshot_schema(head) != schema:
            raise Unavailable(
                f"another run has declared other columns of table {table} at the same time. Nothing is published.",
                "run the same command again",
            )
        return head

    def remove_orphans(self, table: str) -> int:
        """Delete files that no snapshot contains (from killed tasks), older than `ORPHAN_DAYS`. Return their number."""
        before = datetime.now(UTC) - timedelta(days=ORPHAN_DAYS)
        # in S3 Iceberg lists the files, because Spark's Hadoop cannot
        listing = ", prefix_listing => true" if in_s3(self.home.warehouse) else ""
        call = f"CALL {self.catalog}.system.remove_orphan_files(table => '{self.namespace}.{table}'"
        older = f"older_than => TIMESTAMP '{before:%Y-%m-%d %H:%M:%S}'"
        return len(self.spark.sql(f"{call}, {older}{listing})").collect())


def _apply_to_all(
    function: Callable[[pa.Table], pa.Table], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    parts = list(batches)
    if parts:
        yield from function(pa.Table.from_batches(parts)).to_batches(max_chunksize=1 << 20)


def _escape_braces(text: str) -> str:
    """Escape braces in a text for a query in which braces mark relations."""
    return text.replace("{", "{{").replace("}", "}}")


MAKES = 5  # tries of making the tables
ORPHAN_DAYS = 2  # every write ends within this time


def _is_creation_race(error: BaseException) -> bool:
    """Tell whether another process may have made the same tables at once, so that another try may succeed."""
    if not isinstance(error, (Py4JJavaError, PySparkException)):
        return False
    return "ALREADY_EXISTS" in str(error) or (is_transient(error) and not is_disk_full(error))


def _properties_sql(properties: dict[str, str]) -> str:
    return ", ".join(f"'{name}'='{value}'" for name, value in properties.items())
