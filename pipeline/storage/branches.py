"""The branches of the tables, into which runs write before they publish, and the tags and snapshots of revisions.

This module is the half of the commit protocol (docs/protocol.md) for the tables; `state.ledger` is the other half. A
run writes one commit to a branch of its own in each table, which starts at the snapshot on which the run builds. After
the ledger row, `main` and the tag of the revision are set for other programs (the ledger decides), and the branch is
dropped. Branches of runs that are over, and snapshots that nobody can read, are dropped later. The module does not
depend on Spark: a table is an `iceberg.IcebergTable`, and rows are passed to it unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from ..errors import ForeignWrite, Unavailable
from ..state import clock
from ..state.records import EMPTY, Revision
from ..state.revisions import exact_revisions
from ..state.stage_results import Size
from . import file_tiers, iceberg
from .catalogs import tag_name
from .ref_changes import Step

if TYPE_CHECKING:
    from ..state.ledger import Ledger
    from .horizons import Horizon

GRACE = 3600.0  # seconds for which readers may go on reading what nothing pins any more
COMMITS = 20  # tries of a commit when other writers commit first
_TAG = re.compile(r"r[1-9]\d*")  # the tags of revisions
_RUN, _GOING = "run_", "going_"  # the prefixes of the branches of runs, and of the tags of expired snapshots


class Branches:
    """The branches of some tables. `of` loads a table as it is now."""

    def __init__(self, tables: Iterable[str], of: Callable[[str], iceberg.IcebergTable]) -> None:
        self.tables = tuple(tables)
        self._load_table = of
        self._loaded_tables: dict[str, iceberg.IcebergTable] = {}  # each table as it was loaded last

    def load_metadata(self, table: str) -> iceberg.IcebergTable:
        """Load the branches, tags and snapshots of a table as they are now."""
        self._loaded_tables[table] = self._load_table(table)
        return self._loaded_tables[table]

    def describe_snapshot(self, table: str, snapshot: int) -> iceberg.IcebergTable:
        """Return a table as it was loaded last, or as it is now where the snapshot is newer: a snapshot never
        changes."""
        seen = self._loaded_tables.get(table)
        return seen if seen is not None and seen.has_snapshot(snapshot) else self.load_metadata(table)

    def commit_change(self, table: str, change: Callable[[iceberg.IcebergTable], None]) -> None:
        """Change a table's metadata. Raises `Unavailable` where other writers commit first too often.

        Where another writer has committed meanwhile, `change` is called again with the table as it is then, because
        Iceberg itself does not repeat changes of branches and tags.
        """
        retry = Retrying(
            retry=retry_if_exception_type(iceberg.CommitConflict),
            wait=wait_random_exponential(multiplier=0.05, max=3.2),
            stop=stop_after_attempt(COMMITS),
        )
        try:
            retry(lambda: change(self.load_metadata(table)))
        except RetryError as error:
            raise Unavailable(
                f"table {table}: other writers committed first, {COMMITS} times in a row.",
                "run the same command again",
            ) from error

    def base_snapshot(self, table: str, revision: Revision) -> int:
        """Return the snapshot on which a run after `revision` builds; for a new table, its empty first snapshot."""
        if table in revision.snapshots:
            return revision.snapshots[table]
        return self.first_snapshot(table)

    def first_snapshot(self, table: str) -> int:
        """Return the empty snapshot with which a table begins. It never expires."""
        seen = self._loaded_tables.get(table)
        return (seen if seen is not None and seen.snapshot_ids() else self.load_metadata(table)).first_snapshot()

    def snapshot_size(self, table: str, snapshot: int) -> Size:
        """Return the size of a snapshot for a reader, from Iceberg's metadata only."""
        summary = self.describe_snapshot(table, snapshot).snapshot_summary(snapshot)
        names = {"files": "total-data-files", "bytes": "total-files-size", "rows": "total-records"}
        return Size(**{name: int(summary.get(key) or 0) for name, key in names.items()})

    def count_rows(self, table: str, snapshot: int, horizon: Horizon | None) -> int:
        """Count the rows of a snapshot that a reader from a horizon on reads (`IcebergTable.count_rows`)."""
        return self.describe_snapshot(table, snapshot).count_rows(snapshot, horizon)

    def count_added_rows(self, table: str, snapshot: int) -> int:
        """Count the rows that the commit of a snapshot has added, without those that it has only merged."""
        summary = self.describe_snapshot(table, snapshot).snapshot_summary(snapshot)
        return int(summary.get("added-records") or 0) - int(summary.get("deleted-records") or 0)

    def written_size(self, table: str, snapshot: int, base: int) -> Size:
        """Return what a run has written to a table on the snapshot `base`: new rows, and files with merged rows."""
        after, before = self.snapshot_size(table, snapshot), self.snapshot_size(table, base)
        removed = int(self.describe_snapshot(table, snapshot).snapshot_summary(snapshot).get("removed-files-size") or 0)
        return Size(
            files=after.files - before.files + self.count_merged_files(table, snapshot),
            bytes=after.bytes - before.bytes + removed,
            rows=after.rows - before.rows,
        )

    def count_merged_files(self, table: str, snapshot: int) -> int:
        """Count the data files that the commit of a snapshot has merged with its own rows."""
        return int(self.describe_snapshot(table, snapshot).snapshot_summary(snapshot).get("deleted-data-files") or 0)

    def count_unskippable_rows(self, table: str, snapshot: int) -> int:
        """Count the rows of a snapshot among which runs cannot skip any (`file_tiers.count_mixed_rows`)."""
        return file_tiers.count_mixed_rows(self.describe_snapshot(table, snapshot).snapshot_summary(snapshot))

    def lists_tiers(self, table: str, snapshot: int) -> bool:
        """Tell whether the summary of a snapshot lists the tiers of its files, as this version of altneu writes it."""
        return file_tiers.PROPERTY in self.describe_snapshot(table, snapshot).snapshot_summary(snapshot)

    def count_removed_rows(self, table: str, snapshot: int) -> int:
        """Count the rows in the data files of a serving table's snapshot that delete files have removed."""
        return int(
            self.describe_snapshot(table, snapshot).snapshot_summary(snapshot).get("total-position-deletes") or 0
        )

    # -- The branch of a run ------------------------------------------------------------------------------------

    def branch_snapshot(self, table: str, run_id: str, base: int) -> int:
        """Return the snapshot of a table as a run leaves it: that of its branch, or `base` where it has written
        nothing."""
        branch = self.load_metadata(table).ref_snapshot(branch_of(run_id))
        return base if branch is None else branch

    def write_to_branch(
        self,
        table: str,
        run_id: str,
        base: int,
        rows: Any | None,
        parent: int | None = None,
        horizon: Horizon | None = None,
    ) -> int:
        """Append the rows of a run to those of the snapshot `base`, on the run's branch, in place of an earlier try.

        Args:
            table: The table.
            run_id: The run.
            base: The snapshot on which the run builds.
            rows: The rows to append; None: the branch is only dropped.
            parent: The revision on which the run builds: rows of small files are then merged with the appended ones
                (`file_tiers`). None: no stored row is written again.
            horizon: The horizon of the next run, by which merged rows are put into files.

        Returns:
            The snapshot of the table for the run.

        Raises:
            ForeignWrite: Another process has written to the branch.
        """
        self._drop_branches(table, [run_id])
        if rows is None:
            return base
        begun = self._begin_branch(table, run_id, base)
        files = None if parent is None else file_tiers.plan_files(begun.snapshot_summary(base), parent, horizon)
        begun.append_rows(branch_of(run_id), rows, files)
        return self._require_own_commits(table, run_id, base)

    def rewrite_on_branch(
        self, table: str, run_id: str, base: int, rows: Any, files: file_tiers.FilePlan | None = None
    ) -> int:
        """Write these rows to the run's branch in place of those of the snapshot `base`. Return the branch's snapshot.

        With `files` they take the place of the rows that it merges only. Raises `ForeignWrite` where another process
        has written to the branch.
        """
        self._begin_branch(table, run_id, base).overwrite_rows(branch_of(run_id), rows, files)
        return self._require_own_commits(table, run_id, base)

    def replace_on_branch(self, table: str, run_id: str, base: int, gone: Any | None, come: Any | None) -> int:
        """Write the changes of a serving table to the run's branch, in place of an earlier try.

        Args:
            table: The table.
            run_id: The run.
            base: The snapshot on which the run builds.
            gone: The keys of the rows of `base` to delete; None: none.
            come: The rows to add; None: none.

        Returns:
            The snapshot of the table for the run.

        Raises:
            ForeignWrite: Another process has written to the branch.
        """
        self._drop_branches(table, [run_id])
        if gone is None and come is None:
            return base
        begun, branch = self._begin_branch(table, run_id, base), branch_of(run_id)
        if gone is not None:
            begun.delete_rows(branch, gone)
        if come is not None:
            begun.append_rows(branch, come)
        return self._require_own_commits(table, run_id, base, commits=(gone is not None) + (come is not None))

    def _begin_branch(self, table: str, run_id: str, base: int) -> iceberg.IcebergTable:
        self.commit_change(table, lambda metadata: metadata.commit_steps([("createBranch", branch_of(run_id), base)]))
        return self.load_metadata(table)

    def _require_own_commits(self, table: str, run_id: str, base: int, commits: int = 1) -> int:
        """Return the snapshot of a branch. Raises `ForeignWrite` where it has not exactly `commits` commits after
        `base`."""
        metadata = self.load_metadata(table)
        head = ancestor = metadata.ref_snapshot(branch_of(run_id))
        while ancestor is not None and ancestor != base and commits:
            ancestor, commits = metadata.parent_snapshot(ancestor), commits - 1
        if head is None or ancestor != base:
            raise ForeignWrite(
                f"table {table}: another process has also written to the branch of run {run_id}. Nothing is published.",
                "run the same command again",
            )
        return head

    # -- After the ledger row -----------------------------------------------------------------------------------

    def update_refs(self, ledger: Ledger, run_id: str | None = None) -> list[str]:
        """Set `main` and the tags of the tables to what the ledger pins, and drop branches of runs that are over.

        `main` becomes the snapshot of the newest revision, a tag `r7` that of revision 7, in one commit per table. The
        dropped branches include that of the published run `run_id`, and those that a process which counted as dead has
        made for a run that was over by then. Return the tables whose `main` or tags were changed.

        The ledger is read after the tables, so a run that publishes later also commits later, and is not undone.
        """
        seen = {table: self.load_metadata(table) for table in self.tables_with_refs(ledger)}
        books = _LedgerRefs.from_ledger(ledger, run_id)
        moved = []
        for table, metadata in seen.items():
            steps = books.revision_ref_steps(table, metadata)
            moved += [table] if steps else []
            try:
                metadata.commit_steps(steps + books.dead_branch_steps(metadata))
            except iceberg.CommitConflict:
                self.commit_change(table, partial(self._update_table_refs, ledger, run_id, table))
        return moved

    def tables_with_refs(self, ledger: Ledger) -> Iterable[str]:
        """Return the tables whose branches and tags follow the ledger."""
        return self.tables

    @staticmethod
    def _update_table_refs(ledger: Ledger, run_id: str | None, table: str, metadata: iceberg.IcebergTable) -> None:
        books = _LedgerRefs.from_ledger(ledger, run_id)
        metadata.commit_steps(books.revision_ref_steps(table, metadata) + books.dead_branch_steps(metadata))

    def discard_leftovers(self, ledger: Ledger) -> int:
        """Drop the branches of dead and superseded runs, record that, and return the number of these runs."""
        left = ledger.runs.expire_dead()
        if left:
            for table in self.tables:
                self._drop_branches(table, left)
            ledger.runs.forget_branches(left)
        return len(left)

    def _drop_branches(self, table: str, run_ids: list[str]) -> None:
        def drop_refs(metadata: iceberg.IcebergTable) -> None:
            there = [branch for branch in map(branch_of, run_ids) if metadata.ref_snapshot(branch) is not None]
            metadata.commit_steps([("removeBranch", branch) for branch in there])

        self.commit_change(table, drop_refs)

    def expire_snapshots(self, table: str, ledger: Ledger, run_id: str, grace: float = GRACE) -> int:
        """Drop the snapshots of a table that no reader can reach, with the files of these snapshots only.

        They are the snapshots that nothing pins but the run `run_id`, which has replaced them. Such a snapshot first
        gets a tag, and is dropped when a later call finds the tag older than the grace period, so that present readers
        may finish. The ledger is read after the table: a snapshot on a branch then may be pinned by now, and a snapshot
        that is pinned later had a branch then.

        Args:
            table: The table.
            ledger: The ledger, which pins snapshots.
            run_id: The run.
            grace: For how many seconds a snapshot must have had its tag; 0: those go, too, that have none.

        Returns:
            The number of dropped snapshots.
        """
        gone: set[int] = set()
        now = int(clock.read_clock().timestamp() * 1000)
        before_ms = now - int(grace * 1000) if grace > 0 else now + 60_000

        def tag_and_choose(metadata: iceberg.IcebergTable) -> None:
            refs = metadata.ref_snapshots()
            tags = {snapshot: name for name, snapshot in refs.items() if name.startswith(_GOING)}
            held = {snapshot for name, snapshot in refs.items() if name not in tags.values()}
            keep = ledger.runs.pinned_snapshots(run_id).get(table, set()) | held | {metadata.first_snapshot()}
            steps: list[Step] = []
            gone.clear()
            for snapshot in sorted(metadata.snapshot_ids()):
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
            metadata.commit_steps(steps)

        self.commit_change(table, tag_and_choose)
        if gone:
            self.commit_change(table, lambda metadata: metadata.expire_snapshots(gone))
        return len(gone)

    def release_table(self, table: str, ledger: Ledger, run_id: str, grace: float = GRACE) -> bool:
        """Take out of a table what nobody can read, where no revision pins it. Tell whether it has no rows any more."""
        if self.load_metadata(table).snapshot_ids():
            self.commit_change(table, partial(self._update_table_refs, ledger, run_id, table))
            self.expire_snapshots(table, ledger, run_id, grace)
        metadata = self.load_metadata(table)
        return len(metadata.snapshot_ids()) <= 1 and not {*metadata.ref_snapshots()} - {"main"}


