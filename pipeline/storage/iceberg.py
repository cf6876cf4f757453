"""Iceberg's metadata: the branches, tags and snapshots of a table, read and changed without reading its rows.

`IcebergTables(spark, catalog).load_table(name)` reads a table at the moment of the call: the metadata file that the
catalog names. So it costs one query of the catalog and no Spark query. (Iceberg's Java API would take a third of a
millisecond for a call and four calls for an entry, which was half of all calls of an epoch.)

Changes use Iceberg's Java API where the process has a JVM, and SQL on a Spark Connect server, where it has none (one
query for each step). Where the catalog is the home's database, branches and tags are changed without Java
(`ref_changes`). A change is a list of steps with the names of the Java API; `commit_steps` executes them in order.
With SQL each step is a commit of its own. So the steps must be correct one by one, and when they are repeated:
`Branches.commit_change` computes them again from the table as it is then.

Source: the Iceberg table specification (metadata files).
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from altneu.algorithms.paths import spark_pattern

from ..errors import AltneuError, Unavailable, UsageError
from ..state import filesystem
from . import avro_files, file_bounds
from .catalogs import Catalog, JdbcCatalog
from .file_tiers import FilePlan
from .horizons import Horizon, split_at_horizon
from .ref_changes import Metadata, Step


class CommitConflict(Exception):
    """Another writer has committed first. Read the table again, and try again."""


class MetadataLost(Unavailable):
    """The metadata file that the catalog names is not where it should be."""


def has_jvm(spark: SparkSession) -> bool:
    """Tell whether the process has a JVM, and is not a client of Spark Connect."""
    return hasattr(spark, "_jsparkSession")


class IcebergTables:
    """The tables of a catalog.

    A metadata file never changes, so it is read once: by this process, or by Spark where this process cannot read it.
    """

    def __init__(self, spark: SparkSession, catalog: Catalog) -> None:
        self._spark, self._catalog = spark, catalog
        self._changes: TableWriter = JavaTableWriter(spark, catalog) if has_jvm(spark) else SqlTableWriter(spark)
        self._read: dict[str, Metadata] = {}  # location of a metadata file → its content

    def load_table(self, name: str) -> IcebergTable:
        """Load a table by its full name `catalog.namespace.table`. Raises `AltneuError` where there is none."""
        where = self._metadata_location(name)
        location = where[name.rpartition(".")[2]]
        if location not in self._read:
            self._load_table_metadata([each for each in where.values() if each not in self._read])
        return IcebergTable(name, location, self._read[location], self._changes)

    def drop_table(self, name: str) -> None:
        """Drop a table with all files in its folder, even if some are missing. Spark would have to read the table
        first."""
        table = name.rpartition(".")[2]
        folder = posixpath.dirname(posixpath.dirname(self._metadata_location(name)[table]))
        self._catalog.unregister_table(table)
        filesystem.map_parallel(filesystem.delete_file, [f"{folder}/{each}" for each in filesystem.list_files(folder)])

    def _metadata_location(self, name: str) -> dict[str, str]:
        table = name.rpartition(".")[2]
        where = self._catalog.metadata_locations(table)
        if table not in where:
            raise AltneuError(f"there is no table {name}.", "altneu status")
        return where

    def _load_table_metadata(self, locations: list[str]) -> None:
        try:
            texts = [content.decode() for content in filesystem.map_parallel(filesystem.read_file, locations)]
        except OSError as error:
            for location in locations:
                if (path := filesystem.local_path(location)) is not None and path.parent.is_dir() and not path.exists():
                    raise MetadataLost(
                        f"the metadata file {location} of a table is missing.", "altneu doctor"
                    ) from error
            if any(filesystem.local_path(location) is None for location in locations):
                raise Unavailable(f"the tables' metadata cannot be read: {error}", "altneu doctor") from error
            patterns = [spark_pattern(location) for location in locations]
            texts = [row[0] for row in self._spark.read.text(patterns, wholetext=True).collect()]
        for text in texts:
            metadata = json.loads(text)
            root = metadata["location"] + "/"
            self._read |= {location: metadata for location in locations if location.startswith(root)}


class IcebergTable:
    """A table as it was when `IcebergTables.load_table` read it."""

    def __init__(self, name: str, location: str, metadata: Metadata, changes: TableWriter) -> None:
        self._name, self.metadata_location, self._metadata, self._changes = name, location, metadata, changes
        self._snapshots = {snapshot["snapshot-id"]: snapshot for snapshot in metadata.get("snapshots", ())}

    def location(self) -> str:
        """Return the folder of the table's files."""
        return str(self._metadata["location"])

    def column_types(self) -> dict[str, str]:
        """Return the columns with their types in Iceberg."""
        return {field["name"]: field["type"] for field in self._fields()}

    def _fields(self) -> list[dict[str, Any]]:
        now = self._metadata["current-schema-id"]
        fields: list[dict[str, Any]]
        fields = next(schema["fields"] for schema in self._metadata["schemas"] if schema["schema-id"] == now)
        return fields

    def current_schema(self) -> int:
        """Return the id of the columns that the next commit has."""
        return int(self._metadata["current-schema-id"])

    def snapshot_schema(self, snapshot: int) -> int | None:
        """Return the id of the columns with which a snapshot was written."""
        schema: int | None = self._snapshots[snapshot].get("schema-id")
        return schema

    def find_schema(self, types: Mapping[str, str]) -> int | None:
        """Return the id of the newest columns with these names and types in Iceberg, or None."""
        for schema in reversed(self._metadata["schemas"]):
            if {field["name"]: field["type"] for field in schema["fields"]} == dict(types):
                return int(schema["schema-id"])
        return None

    def properties(self) -> dict[str, str]:
        """Return the table's properties."""
        return dict(self._metadata.get("properties", {}))

    def main_snapshot(self) -> int | None:
        """Return the snapshot of `main`; None before the first commit."""
        return self.ref_snapshot("main")

    def ref_snapshot(self, name: str) -> int | None:
        """Return the snapshot of a branch or tag, or None."""
        return self.ref_snapshots().get(name)

    def ref_snapshots(self) -> dict[str, int]:
        """Return every branch and tag with its snapshot."""
        return {name: ref["snapshot-id"] for name, ref in self._metadata.get("refs", {}).items()}

    def snapshot_ids(self) -> set[int]:
        """Return every snapshot that has not expired."""
        return set(self._snapshots)

    def has_snapshot(self, snapshot: int) -> bool:
        """Tell whether a snapshot is there and has not expired."""
        return snapshot in self._snapshots

    def first_snapshot(self) -> int:
        """Return the oldest snapshot that has not expired."""
        return min(self.snapshot_ids(), key=lambda snapshot: (self._snapshots[snapshot]["sequence-number"], snapshot))

    def parent_snapshot(self, snapshot: int) -> int | None:
        """Return the snapshot before a snapshot on its branch, or None."""
        parent: int | None = self._snapshots[snapshot].get("parent-snapshot-id")
        return parent

    def snapshot_summary(self, snapshot: int) -> dict[str, str]:
        """Return what the commit of a snapshot added, and the snapshot's totals: files, bytes, rows."""
        return dict(self._snapshots[snapshot]["summary"])

    def count_rows(self, snapshot: int, horizon: Horizon | None = None) -> int:
        """Count the rows of a snapshot in the files that a reader from a horizon on does not skip, by metadata alone.

        Without a horizon, and where only Spark can read the manifests, they are all rows.
        """
        each = self._snapshots[snapshot]
        rows = int(each["summary"].get("total-records") or 0)
        if horizon is None or not rows or "manifest-list" not in each:
            return rows
        field = next(field["id"] for field in self._fields() if field["name"] == horizon.column)
        try:
            files = list(file_bounds.list_data_files(each["manifest-list"]))
        except (OSError, avro_files.NotAvro):
            return rows
        return sum(file.rows for file in files if file.reaches(field, horizon.lower_bound))

    def commit_first_snapshot(self) -> None:
        """Commit an empty first snapshot."""
        self._changes.commit_first_snapshot(self._name)

    def commit_steps(self, steps: list[Step]) -> None:
        """Change branches and tags; without steps, do nothing.

        Raises `CommitConflict` where another writer has committed since the table was read. A Spark Connect server does
        not check this: it executes the steps one by one on the present table.
        """
        if steps:
            self._changes.commit_steps(self._name, self.metadata_location, steps)

    def expire_snapshots(self, snapshots: set[int]) -> None:
        """Drop snapshots, and the files that no other snapshot has. Raises `CommitConflict`."""
        self._changes.expire_snapshots(self._name, snapshots)

    def set_schema(self, schema: int) -> None:
        """Have the next commits write the columns of an earlier schema, with their ids. Raises `CommitConflict`."""
        self._changes.set_schema(self._name, self.metadata_location, schema)

    def append_rows(self, branch: str, rows: DataFrame, files: FilePlan | None = None) -> None:
        """Commit these rows to a branch, with those of its rows that `files` merges with them."""
        self._changes.append_rows(self._name, branch, rows, files)

    def overwrite_rows(self, branch: str, rows: DataFrame, files: FilePlan | None = None) -> None:
        """Commit these rows to a branch in place of its present rows, or of those that `files` merges."""
        self._changes.overwrite_rows(self._name, branch, rows, files)

    def delete_rows(self, branch: str, keys: DataFrame) -> None:
        """Commit the deletion of a branch's rows with one of these keys. All columns of `keys` form the key."""
        self._changes.delete_rows(self._name, branch, keys)


