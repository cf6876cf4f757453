"""Runs without Spark, in a few tenths of a second: for what a person decides, reads or types around runs.

Inside `run_without_spark` the ledger, the runner, decisions, held runs, rollback, the command line, pages and readers
are the real ones. The tables are `tests.protocol.memory`'s, read by DuckDB from memory, and the stages up to the audit
those of `tests.plain_stages`. Only what these write is not computed by the product: `tests/e2e/test_ledger_only.py`
plays one scene both ways and compares. A home that moves, and whatever else looks at the files of tables, needs Spark.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from altneu.pipeline.errors import AltneuError
from altneu.pipeline.home.home import Home
from altneu.pipeline.landing import spark_reader
from altneu.pipeline.maintenance import compact, rollback
from altneu.pipeline.run import run_context
from altneu.pipeline.run.run_context import RunContext
from altneu.pipeline.run.stages import get_stage
from altneu.pipeline.state import home_identity
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import Revision
from altneu.pipeline.storage import bsp_round_tables, duckdb_tables, iceberg, refs_without_spark, session
from altneu.pipeline.storage.branches import Branches
from altneu.pipeline.storage.duckdb_tables import DuckTables, Query
from altneu.pipeline.storage.table_schemas import TABLES, require_pinned_snapshot, table_columns, visibility_condition
from tests import plain_stages
from tests.plain_stages import Check, Rows
from tests.protocol.memory import Catalog, Process

ARROW = {"bigint": pa.int64(), "double": pa.float64(), "string": pa.string(), "boolean": pa.bool_()}


@dataclass
class LedgerOnly:
    """The homes of a test. `checks`: what the audits of its runs find besides that all is equal."""

    catalogs: dict[Path, Catalog] = field(default_factory=dict)
    checks: Callable[[RunContext], list[Check]] = lambda run: []

    def catalog(self, home: Home) -> Catalog:
        return self.catalogs.setdefault(home.path.resolve(), Catalog())

    def tables(self, home: Home) -> MemoryTables:
        return MemoryTables(self, home)


class MemoryTables(Branches):
    """The tables of a home as a writer has them, in place of `Warehouse`."""

    distributed = False
    plain = ()
    collections = tuple(TABLES)

    def __init__(self, owner: LedgerOnly, home: Home) -> None:
        self.home, self.catalog = home, owner.catalog(home)
        process = Process(self.catalog)

        def look(table: str) -> iceberg.IcebergTable:
            if table not in self.catalog.metadata:
                raise AltneuError(f"there is no table {table}.", "altneu status")
            return process.look(table)

        super().__init__(self.collections, look)

    def ensure_tables(self, *, retype: bool = False) -> None:
        home_identity.claim_identity(self.home)
        for table in self.tables:
            if table not in self.catalog.metadata:
                self.catalog.make(table)

    def shown(self, table: str, snapshot: int, revision: Revision) -> Rows:
        """The rows of a snapshot that a revision shows."""
        hidden = revision.hidden

        def shows(number: int) -> bool:
            return number <= revision.revision and not any(first <= number <= last for first, last in hidden)

        return tuple(row for row in self.catalog.rows[table][snapshot] if shows(row[-2]))

    def size_plans(self, revision: Revision) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def remove_orphans(self, table: str) -> int:
        return 0

    def list_query_tables(self) -> list[str]:
        return []


class MemoryReader(DuckTables):
    """The same as a reader has them, in place of `DuckTables`."""

    def __init__(self, owner: LedgerOnly, home: Home) -> None:
        import duckdb

        home_identity.require_identity(home)
        self.home, self._tables = home, owner.tables(home)
        self._connection = duckdb.connect(config=duckdb_tables._SETTINGS)

    def read_table(self, table: str, revision: Revision) -> Query:
        if revision.frontier is None:
            return self.empty_rows(table)
        snapshot = require_pinned_snapshot(table, revision)
        rows = self._tables.catalog.rows[table].get(snapshot)
        if rows is None:
            raise AltneuError(f"table {table} has no snapshot {snapshot} any more.", "altneu doctor")
        columns = table_columns(self.home, table)
        held = {name: [row[at] for row in rows] for at, name in enumerate(columns)}
        name = f"held_{table}_{snapshot}"
        arrow = pa.table({each: pa.array(held[each], ARROW[type_]) for each, type_ in columns.items()})
        return Query(f"SELECT * FROM {name} WHERE {visibility_condition(revision)}", {name: arrow})

    def count_stored_rows(self, revision: Revision, tables: tuple[str, ...]) -> int:
        pins = revision.snapshots
        return sum(self._tables.snapshot_size(table, pins[table]).rows for table in tables if table in pins)


def write_again(owner: LedgerOnly, ledger: Ledger, run_id: str, target: Revision) -> dict[str, int]:
    """Take the place of `rollback.rewrite_revision`."""
    tables = owner.tables(ledger.home)
    return {
        table: tables.rewrite_on_branch(table, run_id, pin, tables.shown(table, pin, target))
        for table, pin in target.snapshots.items()
    }


def rewrite_table(compaction: compact.Compaction, table: str, run_id: str, retention: compact.Retention) -> int:
    """Take the place of `Compaction.rewrite_table`: equal rows up to the oldest kept revision become one."""
    assert retention.since is None
    tables: Any = compaction.warehouse
    row, folded = compaction.row, dict[tuple[Any, ...], int]()
    for *key, revision, diff in tables.shown(table, row.snapshots[table], row):
        place_ = (*key, max(revision, retention.kept_revisions[0]))
        folded[place_] = folded.get(place_, 0) + diff
    rows = tuple((*key, diff) for key, diff in folded.items() if diff)
    return int(tables.rewrite_on_branch(table, run_id, row.snapshots[table], rows))


def trust_the_disk(connection: Any, _: Any) -> None:
    """Let SQLite not wait for the disk: of the machine's power no test takes away any."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


