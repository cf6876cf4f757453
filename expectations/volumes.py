"""Suite `volumes`: how much landed, epoch by epoch, against fixed bounds and against what earlier epochs were like.

The learned bounds only warn. They compare logarithms, because volumes differ by factors: the surprise of a number x is
`(log(1 + x) - median) / spread`, with the median and `spread = max(1.4826 * MAD, FLOOR)` over up to `WINDOW` earlier
epochs, and a surprise beyond `K` fails, unless two of those epochs were about as far out (quiet weekends come back).
With fewer than `LEAST` earlier epochs nothing is judged: the result says so. A total grows: its step is judged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from .model import Expectation

SUITE = "volumes"
LEAST, WINDOW = 8, 30  # epochs
K, FLOOR = 7.0, 0.35  # a calm history still allows a factor exp(K * FLOOR) = 12
MOST_BAD = 0.01  # share of malformed rows; more than usual, and more than this, warns

_SOON = f"not judged: fewer than {LEAST} earlier epochs to learn from"
_LOOK = "look at the source of epoch {epoch}; if the world changed, do nothing: the bounds learn from it"


def _usual(name: str, meaning: str, on: str, column: str, show: tuple[str, ...], per_epoch: bool) -> Expectation:
    return Expectation(
        SUITE,
        name,
        "warning",
        meaning,
        _LOOK,
        on=on,
        needs=("volumes",) if on == "volumes" else ("totals", "volumes"),
        kind="ExpectColumnValuesToBeBetween",
        args={"column": column, "min_value": -K, "max_value": K},
        show=show,
        unjudged=_SOON,
        per_epoch=per_epoch,
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
    _usual(
        "as many rows as usual",
        "The batch is about as large as those of earlier epochs: a source that stops or repeats itself shows here.",
        "volumes",
        "rows_surprise",
        ("epoch", "rows", "usual_rows", "rows_surprise"),
        per_epoch=True,
    ),
    _usual(
        "the edges grow as usual",
        "From the epoch before to this one the number of edges changes by a factor like those of earlier epochs.",
        "sums",
        "edges_surprise",
        ("epoch", "edges", "edges_surprise"),
        per_epoch=False,
    ),
    _usual(
        "the triangles grow as usual",
        "From the epoch before to this one the number of triangles changes by a factor like those of earlier epochs.",
        "sums",
        "triangles_surprise",
        ("epoch", "triangles", "triangles_surprise"),
        per_epoch=False,
    ),
]


def surprise(value: float, history: Sequence[float]) -> float | None:
    """How many spreads `value` is away from the median of `history`; None: too short a history. All are logarithms.

    What two recent epochs have done too, up to a factor 2, counts as `K` at most.

    >>> calm = [math.log1p(100)] * 9
    >>> [round(surprise(math.log1p(x), calm), 1) for x in (100, 130, 1000)]
    [0.0, 0.7, 6.6]
    >>> surprise(1.0, [1.0] * 7) is None
    True
    >>> weeks = [math.log1p(x) for x in [100, 100, 100, 100, 100, 3, 3] * 2]
    >>> round(surprise(math.log1p(2), weeks), 1), round(surprise(math.log1p(0), weeks), 1)
    (-7.0, -13.2)
    """
    recent = list(history)[-WINDOW:]
    if len(recent) < LEAST:
        return None
    middle = median(recent)
    spread = max(1.4826 * median(abs(x - middle) for x in recent), FLOOR)
    score = (value - middle) / spread
    sign = math.copysign(1, score)
    as_far = sum(sign * (x - value) >= -math.log(2) for x in recent)
    return sign * min(abs(score), K) if as_far >= 2 else score


def usual(history: Sequence[int]) -> str:
    """The bounds as a reader understands them: `12 to 790`; empty when there are none yet."""
    logs = [math.log1p(x) for x in history][-WINDOW:]
    if len(logs) < LEAST:
        return ""
    middle = median(logs)
    reach = K * max(1.4826 * median(abs(x - middle) for x in logs), FLOOR)
    low, high = math.expm1(max(middle - reach, 0)), math.expm1(middle + reach)
    return f"{math.ceil(low)} to {math.floor(high)}"


def bad_share_bound(shares: Sequence[float]) -> float:
    """The share of malformed rows above which we warn, from the shares of earlier epochs."""
    recent = list(shares)[-WINDOW:]
    if len(recent) < LEAST:
        return MOST_BAD
    middle = median(recent)
    return max(MOST_BAD, middle + K * 1.4826 * median(abs(x - middle) for x in recent))