class TableWriter:
    """The changes of a table that a session can make, see `IcebergTable`; a session need not make all of them.

    `location` is the metadata file that was read.
    """

    def commit_first_snapshot(self, name: str) -> None:
        raise NotImplementedError

    def commit_steps(self, name: str, location: str, steps: list[Step]) -> None:
        raise NotImplementedError

    def expire_snapshots(self, name: str, snapshots: set[int]) -> None:
        raise NotImplementedError

    def set_schema(self, name: str, location: str, schema: int) -> None:
        raise NotImplementedError

    def append_rows(self, name: str, branch: str, rows: DataFrame, files: FilePlan | None) -> None:
        raise NotImplementedError

    def overwrite_rows(self, name: str, branch: str, rows: DataFrame, files: FilePlan | None) -> None:
        raise NotImplementedError

    def delete_rows(self, name: str, branch: str, keys: DataFrame) -> None:
        raise NotImplementedError


def _summary_options(files: FilePlan | None) -> dict[str, str]:
    """Return the options of a write by which the summary of its snapshot describes the tiers that stay."""
    properties = {} if files is None else files.tier_properties
    return {f"snapshot-property.{name}": value for name, value in properties.items()}


class _SparkRowWriter(TableWriter):
    """The methods that write rows, by Spark in every session."""

    def append_rows(self, name: str, branch: str, rows: DataFrame, files: FilePlan | None) -> None:
        if files is None or files.rewrite_after is None:
            rows.writeTo(f"{name}.branch_{branch}").options(**_summary_options(files)).append()
            return
        merged = rows.sparkSession.table(f"{name}.branch_{branch}").where(F.col("revision") > files.rewrite_after)
        whole = merged.unionByName(rows, allowMissingColumns=True)
        if files.horizon is None:
            # without a number of partitions: they are one file, unless they are very many
            whole = whole.repartition(whole.columns[0])
        else:
            whole = split_at_horizon(whole, files.horizon, 1)
        self.overwrite_rows(name, branch, whole, files)

    def overwrite_rows(self, name: str, branch: str, rows: DataFrame, files: FilePlan | None) -> None:
        replaced = (
            F.lit(True) if files is None or files.rewrite_after is None else F.col("revision") > files.rewrite_after
        )
        rows.writeTo(f"{name}.branch_{branch}").options(**_summary_options(files)).overwrite(replaced)

    def delete_rows(self, name: str, branch: str, keys: DataFrame) -> None:
        target = f"{name}.branch_{branch}"
        same = " AND ".join(f"gone.`{key}` = there.`{key}`" for key in keys.columns)
        keys.sparkSession.sql(
            f"MERGE INTO {target} there USING {{keys}} gone ON {same} WHEN MATCHED THEN DELETE", keys=keys
        )


