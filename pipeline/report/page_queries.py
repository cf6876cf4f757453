"""The queries for the pages of some epochs: a fixed number, and a few for each run.

The number of rows that are read follows the span of these epochs (and `WINDOW`), and not the length of the history. All
answers are as of the revision that is the newest at the beginning.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from functools import cached_property
from typing import Any

import sqlalchemy as sa

from altneu.expectations.volumes import WINDOW as LEARNED

from ..state.epoch_status import (
    FOREVER,
    FULL,
    PROOF,
    SUMS,
    AuditStatus,
    EpochState,
    InvalidationMarks,
    choose_audit,
    fold_epochs,
    is_fresh,
    is_relevant,
    judge_epoch,
    load_marks,
    select_current_batches,
    select_landings,
    select_newest_checks,
    select_total_diffs,
    shows_every_epoch,
)
from ..state.failed_runs import Attempt, describe_attempt, list_unpublished, newest_unresolved
from ..state.ledger import Ledger
from ..state.records import Approval, Batch, CheckRecord, LandedBatch, Revision, Row, RunState, StageRecord, Verdict
from ..state.schema import batches, checks, ledger, runs
from ..state.stage_results import F
from ..state.totals import NOTHING, DisplayedTotals, sum_totals
from .query_history import QueryHistory, read_query_histories

WINDOW = 30  # epochs of history on an epoch's page
MAX_FAILED_CHECKS = 100  # failed checks of a run that are read


class ReportState:
    """The state of the database for the pages of some epochs that lie close together.

    Args:
        ledger: The ledger of the home.
        epochs: The epochs.
        newest: The revision that the pages are about; by default the newest.
        former: Whether `newest` is an older revision, so that later runs are left out.
    """

    def __init__(self, ledger: Ledger, epochs: list[int], newest: Revision | None = None, former: bool = False) -> None:
        home = ledger.home
        self.home, self.ledger, self.epochs = home, ledger, epochs
        self.low, self.high = min(epochs), max(epochs)
        self.label = home.schedule.format_label
        self.newest = newest or ledger.revisions.get()
        self.frontier = self.newest.frontier
        self.unpublished_attempts = list_unpublished(ledger)
        if former:  # later attempts are not about that revision
            kept = {
                each: [one for one in runs if one.parent < self.newest.revision]
                for each, runs in self.unpublished_attempts.items()
            }
            self.unpublished_attempts = {each: runs for each, runs in kept.items() if runs}
        self.run_documents: dict[str, dict[str, Any]] = {}  # of runs that several pages show
        self._stages: dict[str, list[StageRecord]] = {}
        self._effects: dict[str, list[tuple[int, dict[str, int]]]] = {}
        self._read_batches()
        self._read_axis()
        self.totals_at = totals_by_epoch(ledger, self.newest, min([self.low - 1, *self.axis]), self.high)
        self.marks: InvalidationMarks = load_marks(ledger, self.newest, self.low, self.high)
        self._read_checks()

    def read_rows(self, statement: sa.Select[*tuple[Any, ...]]) -> list[Row]:
        return list(self.ledger.database.read_rows(statement))

    # -- batches and runs ---------------------------------------------------------------------------------------

    def _read_batches(self) -> None:
        """Read every batch of the epochs, and the published batches of the landed epochs before."""
        published = select_landings(self.newest.revision).subquery()
        sizes = sa.select(batches.c.run_id, sa.func.count().label("epochs")).group_by(batches.c.run_id).subquery()
        with_runs = sa.select(published, runs.c.kind, runs.c.started_at, runs.c.finished_at)
        with_runs = with_runs.join(runs, runs.c.run_id == published.c.run_id)
        in_range = (published.c.epoch >= self.low) & (published.c.epoch <= self.high)
        within = with_runs.where(in_range).order_by(published.c.epoch, published.c.revision)
        rows = [LandedBatch.from_row(row) for row in self.read_rows(within)]
        some = sizes.c.run_id.in_(sorted({row.run_id for row in rows}))
        epochs = {row.run_id: row.epochs for row in self.read_rows(sa.select(sizes).where(some))}
        self.landings: dict[int, list[LandedBatch]] = defaultdict(list)  # epoch -> its batches, oldest first
        self.batches: dict[int, Batch] = {}
        self.attempts: dict[int, list[tuple[Attempt, int | None]]] = defaultdict(list)  # with the revision, if any
        for row in rows:
            self.landings[row.epoch].append(row)
            attempt = Attempt(
                row.run_id,
                RunState.PUBLISHED,
                None,
                row.kind,
                row.revision - 1,
                row.started_at,
                row.finished_at,
                row.published_at,
                epochs[row.run_id],
            )
            self.attempts[row.epoch].append((attempt, row.revision))
        now = select_current_batches(self.newest.revision).subquery()
        before = sa.select(now).where(now.c.epoch < self.low).order_by(now.c.epoch.desc()).limit(LEARNED)
        last = [group[-1] for group in self.landings.values() if group[-1].digest]
        for batch in (*map(Batch.from_row, self.read_rows(before)), *last):
            self.batches[batch.epoch] = batch
        for epoch, group in self.unpublished_attempts.items():
            if self.low <= epoch <= self.high:
                self.attempts[epoch] += [(one, None) for one in group]
                self.attempts[epoch].sort(key=lambda pair: pair[0].last_seen_at)
        self.landed_epochs = sorted(self.batches)

    def newest_unresolved(self, epoch: int) -> Attempt | None:
        """Return the newest run of an epoch that has not published and still matters, or None."""
        group = self.landings.get(epoch)
        return newest_unresolved(self.unpublished_attempts.get(epoch, []), group[-1].revision if group else 0)

    def former_batch(self, epoch: int) -> LandedBatch | None:
        """Return the batch that the published one replaced, or None when there is none, or it was the same."""
        group = self.landings.get(epoch, [])
        if len(group) < 2 or not group[-1].digest or group[-1].digest == group[-2].digest:
            return None
        return group[-2]

    @cached_property
    def frontiers(self) -> dict[int, int]:
        """Return the frontier of each revision on which a published batch was built."""
        parents = {batch.revision - 1 for epoch, batch in self.batches.items() if epoch >= self.low}
        rows = self.read_rows(
            sa.select(ledger.c.revision, ledger.c.frontier).where(ledger.c.revision.in_(sorted(parents)))
        )
        return {row.revision: row.frontier for row in rows}

    @cached_property
    def list_motifs(self) -> list[str]:
        """Return the motifs that the newest revision was published with."""
        return self.ledger.runs.list_motifs(self.newest)

    @cached_property
    def query_histories(self) -> dict[str, QueryHistory]:
        """Return how the result of each declared query has changed, at the epochs of the axis."""
        return read_query_histories(self.ledger, self.newest, min([self.low, *self.axis]), self.high)

    def list_stages(self, run_id: str) -> list[StageRecord]:
        """Return the stages of a run, except the stage `report`."""
        if run_id not in self._stages:
            self._stages[run_id] = [row for row in self.ledger.stages.select(run_id) if row.stage != "report"]
        return self._stages[run_id]

    def get_facts(self, run_id: str, kind: type[F]) -> F | None:
        """Return the facts of a stage of a run by their class, or None when the stage has not finished."""
        recorded = (row.facts for row in self.list_stages(run_id))
        return next((facts for facts in recorded if isinstance(facts, kind)), None)

    @cached_property
    def runs_of(self) -> dict[int, tuple[str, str]]:
        """Return the run and the time of each revision that the pages name."""
        named = {self.marks.contributing_revision(epoch) for epoch in self.epochs} | {
            revision for revision, _ in self.sums_history
        }
        named |= {batch.revision for epoch, batch in self.batches.items() if epoch >= self.low}
        rows = self.read_rows(
            sa.select(ledger.c.revision, ledger.c.run_id, ledger.c.published_at).where(
                ledger.c.revision.in_(sorted(named))
            )
        )
        return {row.revision: (row.run_id, row.published_at) for row in rows}

    def get_attempt(self, run_id: str) -> tuple[Attempt, int | None]:
        """Return a run, and the revision that it has published, or None."""
        row = self.ledger.runs.get(run_id)
        known = self.read_rows(sa.select(ledger.c.revision).where(ledger.c.run_id == run_id))
        return describe_attempt(row), known[0].revision if known else None

    @cached_property
    def _approvals_by_run(self) -> dict[str, Approval]:
        return self.ledger.approvals.select()

    def approval_document(self, run_id: str) -> dict[str, str | None] | None:
        """Return the decision of a person about a run (verdict, person, because, at), or None."""
        approval = self._approvals_by_run.get(run_id)
        if approval is None or approval.verdict is Verdict.WANTED:
            return None
        return {"verdict": approval.verdict, "person": approval.person, "because": approval.because, "at": approval.at}

    # -- the axis -----------------------------------------------------------------------------------------------

    def _read_axis(self) -> None:
        """Read the axis: the epochs to show up to the one after `high`, every epoch if there are not too many."""
        now = select_current_batches(self.newest.revision).subquery()
        ends_of = sa.select(sa.func.count(now.c.epoch), sa.func.min(now.c.epoch), sa.func.max(now.c.epoch))
        many, first, last = tuple(self.read_rows(ends_of)[0])
        ends = [epoch for epoch in (first, last, self.frontier) if epoch is not None]
        known = [*ends, *self.unpublished_attempts]
        if not known:
            self.axis: list[int] = []
            return
        first, last = min(known), max(known)
        if shows_every_epoch(first, last, many):
            begin = max(first, min(self.low, last + 1) - WINDOW)
            self.axis = list(range(begin, max(first, min(last, self.high + 1)) + 1))
            return
        moved = select_total_diffs(self.newest).subquery()
        every = sa.union(sa.select(now.c.epoch), sa.select(moved.c.epoch).where(moved.c.epoch >= first)).subquery()

        def select_epochs(where: sa.ColumnElement[bool], order: sa.ColumnElement[Any], limit: int | None) -> list[int]:
            return [
                row.epoch for row in self.read_rows(sa.select(every.c.epoch).where(where).order_by(order).limit(limit))
            ]

        before = select_epochs(every.c.epoch < self.low, every.c.epoch.desc(), WINDOW)
        inside = select_epochs((every.c.epoch >= self.low) & (every.c.epoch <= self.high), every.c.epoch, None)
        after = select_epochs(every.c.epoch > self.high, every.c.epoch, 1)
        known_epochs = sorted({*before, *inside, *after, *known})
        low, high = bisect_right(known_epochs, self.low - 1), bisect_right(known_epochs, self.high)
        self.axis = known_epochs[max(0, low - WINDOW) : high + 1]

    def epoch_window(self, epoch: int) -> list[int]:
        place = bisect_right(self.axis, epoch)
        return self.axis[max(0, place - WINDOW) : place]

    def neighbouring_epochs(self, epoch: int) -> tuple[int | None, int | None]:
        """Return the shown epochs before and after an epoch, or None."""
        place, there = bisect_right(self.axis, epoch), epoch in self.axis
        before = place - 1 - there
        return self.axis[before] if before >= 0 else None, self.axis[place] if place < len(self.axis) else None

    def describe_epoch(self, epoch: int) -> str:
        """Return an epoch as it is named in a sentence."""
        return self.label(epoch) if self.home.schedule.seconds else f"epoch {epoch}"

    # -- totals -------------------------------------------------------------------------------------------------

    @cached_property
    def sums_history(self) -> list[tuple[int, list[tuple[int, dict[str, int]]]]]:
        """Return how each revision has changed the sums, epoch by epoch, the oldest revision first.

        The revisions are those that are among the newest ones at some epoch from `low` to `high`.
        """
        moved = select_total_diffs(self.newest).subquery()
        upto = sa.select(moved.c.revision).where(moved.c.epoch <= self.low).distinct()
        upto = upto.order_by(moved.c.revision.desc()).limit(WINDOW)
        inside = sa.select(moved.c.revision).where((moved.c.epoch > self.low) & (moved.c.epoch <= self.high)).distinct()
        some = {row.revision for statement in (upto, inside) for row in self.read_rows(statement)}
        diffs = sa.select(moved.c.revision, moved.c.measure, fold_epochs(moved.c.epoch, self.low), moved.c["diff"])
        diffs = diffs.where(moved.c.revision.in_(sorted(some)) & (moved.c.epoch <= self.high))
        selected = diffs.subquery()
        total = sa.cast(sa.func.sum(selected.c["diff"]), sa.BigInteger).label("diff")
        grouped = sa.select(selected.c.revision, selected.c.measure, selected.c.epoch, total).group_by(
            selected.c.revision, selected.c.measure, selected.c.epoch
        )
        rows = self.read_rows(grouped.order_by(selected.c.revision, selected.c.epoch))
        out: dict[int, list[tuple[int, dict[str, int]]]] = {}
        for revision, measure, epoch, diff in map(tuple, rows):
            effects = out.setdefault(revision, [])
            if not effects or effects[-1][0] != epoch:
                effects.append((epoch, dict(effects[-1][1]) if effects else dict.fromkeys(SUMS, 0)))
            if measure in SUMS:
                effects[-1][1][measure] += diff
        return sorted(out.items())

    def run_effects(self, run_id: str) -> list[tuple[int, dict[str, int]]]:
        """Return how a published run has changed the sums, at every epoch at which this change differs."""
        if run_id not in self._effects:
            moved = select_total_diffs(self.newest).subquery()
            sums = [
                sa.cast(sa.func.sum(sa.case((moved.c.measure == name, moved.c["diff"]), else_=0)), sa.BigInteger)
                for name in SUMS
            ]
            run_diffs = sa.select(moved.c.epoch, *sums).where(moved.c.run_id == run_id)
            now = dict.fromkeys(SUMS, 0)
            effects: list[tuple[int, dict[str, int]]] = []
            for epoch, *diffs in map(tuple, self.read_rows(run_diffs.group_by(moved.c.epoch).order_by(moved.c.epoch))):
                now = {name: now[name] + diff for name, diff in zip(SUMS, diffs, strict=True)}
                effects.append((epoch, now))
            self._effects[run_id] = effects
        return self._effects[run_id]

    # -- checks -------------------------------------------------------------------------------------------------

    def _read_checks(self) -> None:
        mine = (checks.c.epoch >= self.low) & (checks.c.epoch <= self.high)
        self.checks: dict[int, list[CheckRecord]] = defaultdict(list)
        self.audits: dict[int, list[CheckRecord]] = defaultdict(list)
        self.proofs: dict[int, list[CheckRecord]] = defaultdict(list)
        kinds = {FULL: self.audits, PROOF: self.proofs}
        for row in map(CheckRecord.from_row, self.read_rows(select_newest_checks(self.newest.revision, mine))):
            kinds.get(row.suite, self.checks)[row.epoch].append(row)

    def newest_audit(self, epoch: int) -> AuditStatus | None:
        """Return the audit that says whether the numbers are right: a full recomputation or a proof, or None."""
        return choose_audit(self.newest_comparison(epoch), self.newest_proof(epoch))

    def newest_comparison(self, epoch: int) -> AuditStatus | None:
        """Return the newest comparison with a full recomputation, or None."""
        return self._find_audit(epoch, self.audits.get(epoch))

    def newest_proof(self, epoch: int) -> AuditStatus | None:
        """Return the newest proof, or None."""
        return self._find_audit(epoch, self.proofs.get(epoch), proof=True)

    def _find_audit(self, epoch: int, rows: list[CheckRecord] | None, *, proof: bool = False) -> AuditStatus | None:
        if not rows:
            return None
        return self.marks.find_audit(epoch, rows[0].revision, all(row.passed for row in rows), rows[0].at, proof=proof)

    def is_fresh(self, row: CheckRecord) -> bool:
        return is_fresh(row, self.batches.get(row.epoch), self.marks)

    def is_relevant(self, row: CheckRecord) -> bool:
        return is_relevant(row, self.batches.get(row.epoch), self.marks)

    def failed_checks(self, epoch: int) -> list[CheckRecord]:
        """Return the failed checks that still matter, without those of audits."""
        return [row for row in self.checks.get(epoch, ()) if not row.passed and self.is_relevant(row)]

    def judge_epoch(self, epoch: int) -> EpochState:
        """Return the state of an epoch, one of `STATES`."""
        failed = [row.severity for row in self.failed_checks(epoch)]
        return judge_epoch(self.batches.get(epoch), self.newest_unresolved(epoch), self.newest_audit(epoch), failed)

    def failures_of(self, run_id: str) -> list[CheckRecord]:
        """Return the failed checks of a run, whether it has published or not."""
        mine = (checks.c.run_id == run_id) & sa.not_(checks.c.passed)
        statement = sa.select(checks).where(mine).order_by(checks.c.id).limit(MAX_FAILED_CHECKS)
        return [CheckRecord.from_row(row) for row in self.read_rows(statement)]

    def checked_epochs(self, run_id: str) -> list[int]:
        """Return the last epochs at which a run has run its suites."""
        mine = (checks.c.run_id == run_id) & (checks.c.suite.not_in((FULL, PROOF)))
        statement = sa.select(checks.c.epoch).where(mine).distinct().order_by(checks.c.epoch.desc()).limit(3)
        return sorted(row.epoch for row in self.read_rows(statement))


def totals_by_epoch(
    ledger: Ledger, newest: Revision, low: int, high: int = FOREVER
) -> Callable[[int], DisplayedTotals]:
    """Return a function from an epoch, from `low` to `high`, to the graph's totals.

    Args:
        ledger: The ledger.
        newest: The revision.
        low: The first epoch.
        high: The last epoch.
    """
    moved = select_total_diffs(newest).subquery()
    folded = sa.select(moved.c.measure, moved.c.k, fold_epochs(moved.c.epoch, low), moved.c["diff"])
    diffs = folded.where(moved.c.epoch <= high).subquery()
    key = (diffs.c.measure, diffs.c.k, diffs.c.epoch)
    total = sa.cast(sa.func.sum(diffs.c["diff"]), sa.BigInteger).label("diff")
    rows = ledger.database.read_rows(sa.select(*key, total).group_by(*key).order_by(diffs.c.epoch))
    points = sum_totals((row.measure, row.k, row.epoch, 0, row.diff) for row in rows)
    changed = sorted(points)

    def totals_at(epoch: int) -> DisplayedTotals:
        place = bisect_right(changed, epoch)
        totals = points[changed[place - 1]] if place else NOTHING
        return {
            "vertices": totals["vertices"],
            "edges": totals["edges"],
            "triangles": totals["triangles"],
            "max_trussness": totals["max_trussness"],
            "trusses": totals["trusses"],
            "motifs": totals["motifs"],
        }

    return totals_at
