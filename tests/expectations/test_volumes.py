"""The learned bounds: their documented examples, a short or an empty history, what they find, and how often they are
wrong about real histories (`tests.benchmarks.bands` has all of them)."""

from __future__ import annotations

import doctest
import math

import pytest

from altneu.expectations import volumes
from tests.benchmarks import bands

CARRIED = "bitcoin-alpha"


def test_the_examples_in_the_text() -> None:
    outcome = doctest.testmod(volumes)
    assert outcome.attempted and not outcome.failed


def test_the_bounds_in_rows_are_those_that_the_surprise_obeys() -> None:
    counts = list(enumerate([90, 100, 110, 95, 105, 100, 98, 102, 400]))
    band = volumes.usual_rows(counts, 9)
    assert band is not None and band.epochs == 9
    low, high = band.row_bounds
    surprise = {x: abs(band.surprise_of(math.log1p(x))) for x in (low - 1, low, high, high + 1)}
    assert surprise[low] <= 1 and surprise[high] <= 1
    assert surprise[low - 1] > 1 and surprise[high + 1] > 1
    assert volumes.usual_rows(counts[:7], 7) is None and volumes.usual_rows([], 1) is None
    assert volumes.usual_growth([], 1) is None


def test_a_source_that_always_had_bad_rows_has_a_wider_bound() -> None:
    assert volumes.bad_share_bound([]) == volumes.bad_share_bound([0.0] * 20) == volumes.MOST_BAD
    assert volumes.bad_share_bound([0.2] * 20) == 0.2


def test_the_width_is_that_of_the_sensitivity() -> None:
    counts = [(day, 1000 + 10 * (day % 3)) for day in range(60)]
    reach = {}
    for name, width in volumes.WIDTH.items():
        band = volumes.usual_rows(counts, 60, 1, width)
        assert band is not None
        reach[name] = (band.middle - band.low, band.high - band.middle)
    assert reach["low"] > reach["normal"] > reach["high"]
    assert reach["low"][1] == pytest.approx(1.5 * reach["normal"][1])


def test_one_large_step_does_not_make_every_number_usual() -> None:
    """A source that began small: what is four times all that was seen is unusual, and nobody is told that 0 to millions
    of rows are usual."""
    counts = [(day, 3) for day in range(10)] + [(day, 900 + 50 * (day % 4)) for day in range(10, 60)]
    counts[30] = 30, 3
    band = volumes.usual_rows(counts, 60)
    assert band is not None and band.is_uneven
    assert band.row_bounds == (0, 4 * 1051 - 1)
    assert band.surprise_of(math.log1p(5000)) > 1 > band.surprise_of(math.log1p(1050))
    assert band.describe(band.row_bounds) == "more than 4,203 has not occurred before"
    calm = volumes.usual_rows(counts[31:], 60)
    assert calm is not None and not calm.is_uneven and calm.describe((600, 1500)) == "600 to 1,500 are usual"


@pytest.mark.parametrize("scatter", [0.05, 0.1])
@pytest.mark.parametrize("week", bands.WEEKS)
def test_a_doubled_or_halved_volume_of_a_regular_source_is_found(week: str, scatter: float) -> None:
    found = bands.judged(bands.regular(scatter, bands.WEEKS[week]), 86_400, settled=True)
    assert found.epochs == 372 and found.false == 0
    assert found.doubled >= 0.9 * found.epochs and found.halved >= 0.9 * found.epochs


def test_few_false_alarms_in_real_histories() -> None:
    """Of the two that every clone and the demo carry. Under 2 in 1,000 is asked of all four: see the benchmark."""
    found = [bands.judged(bands.rows(name, every), every) for name in ("CollegeMsg", CARRIED) for every in bands.EVERY]
    assert sum(one.epochs for one in found) == 2_107
    assert sum(one.false for one in found) <= 4


@pytest.mark.slow
@pytest.mark.needs("graphs")
@pytest.mark.parametrize("history", [name for name in bands.HISTORIES if name not in ("CollegeMsg", CARRIED)])
def test_few_false_alarms_in_the_other_real_histories(history: str) -> None:
    found = [bands.judged(bands.rows(history, every), every) for every in bands.EVERY]
    assert sum(one.epochs for one in found) > 500
    assert sum(one.false for one in found) <= 4