class JavaTableWriter(_SparkRowWriter):
    """A writer that uses Iceberg's Java API; for branches and tags only where the catalog is a server.

    Iceberg's JDBC catalog commits a change by one UPDATE of a row that has to name the metadata file that was read.
    `JdbcCatalog` does just that, in a tenth of the time.
    """

    def __init__(self, spark: SparkSession, catalog: Catalog) -> None:
        session: Any = spark
        # getattr, because each dot would be a call to the JVM
        self._util = getattr(session._jvm, "org.apache.iceberg.spark.Spark3Util")
        self._catalog = catalog
        self._metadata = getattr(session._jvm, "org.apache.iceberg.TableMetadata")
        self._session = session._jsparkSession

    def _load_java_table(self, name: str) -> Any:
        return self._util.loadIcebergTable(self._session, name)

    def commit_first_snapshot(self, name: str) -> None:
        self._commit_java(self._load_java_table(name).newAppend())

    def commit_steps(self, name: str, location: str, steps: list[Step]) -> None:
        if isinstance(self._catalog, JdbcCatalog):
            if not self._catalog.commit_steps(name.rpartition(".")[2], location, steps):
                raise CommitConflict
            return
        table = self._load_java_table(name)
        if table.operations().current().metadataFileLocation() != location:
            raise CommitConflict
        change = table.manageSnapshots()
        for step, *arguments in steps:
            change = getattr(change, step)(*arguments)
        self._commit_java(change)

    def expire_snapshots(self, name: str, snapshots: set[int]) -> None:
        change = self._load_java_table(name).expireSnapshots().cleanExpiredFiles(True)
        for snapshot in snapshots:
            change = change.expireSnapshotId(snapshot)
        self._commit_java(change)

    def set_schema(self, name: str, location: str, schema: int) -> None:
        operations = self._load_java_table(name).operations()
        now = operations.current()
        if now.metadataFileLocation() != location:
            raise CommitConflict
        then = self._metadata.buildFrom(now).setCurrentSchema(schema).build()
        self._commit_java(operations, now, then)

    @staticmethod
    def _commit_java(change: Any, *arguments: Any) -> None:
        try:
            change.commit(*arguments)
        except Py4JJavaError as error:
            if "CommitFailedException" not in str(error.java_exception.getClass().getName()):
                raise
            raise CommitConflict from error


