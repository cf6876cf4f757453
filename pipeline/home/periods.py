"""Periods: the days, weeks and months of the calendar, in UTC, and the epochs that begin in each.

A report of a week is made of the epochs of that week. A period is complete when the frontier has reached its last
epoch; which of its epochs have landed does not matter, because a day without a file is a day on which nothing happened.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from ..errors import UsageError
from ..formatting import group_neighbours
from .schedule import Schedule


class PeriodUnit(StrEnum):
    """The kinds of periods. A week begins on Monday, and its key is the date of that day."""

    DAYS = "days"
    WEEKS = "weeks"
    MONTHS = "months"


@dataclass(frozen=True)
class Period:
    """A period: its key (`2004-04-12`; a month: `2004-04`) and the first and the last epoch that begin in it."""

    key: str
    first: int
    last: int

    def contains(self, epoch: int) -> bool:
        """Tell whether an epoch begins in the period."""
        return self.first <= epoch <= self.last

    def is_complete(self, frontier: int | None) -> bool:
        """Tell whether a frontier has reached the last epoch of the period."""
        return frontier is not None and frontier >= self.last


def period_of(schedule: Schedule, unit: PeriodUnit, epoch: int) -> Period:
    """Return the period in which an epoch begins.

    Raises:
        UsageError: The epochs of the home are plain integers.

    >>> period_of(Schedule.from_text("1d"), PeriodUnit.WEEKS, 12523).key, Schedule.from_text("1d").format_label(12523)
    ('2004-04-12', '2004-04-15')
    """
    if schedule.seconds is None:
        raise UsageError(f"this home has integer epochs, which belong to no {unit}.", '[epochs] every = "1d"')
    start = _start_of_period(unit, schedule.start_of(epoch))
    end = _start_of_period(unit, start + timedelta(days=31 if unit is PeriodUnit.MONTHS else _days_of(unit)))
    return Period(
        f"{start:%Y-%m}" if unit is PeriodUnit.MONTHS else f"{start:%Y-%m-%d}",
        _first_epoch_from(schedule, start),
        _first_epoch_from(schedule, end) - 1,
    )


def parse_period(schedule: Schedule, unit: PeriodUnit, key: str) -> Period:
    """Return the period with a key, which must contain an epoch. Raises `UsageError`, which names the key."""
    try:
        start = datetime.fromisoformat(f"{key}-01" if unit is PeriodUnit.MONTHS else key).replace(tzinfo=UTC)
        period = period_of(schedule, unit, _first_epoch_from(schedule, start))
    except (ValueError, OverflowError):
        period = None
    if period is None or period.key != key:
        example = period_of(schedule, unit, 12523 * 86_400 // (schedule.seconds or 1)).key
        raise UsageError(f"{key!r} is not one of the {unit} of this home.", f"a key such as {example}")
    return period


def periods_of(schedule: Schedule, unit: PeriodUnit, epochs: Iterable[int]) -> dict[str, Period]:
    """Return the periods in which epochs begin, by key, in the order of time."""
    periods: dict[str, Period] = {}
    last: Period | None = None
    for epoch in sorted(epochs):
        if last is None or not last.contains(epoch):
            last = period_of(schedule, unit, epoch)
            periods[last.key] = last
    return periods


def format_epoch_ranges(schedule: Schedule, epochs: Iterable[int]) -> str:
    """Format epochs as ranges of neighbours.

    >>> format_epoch_ranges(Schedule(), [7, 1, 2, 3, 9])
    '1..3, 7, 9'
    """
    ranges = group_neighbours(sorted(epochs))
    label = schedule.format_label
    return ", ".join(label(first) if first == last else f"{label(first)}..{label(last)}" for first, last in ranges)


def _days_of(unit: PeriodUnit) -> int:
    return 7 if unit is PeriodUnit.WEEKS else 1


def _start_of_period(unit: PeriodUnit, when: datetime) -> datetime:
    """Return the first instant of the period that contains an instant."""
    day = when.replace(hour=0, minute=0, second=0, microsecond=0)
    match unit:
        case PeriodUnit.WEEKS:
            return day - timedelta(days=day.weekday())
        case PeriodUnit.MONTHS:
            return day.replace(day=1)
    return day


def _first_epoch_from(schedule: Schedule, when: datetime) -> int:
    """Return the first epoch that begins at an instant or after it."""
    epoch = schedule.epoch_of(when)
    return epoch if schedule.start_of(epoch) == when else epoch + 1
