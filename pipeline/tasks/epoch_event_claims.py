"""The events of changed epochs: each published change is delivered once, whoever has published it, by any task.

A task delivers everything that was published since the last delivery, not just what its own run has published: so what
a command, a rollback or another DAG has published is delivered, too. See `altneu.pipeline.state.event_cursor`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ..errors import RevisionConflict, RunInProgress
from ..state import event_cursor
from ..state.event_cursor import DeliveryCursor
from .base import ChangedEpochs, PublishedRun, Say, ignore_message, open_home

TRIES = 5


def claim_changes(
    path: str,
    asset: str,
    teller: str,
    state: Callable[[str], str | None],
    published: PublishedRun | None = None,
    say: Say = ignore_message,
) -> ChangedEpochs:
    """Claim, for the task `teller`, the changes that the followers of an asset have not received yet.

    Args:
        path: The folder of the home.
        asset: The URI of the asset.
        teller: The token of this task.
        state: A function that returns the state in Airflow of another task with an open claim (None: it has gone).
        published: What the run of this task has published. At the first delivery of all, its own revision is the first
            one that is delivered; without it nothing is.
        say: A function that gets lines for the log.

    Raises:
        RunInProgress: Another task is delivering events.
        RevisionConflict: Other tasks have claimed changes several times in a row.
    """
    from ..reading.epoch_changes import changed_since

    home, ledger = open_home(path)
    own = None if published is None else published["revision"]
    for _ in range(TRIES):
        newest = ledger.revisions.get().revision
        event_cursor.start_cursor(ledger, asset, newest if own is None else own - 1)
        at = event_cursor.read_cursor(ledger, asset)
        assert at is not None
        since = at.revision
        if at.claimed is not None and at.teller is not None and at.teller != teller:
            match state(at.teller):
                case "success":
                    since = at.claimed
                case "running":
                    raise RunInProgress(f"the task {at.teller} is delivering the events up to revision {at.claimed}.")
        changes = changed_since(home, ledger, since, newest)
        if not event_cursor.compare_and_set(
            ledger, asset, at, DeliveryCursor(newest) if not changes else DeliveryCursor(since, newest, teller)
        ):
            continue
        if not changes:
            say(f"no new events: {asset} has received all up to revision {newest}")
            return {"since": since, "revision": None, "epochs": {}}
        words = [f"{n:,} {kind}" for kind, n in Counter(str(change.kind) for change in changes).items()]
        say(f"epochs changed since revision {since}, up to {newest}: {', '.join(words)}")
        return {
            "since": since,
            "revision": newest,
            "epochs": {
                change.label: {"kind": str(change.kind), "before": change.before, "after": change.after}
                for change in changes
            },
        }
    raise RevisionConflict(f"other tasks have claimed the events, {TRIES} times in a row.", "clear this task")


def confirm_changes(path: str, asset: str, teller: str) -> None:
    """Confirm that the changes which a task has claimed were delivered."""
    _, ledger = open_home(path)
    event_cursor.confirm_delivery(ledger, asset, teller)
