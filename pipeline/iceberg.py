"""Iceberg's metadata: branches, tags and snapshots of one table, read and changed without reading its rows.

`tables(spark, database).of(name)` is Iceberg's own Java object where a JVM is in the process. On a Spark Connect
server, where there is none, it is the table's metadata file, and changes are SQL (a query each). Both say the same, and
what they say is as of the call. A change is a list of steps, each named as in Iceberg's Java API; `commit` does them in
order. Over SQL each is a commit of its own, so they must be right one by one and when they are done again: `Warehouse`
makes them anew from what is there.

Source: the Iceberg table specification (metadata files), Iceberg's JDBC catalog (`iceberg_tables`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from .errors import AltneuError

Metadata = dict[str, Any]  # a table's metadata file, as Iceberg's specification has it
Step = tuple[str, Any, Any] | tuple[str, Any]  # ("createBranch", name, snapshot), ("removeBranch", name), …


class Overtaken(Exception):
    """Another writer has committed first: look again and try again."""


class Table(Protocol):
    def types(self) -> dict[str, str]:
        """Column name → Iceberg type."""

    def main(self) -> int | None:
        """The snapshot of `main`; None before the first commit."""

    def ref(self, name: str) -> int | None:
        """The snapshot of a branch or tag, if there is one."""

    def refs(self) -> dict[str, int]:
        """Every branch and tag with its snapshot."""

    def snapshots(self) -> set[int]:
        """Every snapshot that has not expired."""

    def first(self) -> int:
        """The oldest of them."""

    def summary(self, snapshot: int) -> dict[str, str]:
        """What its commit added, and its totals: files, bytes, rows."""

    def begin(self) -> None:
        """Commit an empty first snapshot."""

    def commit(self, steps: list[Step]) -> None:
        """Change branches and tags; without steps nothing. Raises `Overtaken`."""

    def expire(self, snapshots: set[int]) -> None:
        """Drop snapshots, and the files that no other has. Raises `Overtaken`."""


def classic(spark: SparkSession) -> bool:
    """Is the JVM in this process, not behind Spark Connect?"""
    return hasattr(spark, "_jsparkSession")


class InProcess:
    """Through Iceberg's Java API: `of(name)` loads the table's newest metadata."""

    def __init__(self, spark: SparkSession) -> None:
        session: Any = spark
        self._util = session._jvm.org.apache.iceberg.spark.Spark3Util  # looked up once: a call to the JVM for each dot
        self._session = session._jsparkSession

    def of(self, name: str) -> Table:
        return _Java(self._util.loadIcebergTable(self._session, name))


class _Java:
    def __init__(self, table: Any) -> None:
        self._table = table

    def types(self) -> dict[str, str]:
        return {str(f.name()): str(f.type()).lower() for f in self._table.schema().columns()}

    def main(self) -> int | None:
        return _id(self._table.currentSnapshot())

    def ref(self, name: str) -> int | None:
        return _id(self._table.snapshot(name))

    def refs(self) -> dict[str, int]:
        return {str(name): int(ref.snapshotId()) for name, ref in self._table.refs().items()}

    def snapshots(self) -> set[int]:
        return {int(s.snapshotId()) for s in self._table.snapshots()}

    def first(self) -> int:
        return int(min((s.sequenceNumber(), s.snapshotId()) for s in self._table.snapshots())[1])

    def summary(self, snapshot: int) -> dict[str, str]:
        return dict(self._table.snapshot(snapshot).summary())

    def begin(self) -> None:
        self._commit(self._table.newAppend())

    def commit(self, steps: list[Step]) -> None:
        if not steps:
            return
        change = self._table.manageSnapshots()
        for step, *arguments in steps:
            change = getattr(change, step)(*arguments)
        self._commit(change)

    def expire(self, snapshots: set[int]) -> None:
        change = self._table.expireSnapshots().cleanExpiredFiles(True)
        for snapshot in snapshots:
            change = change.expireSnapshotId(snapshot)
        self._commit(change)

    @staticmethod
    def _commit(change: Any) -> None:
        try:
            change.commit()
        except Py4JJavaError as error:
            if "CommitFailedException" not in str(error.java_exception.getClass().getName()):
                raise
            raise Overtaken from error


def _id(snapshot: Any) -> int | None:
    return None if snapshot is None else int(snapshot.snapshotId())


_STEPS = {
    "createBranch": "CREATE BRANCH `{0}` AS OF VERSION {1}",
    "replaceBranch": "REPLACE BRANCH `{0}` AS OF VERSION {1}",
    "removeBranch": "DROP BRANCH IF EXISTS `{0}`",
    "createTag": "CREATE TAG IF NOT EXISTS `{0}` AS OF VERSION {1}",
    "removeTag": "DROP TAG IF EXISTS `{0}`",
}


class OverSql:
    """For a session without a JVM: changes are SQL; what is there is read from the table's metadata file, the one that
    the catalog's own SQL table names. Such a file never changes, so it is read once; by Spark when it is on no disk of
    this machine."""

    def __init__(self, spark: SparkSession, database: str) -> None:
        self._spark = spark
        self._engine = sa.create_engine(database)
        self._read: dict[str, Metadata] = {}  # by the file's location

    def of(self, name: str) -> Table:
        where = self._locations(name.split(".")[0])
        if name not in where:
            raise AltneuError(f"there is no table {name}.", "altneu status")
        if where[name] not in self._read:
            self._load([location for location in where.values() if location not in self._read])
        return _Sql(self, name, self._read[where[name]])

    def _locations(self, catalog: str) -> dict[str, str]:
        columns = "table_namespace, table_name, metadata_location"
        query = sa.text(f"SELECT {columns} FROM iceberg_tables WHERE catalog_name = :catalog")
        with self._engine.connect() as connection:
            found = connection.execute(query, {"catalog": catalog}).all()
        return {f"{catalog}.{namespace}.{table}": location for namespace, table, location in found}

    def _load(self, locations: list[str]) -> None:
        try:
            texts = [Path(location.removeprefix("file:")).read_text() for location in locations]
        except OSError:
            texts = [row[0] for row in self._spark.read.text(locations, wholetext=True).collect()]
        for text in texts:
            metadata = json.loads(text)
            root = metadata["location"] + "/"
            self._read |= {location: metadata for location in locations if location.startswith(root)}

    def change(self, statement: str) -> None:
        try:
            self._spark.sql(statement)  # a command: it is done at once
        except PySparkException as error:
            if "CommitFailedException" not in str(error):
                raise
            raise Overtaken from error


class _Sql:
    def __init__(self, tables: OverSql, name: str, metadata: Metadata) -> None:
        self._tables, self._name, self._metadata = tables, name, metadata
        self._snapshots = {snapshot["snapshot-id"]: snapshot for snapshot in metadata.get("snapshots", ())}

    def types(self) -> dict[str, str]:
        now = self._metadata["current-schema-id"]
        fields = next(schema["fields"] for schema in self._metadata["schemas"] if schema["schema-id"] == now)
        return {field["name"]: field["type"] for field in fields}

    def main(self) -> int | None:
        return self.ref("main")

    def ref(self, name: str) -> int | None:
        return self.refs().get(name)

    def refs(self) -> dict[str, int]:
        return {name: ref["snapshot-id"] for name, ref in self._metadata.get("refs", {}).items()}

    def snapshots(self) -> set[int]:
        return set(self._snapshots)

    def first(self) -> int:
        return min(self._snapshots, key=lambda snapshot: (self._snapshots[snapshot]["sequence-number"], snapshot))

    def summary(self, snapshot: int) -> dict[str, str]:
        return {name: value for name, value in self._snapshots[snapshot]["summary"].items() if name != "operation"}

    def begin(self) -> None:
        self._tables.change(f"INSERT INTO {self._name} SELECT * FROM {self._name} WHERE false")

    def commit(self, steps: list[Step]) -> None:
        for step, *arguments in steps:
            self._tables.change(f"ALTER TABLE {self._name} {_STEPS[step].format(*arguments)}")

    def expire(self, snapshots: set[int]) -> None:
        catalog, _, table = self._name.partition(".")
        ids = ", ".join(f"{snapshot}L" for snapshot in sorted(snapshots))
        self._tables.change(
            f"CALL {catalog}.system.expire_snapshots(table => '{table}', snapshot_ids => array({ids}))"
        )


def tables(spark: SparkSession, database: str) -> InProcess | OverSql:
    """How this session reaches Iceberg's metadata, whose catalog is in `database` (an SQLAlchemy URI)."""
    return InProcess(spark) if classic(spark) else OverSql(spark, database)
