"""The rows of the serving table `epoch_totals`, from the totals alone. A run writes them, and an audit expects them."""

from __future__ import annotations

from typing import Any

from ..home.home import Home
from ..state.totals import EpochTotals, totals_at

MOST_EPOCHS = 100_000  # up to so many epochs each has a row, even if nothing changes at it


def total_rows(
    home: Home, points: dict[int, EpochTotals], landed: set[int], frontier: int, since: int | None = None
) -> list[list[Any]]:
    """Return a row for every epoch from the first landed one to the frontier, or from `since` on if that is later.

    Of more than `MOST_EPOCHS` epochs only those have a row that landed or at which something changes.

    Args:
        home: The home.
        points: The totals at every epoch at which they change.
        landed: The epochs with a batch.
        frontier: The frontier.
        since: The first epoch whose row is wanted; None: all.
    """
    first = min(landed, default=frontier)
    epochs: Any = range(first, frontier + 1)
    if frontier - first >= MOST_EPOCHS:
        epochs = sorted(epoch for epoch in {*points, *landed, frontier} if first <= epoch <= frontier)
    if since is not None:
        epochs = [epoch for epoch in epochs if epoch >= since]
    rows, drawable = [], home.schedule.has_date
    for epoch, point in totals_at(points, epochs).items():
        begins = [] if home.schedule.seconds is None else [home.schedule.start_of(epoch) if drawable(epoch) else None]
        counts = [point["vertices"], point["edges"], point["triangles"], point["max_trussness"], point["wedges"]]
        motifs = [point["motifs"].get(place, 0) for place, _ in enumerate(home.config.motifs)]
        rows.append([epoch, home.schedule.format_label(epoch), *begins, *counts, point["transitivity"], *motifs])
    return rows