_STEPS = {
    "createBranch": "CREATE BRANCH `{0}` AS OF VERSION {1}",
    "replaceBranch": "REPLACE BRANCH `{0}` AS OF VERSION {1}",
    "removeBranch": "DROP BRANCH IF EXISTS `{0}`",
    "createTag": "CREATE TAG IF NOT EXISTS `{0}` AS OF VERSION {1}",
    "removeTag": "DROP TAG IF EXISTS `{0}`",
}


class SqlTableWriter(_SparkRowWriter):
    """A writer that uses SQL, for a session without a JVM."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def commit_first_snapshot(self, name: str) -> None:
        self._execute_sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE false")

    def commit_steps(self, name: str, location: str, steps: list[Step]) -> None:
        for step, *arguments in steps:
            self._execute_sql(f"ALTER TABLE {name} {_STEPS[step].format(*arguments)}")

    def expire_snapshots(self, name: str, snapshots: set[int]) -> None:
        catalog, _, table = name.partition(".")
        ids = ", ".join(f"{snapshot}L" for snapshot in sorted(snapshots))
        self._execute_sql(f"CALL {catalog}.system.expire_snapshots(table => '{table}', snapshot_ids => array({ids}))")

    def set_schema(self, name: str, location: str, schema: int) -> None:
        raise UsageError(
            f"table {name} has had other columns meanwhile, and Spark Connect cannot take up the former ones.",
            "run the same command without Spark Connect, or altneu rebuild",
        )

    def _execute_sql(self, statement: str) -> None:
        try:
            self._spark.sql(statement)  # Spark executes a command at once
        except PySparkException as error:
            if "CommitFailedException" not in str(error):
                raise
            raise CommitConflict from error
