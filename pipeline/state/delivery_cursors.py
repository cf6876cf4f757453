"""The delivery cursors: how far the events of published epochs have been delivered.

There is one row for each asset of Airflow, and one for each partition of a consumer.

A task claims the revisions after `revision`, up to `claimed`. Airflow sends the event of a task in the same transaction
that marks the task as successful. So the state of the task says whether the claimed revisions were delivered, and none
is delivered twice, even if the task or the scheduler dies. All changes are compare-and-swap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa

from .ledger import Ledger
from .schema import delivery_cursors


@dataclass(frozen=True)
class DeliveryCursor:
    """A delivery cursor: all up to `revision` is delivered, and the task `claimed_by` delivers what follows
    up to `claimed`."""

    revision: int
    claimed: int | None = None
    claimed_by: str | None = None


def read_cursor(ledger: Ledger, asset: str) -> DeliveryCursor | None:
    """Return the delivery cursor of an asset; None: it has none yet."""
    query = sa.select(delivery_cursors).where(delivery_cursors.c.asset == asset)
    row = next(iter(ledger.database.read_rows(query)), None)
    return None if row is None else DeliveryCursor(row.revision, row.claimed, row.claimed_by)


def start_cursor(ledger: Ledger, asset: str, revision: int) -> None:
    """Create the cursor of an asset: revisions after `revision` will be delivered. An existing cursor stays."""
    try:
        with ledger.database.engine.begin() as connection:
            connection.execute(delivery_cursors.insert().values(asset=asset, revision=revision))
    except sa.exc.IntegrityError:
        return


def open_delivery_cursor(
    ledger: Ledger, asset: str, begin: int, task_token: str, state: Callable[[str], str | None]
) -> tuple[DeliveryCursor, int, str | None]:
    """Open the cursor of an asset for a task that claims what follows; without a cursor all after `begin` follows.

    Args:
        ledger: The ledger of the home.
        asset: The name of the cursor.
        begin: The revision after which a new cursor begins.
        task_token: The token of the task.
        state: A function that returns the state of another task with an open claim; None: it has gone.

    Returns:
        The cursor, the revision up to which all is delivered (a claim by a task that was a success is), and the state
        of the other task, None where no other has a claim.
    """
    start_cursor(ledger, asset, begin)
    cursor = read_cursor(ledger, asset)
    assert cursor is not None
    if cursor.claimed is None or cursor.claimed_by is None or cursor.claimed_by == task_token:
        return cursor, cursor.revision, None
    other = state(cursor.claimed_by)
    return cursor, cursor.claimed if other == "success" else cursor.revision, other


def compare_and_set(ledger: Ledger, asset: str, old: DeliveryCursor, new: DeliveryCursor) -> bool:
    """Replace a cursor by another. Return False where it is no longer `old`."""
    same = [delivery_cursors.c.asset == asset, delivery_cursors.c.revision == old.revision]
    same += [delivery_cursors.c[name].is_not_distinct_from(getattr(old, name)) for name in ("claimed", "claimed_by")]
    values = {"revision": new.revision, "claimed": new.claimed, "claimed_by": new.claimed_by}
    with ledger.database.engine.begin() as connection:
        return bool(connection.execute(delivery_cursors.update().where(*same).values(**values)).rowcount)


def confirm_delivery(ledger: Ledger, asset: str, task_token: str) -> None:
    """Record that the revisions that a task has claimed were delivered."""
    old = read_cursor(ledger, asset)
    if old is not None and old.claimed_by == task_token and old.claimed is not None:
        compare_and_set(ledger, asset, old, DeliveryCursor(old.claimed))
