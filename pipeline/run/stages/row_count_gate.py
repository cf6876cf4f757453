"""The gate of `[checks] rows = "stop"`: an epoch whose batch has an unusual number of rows is not published.

The usual number of rows is that of the check `as many rows as usual` (`altneu.expectations.volumes.usual_band`),
computed from the epochs before: those that are published, and those of the run that have passed the gate. A batch that
is published as it is landed has been accepted before, and is not judged. A rebuild is not judged either, because
somebody has asked for it, and it takes what there is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from altneu.expectations.volumes import WIDTH, WINDOW, season_length, usual_rows

from ...errors import BatchRejected
from ...home.home import Home
from ...state.records import Batch


def find_unusual_batches(
    home: Home, published: Mapping[int, Batch], rows: Mapping[int, int], digests: Mapping[int, str]
) -> dict[int, BatchRejected]:
    """Return the epochs whose batches must not be published, with the error that says why.

    Args:
        home: The home; where `[checks] rows` is not "stop", no batch is judged.
        published: The published batch of each epoch.
        rows: The number of good rows of each batch of the run.
        digests: The digest of each batch of the run, as it is landed.
    """
    if home.config.checks.rows != "stop":
        return {}
    learned = season_length(home.schedule.seconds), WIDTH[home.config.checks.sensitivity]
    known = sorted((epoch, batch.rows) for epoch, batch in published.items() if epoch not in rows)
    wrong = {}
    for epoch, number in sorted(rows.items()):
        position = bisect_left(known, (epoch, -1))
        band = usual_rows(known[max(0, position - WINDOW) : position], epoch, *learned)
        same = epoch in published and published[epoch].digest == digests[epoch]
        if band is None or same or band.row_bounds[0] <= number <= band.row_bounds[1]:
            known.insert(position, (epoch, number))
            continue
        label, (low, high) = home.schedule.format_label(epoch), band.row_bounds
        wrong[epoch] = BatchRejected(
            f'epoch {label} has {number:,} rows; {low:,} to {high:,} are usual, and [checks] rows = "stop". Nothing '
            "was published.",
            f"look at its files; if they are right: altneu run {label} --accept-rows",
        )
    return wrong
