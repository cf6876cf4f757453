"""A home on the in-memory catalog, what its processes do, and the invariants of docs/protocol.md."""

from __future__ import annotations

import contextlib
import itertools
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

import altneu.pipeline.maintenance.compact
import altneu.pipeline.maintenance.rollback
import altneu.pipeline.report
import altneu.pipeline.run.run_context
import altneu.pipeline.state.versions
import altneu.pipeline.storage.session
from altneu.pipeline import events
from altneu.pipeline.errors import AltneuError, LeaseLost, RevisionConflict
from altneu.pipeline.home.home import Home
from altneu.pipeline.maintenance import compact, rollback
from altneu.pipeline.observability import telemetry
from altneu.pipeline.run import approval, run_session, runner, stages
from altneu.pipeline.run.run_context import RunContext
from altneu.pipeline.run.stages import publish as publish_stage
from altneu.pipeline.state import clock, lease, process_identity
from altneu.pipeline.state import ledger as ledger_module
from altneu.pipeline.state.database_session import DatabaseSession
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import OPEN_STATES, Revision
from altneu.pipeline.state.schema import metadata
from altneu.pipeline.state.stage_results import AuditFacts, Facts
from altneu.pipeline.storage.branches import branch_of
from tests.protocol.memory import Catalog, Database, Process, Rows, Scheduler, at_once

TABLES = ("edges", "degrees")
SETTINGS = "[retention]\nrevisions = 2\n"
GRACE = 3600.0


