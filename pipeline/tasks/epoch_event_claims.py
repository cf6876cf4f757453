"""What those who follow epochs are told: each published change once, whoever has published it, by whichever task.

A task tells all that was published since it was told last, not just what its own run has published: so what a command,
a rollback or another DAG has published meanwhile is told with it. See `pipeline.page_queries.event_cursor`.
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
    """Claim, for the task `teller`, what followers of an asset were not told yet.

    `state`: of another task that has claimed something, in Airflow (None: it has gone). `published`: what the run of
    this task has published; the first time of all, its own revision is the first that is told, and without it nothing
    is. Raises `RunInProgress` when another task is telling.
    """
    from ..reading.epoch_changes import changed_since

    home, ledger = open_home(path)
    own = None if published is None else published["revision"]
    for _ in range(TRIES):
        newest = ledger.get_revision().revision
        event_cursor.start_cursor(ledger, asset, newest if own is None else own - 1)
        at = event_cursor.read_cursor(ledger, asset)
        assert at is not None
        since = at.revision
        if at.claimed is not None and at.teller is not None and at.teller != teller:
            match state(at.teller):
                case "success":
                    since = at.claimed
                case "running":
                    raise RunInProgress(
                        f"the task {at.teller} is telling what was published up to revision {at.claimed}."
                    )
        found = changed_since(home, ledger, since, newest)
        if not event_cursor.compare_and_set(
            ledger, asset, at, DeliveryCursor(newest) if not found else DeliveryCursor(since, newest, teller)
        ):
            continue
        if not found:
            say(f"nothing to tell: {asset} was told all up to revision {newest}")
            return {"since": since, "revision": None, "epochs": {}}
        words = [f"{n:,} {kind}" for kind, n in Counter(str(each.kind) for each in found).items()]
        say(f"epochs changed since revision {since}, up to {newest}: {', '.join(words)}")
        return {
            "since": since,
            "revision": newest,
            "epochs": {
                each.label: {"kind": str(each.kind), "before": each.before, "after": each.after} for each in found
            },
        }
    raise RevisionConflict(f"other tasks are telling what was published, {TRIES} times in a row.", "clear this task")


def confirm_changes(path: str, asset: str, teller: str) -> None:
    """What a task has claimed was told."""
    _, ledger = open_home(path)
    event_cursor.confirm_delivery(ledger, asset, teller)
