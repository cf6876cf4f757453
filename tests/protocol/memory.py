"""Iceberg's narrow interface (`iceberg.IcebergTable`, `iceberg.TableWriter`) in memory, and the steps at which a
process may stop.

A table's metadata file is a dictionary as Iceberg's specification has it, its location a number that every commit moves
on; the rows of a snapshot are one tuple of whatever the writer calls a row. Whoever commits on a location that is not
the newest is `CommitConflict`, but an append to a branch is tried again, as Iceberg does. A step is a look at a table,
a commit, a transaction or a read of the ledger's database: `step` hands each to the `scheduler` of the process that
does it. `tests.ledger_only` has whole runs on these tables, without a scheduler.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from altneu.pipeline.storage import iceberg
from altneu.pipeline.storage.branches import Branches
from altneu.pipeline.storage.file_tiers import FilePlan
from altneu.pipeline.storage.ref_changes import Metadata, Step

Rows = tuple[Any, ...]
ROW_BYTES = 100  # what a row counts as
Scheduler = Callable[[str, bool], str]  # of the step that comes: what it is, and whether it writes; "go" or "lost"


class Lost(ConnectionError):
    """It was done, and the answer did not come."""


def at_once(what: str, writes: bool) -> str:
    return "go"


@dataclass
class Catalog:
    """All tables: name → location, metadata, and rows by snapshot."""

    locations: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, Metadata] = field(default_factory=dict)
    rows: dict[str, dict[int, Rows]] = field(default_factory=dict)
    newest: int = 0  # snapshot

    def make(self, name: str) -> None:
        self.locations[name], self.metadata[name], self.rows[name] = 0, {"snapshots": [], "refs": {}}, {}
        self.add(name, "main", None, (), True)

    def add(
        self, name: str, branch: str, parent: int | None, rows: Rows, whole: bool, plan: FilePlan | None = None
    ) -> None:
        self.newest += 1
        before = () if whole or parent is None else self.rows[name][parent]
        metadata = copy.deepcopy(self.metadata[name])
        files, merged = 0 if whole else self.files(name, parent), 0
        before_files = files
        if plan is not None and plan.rewrite_after is not None:
            files, merged = len(plan.kept_tiers), len(before) - sum(tier.rows for tier in plan.kept_tiers)
        summary = {
            "added-records": merged + len(rows),
            "deleted-records": merged,
            "deleted-data-files": before_files - files,
            "removed-files-size": ROW_BYTES * merged,
            "total-records": len(before + rows),
            "total-data-files": files + bool(merged or rows),
            "total-files-size": ROW_BYTES * len(before + rows),
        }
        snapshot = {
            "snapshot-id": self.newest,
            "parent-snapshot-id": parent,
            "sequence-number": self.newest,
            "summary": {key: str(number) for key, number in summary.items()}
            | ({} if plan is None else plan.tier_properties),
        }
        metadata["snapshots"].append(snapshot)
        metadata["refs"][branch] = {"snapshot-id": self.newest}
        self.rows[name][self.newest] = before + rows
        self.put(name, metadata)

    def files(self, name: str, snapshot: int | None) -> int:
        """How many files a snapshot would have: one for each tier since the table was written whole."""
        found = {each["snapshot-id"]: each for each in self.metadata[name]["snapshots"]}
        return int(found[snapshot]["summary"]["total-data-files"]) if snapshot in found else 0

    def put(self, name: str, metadata: Metadata) -> None:
        self.metadata[name] = metadata
        self.locations[name] += 1

    def state(self) -> str:
        return repr((self.metadata, sorted((name, sorted(rows)) for name, rows in self.rows.items())))


class ProcessBranches(Branches):
    """The branches of the tables as a process has them."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.catalog.metadata, process.look)
        self.process = process

    def remove_orphans(self, table: str) -> int:
        return 0

    def list_query_tables(self) -> list[str]:
        return []


