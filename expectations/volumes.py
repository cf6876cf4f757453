"""Suite `volumes`: the number of landed rows of each epoch, compared with fixed bounds and with earlier epochs.

The learned bounds only warn. They are learned from the `WINDOW` epochs before (`usual_band`), by logarithms, because
volumes differ by factors:

- The middle is the median of the last `LEVEL` epochs, each without the share of its season. A season is a day of the
  week if epochs are days, and an hour of the week if they are hours. The share of a season is the median of its epochs
  minus that of all epochs.
- The step of an epoch is its difference from the middle before it. The band reaches `SPREADS` spreads of the steps
  (1.4826 times their median size), or `BEYOND` times the largest step to that side, whichever is more, because a number
  that large has occurred before. It reaches at least a factor 1.5, at least `SPREADS` - 1 times the scatter that a
  count has by chance (1 / sqrt(count)), and, as long as there are fewer than `SETTLED` epochs, a factor 12 (whatever
  the sensitivity).
- A number of rows that is `SEEN` times more, or less, than any in the `WINDOW` is never usual (12 times, as long as
  there are few epochs): one large step long ago says little about the size of an epoch.

With fewer than `LEAST` earlier epochs nothing is judged, and the result says so. Totals grow, and so their steps are
judged. A surprise of 1 is the edge of the band. `tests/benchmarks/bands.py` measures how often this warns without a
reason, and what it finds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Literal

from .model import Expectation, Frame, equals_column, exceeds_column, is_between, is_null

SUITE = "volumes"
LEAST, SETTLED, WINDOW, LEVEL = 8, 28, 120, 14  # epochs
SPREADS, BEYOND = 4.0, 1.7
GROWING = 1.5  # triangles come and go in clusters: the band of a growth is wider by this factor
NARROW, YOUNG = math.log(1.5), math.log(12)  # the least reach of the band
SEEN = math.log(4)  # the farthest that the band of a number of rows goes beyond all earlier numbers
UNEVEN = math.log(100)  # a wider band means that nothing is usual
MOST_BAD, BAD_SPREADS = 0.01, 7.0  # a share of malformed rows that is above this, and above the usual one, warns
ROWS = "as many rows as usual"
GROWTH = {"edges": "the edges grow as usual", "triangles": "the triangles grow as usual"}

Sensitivity = Literal["low", "normal", "high"]
WIDTH: Mapping[Sensitivity, float] = {"low": 1.5, "normal": 1.0, "high": 0.7}  # the band's reach is multiplied

_NOT_JUDGED = f"not judged: fewer than {LEAST} earlier epochs to learn from"
_REMEDY = "look at the source of epoch {epoch}; if the world has changed, do nothing: the bounds will adapt"

_volumes = Frame(SUITE, "volumes", _REMEDY, needs=("volumes",))
_sums = Frame(SUITE, "sums", _REMEDY, needs=("totals", "volumes"))


def _is_usual(frame: Frame, what: str, name: str, meaning: str, show: tuple[str, ...], row_text: str) -> Expectation:
    return frame.warn_unless(
        name,
        meaning,
        is_between(f"{what}_surprise", -1, 1),
        show=("epoch", *show),
        row_text=row_text,
        unjudged=_NOT_JUDGED,
        per_epoch=frame is _volumes,
    )


EXPECTATIONS = [
    _volumes.warn_unless(
        "the batch is not empty",
        "An epoch that landed has at least one good row. An empty batch retracts all earlier rows of the epoch.",
        is_between("rows", 1),
        remedy="check whether the files of epoch {epoch} are complete; then: altneu run {epoch}",
        show=("epoch", "rows", "bad_rows"),
        per_epoch=True,
    ),
    _volumes.warn_unless(
        "the epoch was over when it landed",
        "The newest file of the batch was written after the epoch's interval had ended: otherwise rows may be missing.",
        is_null("early"),
        remedy="land epoch {epoch} again when it is over; then: altneu run {epoch}",
        show=("epoch", "landed_at", "over_at", "early"),
        per_epoch=True,
    ),
    _volumes.warn_unless(
        "few rows are malformed",
        f"At most {MOST_BAD:.0%} of an epoch's rows are in quarantine, or not more than in most earlier epochs.",
        exceeds_column("bad_share_bound", "bad_share", or_equal=True),
        remedy="read the reasons in the quarantine of epoch {epoch}, fix the files, then: altneu run {epoch}",
        show=("epoch", "rows", "bad_rows", "bad_share", "bad_share_bound"),
        per_epoch=True,
    ),
    _volumes.require(
        "the stored rows are the landed rows",
        "After this run as many rows of the epoch are stored as were counted when its files were read.",
        equals_column("rows", "stored", ignore_row_if="either_value_is_missing"),
        remedy="altneu run {epoch}; if it fails again, report it with the rows below",
        needs=("upserts_net",),
        show=("epoch", "rows", "stored"),
        per_epoch=True,
    ),
    _is_usual(
        _volumes,
        "rows",
        ROWS,
        "The batch is about as large as those of earlier epochs: this shows a source that stops or repeats itself.",
        ("rows", "usual_rows"),
        "{rows:,} rows; {usual_rows}",
    ),
    _is_usual(
        _sums,
        "edges",
        GROWTH["edges"],
        "From the epoch before to this one the number of edges changes by a factor like those of earlier epochs.",
        ("edges", "edges_before", "usual_edges"),
        "{edges:,} edges, {edges_before:,} in the epoch before; {usual_edges}",
    ),
    _is_usual(
        _sums,
        "triangles",
        GROWTH["triangles"],
        "From the epoch before to this one the number of triangles changes by a factor like those of earlier epochs.",
        ("triangles", "triangles_before", "usual_triangles"),
        "{triangles:,} triangles, {triangles_before:,} in the epoch before; {usual_triangles}",
    ),
]


@dataclass(frozen=True)
class UsualBand:
    """The usual band of an epoch: logarithms of numbers, and the number of epochs from which it is learned."""

    middle: float
    low: float
    high: float
    epochs: int

    def surprise_of(self, value: float) -> float:
        """Return how far a logarithm is from the middle: 1 (-1) is the upper (lower) edge of the band."""
        off = value - self.middle
        return off / ((self.high if off > 0 else self.low) - self.middle) * math.copysign(1, off)

    @property
    def is_uneven(self) -> bool:
        """Tell whether the earlier epochs are too few, or too unlike each other, for a usual number."""
        return self.high - self.low > UNEVEN

    def describe(self, counts: tuple[int, int]) -> str:
        """Return the usual numbers as a text for the sentence of a check."""
        low, high = (f"{count:,}" for count in counts)
        if self.is_uneven:
            less = f"less than {low} or " if counts[0] else ""
            return f"{less}more than {high} has not occurred before"
        return f"{low} to {high} are usual"

    @property
    def row_bounds(self) -> tuple[int, int]:
        """Return the least and the greatest number of rows that the band allows."""
        return self.count_bounds(0)

    def count_bounds(self, before: int) -> tuple[int, int]:
        """Return the least and the greatest count that a band of growth allows after a count."""
        low, high = (max(math.log1p(before) + edge, 0) for edge in (self.low, self.high))
        return math.ceil(round(math.expm1(low), 6)), math.floor(round(math.expm1(high), 6))


def season_length(seconds: int | None) -> int:
    """Return after how many epochs of this length a week begins again; 1 if there are no seasons (integers, weeks).

    >>> season_length(86_400), season_length(3_600), season_length(7 * 86_400), season_length(None)
    (7, 168, 1, 1)
    """
    week = 7 * 86_400
    return 1 if seconds is None or seconds < 3_600 or week % seconds else week // seconds


def usual_band(
    history: Sequence[tuple[int, float]], epoch: int, seasons: int = 1, width: float = 1.0, total: int | None = None
) -> UsualBand | None:
    """Return the usual band of an epoch; None if there are too few earlier epochs.

    Args:
        history: the epochs before it with their logarithms, oldest first.
        epoch: the epoch.
        seasons: the number of epochs in a week, or 1.
        width: multiplies the reach of the band.
        total: for a growth, the count that grows.

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
    """Return by how much the epochs of each season are above the median of all; 0 for a season with fewer than two
    epochs.
    """
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
    """Return the band of an epoch's rows, from the rows of the epochs before it, oldest first."""
    recent = [(each, math.log1p(rows)) for each, rows in history[-WINDOW:]]
    return usual_band(recent, epoch, seasons, width)


def usual_growth(
    history: Sequence[tuple[int, int]], epoch: int, seasons: int = 1, width: float = 1.0
) -> UsualBand | None:
    """Return the band of the step of a total from the epoch before to this one, from earlier totals, oldest first."""
    logs = [(each, math.log1p(max(total, 0))) for each, total in history[-WINDOW - 1 :]]
    steps = [(new[0], new[1] - old[1]) for old, new in pairwise(logs)]
    return usual_band(steps, epoch, seasons, width * GROWING, max(history[-1][1], 0) if history else 0)


def bad_share_bound(shares: Sequence[float]) -> float:
    """Return the share of malformed rows above which the check warns, from the shares of earlier epochs."""
    recent = list(shares)[-30:]
    if len(recent) < LEAST:
        return MOST_BAD
    middle = median(recent)
    return max(MOST_BAD, middle + BAD_SPREADS * 1.4826 * median(abs(x - middle) for x in recent))
