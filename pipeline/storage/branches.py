"""Where runs write and readers do not look: branches of the tables, and what becomes of them.

The half of the commit protocol (docs/protocol.md) that is about tables; `ledger` is the other. A run writes one commit
to a branch of its own in each table, made from the snapshot on which it builds. After the ledger row `main` and the tag
of the revision follow, for other programs (the ledger decides), and the branch is dropped; branches of runs that are
over and snapshots that nobody can read go later. Nothing here knows Spark: a table is an `iceberg.IcebergTable`, its
rows are handed through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from ..errors import ForeignWrite, Unavailable
from ..state import lease
from ..state.records import EMPTY, Revision
from ..state.revisions import exact_revisions
from ..state.stage_results import Size
from . import iceberg
from .catalogs import tag_name

if TYPE_CHECKING:
    from ..state.ledger import Ledger

COMMITS = 20  # tries of a commit that other writers overtake
_TAG = re.compile(r"r[1-9]\d*")  # of revisions
_RUN, _GOING = "run_", "going_"  # how branches, and the tags of what has expired, begin


class Branches:
    """The branches of some tables; `of` looks a table up as it is now."""

    def __init__(self, tables: Iterable[str], of: Callable[[str], iceberg.IcebergTable]) -> None:
        self.tables = tuple(tables)
        self._of = of

    def load_metadata(self, table: str) -> iceberg.IcebergTable:
        """Branches, tags and snapshots of a table, as they are now."""
        return self._of(table)

    def commit_change(self, table: str, change: Callable[[iceberg.IcebergTable], None]) -> None:
        """Change a table's metadata; from what is there then once more when another writer has committed meanwhile:
        Iceberg itself does not try changes of branches and tags again."""
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
        """The snapshot on which a run after `revision` builds; before the first one the empty one of
        `ensure_tables`."""
        if table in revision.snapshots:
            return revision.snapshots[table]
        return self.first_snapshot(table)

    def first_snapshot(self, table: str) -> int:
        """The empty snapshot with which every table begins."""
        return self.load_metadata(table).first_snapshot()

    def snapshot_size(self, table: str, snapshot: int) -> Size:
        """What a reader of a snapshot has to open; from Iceberg's metadata alone."""
        summary = self.load_metadata(table).snapshot_summary(snapshot)
        names = {"files": "total-data-files", "bytes": "total-files-size", "rows": "total-records"}
        return Size(**{name: int(summary.get(key) or 0) for name, key in names.items()})

    def count_added_rows(self, table: str, snapshot: int) -> int:
        """How many rows a snapshot has that the one before it had not."""
        return int(self.load_metadata(table).snapshot_summary(snapshot).get("added-records") or 0)

    def count_removed_rows(self, table: str, snapshot: int) -> int:
        """How many rows of a snapshot's files have been taken out since: of a plain table."""
        return int(self.load_metadata(table).snapshot_summary(snapshot).get("total-position-deletes") or 0)

    # -- of a run -----------------------------------------------------------------------------------------------

    def branch_snapshot(self, table: str, run_id: str, base: int) -> int:
        """The snapshot that holds what a run made of a table: its branch's, or `base` when it wrote nothing."""
        branch = self.load_metadata(table).ref_snapshot(branch_of(run_id))
        return base if branch is None else branch

    def write_to_branch(self, table: str, run_id: str, base: int, rows: Any | None) -> int:
        """Write a run's rows of one table after those of `base`; return its snapshot. Replaces an earlier try."""
        self._drop_branches(table, [run_id])
        if rows is None:
            return base
        self._begin_branch(table, run_id, base).append_rows(branch_of(run_id), rows)
        return self._require_own_commits(table, run_id, base)

    def rewrite_on_branch(self, table: str, run_id: str, base: int, rows: Any) -> int:
        """Write a table again on the run's branch: these rows instead of those of `base`; return its snapshot."""
        self._begin_branch(table, run_id, base).overwrite_rows(branch_of(run_id), rows)
        return self._require_own_commits(table, run_id, base)

    def replace_on_branch(self, table: str, run_id: str, base: int, gone: Any | None, come: Any | None) -> int:
        """Write what a run changes of a plain table: without the rows of `base` that have a key of `gone`, and with the
        rows `come`; return its snapshot. Replaces an earlier try."""
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
        """The snapshot of a branch with so many commits after `base`. Raises `ForeignWrite` when there are others."""
        metadata = self.load_metadata(table)
        head = at = metadata.ref_snapshot(branch_of(run_id))
        while at is not None and at != base and commits:
            at, commits = metadata.parent_snapshot(at), commits - 1
        if head is None or at != base:
            raise ForeignWrite(
                f"table {table}: another process has written to the branch of run {run_id}, too. Nothing is published.",
                "run the same command again",
            )
        return head

    # -- after the ledger row -----------------------------------------------------------------------------------

    def update_refs(self, ledger: Ledger, run_id: str | None = None) -> list[str]:
        """Let `main` be what the ledger's newest revision pins and a tag `r7` what revision 7 pins, in one commit per
        table; drop the branches of a run that is published, also those that a process made which was taken for dead,
        for a run that was over by then. Returns the tables whose `main` or tags were changed.

        The ledger is asked after the look at the tables: who publishes later commits later, and is not undone.
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
        """The tables whose names follow the ledger."""
        return self.tables

    @staticmethod
    def _update_table_refs(ledger: Ledger, run_id: str | None, table: str, metadata: iceberg.IcebergTable) -> None:
        books = _LedgerRefs.from_ledger(ledger, run_id)
        metadata.commit_steps(books.revision_ref_steps(table, metadata) + books.dead_branch_steps(metadata))

    def discard_leftovers(self, ledger: Ledger) -> int:
        """Drop what dead and losing runs have left behind, and note it; how many runs."""
        left = ledger.expire_dead_runs()
        if left:
            for table in self.tables:
                self._drop_branches(table, left)
            ledger.forget_branches(left)
        return len(left)

    def _drop_branches(self, table: str, run_ids: list[str]) -> None:
        def drop_refs(metadata: iceberg.IcebergTable) -> None:
            there = [branch for branch in map(branch_of, run_ids) if metadata.ref_snapshot(branch) is not None]
            metadata.commit_steps([("removeBranch", branch) for branch in there])

        self.commit_change(table, drop_refs)

    def expire_snapshots(self, table: str, ledger: Ledger, before_ms: int, run_id: str) -> int:
        """Drop what no reader can reach: snapshots that nothing pins but the compaction `run_id`, which has replaced
        them, and the files of theirs alone; how many.

        An expired snapshot stays under a tag until a later call finds the tag older than `before_ms`
        (milliseconds since 1970), so that whoever reads it now may finish. The ledger is asked after the look at the
        table: what a branch held then may be pinned by now, and what is pinned later had a branch then.
        """
        gone: set[int] = set()
        now = int(lease.read_clock().timestamp() * 1000)

        def tag_and_choose(metadata: iceberg.IcebergTable) -> None:
            refs = metadata.ref_snapshots()
            tags = {snapshot: name for name, snapshot in refs.items() if name.startswith(_GOING)}
            held = {snapshot for name, snapshot in refs.items() if name not in tags.values()}
            keep = ledger.pinned_snapshots(run_id).get(table, set()) | held | {metadata.first_snapshot()}
            steps: list[iceberg.Step] = []
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


def branch_of(run_id: str) -> str:
    return _RUN + run_id


@dataclass(frozen=True)
class _LedgerRefs:
    """What the ledger says of the names in the tables."""

    newest: Revision
    exact: tuple[Revision, ...]  # whose snapshots hold their own rows alone
    undone: frozenset[str]  # runs that may have branches

    @classmethod
    def from_ledger(cls, ledger: Ledger, run_id: str | None) -> _LedgerRefs:
        rows = ledger.list_revisions()
        fine = exact_revisions(rows)
        chosen = tuple(row for row in rows if row.revision in fine)
        return cls(rows[-1] if rows else EMPTY, chosen, frozenset(ledger.runs_with_branches() - {run_id}))

    def revision_ref_steps(self, table: str, metadata: iceberg.IcebergTable) -> list[iceberg.Step]:
        """What makes `main` and the tags of a table those of the revisions."""
        first, there, refs = metadata.first_snapshot(), metadata.snapshot_ids(), metadata.ref_snapshots()

        def pinned_snapshot(row: Revision) -> int | None:
            return first if row.frontier is None else row.snapshots.get(table)

        steps: list[iceberg.Step] = []
        main = pinned_snapshot(self.newest)
        main = first if main is None else main  # a table that is not kept up any more shows nothing
        if refs.get("main") != main:
            steps.append(("replaceBranch", "main", main))
        tags = {tag_name(row.revision): snapshot for row in self.exact if (snapshot := pinned_snapshot(row)) in there}
        for name, snapshot in refs.items():
            if _TAG.fullmatch(name) and tags.get(name) != snapshot:
                steps.append(("removeTag", name))
        return steps + [("createTag", name, to) for name, to in tags.items() if refs.get(name) != to]

    def dead_branch_steps(self, metadata: iceberg.IcebergTable) -> list[iceberg.Step]:
        """What drops the branches of runs that are over."""
        runs = {name.removeprefix(_RUN) for name in metadata.ref_snapshots() if name.startswith(_RUN)}
        return [("removeBranch", branch_of(run)) for run in sorted(runs - self.undone)]