class Process:
    """What one process sees of the catalog and of the database: every call is a step of its scheduler."""

    def __init__(self, catalog: Catalog, scheduler: Scheduler = at_once) -> None:
        self.catalog, self.step = catalog, scheduler

    def branches(self) -> ProcessBranches:
        return ProcessBranches(self)

    def look(self, name: str) -> iceberg.IcebergTable:
        self.step(f"look at {name}", False)
        return iceberg.IcebergTable(name, str(self.catalog.locations[name]), self.catalog.metadata[name], self)

    def read(self, name: str, snapshot: int) -> Rows:
        self.step(f"read {name}", False)
        if snapshot not in self.catalog.rows[name]:
            raise FileNotFoundError(f"snapshot {snapshot} of {name}")
        return self.catalog.rows[name][snapshot]

    # -- iceberg.TableWriter ------------------------------------------------------------------------------------------

    def commit_first_snapshot(self, name: str) -> None:
        raise NotImplementedError

    def commit_steps(self, name: str, location: str, steps: list[Step]) -> None:
        with self._written(f"commit {name}: {' '.join(step[0] for step in steps)}"):
            if str(self.catalog.locations[name]) != location:
                raise iceberg.CommitConflict
            metadata = copy.deepcopy(self.catalog.metadata[name])
            refs, snapshots = metadata["refs"], {each["snapshot-id"] for each in metadata["snapshots"]}
            for step, ref, *snapshot in steps:
                if (step.startswith("create") and ref in refs) or (step.startswith("remove") and ref not in refs):
                    raise ValueError(f"{step} {ref}: {refs}")
                if snapshot and snapshot[0] not in snapshots:
                    raise FileNotFoundError(f"snapshot {snapshot[0]} of {name}")
                if step.startswith("remove"):
                    del refs[ref]
                else:
                    refs[ref] = {"snapshot-id": snapshot[0]}
            self.catalog.put(name, metadata)

    def expire_snapshots(self, name: str, snapshots: set[int]) -> None:
        with self._written(f"expire {name}"):
            metadata = copy.deepcopy(self.catalog.metadata[name])
            metadata["snapshots"] = [each for each in metadata["snapshots"] if each["snapshot-id"] not in snapshots]
            held = {ref["snapshot-id"] for ref in metadata["refs"].values()}
            if held & snapshots:
                raise ValueError(f"{held & snapshots} of {name} have a name")
            self.catalog.rows[name] = {s: rows for s, rows in self.catalog.rows[name].items() if s not in snapshots}
            self.catalog.put(name, metadata)

    def append_rows(self, name: str, branch: str, rows: Any, files: FilePlan | None) -> None:
        self._add(name, branch, rows, False, files)

    def overwrite_rows(self, name: str, branch: str, rows: Any, files: FilePlan | None) -> None:
        assert files is None, "compactions in memory write every table as a whole"
        self._add(name, branch, rows, True)

    def _add(self, name: str, branch: str, rows: Rows, whole: bool, files: FilePlan | None = None) -> None:
        with self._written(f"write {name}"):
            ref = self.catalog.metadata[name]["refs"].get(branch)
            if ref is None:
                raise FileNotFoundError(f"branch {branch} of {name}")
            self.catalog.add(name, branch, ref["snapshot-id"], rows, whole, files)

    @contextlib.contextmanager
    def _written(self, what: str) -> Iterator[None]:
        lost = self.step(what, True) == "lost"
        yield
        if lost:
            raise Lost(what)


class Database:
    """An SQLAlchemy engine as a process has it: every transaction is a step."""

    def __init__(self, engine: sa.Engine, process: Process) -> None:
        self._engine, self._process = engine, process
        self.dialect = engine.dialect

    @contextlib.contextmanager
    def connect(self) -> Iterator[sa.Connection]:
        self._process.step("read the database", False)
        with self._engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        lost = self._process.step("transaction", True) == "lost"
        with self._engine.begin() as connection:
            yield connection
        if lost:
            raise sa.exc.OperationalError("COMMIT", {}, Lost("transaction"))
