"""The gate of `[checks] rows = "stop"`: an epoch whose batch has an unusual number of rows is not published.

Usual is what the check `as many rows as usual` says (`expectations.volumes.usual_band`), from the epochs before: those
that are published, and those of the run that have passed here. What is published as landed has been accepted before,
and is not judged. Nor is a rebuild, which is asked for by somebody and takes what there is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from expectations.volumes import WIDTH, WINDOW, season_length, usual_rows

from ..errors import BatchRejected
from ..home.home import Home
from ..state.records import Batch


def find_unusual_batches(
    home: Home, published: Mapping[int, Batch], rows: Mapping[int, int], digests: Mapping[int, str]
) -> dict[int, BatchRejected]:
    """Epoch → why its batch must not be published. `rows`: epoch → good rows of the batches of a run; `digests`: of
    the same, as landed. Nothing where the setting is not "stop"."""
    if home.config.checks.rows != "stop":
        return {}
    learned = season_length(home.schedule.seconds), WIDTH[home.config.checks.sensitivity]
    known = sorted((epoch, batch.rows) for epoch, batch in published.items() if epoch not in rows)
    wrong = {}
    for epoch, number in sorted(rows.items()):
        at = bisect_left(known, (epoch, -1))
        band = usual_rows(known[max(0, at - WINDOW) : at], epoch, *learned)
        same = epoch in published and published[epoch].digest == digests[epoch]
        if band is None or same or band.row_bounds[0] <= number <= band.row_bounds[1]:
            known.insert(at, (epoch, number))
            continue
        label, (low, high) = home.schedule.format_label(epoch), band.row_bounds
        wrong[epoch] = BatchRejected(
            f'epoch {label} has {number:,} rows; {low:,} to {high:,} are usual, and [checks] rows = "stop". Nothing '
            "was published.",
            f"look at its files; where they are right: altneu run {label} --accept-rows",
        )
    return wrong
