"""The tables of a home without Spark: pyiceberg finds the files of a snapshot, and DuckDB reads them in this process.

`DuckTables` serves readers as `Warehouse` does (see `reading.engine_protocol`), with the same snapshots and the same
rows. It starts in half a second; its results have to fit the memory of one process.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.types import BooleanType, DoubleType, IcebergType, LongType, StringType

from ..errors import AltneuError, UsageError
from ..home import memory_budget
from ..home.home import Home
from ..home.queries import double_quote, is_query_table
from ..home.uris import duckdb_pattern
from ..state import filesystem, home_identity
from ..state.records import Revision
from . import catalogs
from .table_schemas import NAMESPACE, require_pinned_snapshot, table_columns, visibility_condition

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

_TYPES: dict[type[IcebergType], str] = {
    LongType: "bigint",
    DoubleType: "double",
    StringType: "string",
    BooleanType: "boolean",
}
_KINDS = {"int64": "bigint", "double": "double", "string": "string", "bool": "boolean"}
_SETTINGS = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}


def are_files_local(home: Home) -> bool:
    """Tell whether the files of a home's tables are on a disk of this machine, so that `DuckTables` can read them."""
    folder = filesystem.local_path(home.warehouse)
    return home.config.storage.catalog is None and folder is not None and folder.is_dir()


@dataclass(frozen=True)
class Query:
    """A query in DuckDB's SQL, and the Arrow tables that it names."""

    sql: str
    arrow_tables: Mapping[str, pa.Table] = field(default_factory=dict)


class DuckTables:
    """The tables of a home, read by DuckDB."""

    distributed = False

    def __init__(self, home: Home) -> None:
        self.home = home
        # DuckDB makes this folder when memory is short
        spill = Path(tempfile.gettempdir()) / f"altneu-duckdb-{os.getpid()}"
        limit = f"{memory_budget.duckdb_memory_mb()}MiB"
        self._connection = duckdb.connect(config={**_SETTINGS, "temp_directory": str(spill), "memory_limit": limit})
        self._read: dict[str, tuple[str, TableMetadata]] = {}  # table → where it was read last, and what
        self._looked_up: dict[tuple[str, int], str] = {}  # (table, snapshot) → SQL; a snapshot never changes

    @cached_property
    def _catalog(self) -> catalogs.Catalog:
        return catalogs.open_catalog(self.home, home_identity.require_identity(self.home))

    # -- Reading, as `reading.engine_protocol.Tables` declares it --------------------------------------------------

    def read_table(self, table: str, revision: Revision) -> Query:
        if revision.frontier is None:
            return self.empty_rows(table)
        rows = self.read_snapshot(table, require_pinned_snapshot(table, revision))
        return Query(f"SELECT * FROM ({rows.sql}) WHERE {visibility_condition(revision)}")

    def empty_rows(self, table: str) -> Query:
        return Query(f"{_select_columns(table_columns(self.home, table), {})} WHERE false")

    def select_rows(self, query: str, **relations: Query) -> Query:
        held = {name: rows for relation in relations.values() for name, rows in relation.arrow_tables.items()}
        return Query(query.format(**{name: f"({relation.sql})" for name, relation in relations.items()}), held)

    def columns_of(self, rows: Query) -> list[str]:
        return list(self.column_types(rows))

    def collect_rows(self, rows: Query) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = self.to_arrow(rows).to_pylist()
        return records

    def apply_in_one_task(self, rows: Query, function: Callable[[pa.Table], pa.Table], schema: str) -> Query:
        arrow = self.to_arrow(rows)
        if not arrow.num_rows:
            columns = dict(column.split() for column in schema.split(","))
            return Query(f"{_select_columns(columns, {})} WHERE false")
        name = f"held_{uuid.uuid4().hex}"
        return Query(f"SELECT * FROM {name}", {name: function(arrow)})

    def quote_identifier(self, column: str) -> str:
        return double_quote(column)

    def text_literal(self, text: str) -> str:
        return _text_literal(text).replace("{", "{{").replace("}", "}}")

    def translate_condition(self, text: str, types: Mapping[str, str]) -> str:
        from .duckdb_predicates import translate_to_duckdb  # imported here, because sqlglot takes time to import

        return translate_to_duckdb(text, types).replace("{", "{{").replace("}", "}}")

    # -- Only with DuckDB ----------------------------------------------------------------------------------------

    def read_snapshot(self, table: str, snapshot: int) -> Query:
        """Read all rows of a snapshot, also of one on the branch of a run."""
        if (table, snapshot) not in self._looked_up:
            self._looked_up[table, snapshot] = self._snapshot_rows(table, snapshot)
        return Query(self._looked_up[table, snapshot])

    def column_types(self, rows: Query) -> dict[str, str]:
        """Return the types of the columns of a query in SQL: column → type."""
        schema = self.to_arrow(Query(f"SELECT * FROM ({rows.sql}) LIMIT 0", rows.arrow_tables)).schema
        return {column.name: _KINDS[str(column.type)] for column in schema}

    def count_stored_rows(self, revision: Revision, tables: tuple[str, ...]) -> int:
        """Count the rows that tables store at a revision, including rows that it does not show, from metadata only."""
        count = 0
        for table in tables:
            if table in revision.snapshots:
                pin = revision.snapshots[table]
                snapshot = self._load_metadata(table, pin)[1].snapshot_by_id(pin)
                summary = snapshot.summary if snapshot else None
                count += int(summary["total-records"] or 0) if summary else 0
        return count

    def to_arrow(self, rows: Query) -> pa.Table:
        """Execute a query. Raises `AltneuError` where a file is missing, or the memory of this process is too small."""
        cursor = self._connection.cursor()
        try:
            for name, table in rows.arrow_tables.items():
                cursor.register(name, table)
            return cursor.sql(rows.sql).to_arrow_table()
        except duckdb.IOException as error:
            what = str(error).removeprefix("IO Error: ").splitlines()[0]
            remedy = (
                "for a file of the tables: altneu rebuild; where landed rows are lost: altneu rebuild --from-landing"
            )
            raise AltneuError(what, remedy) from None
        except duckdb.OutOfMemoryException as error:
            what = f"the query needs more memory than this process has: {str(error).splitlines()[0]}"
            raise AltneuError(what, "--engine spark") from None
        finally:
            cursor.close()

    def _load_metadata(self, table: str, snapshot: int) -> tuple[str, TableMetadata]:
        """Return the metadata file of a table that was read last, and where it is, or the current one where that does
        not have a snapshot: a snapshot never changes."""
        if table not in self._read or self._read[table][1].snapshot_by_id(snapshot) is None:
            location = self._catalog.metadata_locations(table).get(table)
            if location is None:
                raise AltneuError(f"there is no table {table}.", "altneu status")
            self._read[table] = location, FromInputFile.table_metadata(_PyArrowInputFile(location))
        return self._read[table]

    def _snapshot_rows(self, table: str, snapshot: int) -> str:
        """Write the SQL that reads a snapshot with the columns that the settings declare now."""
        location, metadata = self._load_metadata(table, snapshot)
        if metadata.snapshot_by_id(snapshot) is None:
            raise AltneuError(f"table {table} has no snapshot {snapshot} any more.", "altneu doctor")
        scan = Table((NAMESPACE, table), metadata, location, PyArrowFileIO(), None).scan(snapshot_id=snapshot)  # type: ignore[arg-type]
        tasks = list(scan.plan_files())
        if any(task.delete_files for task in tasks):  # altneu writes no delete files to these tables
            raise UsageError(f"another program has deleted rows of table {table}.", "--engine spark")
        stored_columns = {column.name: column for column in scan.projection().fields}
        stored_types = {name: _TYPES[type(column.field_type)] for name, column in stored_columns.items()}
        wanted = stored_types if is_query_table(table) else table_columns(self.home, table)
        if not tasks:
            return f"{_select_columns(wanted, {})} WHERE false"
        # by field ids, as in Iceberg: a column that was dropped and declared again is another column
        schema = ", ".join(
            f"{column.field_id}: "
            f"{{name: {_text_literal(name)}, type: {_text_literal(_duckdb_type(_TYPES[type(column.field_type)]))}, "
            "default_value: NULL}"
            for name, column in stored_columns.items()
        )
        source = read_parquet_files([_local_path(task.file.file_path) for task in tasks], f"schema = MAP {{{schema}}}")
        return f"{_select_columns(wanted, {name: double_quote(name) for name in stored_columns})} FROM {source}"


