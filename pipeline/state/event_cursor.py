"""How far those who follow a home were told what it has published: one row for each asset of a scheduler.

Whoever tells claims what comes after `revision`, up to `claimed`, in the name of its task; the scheduler sends the
event of a task with the very transaction that makes the task a success. So the state of that task says whether the
claim was told, and nothing is told twice, whichever of the two processes dies when. All changes are compare-and-swap.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from .ledger import Ledger
from .schema import told


@dataclass(frozen=True)
class DeliveryCursor:
    """All up to `revision` was told; what comes after it, up to `claimed`, is being told by the task `teller`."""

    revision: int
    claimed: int | None = None
    teller: str | None = None


def read_cursor(found: Ledger, asset: str) -> DeliveryCursor | None:
    """How far an asset was told; None: nobody has begun."""
    row = next(iter(found.read_rows(sa.select(told).where(told.c.asset == asset))), None)
    return None if row is None else DeliveryCursor(row.revision, row.claimed, row.teller)


def start_cursor(found: Ledger, asset: str, revision: int) -> None:
    """From here on it is told what is published, unless somebody has begun already."""
    try:
        with found.engine.begin() as connection:
            connection.execute(told.insert().values(asset=asset, revision=revision))
    except sa.exc.IntegrityError:
        return


def compare_and_set(found: Ledger, asset: str, old: DeliveryCursor, new: DeliveryCursor) -> bool:
    """From one standing to another; False: it is another one by now."""
    same = [told.c.asset == asset, told.c.revision == old.revision]
    same += [told.c[name].is_not_distinct_from(getattr(old, name)) for name in ("claimed", "teller")]
    values = {"revision": new.revision, "claimed": new.claimed, "teller": new.teller}
    with found.engine.begin() as connection:
        return bool(connection.execute(told.update().where(*same).values(**values)).rowcount)


def confirm_delivery(found: Ledger, asset: str, teller: str) -> None:
    """What this task has claimed was told."""
    old = read_cursor(found, asset)
    if old is not None and old.teller == teller and old.claimed is not None:
        compare_and_set(found, asset, old, DeliveryCursor(old.claimed))
