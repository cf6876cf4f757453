"""The learned bounds: their documented examples, and what a short or an empty history means."""

from __future__ import annotations

import doctest

from expectations import volumes


def test_the_examples_in_the_text() -> None:
    outcome = doctest.testmod(volumes)
    assert outcome.attempted and not outcome.failed


def test_bounds_are_those_that_the_surprise_obeys() -> None:
    import math

    counts = [90, 100, 110, 95, 105, 100, 98, 102, 400]
    low, high = map(int, volumes.usual(counts).split(" to "))
    logs = [math.log1p(x) for x in counts]
    scores = {x: volumes.surprise(math.log1p(x), logs) or 0.0 for x in (low - 1, low, high, high + 1)}
    assert abs(scores[low]) <= volumes.K and abs(scores[high]) <= volumes.K
    assert abs(scores[low - 1]) > volumes.K and abs(scores[high + 1]) > volumes.K
    assert volumes.usual(counts[:7]) == ""


def test_a_source_that_always_had_bad_rows_has_a_wider_bound() -> None:
    assert volumes.bad_share_bound([]) == volumes.bad_share_bound([0.0] * 20) == volumes.MOST_BAD
    assert volumes.bad_share_bound([0.2] * 20) == 0.2
