"""Iceberg's metadata: branches, tags and snapshots of one table, read and changed without reading its rows.

`tables(spark).of(name)` is Iceberg's own Java object where a JVM is in the process (a change costs milliseconds), and
SQL on a Spark Connect server, where there is none (a change costs a query). Both say the same. A change is a list of
steps, each named as in Iceberg's Java API; `commit` does them in order. Over SQL each is a commit of its own, so they
must be right one by one and when they are done again: `Warehouse` makes them anew from what is there.
"""

from __future__ import annotations

from typing import Any, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

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

    def forget(self, name: str | None = None) -> None:
        """Nothing is remembered here."""

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
    """Through SQL, for a session without a JVM.

    What is asked again and again, refs and summaries, is read for all tables in one query and remembered until we
    change the table ourselves or `forget`: of what others change meanwhile, nothing that matters is decided by it.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._asked: list[str] = []
        self._refs: dict[str, dict[str, int]] = {}
        self._summaries: dict[tuple[str, int], dict[str, str]] = {}

    def of(self, name: str) -> Table:
        if name not in self._asked:
            self._asked.append(name)
        return _Sql(self, name)

    def forget(self, name: str | None = None) -> None:
        for each in [name] if name else list(self._refs):
            self._refs.pop(each, None)

    def refs(self, name: str) -> dict[str, int]:
        if name not in self._refs:
            missing = [each for each in self._asked if each not in self._refs]
            self._refs |= {each: {} for each in missing}
            queries = (
                f"SELECT '{each}', name, snapshot_id, summary FROM {each}.refs JOIN {each}.snapshots "
                "USING (snapshot_id)"
                for each in missing
            )
            for table, ref, snapshot, summary in self.ask(" UNION ALL ".join(queries)):
                self._refs[table][ref] = snapshot
                self._summaries[table, snapshot] = dict(summary)
        return self._refs[name]

    def summary(self, name: str, snapshot: int) -> dict[str, str]:
        if (name, snapshot) not in self._summaries:
            rows = self.ask(f"SELECT summary FROM {name}.snapshots WHERE snapshot_id = {snapshot}")
            self._summaries[name, snapshot] = dict(rows[0][0])
        return self._summaries[name, snapshot]

    def ask(self, query: str) -> list[Any]:
        return self._spark.sql(query).collect()

    def change(self, name: str, statement: str) -> None:
        try:
            self.ask(statement)
        except PySparkException as error:
            if "CommitFailedException" not in str(error):
                raise
            raise Overtaken from error
        finally:
            self.forget(name)

    def types(self, name: str) -> dict[str, str]:
        return {f.name: f.dataType.simpleString() for f in self._spark.table(name).schema}


class _Sql:
    def __init__(self, tables: OverSql, name: str) -> None:
        self._tables, self._name = tables, name

    def types(self) -> dict[str, str]:
        as_iceberg = {"bigint": "long"}
        return {name: as_iceberg.get(type_, type_) for name, type_ in self._tables.types(self._name).items()}

    def main(self) -> int | None:
        return self.ref("main")

    def ref(self, name: str) -> int | None:
        return self.refs().get(name)

    def refs(self) -> dict[str, int]:
        return self._tables.refs(self._name)

    def snapshots(self) -> set[int]:
        return {row[0] for row in self._tables.ask(f"SELECT snapshot_id FROM {self._name}.snapshots")}

    def first(self) -> int:
        query = f"SELECT min_by(snapshot_id, (parent_id IS NOT NULL, committed_at)) FROM {self._name}.snapshots"
        return int(self._tables.ask(query)[0][0])

    def summary(self, snapshot: int) -> dict[str, str]:
        return self._tables.summary(self._name, snapshot)

    def begin(self) -> None:
        self._tables.change(self._name, f"INSERT INTO {self._name} SELECT * FROM {self._name} WHERE false")

    def commit(self, steps: list[Step]) -> None:
        for step, *arguments in steps:
            self._tables.change(self._name, f"ALTER TABLE {self._name} {_STEPS[step].format(*arguments)}")

    def expire(self, snapshots: set[int]) -> None:
        catalog, _, table = self._name.partition(".")
        ids = ", ".join(f"{snapshot}L" for snapshot in sorted(snapshots))
        call = f"CALL {catalog}.system.expire_snapshots(table => '{table}', snapshot_ids => array({ids}))"
        self._tables.change(self._name, call)


def tables(spark: SparkSession) -> InProcess | OverSql:
    """How this session reaches Iceberg's metadata."""
    return InProcess(spark) if classic(spark) else OverSql(spark)
