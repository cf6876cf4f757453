"""The cursors of consumers: up to which revision a consumer has processed each of its partitions.

A run of a consumer claims what has changed in its partition since the last run that succeeded: one change, however many
publications and epochs it has, neighbours or not. The claim is confirmed after the success of the task that processes
it. So a run that is repeated, cleared, or started twice finds nothing left, and what a run that died has claimed is
claimed by the next one. The cursors are rows beside those of `altneu.pipeline.state.delivery_cursors`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

from ..errors import ClaimConflict, RunInProgress, UsageError
from ..home.home import Home
from ..home.periods import Period, PeriodUnit, format_epoch_ranges, parse_period
from ..state import delivery_cursors
from ..state.delivery_cursors import DeliveryCursor
from ..state.ledger import Ledger
from .base import Say, ignore_message, open_ledger
from .epoch_event_claims import TRIES

EPOCHS, GRAPH = "epochs", "graph"  # units besides those of periods: each epoch by itself, and all of them in one
UNITS = (EPOCHS, *PeriodUnit, GRAPH)
NEW, CORRECTED, WITHDRAWN = "new", "corrected", "withdrawn"


@dataclass(frozen=True)
class ConsumerPartition:
    """A partition of a consumer: `unit` is one of `UNITS`, and `partition` the label of an epoch, the key of a period,
    or `graph`."""

    consumer: str
    unit: str
    partition: str

    @property
    def cursor_name(self) -> str:
        """Return the name of its cursor."""
        return f"{self.consumer}: {self.unit} {self.partition}"

    @property
    def display_name(self) -> str:
        """Return the partition as a person names it."""
        return "the graph" if self.unit == GRAPH else f"{self.unit.removesuffix('s')} {self.partition}"


class PartitionChange(TypedDict):
    """What has changed in a partition after the revision `since`, up to `revision`.

    `kind` is `new` (the consumer has not processed the partition yet; of `graph`: every changed epoch is new),
    `corrected`, or `withdrawn` (the epoch is not published any more; the period is not complete any more). `epochs` has
    the kind of the change of each epoch by its label, and `ranges` these epochs in words. `by_hand`: a person has
    started the run.
    """

    partition: str
    since: int
    revision: int
    kind: str
    epochs: dict[str, str]
    ranges: str
    by_hand: bool


def claim_partition(
    path: str,
    where: ConsumerPartition,
    task_token: str,
    state: Callable[[str], str | None],
    *,
    begin: int = 0,
    by_hand: bool = False,
    say: Say = ignore_message,
) -> PartitionChange | None:
    """Claim, for a task, what has changed in a partition since it was processed; None: there is nothing.

    Args:
        path: The folder of the home.
        where: The partition.
        task_token: The token of the task that will process the change.
        state: A function that returns whether another task with an open claim has ended (`success`), is at work
            (`running`), or waits for a person (`waiting`); None: it has gone, or has failed.
        begin: The revision after which the first claim of the partition begins; 0: all that is published is new.
        by_hand: A person has started the run: what is processed is processed again.
        say: A function that gets lines for the log.

    Raises:
        RunInProgress: Another run is processing the partition.
        ClaimConflict: Other tasks have claimed the partition several times in a row.
        UsageError: The partition is none of this home.
    """
    ledger = open_ledger(path)
    for _ in range(TRIES):
        newest = ledger.revisions.get().revision
        cursor, since, other = delivery_cursors.open_delivery_cursor(
            ledger, where.cursor_name, begin, task_token, state
        )
        if other == "running":
            raise RunInProgress(
                f"the task {cursor.claimed_by} is processing {where.display_name} up to revision {cursor.claimed}"
            )
        if other == "waiting":
            waiting = f"the task {cursor.claimed_by} waits for an approval of {where.display_name}"
            say(f"{waiting}; it takes this change along")
            return None
        change = describe_partition(ledger, where, since, newest, by_hand=by_hand)
        claim = DeliveryCursor(since) if change is None else DeliveryCursor(since, newest, task_token)
        if not delivery_cursors.compare_and_set(ledger, where.cursor_name, cursor, claim):
            continue
        if change is None:
            say(f"{where.display_name} has not changed since revision {since}, which {where.consumer} has processed")
        else:
            say(f"{where.display_name} is {change['kind']}, revisions {since} to {newest}: {change['ranges']}")
        return change
    raise ClaimConflict(f"other tasks have claimed {where.display_name}, {TRIES} times in a row.", "clear this task")


def describe_partition(
    ledger: Ledger, where: ConsumerPartition, since: int, revision: int, *, by_hand: bool = False
) -> PartitionChange | None:
    """Describe what the revisions after `since` up to `revision` have changed in a partition; None: nothing."""
    from ..reading.epoch_changes import changed_since

    home = ledger.home
    period = _parse_partition(home, where)
    row = ledger.revisions.get(revision)
    present = where.unit == GRAPH or (
        period.is_complete(row.frontier)
        if where.unit in {*PeriodUnit}
        else period.first in ledger.outputs.published_batches(revision)
    )
    if since == 0 and where.unit != GRAPH:  # never processed
        if not present:
            return None
        published = ledger.outputs.published_batches(revision)
        kinds = {epoch: NEW for epoch in sorted(published) if period.contains(epoch)}
    else:
        changes = changed_since(ledger, since, revision)
        kinds = {each.epoch: str(each.kind) for each in changes if where.unit == GRAPH or period.contains(each.epoch)}
        if not kinds and not by_hand:
            return None
    is_correction = bool({*kinds.values()} - {NEW}) if where.unit == GRAPH else since > 0
    return {
        "partition": where.partition,
        "since": since,
        "revision": revision,
        "kind": WITHDRAWN if not present else CORRECTED if is_correction else NEW,
        "epochs": {home.schedule.format_label(epoch): kind for epoch, kind in kinds.items()},
        "ranges": format_epoch_ranges(home.schedule, kinds),
        "by_hand": by_hand,
    }


def has_changed_since(path: str, where: ConsumerPartition, change: PartitionChange) -> bool:
    """Tell whether publications have changed the partition after the revision of a change."""
    ledger = open_ledger(path, writes=False)
    newest = ledger.revisions.get().revision
    return describe_partition(ledger, where, max(change["revision"], 1), newest) is not None


def has_claim(path: str, where: ConsumerPartition, task_token: str) -> bool:
    """Tell whether the claim of a task is open: it was neither confirmed nor taken over."""
    ledger = open_ledger(path, writes=False)
    cursor = delivery_cursors.read_cursor(ledger, where.cursor_name)
    return cursor is not None and cursor.claimed_by == task_token


def confirm_partition(path: str, where: ConsumerPartition, task_token: str) -> None:
    """Confirm that the change which a task has claimed was processed."""
    ledger = open_ledger(path)
    delivery_cursors.confirm_delivery(ledger, where.cursor_name, task_token)


def release_partition(path: str, where: ConsumerPartition, task_token: str) -> None:
    """Release the claim of a task whose change is not processed now: the next claim has it, too."""
    ledger = open_ledger(path)
    cursor = delivery_cursors.read_cursor(ledger, where.cursor_name)
    if cursor is not None and cursor.claimed_by == task_token:
        delivery_cursors.compare_and_set(ledger, where.cursor_name, cursor, DeliveryCursor(cursor.revision))


def _parse_partition(home: Home, where: ConsumerPartition) -> Period:
    """Return the epochs of a partition as a period; those of the graph are not asked for."""
    if where.unit not in UNITS:
        raise UsageError(f"a consumer has no unit {where.unit!r}.", f"one of {', '.join(UNITS)}")
    if where.unit in {*PeriodUnit}:
        return parse_period(home.schedule, PeriodUnit(where.unit), where.partition)
    epoch = 0 if where.unit == GRAPH else home.schedule.parse_epoch(where.partition)
    return Period(where.partition, epoch, epoch)
