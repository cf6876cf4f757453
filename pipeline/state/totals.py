"""The totals at each epoch, as the sums of their diffs: the one place that adds them up, for readers and audits."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Literal, TypedDict

TotalDiff = tuple[str, int, int, int, int]  # measure, k, epoch, revision, diff


Measure = Literal["vertices", "edges", "triangles", "max_trussness"]
MEASURES: tuple[Measure, ...] = ("vertices", "edges", "triangles", "max_trussness")  # that pages and checks show


class DisplayedTotals(TypedDict):
    """The totals at an epoch, as pages show them."""

    vertices: int
    edges: int
    triangles: int
    max_trussness: int
    trusses: dict[int, int]  # k → edges of trussness k
    motifs: dict[int, int]  # place in `[motifs]` → occurrences


class EpochTotals(DisplayedTotals):
    """All totals at an epoch."""

    wedges: int
    transitivity: float  # how many of the pairs of edges that meet are closed to a triangle, 0 to 1
    revision: int  # the newest one that touched this or an earlier epoch's sums


def sum_totals(diffs: Iterable[TotalDiff], last: int | None = None) -> dict[int, EpochTotals]:
    """Total diffs → epoch → the totals there.

    Only epochs at which something changes are listed; `totals_at` fills the others.
    """
    by_epoch: dict[int, list[TotalDiff]] = {}
    for each in diffs:
        if last is None or each[2] <= last:
            by_epoch.setdefault(each[2], []).append(each)
    sums = {"vertices": 0, "edges": 0, "triangles": 0, "wedges": 0}
    trusses: dict[int, int] = {}
    motifs: dict[int, int] = {}
    revision = 0
    out: dict[int, EpochTotals] = {}
    for epoch in sorted(by_epoch):
        for measure, k, _, at, diff in by_epoch[epoch]:
            revision = max(revision, at)
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
    """The point in force at each epoch: the last one at or before it."""
    changed = sorted(points)
    out = {}
    for epoch in epochs:
        place = bisect_right(changed, epoch)
        out[epoch] = points[changed[place - 1]] if place else NOTHING
    return out


def truss_sizes(exactly: Mapping[int, int], greatest: int = 0) -> dict[int, int]:
    """Sum up edges of each trussness: k → edges of the k-truss.

    Every k from 2 to the greatest trussness is there, or to `greatest` where that is more.

    >>> truss_sizes({2: 1, 5: 10})
    {2: 11, 3: 10, 4: 10, 5: 10}
    """
    inside, sizes = 0, {}
    for k in range(max(greatest, max(exactly, default=0)), 1, -1):
        inside += exactly.get(k, 0)
        sizes[k] = inside
    return dict(sorted(sizes.items()))
