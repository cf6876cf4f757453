"""Suite `volumes`: how much landed, epoch by epoch, against fixed bounds and against what earlier epochs were like.

The learned bounds only warn. What is usual is learned from the `WINDOW` epochs before (`usual_band`), by logarithms,
because volumes differ by factors:

- the middle is the median of the last `LEVEL` epochs, each without its season's share. A season is a day of the week
  where epochs are days, an hour of the week where they are hours; its share is the median of its epochs minus that of
  all of them;
- what an epoch differed from the middle before it is its step. The band reaches `SPREADS` spreads of the steps (1.4826
  times their median size), and `BEYOND` times the largest step to that side, whichever is more; a number that large
  has been seen before. It reaches a factor 1.5 at least, `SPREADS` - 1 times the scatter that a count has by chance
  (1 / sqrt(count)), and a factor 12 as long as there are fewer than `SETTLED` epochs (whatever the sensitivity);
- a number of rows is never usual that is `SEEN` times more, or less, than any in the `WINDOW` (12 times, as long as
  there are few): one large step long ago says little of the size of an epoch.

With fewer than `LEAST` earlier epochs nothing is judged: the result says so. A total grows: its step is judged. A
surprise of 1 is the edge of the band. How often this warns without a reason, and what it finds:
`tests/benchmarks/bands.py`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Literal

from .model import Expectation

SUITE = "volumes"
LEAST, SETTLED, WINDOW, LEVEL = 8, 28, 120, 14  # epochs
SPREADS, BEYOND = 4.0, 1.7
GROWING = 1.5  # triangles come and go in clusters: the band of a growth is so much wider
NARROW, YOUNG = math.log(1.5), math.log(12)  # what the band reaches at least
SEEN = math.log(4)  # what the band of a number of rows goes beyond all that was seen, at most
UNEVEN = math.log(100)  # a band that is wider says that nothing is usual
MOST_BAD, BAD_SPREADS = 0.01, 7.0  # share of malformed rows; more than usual, and more than this, warns
ROWS = "as many rows as usual"
GROWTH = {"edges": "the edges grow as usual", "triangles": "the triangles grow as usual"}

Sensitivity = Literal["low", "normal", "high"]
WIDTH: Mapping[Sensitivity, float] = {"low": 1.5, "normal": 1.0, "high": 0.7}  # the band's reach is multiplied

_SOON = f"not judged: fewer than {LEAST} earlier epochs to learn from"
_LOOK = "look at the source of epoch {epoch}; if the world changed, do nothing: the bounds learn from it"


def _usual_expectation(name: str, meaning: str, on: str, what: str, show: tuple[str, ...], says: str) -> Expectation:
    return Expectation(
        SUITE,
        name,
        "warning",
        meaning,
        _LOOK,
        on=on,
        needs=("volumes",) if on == "volumes" else ("totals", "volumes"),
        kind="ExpectColumnValuesToBeBetween",
        args={"column": f"{what}_surprise", "min_value": -1, "max_value": 1},
        show=("epoch", *show),
        says=says,
        unjudged=_SOON,
        per_epoch=on == "volumes",
    )


EXPECTATIONS = [
    Expectation(
        SUITE,
        "the batch is not empty",
        "warning",
        "An epoch that landed has at least one good row. An empty batch takes back what the epoch said before.",
        "look whether the files of epoch {epoch} arrived whole; then: altneu run {epoch}",
        on="volumes",
        kind="ExpectColumnValuesToBeBetween",
        args={"column": "rows", "min_value": 1},
        show=("epoch", "rows", "bad_rows"),
        per_epoch=True,
    ),
    Expectation(
        SUITE,
        "the epoch was over when it landed",
        "warning",
        "The newest file of the batch was written after the epoch's interval had ended: otherwise rows may be to come.",
        "land epoch {epoch} again when it is over; then: altneu run {epoch}",
        on="volumes",
        kind="ExpectColumnValuesToBeNull",
        args={"column": "early"},
        show=("epoch", "landed_at", "over_at", "early"),
        per_epoch=True,
    ),
    Expectation(
        SUITE,
        "few rows are malformed",
        "warning",
        f"At most {MOST_BAD:.0%} of an epoch's rows are in quarantine, or as many as in most earlier epochs.",
        "read the reasons in the quarantine of epoch {epoch}, fix the files, then: altneu run {epoch}",
        on="volumes",
        kind="ExpectColumnPairValuesAToBeGreaterThanB",
        args={"column_A": "bad_share_bound", "column_B": "bad_share", "or_equal": True},
        show=("epoch", "rows", "bad_rows", "bad_share", "bad_share_bound"),
        per_epoch=True,
    ),
    Expectation(
        SUITE,
        "the stored rows are the landed rows",
        "critical",
        "After this run the store holds as many rows of the epoch as were counted when its files were read.",
        "altneu run {epoch}; if it fails again, report it with the rows below",
        on="volumes",
        needs=("upserts_net",),
        kind="ExpectColumnPairValuesToBeEqual",
        args={"column_A": "rows", "column_B": "stored", "ignore_row_if": "either_value_is_missing"},
        show=("epoch", "rows", "stored"),
        per_epoch=True,
    ),
    _usual_expectation(
        ROWS,
        "The batch is about as large as those of earlier epochs: a source that stops or repeats itself shows here.",
        "volumes",
        "rows",
        ("rows", "usual_rows"),
        "{rows:,} rows; {usual_rows}",
    ),
    _usual_expectation(
        GROWTH["edges"],
        "From the epoch before to this one the number of edges changes by a factor like those of earlier epochs.",
        "sums",
        "edges",
        ("edges", "edges_before", "usual_edges"),
        "{edges:,} edges, {edges_before:,} in the epoch before; {usual_edges}",
    ),
    _usual_expectation(
        GROWTH["triangles"],
        "From the epoch before to this one the number of triangles changes by a factor like those of earlier epochs.",
        "sums",
        "triangles",
        ("triangles", "triangles_before", "usual_triangles"),
        "{triangles:,} triangles, {triangles_before:,} in the epoch before; {usual_triangles}",
    ),
]


@dataclass(frozen=True)
class UsualBand:
    """What is usual for an epoch: logarithms of numbers, and how many epochs say so."""

    middle: float
    low: float
    high: float
    epochs: int

    def surprise_of(self, value: float) -> float:
        """How far a logarithm is from the middle: 1 (-1) is the upper (lower) edge of the band."""
        off = value - self.middle
        return off / ((self.high if off > 0 else self.low) - self.middle) * math.copysign(1, off)

    @property
    def is_uneven(self) -> bool:
        """Are the earlier epochs too few, or too unlike each other, to say what is usual?"""
        return self.high - self.low > UNEVEN

    def describe(self, counts: tuple[int, int]) -> str:
        """What is usual, for the sentence of a check."""
        low, high = (f"{count:,}" for count in counts)
        if self.is_uneven:
            less = f"less than {low} or " if counts[0] else ""
            return f"{less}more than {high} is beyond what was seen"
        return f"{low} to {high} are usual"

    @property
    def row_bounds(self) -> tuple[int, int]:
        """The least and the greatest number of rows that the band allows."""
        return self.count_bounds(0)

    def count_bounds(self, before: int) -> tuple[int, int]:
        """Return the least and the greatest count that a band of growth allows after a count."""
        low, high = (max(math.log1p(before) + edge, 0) for edge in (self.low, self.high))
        return math.ceil(round(math.expm1(low), 6)), math.floor(round(math.expm1(high), 6))


def season_length(seconds: int | None) -> int:
    """After how many epochs of so many seconds a week begins again; 1: there are no seasons (integers, weeks).

    >>> season_length(86_400), season_length(3_600), season_length(7 * 86_400), season_length(None)
    (7, 168, 1, 1)
    """
    week = 7 * 86_400
    return 1 if seconds is None or seconds < 3_600 or week % seconds else week // seconds


def usual_band(
    history: Sequence[tuple[int, float]], epoch: int, seasons: int = 1, width: float = 1.0, total: int | None = None
) -> UsualBand | None:
    """What is usual for an epoch, from the epochs before it with their logarithms, oldest first. None: too few.

    `width` multiplies its reach; `total`: of a growth, the count that grows.

    >>> calm = [(day, math.log1p(1000 + 10 * (day % 3))) for day in range(60)]
    >>> usual_band(calm, 60).row_bounds
    (673, 1515)
    >>> weeks = [(day, math.log1p(20 if day % 7 > 4 else 1000)) for day in range(60)]
    >>> usual_band(weeks, 60, 7).row_bounds, usual_band(weeks, 61, 7).row_bounds
    ((667, 1500), (10, 39))
    >>> usual_band(calm[:7], 7) is None
    True
    """
    recent = history[-WINDOW:]
    if len(recent) < LEAST:
        return None
    share = _season_shares(recent, seasons)
    flat = [value - share[each % seasons] for each, value in recent]
    steps = [flat[place] - median(flat[max(0, place - LEVEL) : place]) for place in range(LEAST // 2, len(flat))]
    middle = median(flat[-LEVEL:]) + share[epoch % seasons]
    chance = (SPREADS - 1) / math.sqrt(1 + (math.expm1(max(middle, 0)) if total is None else total))
    least = max(SPREADS * 1.4826 * median(map(abs, steps)), NARROW, chance)
    young = YOUNG if len(recent) < SETTLED else 0.0
    down, up = (max(max(least, BEYOND * most) * width, young) for most in (-min(steps), max(steps)))
    low, high = middle - down, middle + up
    if total is None:
        seen, beyond = [*(value for _, value in recent), middle], max(SEEN * width, young)
        low, high = max(low, min(seen) - beyond), min(high, max(seen) + beyond)
    return UsualBand(middle, low, high, len(recent))


def _season_shares(history: Sequence[tuple[int, float]], seasons: int) -> Mapping[int, float]:
    """Season → by how much its epochs are above the median of all; 0 where two of them cannot say it."""
    of: dict[int, list[float]] = defaultdict(list)
    for epoch, value in history:
        of[epoch % seasons].append(value)
    if len(of) < 2:
        return defaultdict(float)
    middle = median(value for _, value in history)
    shares = {each: median(values) - middle for each, values in of.items() if len(values) > 1}
    return defaultdict(float, shares)


def usual_rows(
    history: Sequence[tuple[int, int]], epoch: int, seasons: int = 1, width: float = 1.0
) -> UsualBand | None:
    """The band of an epoch's rows, from the rows of the epochs before it, oldest first."""
    recent = [(each, math.log1p(rows)) for each, rows in history[-WINDOW:]]
    return usual_band(recent, epoch, seasons, width)


def usual_growth(
    history: Sequence[tuple[int, int]], epoch: int, seasons: int = 1, width: float = 1.0
) -> UsualBand | None:
    """The band of the step of a total from the epoch before to this one, from the totals before it, oldest first."""
    logs = [(each, math.log1p(max(total, 0))) for each, total in history[-WINDOW - 1 :]]
    steps = [(new[0], new[1] - old[1]) for old, new in pairwise(logs)]
    return usual_band(steps, epoch, seasons, width * GROWING, max(history[-1][1], 0) if history else 0)


def bad_share_bound(shares: Sequence[float]) -> float:
    """The share of malformed rows above which we warn, from the shares of earlier epochs."""
    recent = list(shares)[-30:]
    if len(recent) < LEAST:
        return MOST_BAD
    middle = median(recent)
    return max(MOST_BAD, middle + BAD_SPREADS * 1.4826 * median(abs(x - middle) for x in recent))
