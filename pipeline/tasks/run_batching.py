"""Joining runs of single epochs: the first DAG run of a backfill to plan takes the landed epochs of the others along.

It makes one run and one revision of them; the other DAG runs find their epochs published. In a catch-up it takes along
those, too, whose DAG runs the schedule will make, which are all up to now. A task that plans while
another run is running does not begin one: `plan_epoch` raises `RunInProgress`, and `poll_run` says when to plan again.
So no epoch is computed twice, and no task waits for a run that has died. A run by hand takes no other epochs along.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from ..errors import RunInProgress
from ..landing.epoch_states import EpochComparison, compare_with_ledger
from ..run import planning
from ..run.planning import Plan
from ..state import clock, failed_runs, home_identity
from ..state.ledger import Ledger
from ..state.records import RunState, Severity
from . import run_tasks
from .base import PlannedRun, Say, ignore_message, open_ledger

MAX_EPOCHS = 1000  # the greatest number of epochs of one run
MAX_ASKED_DATES = 100  # the greatest number of dates in one query to Airflow
Count = Callable[[Sequence[datetime]], int]  # the number of DAG runs of these dates that wait or run


@dataclass(frozen=True)
class CatchUp:
    """The dates for which a schedule that catches up will still make DAG runs.

    It makes them in order, so they are those after the date of its present run that have none in any state.
    """

    after: datetime
    until: datetime | None  # the end of the schedule
    count: Count  # the number of DAG runs of these dates in any state

    def dates_to_come(self, dates: Sequence[datetime]) -> set[datetime]:
        """Return the dates that will have a DAG run and have none yet."""
        later = [date for date in dates if self.after < date and (self.until is None or date <= self.until)]
        return set(later) - dates_with_runs(later, self.count)


def plan_epoch(
    path: str,
    epoch: int,
    say: Say = ignore_message,
    count: Count | None = None,
    *,
    again: bool = True,
    catch_up: CatchUp | None = None,
) -> PlannedRun | None:
    """Begin a run over an epoch that is missing or has changed, and over those of other DAG runs that wait.

    Return None if the epoch is published as landed, or if a person has rejected it.

    Args:
        path: The folder of the home.
        epoch: The epoch of this DAG run.
        say: A function that gets lines for the log.
        count: A function that asks Airflow for the other DAG runs; None for this epoch alone.
        again: Run what was rejected, too, because a person has asked for it.
        catch_up: The dates of the DAG runs that the schedule will make, if it catches up.

    Raises:
        RunInProgress: Another run comes first.
    """
    ledger = open_ledger(path)
    wanted = run_tasks.exclude_gone(ledger, [epoch], say)
    plan = planning.plan_epochs(ledger, wanted)
    if not plan.run:
        return run_tasks.begin_run(ledger, plan, say)
    _refuse_awaiting_approval(ledger, epoch)
    rejected = None if again else _rejection_message(ledger, plan.epochs[0])
    if rejected:
        say(f"nothing to do: {rejected}\nnext: clear this whole run, to compute and ask again")
        return None
    ledger.runs.refuse_concurrent()
    home_identity.require_identity(
        ledger.home
    )  # runs that begin at once wait for each other at the row of the identity
    joined = plan if count is None else _joined_plan(ledger, plan, count, catch_up)
    planned = run_tasks.begin_run(ledger, joined, say, alone=True)
    if planned is not None and len(joined.run) > 1:
        planned |= {"own": epoch, "label": ledger.home.schedule.format_label(epoch)}
        say(f"with the epochs of {len(joined.run) - 1} other DAG runs, which will find them published")
    return planned


def is_published(path: str, epoch: int, say: Say = ignore_message) -> bool:
    """Tell whether an epoch is published as landed, and log which run has published it. It begins no run."""
    ledger = open_ledger(path)
    plan = planning.plan_epochs(ledger, run_tasks.exclude_gone(ledger, [epoch], say))
    if not plan.run:
        say(run_tasks.describe_nothing_to_do(ledger, plan))
    return not plan.run


def poll_run(path: str, run_id: str, patience: float) -> tuple[Literal["over", "waiting", "late"], str]:
    """Return whether a run that came first is over, and a line about it.

    `patience` is how many seconds to wait for a person who has to decide on a held run.
    """
    ledger = open_ledger(path, writes=False)
    run = ledger.runs.get(run_id)
    if run.state is RunState.HELD and ledger.revisions.get().revision == run.parent:
        held = time.time() - datetime.fromisoformat(run.last_signal).timestamp()
        state: Literal["waiting", "late"] = "waiting" if held < patience else "late"
        return state, f"run {run_id}, which has this epoch, is held until somebody decides"
    if run.is_alive:
        return "waiting", f"run {run_id} is under way"
    return "over", f"run {run_id} is {failed_runs.describe_attempt(run, ledger.revisions.get().revision).state}"


def dates_with_runs(dates: Sequence[datetime], count: Count) -> set[datetime]:
    """Return the dates that have a DAG run.

    Airflow counts runs for a list of dates: the list is halved until all of its dates, or none, have one.
    """
    logical_dates: set[datetime] = set()
    open_ = [dates[at : at + MAX_ASKED_DATES] for at in range(0, len(dates), MAX_ASKED_DATES)]
    while open_:
        part = open_.pop()
        runs = count(part)
        if runs == len(part):
            logical_dates.update(part)
        elif runs:
            middle = len(part) // 2
            open_ += [part[:middle], part[middle:]]
    return logical_dates


def _joined_plan(ledger: Ledger, plan: Plan, count: Count, catch_up: CatchUp | None) -> Plan:
    """Return the plan with what other DAG runs wait for, or will, in one run that is as large as allowed.

    An epoch of a run in which a critical check failed is run alone: the failure may be its own fault, or another
    epoch's.
    """
    home = ledger.home
    (own_epoch,) = plan.run
    _, every = compare_with_ledger(ledger)
    failed = _epochs_failed_together(ledger, every)
    if own_epoch in failed:
        return plan
    open_ = (entry for entry in every.values() if entry.state in ("missing", "changed"))
    others = [entry for entry in open_ if entry.epoch != own_epoch and entry.epoch not in failed]
    starts = {home.schedule.start_of(entry.epoch): entry.epoch for entry in others}
    dates = dates_with_runs(list(starts), count)
    if catch_up is not None:  # a run is due when its interval has ended
        now = home.schedule.epoch_of(clock.read_clock())
        dates |= catch_up.dates_to_come([date for date, later in starts.items() if later < now])
    along = {starts[date] for date in dates}
    entries = [every[own_epoch], *(entry for entry in others if entry.epoch in along)]
    wide = Plan(plan.parent, tuple(entries), tuple(entry.epoch for entry in entries))
    first = planning.split_by_size(home, wide)[0][:MAX_EPOCHS]  # it begins with this run's own epoch
    return replace(wide, run=tuple(sorted(first)))


def _epochs_failed_together(ledger: Ledger, every: dict[int, EpochComparison]) -> set[int]:
    """Return the epochs whose last run had other epochs as well, and failed by a critical check."""
    tried, critical = failed_runs.list_unpublished(ledger), dict[str, bool]()
    failed = set()
    for epoch, entry in every.items():
        last = failed_runs.newest_unresolved(tried.get(epoch, []), entry.revision or 0)
        if last is None or last.state is not RunState.FAILED or last.epochs == 1:
            continue
        if last.run_id not in critical:
            checks = ledger.checks.select(run_id=last.run_id)
            critical[last.run_id] = any(not check.passed and check.severity is Severity.CRITICAL for check in checks)
        if critical[last.run_id]:
            failed.add(epoch)
    return failed


def _refuse_awaiting_approval(ledger: Ledger, epoch: int) -> None:
    """Raise `RunInProgress` if a held run has the epoch: a person is asked only once."""
    newest = ledger.revisions.get().revision
    held = next((run for run in ledger.runs.list_held() if run.parent == newest and epoch in run.epochs), None)
    if held is not None:
        raise RunInProgress(
            f"run {held.run_id}, which has epoch {ledger.home.schedule.format_label(epoch)}, "
            "is held until somebody decides.",
            f"altneu publish {held.run_id}, or: altneu discard {held.run_id}",
            held.run_id,
        )


def _rejection_message(ledger: Ledger, entry: EpochComparison) -> str | None:
    """Return who rejected the epoch as it is landed now, on the newest revision, or None if nobody has."""
    last = failed_runs.newest_unresolved(failed_runs.list_unpublished(ledger).get(entry.epoch, []), entry.revision or 0)
    if last is None or last.state is not RunState.REJECTED or last.parent != ledger.revisions.get().revision:
        return None
    read = {batch.epoch: batch.digest for batch in ledger.outputs.staged_batches(last.run_id)}
    if read.get(entry.epoch) != entry.digest:
        return None
    return f"run {last.run_id}, which had epoch {entry.label}, was {last.error}"