class Protocol:
    """The real code under the explorer: what starts Spark, sleeps, or is not of one process's steps is taken out."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch) -> None:
        (path / "altneu.toml").write_text(SETTINGS)
        self.home = Home.open(path)
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.world: ProtocolWorld | None = None
        self.stages: dict[str, Callable[[RunContext], Facts]] = {"audit": see, "publish": publish_stage.publish}
        self.grace = GRACE
        patch.setattr(clock, "read_clock", lambda: self.now)
        patch.setattr(lease, "run_periodically", lambda seconds, work: contextlib.nullcontext())
        patch.setattr("tenacity.nap.time", SimpleNamespace(sleep=lambda seconds: None))
        patch.setattr(altneu.pipeline.storage.session, "session_for", lambda *_: None)
        patch.setattr(altneu.pipeline.storage.session, "size_plans", lambda *_: contextlib.nullcontext())
        patch.setattr(telemetry.StageTelemetry, "measure", lambda stage, function, run: function(run))
        patch.setattr(stages.Stage, "run_stage", lambda stage, run: self.stages[stage.name](run))
        for name in ("count_read_rows", "count_stored_rows"):
            patch.setattr(RunContext, name, lambda run: 0)
        patch.setattr(events.log, "disabled", True)
        for module in (
            altneu.pipeline.report,
            altneu.pipeline.maintenance.rollback,
            altneu.pipeline.maintenance.compact,
        ):
            patch.setattr(module, "refresh_pages", lambda *_: None)
        patch.setattr(altneu.pipeline.run.run_context, "Warehouse", lambda *_: self.world.process.branches())  # type: ignore[union-attr]
        patch.setattr(rollback, "open_branches", lambda home: self.world.process.branches())  # type: ignore[union-attr]
        patch.setattr(rollback, "rewrite_revision", lambda *of: self.world.written_again(*of))  # type: ignore[union-attr]
        patch.setattr(publish_stage, "TIDIED_EVERY", 1)
        names = itertools.count()
        patch.setattr(run_session, "new_run_id", lambda: f"session{next(names)}")
        self.engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool, connect_args={"check_same_thread": False})
        metadata.create_all(self.engine)
        patch.setattr(altneu.pipeline.state.versions, "prepare_database", lambda *_: None)
        self.truth = ledger_of(self.home, self.engine, "nobody/1/1.00")
        self.template: tuple[bytes, Catalog] | None = None

    @property
    def sqlite(self) -> sqlite3.Connection:
        found: Any = self.engine.raw_connection().driver_connection
        return found  # type: ignore[no-any-return]

    def make_world(self, works: dict[str, Callable[[ProtocolWorld], Any]]) -> ProtocolWorld:
        """Return a world with two published revisions, in which each process does its own of `works`."""
        import copy

        if self.template is None:
            world = ProtocolWorld(self, Catalog(), {})
            for table in TABLES:
                world.catalog.make(table)
            for name in ("first", "second"):
                world.write(name)
                self.now += timedelta(seconds=1)
            self.template = (self.sqlite.serialize(), world.catalog)
        database, catalog = self.template
        self.sqlite.deserialize(database)
        self.now = datetime(2026, 1, 2, tzinfo=UTC)
        return ProtocolWorld(self, copy.deepcopy(catalog), works)


def see(run: RunContext) -> AuditFacts:
    """A stage that writes all tables, and one that looks at them: as the audit does, it records what it has seen."""
    for table in TABLES:
        run.put_rows(table, (run.run_id,))
    return AuditFacts(checks=0, failed=0, critical=0, snapshots=run.unpublished_revision().snapshots)


@dataclass
class Books:
    """What is published, and what every table has to hold at each revision."""

    revisions: list[Revision]
    runs: dict[str, Any]
    content: dict[int, Rows]
    numbers: dict[str, int]  # run → revision

    def visible(self, rows: Rows, at: Revision) -> Rows:
        """Return the rows of a table that a reader of the revision sees, as `Warehouse.read_table` chooses them."""

        def sees(row: str) -> bool:
            number = self.numbers.get(row)
            return number is None or (number <= at.revision and not any(a <= number <= b for a, b in at.hidden))

        return tuple(row for row in rows if sees(row))


def ledger_of(home: Home, engine: Any, owner: str) -> Ledger:
    """The ledger of a home over an engine that has its tables, as the process `owner` has it."""
    session = DatabaseSession.__new__(DatabaseSession)
    session.uri, session.engine, session.leases, session.owner = "", engine, set(), lambda: owner
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_module, "DatabaseSession", lambda *_: session)
        return Ledger(home)


class ProtocolWorld:
    """One execution's home. `work` is what each process does, in its own words."""

    def __init__(self, protocol: Protocol, catalog: Catalog, works: dict[str, Callable[[ProtocolWorld], Any]]) -> None:
        self.protocol, self.catalog, self.works = protocol, catalog, works
        self.steps: dict[str, Scheduler] = {}
        self.name = ""
        protocol.world = self

    def start(self, steps: dict[str, Scheduler]) -> None:
        self.steps = steps

    def work(self, name: str) -> Any:
        return self.works[name](self)

    @property
    def process(self) -> Process:
        """The process that is at work: the greenlet that asks."""
        from greenlet import getcurrent

        return self._process(getattr(getcurrent(), "altneu", ""))

    def _process(self, name: str) -> Process:
        return Process(self.catalog, self.steps.get(name, at_once))

    def ledger(self, name: str) -> Ledger:
        """The ledger as the process `name` has it."""
        from greenlet import getcurrent

        current: Any = getcurrent()
        with contextlib.suppress(AttributeError):
            current.altneu = name
        return ledger_of(self.protocol.home, Database(self.protocol.engine, self._process(name)), f"{name}/1/1.00")

    # -- what processes do ------------------------------------------------------------------------------------------

    def write(self, name: str, run_id: str | None = None) -> str:
        """A run, stage by stage; a stage that fails is tried once more, as Airflow does."""
        book, run_id = self.ledger(name), run_id or f"run of {name}"
        book.runs.create(run_id, book.revisions.get().revision, epochs=[1], config={})
        return self.stages(book, run_id)

    def stages(self, book: Ledger, run_id: str, tries: int = 2) -> str:
        for stage in ("audit", "publish"):
            for attempt in range(tries):
                try:
                    runner.execute_stage(book, run_id, stage)
                    break
                except (RevisionConflict, LeaseLost):
                    raise
                except AltneuError:
                    if attempt == tries - 1:
                        raise
        return "published"

    def hold(self, name: str) -> str:
        """A run that is held."""
        book, run_id = self.ledger(name), f"run of {name}"
        book.runs.create(
            run_id,
            book.revisions.get().revision,
            epochs=[1],
            config=self.protocol.home.config.semantic_settings(),
            hold=True,
        )
        runner.execute_stage(book, run_id, "audit")
        approval.hold_unapproved_run(book, run_id)
        return "held"

    def decide(self, name: str, how: str) -> str:
        """Somebody publishes, or discards, what is held then; a second time, as it was said to."""
        book = self.ledger(name)
        for run in book.runs.list_held()[:1]:
            if how == "discard":
                approval.reject_run(book, run, name, None)
                return "rejected"
            approval.approve_run(book, run, name, None)
            runner.execute_stage(book, run.run_id, "publish")
            return "published"
        return "nothing is held"

    def take_over(self, name: str, run_id: str) -> str:
        """The next try of another process's run, on another machine, after a minute without a heartbeat."""
        self.protocol.now += timedelta(seconds=process_identity.SILENCE + 1)
        book = self.ledger(name)
        if not any(row.run_id == run_id for row in book.runs.list_all()):
            return "nothing to take over"
        return self.stages(book, run_id)

    def compact(self, name: str) -> str:
        book, protocol = self.ledger(name), self.protocol
        tables = self._process(name).branches()
        MemoryCompaction(book, tables, book.revisions.get(), protocol.grace, lambda text: None).execute()  # type: ignore[arg-type]
        return "done"

    def roll_back(self, name: str, revision: int) -> str:
        rollback.roll_back(self.ledger(name), revision)
        return "published"

    def written_again(self, book: Ledger, run_id: str, target: Revision) -> dict[str, int]:
        """What a revision shows of the tables that it shares."""
        process, books = self.process, self.known()
        branches, pins = process.branches(), target.snapshots.items()
        return {
            table: branches.rewrite_on_branch(table, run_id, pin, books.visible(process.read(table, pin), target))
            for table, pin in pins
        }

    def look(self, name: str) -> str:
        """A reader of the newest revision, table by table."""
        book = self.ledger(name)
        row, process = book.revisions.get(), self._process(name)
        for table, snapshot in row.snapshots.items():
            try:
                rows = process.read(table, snapshot)
            except FileNotFoundError as error:
                raise Unreadable(f"a reader of revision {row.revision} cannot read on: {error}") from None
            books = self.known()
            seen, content = books.visible(rows, row), books.content[row.revision]
            if seen != content:
                raise Unreadable(f"a reader of revision {row.revision} sees {seen}, not {content}")
        return "read"

    # -- invariants -------------------------------------------------------------------------------------------------

    def known(self) -> Books:
        """The database as it is, read once; with what every table holds at a revision: the runs that it builds on."""
        truth = self.protocol.truth
        revisions, runs = truth.revisions.list_all(), {row.run_id: row for row in truth.runs.list_all()}
        content: dict[int, Rows] = {0: ()}
        for row in revisions:
            back = runs[row.run_id].kind == "rollback"
            content[row.revision] = content[1] if back else (*content[row.parent], row.run_id)
        return Books(revisions, runs, content, {row.run_id: row.revision for row in revisions})

    def check(self) -> None:
        """What holds after every step."""
        books = self.known()
        revisions, runs = books.revisions, books.runs
        assert [(r.revision, r.parent) for r in revisions] == [(i + 1, i) for i in range(len(revisions))], "one chain"
        published = {run_id for run_id, row in runs.items() if row.state == "published"}
        assert published == {row.run_id for row in revisions}, "published is what the ledger says"
        for row in revisions:
            assert runs[row.run_id].parent == row.parent, f"{row.run_id} was published on another parent than its own"
            self._live(books, f"revision {row.revision}", row)
        newest = revisions[-1]
        for run in runs.values():
            if run.state == "held":  # whatever was published since: it is whole until somebody decides
                self._held(books, run)
        for run in runs.values():
            if run.state in OPEN_STATES and run.kind != "compact" and run.parent == newest.revision and run.base:
                pins = run.base.snapshots
                self._live(books, f"what {run.run_id} builds on", replace(newest, snapshots=pins))
        for table in TABLES:
            self._names(books, table)

    def _names(self, books: Books, table: str) -> None:
        """`main` is what is or was published, as its readers see it, and nothing else; so is each tag, by its number.
        The revision may be one that a compaction has dropped since."""
        for name, ref in self.catalog.metadata[table]["refs"].items():
            rows = self.catalog.rows[table].get(ref["snapshot-id"], ("nothing",))
            if name == "main":
                assert rows in [*books.content.values()], f"main of {table} shows what was not published: {rows}"
            elif name.startswith("r") and not name.startswith("run_"):
                assert rows == books.content.get(int(name[1:])), f"tag {name} of {table} holds {rows}"

    def _held(self, books: Books, run: Any) -> None:
        for table, pinned in run.base.snapshots.items():
            refs = self.catalog.metadata[table]["refs"]
            head = refs.get(branch_of(run.run_id), {}).get("snapshot-id")
            for what, snapshot in (("base", pinned), ("branch", head)):
                assert snapshot in self.catalog.rows[table], f"held {run.run_id}: its {what} of {table} is gone"
            rows = self.catalog.rows[table][head]
            assert rows == (*self.catalog.rows[table][pinned], run.run_id), f"held {run.run_id}: {table} holds {rows}"

    def _live(self, books: Books, what: str, row: Revision) -> None:
        for table, snapshot in row.snapshots.items():
            there = {each["snapshot-id"] for each in self.catalog.metadata[table]["snapshots"]}
            assert snapshot in there, f"{what}: snapshot {snapshot} of {table} is gone"
            found, content = books.visible(self.catalog.rows[table][snapshot], row), books.content[row.revision]
            assert found == content, f"{what}: {table} holds {found}, not {content}"

    def settle(self, outcomes: dict[str, str], faulty: bool) -> None:
        """How processes may end, and what holds after the next publication, later."""
        for name, outcome in outcomes.items():
            assert not outcome.startswith("Unreadable"), f"{name}: {outcome}"
            assert not outcome.startswith(("AssertionError", "ValueError", "KeyError")), f"{name}: {outcome}"
            said = outcome.partition(":")[0]
            fine = said in ("published", "done", "read", "RevisionConflict", "LeaseLost", "nothing to take over")
            fine = fine or said in ("held", "rejected", "nothing is held") or "it was rejected by bob" in outcome
            dropped = name == "rollback" and "a compaction kept only" in outcome
            # the process whose run was taken over has written once more: the run is given up, and the next one is new
            disturbed = name == "later" and said == "ForeignWrite"
            assert faulty or fine or dropped or disturbed, f"{name}, undisturbed: {outcome}"
        self.check()
        self.protocol.now += timedelta(
            days=self.protocol.home.config.runs.hold_days, seconds=process_identity.SILENCE + 1
        )
        assert self.write("the next") == "published"
        self.check()
        books = self.known()
        assert not [run for run in books.runs.values() if run.state == "held"], "held for longer than it is kept"
        newest = books.revisions[-1]
        for table in TABLES:
            refs = {name: ref["snapshot-id"] for name, ref in self.catalog.metadata[table]["refs"].items()}
            assert refs["main"] == newest.snapshots[table], f"main of {table} does not follow the ledger"
            tags = {name: refs.pop(name) for name in [*refs] if re.fullmatch(r"r\d+", name)}
            for row in books.revisions:
                pin, others = row.snapshots.get(table), books.revisions[row.revision :]
                if pin is not None and not any(pin == other.snapshots.get(table) for other in others):
                    assert tags.get(f"r{row.revision}") == pin, f"{table} has no tag of revision {row.revision}: {tags}"
                if pin is None:
                    assert f"r{row.revision}" not in tags, (
                        f"{table} has a tag of revision {row.revision}, which is gone"
                    )
            branches = {name for name in refs if not name.startswith("going_")}
            assert branches == {"main"}, f"branches of {table} stay: {branches}"
        at_work = [row.run_id for row in books.runs.values() if row.state == "running"]
        assert not at_work, f"{at_work} count as running"


class MemoryCompaction(compact.Compaction):
    """A compaction that writes every table again, with the rows that it has."""

    def rewrite_table(self, table: str, run_id: str, retention: compact.Retention) -> int:
        branches: Any = self.warehouse
        base = self.row.snapshots[table]
        return branches.rewrite_on_branch(table, run_id, base, branches.process.read(table, base))  # type: ignore[no-any-return]

    def verify_tables(self, pins: dict[str, int], retention: compact.Retention) -> None:
        pass


class Unreadable(Exception):
    """A reader does not see a revision, whole."""


@contextlib.contextmanager
def protocol(path: Path) -> Iterator[Protocol]:
    with pytest.MonkeyPatch.context() as patch:
        yield Protocol(path, patch)