def branch_of(run_id: str) -> str:
    return _RUN + run_id


@dataclass(frozen=True)
class _LedgerRefs:
    """The branches and tags that the tables should have, by the ledger."""

    newest: Revision
    exact_revisions: tuple[Revision, ...]  # revisions whose snapshots contain exactly their rows
    undone: frozenset[str]  # runs that may have branches

    @classmethod
    def from_ledger(cls, ledger: Ledger, run_id: str | None) -> _LedgerRefs:
        rows = ledger.revisions.list_all()
        fine = exact_revisions(rows)
        chosen = tuple(row for row in rows if row.revision in fine)
        return cls(rows[-1] if rows else EMPTY, chosen, frozenset(ledger.runs.list_with_branches() - {run_id}))

    def revision_ref_steps(self, table: str, metadata: iceberg.IcebergTable) -> list[Step]:
        """Return the steps that set `main` and the tags of a table to the snapshots of the revisions."""
        first, snapshots, refs = metadata.first_snapshot(), metadata.snapshot_ids(), metadata.ref_snapshots()

        def pinned_snapshot(row: Revision) -> int | None:
            return first if row.frontier is None else row.snapshots.get(table)

        steps: list[Step] = []
        main = pinned_snapshot(self.newest)
        main = first if main is None else main  # a table that is not maintained any more becomes empty
        if refs.get("main") != main:
            steps.append(("replaceBranch", "main", main))
        tags = {
            tag_name(row.revision): snapshot
            for row in self.exact_revisions
            if (snapshot := pinned_snapshot(row)) in snapshots
        }
        for name, snapshot in refs.items():
            if _TAG.fullmatch(name) and tags.get(name) != snapshot:
                steps.append(("removeTag", name))
        return steps + [("createTag", name, to) for name, to in tags.items() if refs.get(name) != to]

    def dead_branch_steps(self, metadata: iceberg.IcebergTable) -> list[Step]:
        """Return the steps that drop the branches of runs that are over."""
        runs = {name.removeprefix(_RUN) for name in metadata.ref_snapshots() if name.startswith(_RUN)}
        return [("removeBranch", branch_of(run)) for run in sorted(runs - self.undone)]
