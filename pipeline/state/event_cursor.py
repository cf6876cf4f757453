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
from .schema import told


@dataclass(frozen=True)
class DeliveryCursor:
    """A delivery cursor: all up to `revision` is delivered, and the task `teller` delivers what follows up to
    `claimed`."""

    revision: int
    claimed: int | None = None
    teller: str | None = None


def read_cursor(ledger: Ledger, asset: str) -> DeliveryCursor | None:
    """Return the delivery cursor of an asset; None: it has none yet."""
    row = next(iter(ledger.database.read_rows(sa.select(told).where(told.c.asset == asset))), None)
    return None if row is None else DeliveryCursor(row.revision, row.claimed, row.teller)


def start_cursor(ledger: Ledger, asset: str, revision: int) -> None:
    """Create the cursor of an asset: revisions after `revision` will be delivered. An existing cursor stays."""
    try:
        with ledger.database.engine.begin() as connection:
            connection.execute(told.insert().values(asset=asset, revision=revision))
    except sa.exc.IntegrityError:
        return


def open_delivery_cursor(
    ledger: Ledger, asset: str, begin: int, teller: str, state: Callable[[str], str | None]
) -> tuple[DeliveryCursor, int, str | None]:
    """Open the cursor of an asset for a task that claims what follows; without a cursor all after `begin` follows.

    Args:
        ledger: The ledger of the home.
        asset: The name of the cursor.
        begin: The revision after which a new cursor begins.
        teller: The token of the task.
        state: A function that returns the state of another task with an open claim; None: it has gone.

    Returns:
        The cursor, the revision up to which all is delivered (a claim by a task that was a success is), and the state
        of the other task, None where no other has a claim.
    """
    start_cursor(ledger, asset, begin)
    at = read_cursor(ledger, asset)
    assert at is not None
    if at.claimed is None or at.teller is None or at.teller == teller:
        return at, at.revision, None
    other = state(at.teller)
    return at, at.claimed if other == "success" else at.revision, other


def compare_and_set(ledger: Ledger, asset: str, old: DeliveryCursor, new: DeliveryCursor) -> bool:
    """Replace a cursor by another. Return False where it is no longer `old`."""
    same = [told.c.asset == asset, told.c.revision == old.revision]
    same += [told.c[name].is_not_distinct_from(getattr(old, name)) for name in ("claimed", "teller")]
    values = {"revision": new.revision, "claimed": new.claimed, "teller": new.teller}
    with ledger.database.engine.begin() as connection:
        return bool(connection.execute(told.update().where(*same).values(**values)).rowcount)


def confirm_delivery(ledger: Ledger, asset: str, teller: str) -> None:
    """Record that the revisions that a task has claimed were delivered."""
    old = read_cursor(ledger, asset)
    if old is not None and old.teller == teller and old.claimed is not None:
        compare_and_set(ledger, asset, old, DeliveryCursor(old.claimed))
