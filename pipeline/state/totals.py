"""The totals at each epoch as sums of their diffs. This is the one place that adds them up, for readers and audits."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Literal, TypedDict

TotalDiff = tuple[str, int, int, int, int]  # measure, k, epoch, revision, diff


Measure = Literal["vertices", "edges", "triangles", "max_trussness"]
# the measures with a column of their own on pages; checks know wedges, too
MEASURES: tuple[Measure, ...] = ("vertices", "edges", "triangles", "max_trussness")


class DisplayedTotals(TypedDict):
    """The totals at an epoch, as pages show them."""

    vertices: int
    edges: int
    triangles: int
    max_trussness: int
    trusses: dict[int, int]  # k → edges of trussness k
    motifs: dict[int, int]  # position in `[motifs]` → occurrences


class EpochTotals(DisplayedTotals):
    """All totals at an epoch."""

    wedges: int
    transitivity: float  # the share of the pairs of adjacent edges that are part of a triangle, 0 to 1
    revision: int  # the newest revision that changed the totals of this or an earlier epoch


def sum_totals(diffs: Iterable[TotalDiff], last: int | None = None) -> dict[int, EpochTotals]:
    """Add up total diffs: epoch → the totals there.

    Epochs after `last` are left out. Only epochs at which a total changes are listed; `totals_at` fills in the others.
    """
    by_epoch: dict[int, list[TotalDiff]] = {}
    for row in diffs:
        if last is None or row[2] <= last:
            by_epoch.setdefault(row[2], []).append(row)
    sums = {"vertices": 0, "edges": 0, "triangles": 0, "wedges": 0}
    trusses: dict[int, int] = {}
    motifs: dict[int, int] = {}
    revision = 0
    out: dict[int, EpochTotals] = {}
    for epoch in sorted(by_epoch):
        for measure, k, _, row_revision, diff in by_epoch[epoch]:
            revision = max(revision, row_revision)
            if measure == "truss":
                trusses[k] = trusses.get(k, 0) + diff
            elif measure == "motif":
                motifs[k] = motifs.get(k, 0) + diff
            elif measure in sums:
                sums[measure] += diff
        trusses = {k: n for k, n in trusses.items() if n}
        out[epoch] = {
            "vertices": sums["vertices"],
            "edges": sums["edges"],
            "triangles": sums["triangles"],
            "wedges": sums["wedges"],
            "max_trussness": max(trusses, default=0),
            "transitivity": 3 * sums["triangles"] / sums["wedges"] if sums["wedges"] else 0.0,
            "trusses": dict(sorted(trusses.items())),
            "motifs": dict(motifs),
            "revision": revision,
        }
    return out


NOTHING: EpochTotals = {
    "vertices": 0,
    "edges": 0,
    "triangles": 0,
    "wedges": 0,
    "max_trussness": 0,
    "transitivity": 0.0,
    "trusses": {},
    "motifs": {},
    "revision": 0,
}


def totals_at(points: dict[int, EpochTotals], epochs: Iterable[int]) -> dict[int, EpochTotals]:
    """Return the totals at each epoch: those at the last epoch of `points` that is not greater."""
    changed = sorted(points)
    out = {}
    for epoch in epochs:
        place = bisect_right(changed, epoch)
        out[epoch] = points[changed[place - 1]] if place else NOTHING
    return out


def truss_sizes(exactly: Mapping[int, int], greatest: int = 0) -> dict[int, int]:
    """Compute the sizes of the trusses from the number of edges of each trussness: k → edges of the k-truss.

    The result has every k from 2 to the greatest trussness, or to `greatest` where that is more.

    >>> truss_sizes({2: 1, 5: 10})
    {2: 11, 3: 10, 4: 10, 5: 10}
    """
    inside, sizes = 0, {}
    for k in range(max(greatest, max(exactly, default=0)), 1, -1):
        inside += exactly.get(k, 0)
        sizes[k] = inside
    return dict(sorted(sizes.items()))