def _select_columns(columns: Mapping[str, str], there: Mapping[str, str]) -> str:
    """Write a SELECT of columns with their types, and NULL for those that are not `there`."""
    chosen = (
        there[name] if name in there else f"CAST(NULL AS {_duckdb_type(type_)}) AS {double_quote(name)}"
        for name, type_ in columns.items()
    )
    return f"SELECT {', '.join(chosen)}"


def _duckdb_type(type_: str) -> str:
    return {"string": "VARCHAR"}.get(type_, type_.upper())


def _text_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _local_path(location: str) -> Path:
    path = filesystem.local_path(location)
    if path is None:
        raise UsageError(f"{location} is not on a disk of this machine.", "--engine spark")
    return path


def read_parquet_files(paths: Sequence[Path], *options: str) -> str:
    """Write the part of a query that reads these files only, with their own columns only.

    Special characters in their paths have no meaning (`*` would match other files, `k=3` would become a column).
    """
    listed = ", ".join(_text_literal(duckdb_pattern(path)) for path in paths)
    return f"read_parquet({', '.join([f'[{listed}]', 'hive_partitioning = false', *options])})"


class _PyArrowInputFile(InputFile):
    """A file of the tables. pyiceberg's own file access would import pandas, which takes half a second."""

    def __len__(self) -> int:
        return len(filesystem.read_file(self.location))

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> Any:
        return BytesIO(filesystem.read_file(self.location))


class PyArrowFileIO(FileIO):
    """A file IO for pyiceberg that only reads."""

    def new_input(self, location: str) -> InputFile:
        return _PyArrowInputFile(location)

    def new_output(self, location: str) -> OutputFile:
        raise NotImplementedError

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise NotImplementedError
