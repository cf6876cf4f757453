"""Where runs write and readers do not look: branches of the tables, and what becomes of them.

The half of the commit protocol (docs/protocol.md) that is about tables; `ledger` is the other. A run writes one commit
to a branch of its own in each table, made from the snapshot on which it builds. After the ledger row `main` and the tag
of the revision follow, for other programs (the ledger decides), and the branch is dropped; branches of runs that are
over and snapshots that nobody can read go later. Nothing here knows Spark: a table is an `iceberg.Table`, its rows are
handed through.
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
from ..state.facts import Size
from ..state.records import EMPTY, Revision
from ..state.revisions import exact_revisions
from . import iceberg
from .catalogs import tag_of

if TYPE_CHECKING:
    from ..state.ledger import Ledger

COMMITS = 20  # tries of a commit that other writers overtake
_TAG = re.compile(r"r[1-9]\d*")  # of revisions
_RUN, _GOING = "run_", "going_"  # how branches, and the tags of what has expired, begin


class Branches:
    """The branches of some tables; `of` looks a table up as it is now."""

    def __init__(self, tables: Iterable[str], of: Callable[[str], iceberg.Table]) -> None:
        self.tables = tuple(tables)
        self._of = of

    def metadata(self, table: str) -> iceberg.Table:
        """Branches, tags and snapshots of a table, as they are now."""
        return self._of(table)

    def change(self, table: str, change: Callable[[iceberg.Table], None]) -> None:
        """Change a table's metadata; from what is there then once more when another writer has committed meanwhile:
        Iceberg itself does not try changes of branches and tags again."""
        retry = Retrying(
            retry=retry_if_exception_type(iceberg.Overtaken),
            wait=wait_random_exponential(multiplier=0.05, max=3.2),
            stop=stop_after_attempt(COMMITS),
        )
        try:
            retry(lambda: change(self.metadata(table)))
        except RetryError as error:
            raise Unavailable(
                f"table {table}: other writers committed first, {COMMITS} times in a row.",
                "run the same command again",
            ) from error

    def base(self, table: str, revision: Revision) -> int:
        """The snapshot on which a run after `revision` builds; before the first one the empty one of `ensure`."""
        if table in revision.snapshots:
            return revision.snapshots[table]
        return self.first(table)

    def first(self, table: str) -> int:
        """The empty snapshot with which every table begins."""
        return self.metadata(table).first()

    def size(self, table: str, snapshot: int) -> Size:
        """What a reader of a snapshot has to open; from Iceberg's metadata alone."""
        summary = self.metadata(table).summary(snapshot)
        names = {"files": "total-data-files", "bytes": "total-files-size", "rows": "total-records"}
        return Size(**{name: int(summary.get(key) or 0) for name, key in names.items()})

    def added(self, table: str, snapshot: int) -> int:
        """How many rows a snapshot has that the one before it had not."""
        return int(self.metadata(table).summary(snapshot).get("added-records") or 0)

    def taken_out(self, table: str, snapshot: int) -> int:
        """How many rows of a snapshot's files have been taken out since: of a plain table."""
        return int(self.metadata(table).summary(snapshot).get("total-position-deletes") or 0)

    # -- of a run -----------------------------------------------------------------------------------------------

    def head(self, table: str, run_id: str, base: int) -> int:
        """The snapshot that holds what a run made of a table: its branch's, or `base` when it wrote nothing."""
        branch = self.metadata(table).ref(branch_of(run_id))
        return base if branch is None else branch

    def stage(self, table: str, run_id: str, base: int, rows: Any | None) -> int:
        """Write a run's rows of one table after those of `base`; return its snapshot. Replaces an earlier try."""
        self._drop(table, [run_id])
        if rows is None:
            return base
        self._begin(table, run_id, base).append(branch_of(run_id), rows)
        return self._alone(table, run_id, base)

    def rewrite(self, table: str, run_id: str, base: int, rows: Any) -> int:
        """Write a table again on the run's branch: these rows instead of those of `base`; return its snapshot."""
        self._begin(table, run_id, base).overwrite(branch_of(run_id), rows)
        return self._alone(table, run_id, base)

    def replace(self, table: str, run_id: str, base: int, gone: Any | None, come: Any | None) -> int:
        """Write what a run changes of a plain table: without the rows of `base` that have a key of `gone`, and with the
        rows `come`; return its snapshot. Replaces an earlier try."""
        self._drop(table, [run_id])
        if gone is None and come is None:
            return base
        begun, branch = self._begin(table, run_id, base), branch_of(run_id)
        if gone is not None:
            begun.remove(branch, gone)
        if come is not None:
            begun.append(branch, come)
        return self._alone(table, run_id, base, commits=(gone is not None) + (come is not None))

    def _begin(self, table: str, run_id: str, base: int) -> iceberg.Table:
        self.change(table, lambda metadata: metadata.commit([("createBranch", branch_of(run_id), base)]))
        return self.metadata(table)

    def _alone(self, table: str, run_id: str, base: int, commits: int = 1) -> int:
        """The snapshot of a branch with so many commits after `base`. Raises `Disturbed` when there are others."""
        metadata = self.metadata(table)
        head = at = metadata.ref(branch_of(run_id))
        while at is not None and at != base and commits:
            at, commits = metadata.parent(at), commits - 1
        if head is None or at != base:
            raise ForeignWrite(
                f"table {table}: another process has written to the branch of run {run_id}, too. Nothing is published.",
                "run the same command again",
            )
        return head

    # -- after the ledger row -----------------------------------------------------------------------------------

    def follow(self, ledger: Ledger, run_id: str | None = None) -> list[str]:
        """Let `main` be what the ledger's newest revision pins and a tag `r7` what revision 7 pins, in one commit per
        table; drop the branches of a run that is published, also those that a process made which was taken for dead,
        for a run that was over by then. Returns the tables whose `main` or tags were changed.

        The ledger is asked after the look at the tables: who publishes later commits later, and is not undone.
        """
        seen = {table: self.metadata(table) for table in self.named(ledger)}
        books = _Books.of(ledger, run_id)
        moved = []
        for table, metadata in seen.items():
            steps = books.names(table, metadata)
            moved += [table] if steps else []
            try:
                metadata.commit(steps + books.branches(metadata))
            except iceberg.Overtaken:
                self.change(table, partial(self._follow, ledger, run_id, table))
        return moved

    def named(self, ledger: Ledger) -> Iterable[str]:
        """The tables whose names follow the ledger."""
        return self.tables

    @staticmethod
    def _follow(ledger: Ledger, run_id: str | None, table: str, metadata: iceberg.Table) -> None:
        books = _Books.of(ledger, run_id)
        metadata.commit(books.names(table, metadata) + books.branches(metadata))

    def discard_leftovers(self, ledger: Ledger) -> int:
        """Drop what dead and losing runs have left behind, and note it; how many runs."""
        left = ledger.expire_dead_runs()
        if left:
            for table in self.tables:
                self._drop(table, left)
            ledger.forget_branches(left)
        return len(left)

    def _drop(self, table: str, run_ids: list[str]) -> None:
        def drop(metadata: iceberg.Table) -> None:
            there = [branch for branch in map(branch_of, run_ids) if metadata.ref(branch) is not None]
            metadata.commit([("removeBranch", branch) for branch in there])

        self.change(table, drop)

    def expire(self, table: str, ledger: Ledger, before_ms: int, run_id: str) -> int:
        """Drop what no reader can reach: snapshots that nothing pins but the compaction `run_id`, which has replaced
        them, and the files of theirs alone; how many.

        An expired snapshot stays under a tag until a later call finds the tag older than `before_ms`
        (milliseconds since 1970), so that whoever reads it now may finish. The ledger is asked after the look at the
        table: what a branch held then may be pinned by now, and what is pinned later had a branch then.
        """
        gone: set[int] = set()
        now = int(lease.read_clock().timestamp() * 1000)

        def tag_and_choose(metadata: iceberg.Table) -> None:
            refs = metadata.refs()
            tags = {snapshot: name for name, snapshot in refs.items() if name.startswith(_GOING)}
            held = {snapshot for name, snapshot in refs.items() if name not in tags.values()}
            keep = ledger.pinned_snapshots(run_id).get(table, set()) | held | {metadata.first()}
            steps: list[iceberg.Step] = []
            gone.clear()
            for snapshot in sorted(metadata.snapshots()):
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
            metadata.commit(steps)

        self.change(table, tag_and_choose)
        if gone:
            self.change(table, lambda metadata: metadata.expire(gone))
        return len(gone)


