"""Runs of single epochs that go together: the first of a backfill's DAG runs to plan takes the landed epochs of the
others along, as one run and one revision; the others find their epochs published.

Who plans while another run is at work does not begin one: `plan_epoch` raises `RunInProgress`, and `poll_run` says when
to plan again. So no epoch is computed twice, and nobody waits for a run that has died. A run by hand takes nobody
along.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Literal

from ..errors import RunInProgress
from ..home.home import Home
from ..landing.epoch_states import EpochState, compare_with_ledger
from ..run import planning
from ..run.planning import Plan
from ..state import failed_runs, home_identity
from ..state.ledger import Ledger
from ..state.records import RunState, Severity
from . import run_tasks
from .base import PlannedRun, Say, ignore_message, open_home

MOST = 1000  # epochs of one run
ASKED = 100  # dates that one question to Airflow names
Count = Callable[[Sequence[datetime]], int]  # of the DAG runs of these dates, those that wait or run


def plan_epoch(
    path: str, epoch: int, say: Say = ignore_message, count: Count | None = None, *, again: bool = True
) -> PlannedRun | None:
    """Begin a run over an epoch that is missing or has changed, and over those of other DAG runs that wait; None when
    it is published as landed, or a person has rejected it. Raises `RunInProgress` when another run comes first.

    `count`: asks Airflow for the other DAG runs; None: for this epoch alone. `again`: also what was rejected, because
    somebody has asked for it.
    """
    home, ledger = open_home(path)
    wanted = run_tasks.exclude_gone(home, ledger, [epoch], say)
    found = planning.plan_epochs(home, ledger, wanted)
    if not found.run:
        return run_tasks.begin_run(home, ledger, found, say)
    _refuse_awaiting_approval(home, ledger, epoch)
    rejected = None if again else _rejection_message(ledger, found.epochs[0])
    if rejected:
        say(f"nothing to do: {rejected}\nnext: clear this whole run, to compute and ask again")
        return None
    ledger.refuse_concurrent_run()
    home_identity.require_identity(home)  # whose row is what those wait for who begin at once
    together = found if count is None else _joined_plan(home, ledger, found, count)
    planned = run_tasks.begin_run(home, ledger, together, say, alone=True)
    if planned is not None and len(together.run) > 1:
        planned |= {"own": epoch, "label": home.schedule.format_label(epoch)}
        say(f"with the epochs of {len(together.run) - 1} other DAG runs, which will find them published")
    return planned


def is_published(path: str, epoch: int, say: Say = ignore_message) -> bool:
    """Whether an epoch is published as landed; then which run has done it is said. It begins nothing."""
    home, ledger = open_home(path)
    found = planning.plan_epochs(home, ledger, run_tasks.exclude_gone(home, ledger, [epoch], say))
    if not found.run:
        say(run_tasks.describe_nothing_to_do(ledger, found))
    return not found.run


def poll_run(path: str, run_id: str, patience: float) -> tuple[Literal["over", "waiting", "late"], str]:
    """Whether a run that came first is over, and what to say of it. `patience`: seconds to wait for a person."""
    _, ledger = open_home(path, writes=False)
    run = ledger.get_run(run_id)
    if run.state is RunState.HELD and ledger.get_revision().revision == run.parent:
        held = time.time() - datetime.fromisoformat(run.last_signal).timestamp()
        state: Literal["waiting", "late"] = "waiting" if held < patience else "late"
        return state, f"run {run_id}, which has this epoch, is held until somebody decides"
    if run.is_alive:
        return "waiting", f"run {run_id} is under way"
    return "over", f"run {run_id} is {failed_runs.describe_attempt(run, ledger.get_revision().revision).state}"


def dates_with_runs(dates: Sequence[datetime], count: Count) -> set[datetime]:
    """Return the dates that have a DAG run. Airflow counts runs for a list of dates: the list is halved until most or
    few of them have."""
    found: set[datetime] = set()
    open_ = [dates[at : at + ASKED] for at in range(0, len(dates), ASKED)]
    while open_:
        some = open_.pop()
        many = count(some)
        if many == len(some):
            found.update(some)
        elif many:
            middle = len(some) // 2
            open_ += [some[:middle], some[middle:]]
    return found


def _joined_plan(home: Home, ledger: Ledger, found: Plan, count: Count) -> Plan:
    """The plan, and what other DAG runs wait for, in one run as large as one may be.

    An epoch of a run in which a critical check failed goes alone: it may be that epoch's fault, or another's.
    """
    (own,) = found.run
    _, every = compare_with_ledger(home, ledger)
    failed = _epochs_failed_together(ledger, every)
    if own in failed:
        return found
    open_ = (each for each in every.values() if each.state in ("missing", "changed"))
    others = [each for each in open_ if each.epoch != own and each.epoch not in failed]
    starts = {home.schedule.start_of(each.epoch): each.epoch for each in others}
    along = {starts[date] for date in dates_with_runs(list(starts), count)}
    entries = [every[own], *(each for each in others if each.epoch in along)]
    wide = Plan(found.parent, tuple(entries), tuple(each.epoch for each in entries))
    first = planning.split_by_size(home, wide)[0][:MOST]  # it begins with this run's own epoch
    return replace(wide, run=tuple(sorted(first)))


def _epochs_failed_together(ledger: Ledger, every: dict[int, EpochState]) -> set[int]:
    """Epochs whose last run had others as well, and failed by a critical check."""
    tried, critical = failed_runs.list_unpublished(ledger), dict[str, bool]()
    found = set()
    for epoch, entry in every.items():
        last = failed_runs.newest_unresolved(tried.get(epoch, []), entry.revision or 0)
        if last is None or last.state is not RunState.FAILED or last.epochs == 1:
            continue
        if last.run_id not in critical:
            checks = ledger.list_checks(run_id=last.run_id)
            critical[last.run_id] = any(not each.passed and each.severity is Severity.CRITICAL for each in checks)
        if critical[last.run_id]:
            found.add(epoch)
    return found


def _refuse_awaiting_approval(home: Home, ledger: Ledger, epoch: int) -> None:
    """Raises `RunInProgress` when a run that is held has the epoch: a person is asked once."""
    newest = ledger.get_revision().revision
    held = next((run for run in ledger.list_held() if run.parent == newest and epoch in run.epochs), None)
    if held is not None:
        raise RunInProgress(
            f"run {held.run_id}, which has epoch {home.schedule.format_label(epoch)}, is held until somebody decides.",
            f"altneu publish {held.run_id}, or: altneu discard {held.run_id}",
            held.run_id,
        )


def _rejection_message(ledger: Ledger, entry: EpochState) -> str | None:
    """Return who rejected the epoch as it is landed now, on the newest revision. None: nobody has."""
    last = failed_runs.newest_unresolved(failed_runs.list_unpublished(ledger).get(entry.epoch, []), entry.revision or 0)
    if last is None or last.state is not RunState.REJECTED or last.parent != ledger.get_revision().revision:
        return None
    read = {batch.epoch: batch.digest for batch in ledger.staged_batches(last.run_id)}
    if read.get(entry.epoch) != entry.digest:
        return None
    return f"run {last.run_id}, which had epoch {entry.label}, was {last.error}"
