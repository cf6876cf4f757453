"""Periods are those of the calendar, and a change of them is what a plain enumeration of days says."""

from __future__ import annotations

import itertools
import random
from datetime import timedelta

import pytest

from altneu.pipeline.errors import UsageError
from altneu.pipeline.home.periods import PeriodUnit, format_epoch_ranges, parse_period, period_of, periods_of
from altneu.pipeline.home.schedule import Schedule
from altneu.pipeline.reading.changed_periods import list_changed_periods
from altneu.pipeline.reading.epoch_changes import EpochChange, EpochChangeKind

EVERY = ("1d", "12h", "7h", "15m", "5d", "7d", "20d")


def key_by_calendar(schedule: Schedule, unit: PeriodUnit, epoch: int) -> str:
    """The key of the period in which an epoch begins, by Python's calendar."""
    start = schedule.start_of(epoch)
    if unit is PeriodUnit.MONTHS:
        return f"{start:%Y-%m}"
    return f"{start - timedelta(days=start.weekday()) if unit is PeriodUnit.WEEKS else start:%Y-%m-%d}"


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("unit", PeriodUnit)
def test_a_period_has_the_epochs_that_begin_in_it(every: str, unit: PeriodUnit) -> None:
    schedule, draw = Schedule.from_text(every), random.Random(f"{every} {unit}")
    for day in [*(draw.randrange(-10_000, 40_000) for _ in range(40)), 0, 10_957, 11_015, 11_016]:
        epoch = day * 86_400 // (schedule.seconds or 1)
        period = period_of(schedule, unit, epoch)
        keys = [key_by_calendar(schedule, unit, e) for e in (period.first - 1, period.first, epoch, period.last)]
        assert keys[1:] == 3 * [period.key] and period.contains(epoch)
        assert period.key not in (keys[0], key_by_calendar(schedule, unit, period.last + 1))
        assert parse_period(schedule, unit, period.key) == period
        assert not period.is_complete(period.last - 1) and period.is_complete(period.last)


@pytest.mark.parametrize(
    ("unit", "key"), [("days", "2004-04"), ("weeks", "2004-04-13"), ("weeks", "soon"), ("months", "2004-04-01")]
)
def test_a_key_that_is_none(unit: str, key: str) -> None:
    with pytest.raises(UsageError, match=key):
        parse_period(Schedule.from_text("1d"), PeriodUnit(unit), key)


def test_a_period_without_an_epoch_is_none() -> None:
    with pytest.raises(UsageError):  # an epoch of 20 days: most days and weeks have none
        parse_period(Schedule.from_text("20d"), PeriodUnit.DAYS, "1970-01-02")


def test_integer_epochs_have_no_periods() -> None:
    with pytest.raises(UsageError, match="integer epochs"):
        period_of(Schedule(), PeriodUnit.WEEKS, 7)


def test_ranges_are_the_epochs_that_they_stand_for() -> None:
    draw = random.Random(1)
    for _ in range(50):
        epochs = {draw.randrange(30) for _ in range(draw.randrange(12))}
        parts = [part.split("..") for part in format_epoch_ranges(Schedule(), epochs).split(", ") if part]
        assert [e for part in parts for e in range(int(part[0]), int(part[-1]) + 1)] == sorted(epochs)
        assert all(int(one[-1]) + 1 < int(other[0]) for one, other in itertools.pairwise(parts))


def test_changed_periods_are_those_of_an_enumeration() -> None:
    schedule, draw = Schedule.from_text("1d"), random.Random(2)
    for _ in range(300):
        base = draw.randrange(12_000, 13_000)
        unit, span = draw.choice([*PeriodUnit]), range(base, base + draw.choice([9, 70]))
        old = {epoch for epoch in span if draw.random() < draw.choice([0.0, 0.2, 0.9])}
        new = draw.choice([old, set[int](), {epoch for epoch in span if draw.random() < 0.5} | old])
        touched = {epoch for epoch in old | new if draw.random() < 0.1} | (old ^ new)
        before, after = max(old, default=None), max(new, default=None)
        changes = [EpochChange(e, schedule.format_label(e), EpochChangeKind.CORRECTED, None, None) for e in touched]
        expected = {}
        for period in periods_of(schedule, unit, old | new).values():
            was = before is not None and period.last <= before
            now = after is not None and period.last <= after
            inside = {epoch for epoch in touched if key_by_calendar(schedule, unit, epoch) == period.key}
            if (was and not now) or (now and not was) or (now and inside):
                kind = "withdrawn" if not now else "corrected" if was else "new"
                expected[period.key] = (kind, inside)
        changed = list_changed_periods(schedule, unit, changes, new, before, after)
        found = {each.period.key: (str(each.kind), {change.epoch for change in each.epochs}) for each in changed}
        assert found == expected
