"""The events of changed epochs and periods: each published change is delivered once to an asset, by any task.

A task delivers everything that was published since the last delivery, not just what its own run has published: so what
a command, a rollback or another DAG has published is delivered, too. See `altneu.pipeline.state.delivery_cursors`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from ..errors import ClaimConflict, RunInProgress
from ..home.periods import PeriodUnit
from ..state import delivery_cursors
from ..state.delivery_cursors import DeliveryCursor
from ..state.ledger import Ledger
from .base import ChangedPartitions, PublishedRun, Say, ignore_message, open_ledger

TRIES = 5


def claim_changes(
    path: str,
    asset: str,
    task_token: str,
    state: Callable[[str], str | None],
    published: PublishedRun | None = None,
    say: Say = ignore_message,
    unit: PeriodUnit | None = None,
) -> ChangedPartitions:
    """Claim, for a task, the changes that the followers of an asset have not received yet.

    Args:
        path: The folder of the home.
        asset: The URI of the asset.
        task_token: The token of this task.
        state: A function that returns the state in Airflow of another task with an open claim (None: it has gone).
        published: What the run of this task has published. At the first delivery of all, its own revision is the first
            one that is delivered; without it nothing is.
        say: A function that gets lines for the log.
        unit: The kind of the periods that are the partitions of the asset; None: the epochs are.

    Raises:
        RunInProgress: Another task is delivering events.
        ClaimConflict: Other tasks have claimed changes several times in a row.
    """
    ledger = open_ledger(path)
    own_revision = None if published is None else published["revision"]
    for _ in range(TRIES):
        newest = ledger.revisions.get()
        begin = newest.revision if own_revision is None else own_revision - 1
        cursor, since, other = delivery_cursors.open_delivery_cursor(ledger, asset, begin, task_token, state)
        if other == "running":
            raise RunInProgress(
                f"the task {cursor.claimed_by} is delivering the events up to revision {cursor.claimed}."
            )
        partitions = describe_changes(ledger, since, newest.revision, unit)
        claim = DeliveryCursor(since, newest.revision, task_token) if partitions else DeliveryCursor(newest.revision)
        if not delivery_cursors.compare_and_set(ledger, asset, cursor, claim):
            continue
        frontier = None if newest.frontier is None else ledger.home.schedule.format_label(newest.frontier)
        if not partitions:
            say(f"no new events: {asset} has received all up to revision {newest.revision}")
            return {"since": since, "revision": None, "frontier": frontier, "partitions": {}}
        words = [f"{n:,} {kind}" for kind, n in Counter(change["kind"] for change in partitions.values()).items()]
        say(f"{unit or 'epochs'} changed since revision {since}, up to {newest.revision}: {', '.join(words)}")
        return {"since": since, "revision": newest.revision, "frontier": frontier, "partitions": partitions}
    raise ClaimConflict(f"other tasks have claimed the events, {TRIES} times in a row.", "clear this task")


def describe_changes(ledger: Ledger, since: int, revision: int, unit: PeriodUnit | None) -> dict[str, dict[str, Any]]:
    """Describe the epochs, or the periods, that the revisions after `since` up to `revision` have changed, by key."""
    from ..reading.changed_periods import list_changed_periods
    from ..reading.epoch_changes import changed_since

    changes = changed_since(ledger, since, revision)
    if unit is None:
        return {
            change.label: {"kind": str(change.kind), "before": change.before, "after": change.after}
            for change in changes
        }
    if ledger.home.schedule.seconds is None:  # integer epochs belong to no period
        return {}
    published = ledger.outputs.published_batches(revision)
    before, after = ledger.revisions.get(since).frontier, ledger.revisions.get(revision).frontier
    return {
        change.period.key: {
            "kind": str(change.kind),
            "epochs": {each.label: str(each.kind) for each in change.epochs},
        }
        for change in list_changed_periods(ledger.home.schedule, unit, changes, published, before, after)
    }


def confirm_changes(path: str, asset: str, task_token: str) -> None:
    """Confirm that the changes which a task has claimed were delivered."""
    ledger = open_ledger(path)
    delivery_cursors.confirm_delivery(ledger, asset, task_token)