def branch_of(run_id: str) -> str:
    return _RUN + run_id


@dataclass(frozen=True)
class _Books:
    """What the ledger says of the names in the tables."""

    newest: Revision
    exact: tuple[Revision, ...]  # whose snapshots hold their own rows alone
    undone: frozenset[str]  # runs that may have branches

    @classmethod
    def of(cls, ledger: Ledger, run_id: str | None) -> _Books:
        rows = ledger.list_revisions()
        fine = exact_revisions(rows)
        chosen = tuple(row for row in rows if row.revision in fine)
        return cls(rows[-1] if rows else EMPTY, chosen, frozenset(ledger.runs_with_branches() - {run_id}))

    def names(self, table: str, metadata: iceberg.Table) -> list[iceberg.Step]:
        """What makes `main` and the tags of a table those of the revisions."""
        first, there, refs = metadata.first(), metadata.snapshots(), metadata.refs()

        def of(row: Revision) -> int | None:
            return first if row.frontier is None else row.snapshots.get(table)

        steps: list[iceberg.Step] = []
        main = of(self.newest)
        main = first if main is None else main  # a table that is not kept up any more shows nothing
        if refs.get("main") != main:
            steps.append(("replaceBranch", "main", main))
        tags = {tag_of(row.revision): snapshot for row in self.exact if (snapshot := of(row)) in there}
        for name, snapshot in refs.items():
            if _TAG.fullmatch(name) and tags.get(name) != snapshot:
                steps.append(("removeTag", name))
        return steps + [("createTag", name, to) for name, to in tags.items() if refs.get(name) != to]

    def branches(self, metadata: iceberg.Table) -> list[iceberg.Step]:
        """What drops the branches of runs that are over."""
        runs = {name.removeprefix(_RUN) for name in metadata.refs() if name.startswith(_RUN)}
        return [("removeBranch", branch_of(run)) for run in sorted(runs - self.undone)]