@contextlib.contextmanager
def run_without_spark(monkeypatch: pytest.MonkeyPatch | None = None) -> Iterator[LedgerOnly]:
    """Inside, runs of this process are as the first lines of this module say.

    `monkeypatch`: that of the test, which undoes what is replaced together with what the test replaces on top of it,
    in the right order. By default all is undone at the end of the block.
    """
    owner = LedgerOnly()
    with contextlib.nullcontext(monkeypatch) if monkeypatch else pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "session_for", lambda *_: None)
        patch.setattr(session, "size_plans", lambda *_: contextlib.nullcontext())
        for module in (run_context, compact):
            patch.setattr(module, "Warehouse", lambda _, home, *queries: owner.tables(home))
        patch.setattr(duckdb_tables, "DuckTables", lambda home: MemoryReader(owner, home))
        patch.setattr(spark_reader, "_read_files", plain_stages.read_here)
        for name, work in plain_stages.WORKS.items():
            patch.setattr(get_stage(name).load_module(), get_stage(name).function, work)
        audit = import_module("altneu.pipeline.run.stages.audit")
        patch.setattr(audit, "audit_run", lambda run: plain_stages.audit(run, owner.checks))
        for module in (refs_without_spark, rollback):
            patch.setattr(module, "open_branches", owner.tables)
        patch.setattr(rollback, "rewrite_revision", partial(write_again, owner))
        patch.setattr(compact.Compaction, "rewrite_table", rewrite_table)
        patch.setattr(compact.Compaction, "verify_tables", lambda *_: None)
        patch.setattr(bsp_round_tables, "drop_abandoned_rounds", lambda *_, **__: None)
        sa.event.listen(sa.Engine, "connect", trust_the_disk)
        try:
            yield owner
        finally:
            sa.event.remove(sa.Engine, "connect", trust_the_disk)
