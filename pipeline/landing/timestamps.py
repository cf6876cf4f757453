"""Convert event times to microseconds since 1970 UTC: numbers in s, ms, µs or ns, ISO 8601, or a given form.

The unit of numbers is the one in which most of them lie between the years 1900 and 2200. A time outside these years is
malformed, and so is one that lies there in a coarser unit than the others (seconds among milliseconds). If the user
names the unit or the form, the years 1 to 9999 are allowed. Numbers that would be times before 1990, and may as well be
dates, are refused.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UsageError
from .number_dates import DateReadings
from .time_forms import Mask, Times, read_form

UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # ticks per second
UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


def _first_second(year: int) -> int:
    return round((datetime(year, 1, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())


USUAL = _first_second(1900), _first_second(2200)
CALENDAR = _first_second(1), _first_second(9999)


@dataclass
class Clock:
    """How a time column is read.

    `is_given` says that the user has named the unit or the form. `counts_by_unit` is how many numbers looked like each
    unit, and `readings` what else the numbers may be.
    """

    column: str
    text: bool = False
    form: str | None = None
    unit: str = "s"
    is_given: bool = False
    counts_by_unit: Counter[str] = field(default_factory=Counter)
    readings: DateReadings = field(default_factory=DateReadings)

    def __str__(self) -> str:
        if self.text:
            return f"{self.column}: times of the form {self.form}" if self.form else f"{self.column}: ISO 8601 times"
        return f"{self.column}: {UNIT_NAMES[self.unit]} since 1970 UTC"

    def likely_unit(self) -> str:
        """Return the unit that most of the numbers looked like."""
        units = [unit for unit in UNITS if self.counts_by_unit[unit]]
        return max(units, key=lambda unit: self.counts_by_unit[unit], default=self.unit)

    def observe(self, cells: list[str]) -> None:
        """Take the unit that most of the first numbers look like."""
        self._classify_numbers(np.array([float(cell) for cell in cells]))
        self.unit = self.likely_unit()
        self.counts_by_unit.clear()

    def to_microseconds(self, column: pa.ChunkedArray) -> tuple[Times, dict[str, Mask]]:
        """Return microseconds since 1970 UTC for each row, and a mask of the malformed rows for each reason.

        The time of a malformed row is 0.
        """
        if self.text:
            return self._parse_text(column)
        return self._parse_numbers(column)

    def with_unit(self, unit: str) -> Clock:
        """Return this clock with another unit, as if it had not seen a number yet."""
        return replace(self, unit=unit, counts_by_unit=Counter(), readings=DateReadings())

    def require_no_dates(self) -> None:
        """Raise `UsageError` if the numbers would be times before 1990, and may as well be dates."""
        plausible = [] if self.is_given else self.readings.list_plausible()
        if not plausible:
            return
        forms = [reading for reading in plausible if reading.startswith("%")]
        after_all = f"{UNIT_NAMES[self.unit]} since 1970 after all: --time-unit {self.unit}"
        if forms:
            others = "".join(f"or {form}; " for form in forms[1:])
            advice = f"--time-format {forms[0]}   ({others}{after_all})"
        else:
            advice = (
                f"--time-unit {self.unit}   (if they are {UNIT_NAMES[self.unit]} since 1970; else write dates such as "
            )
            advice += "2004-05-15 12:30 into the file)"
        what = "; ".join(map(self.readings.describe_reading, plausible[:3]))
        raise UsageError(f"--time {self.column}: the numbers look like dates: {what}. Nothing was landed.", advice)

    def next_command_for(self, reason: str, text: str) -> str | None:
        """Return what to type about a malformed time, or None if the reason is about another column."""
        if not reason.startswith(f"{self.column} "):
            return None
        if "looks like" in reason or (not self.text and "outside the years" in reason):
            others = ", ".join(unit for unit in UNITS if not self.is_given or unit != self.unit)
            return f"give the unit of the times: --time-unit {others.replace(', ns', ' or ns')}"
        if not self.text:
            return None
        if self.form and ("no time of the form" not in reason or describe_form(text) == self.form):
            return "correct the file"
        return f"give the form of the times: --time-format {describe_form(text)!r}"

    def _parse_text(self, column: pa.ChunkedArray) -> tuple[Times, dict[str, Mask]]:
        if self.form:
            since, reasons = read_form(self.form).read_times(column, self.column)
            beyond = np.zeros(len(since), bool)
        else:
            since, broken, beyond = _read_iso(column)
            reasons = {f"{self.column} is no ISO 8601 time": broken & ~beyond}
        broken = np.logical_or.reduce(list(reasons.values()))
        outside = ~broken & (beyond | ~_is_between(since, *self._year_range(), 10**6))
        return np.where(broken | outside, 0, since), self._combine_reasons(reasons, outside)

    def _parse_numbers(self, column: pa.ChunkedArray) -> tuple[Times, dict[str, Mask]]:
        numbers = column.to_numpy()
        broken = ~np.isfinite(numbers)
        numbers = np.where(broken, 0, numbers)
        like = self._classify_numbers(numbers)
        ticks = UNITS[self.unit]
        outside = ~broken & ~_is_between(numbers, *self._year_range(), ticks)
        if not self.is_given:
            fine = ~broken & ~outside
            self.readings.count_numbers(numbers[fine], numbers[fine] / ticks)
        reasons = self._combine_reasons({f"{self.column} is no time": broken}, outside)
        if not self.is_given:
            for coarser in list(UNITS)[: list(UNITS).index(self.unit)]:
                usual = f"most of the times like {UNIT_NAMES[self.unit]}"
                reason = f"{self.column} looks like {UNIT_NAMES[coarser]}, but {usual}"
                reasons[reason] = ~broken & (like == coarser)
        numbers = np.where(outside, 0, numbers)
        if ticks > 10**6:
            return np.asarray(numbers // (ticks // 10**6), np.int64), reasons
        return (numbers * (10**6 // ticks)).round().astype(np.int64), reasons

    def _classify_numbers(self, numbers: npt.NDArray[Any]) -> npt.NDArray[np.str_]:
        like = np.full(len(numbers), "", dtype="<U4")
        for unit in reversed(UNITS):
            like[_is_between(numbers, *USUAL, UNITS[unit])] = unit
        for unit, count in zip(*np.unique(like, return_counts=True), strict=True):
            self.counts_by_unit[str(unit)] += int(count)
        return like

    def _year_range(self) -> tuple[int, int]:
        return CALENDAR if self.is_given else USUAL

    def _combine_reasons(self, reasons: dict[str, Mask], outside: Mask) -> dict[str, Mask]:
        years = "1 to 9999" if self.is_given else "1900 to 2200"
        return reasons | {f"{self.column} is outside the years {years}": outside}


def _is_between(numbers: npt.NDArray[Any], low: int, high: int, ticks: int) -> Mask:
    return np.asarray((numbers >= low * ticks) & (numbers < high * ticks))


def _read_iso(column: pa.ChunkedArray) -> tuple[Times, Mask, Mask]:
    """Return microseconds since 1970 UTC for each row, and two masks: rows that could not be read, and ISO 8601 times
    among them.

    The latter are of a year that pandas does not know.
    """
    import pandas as pd  # it takes half a second, and most commands do not need it

    broken, since = np.ones(len(column), bool), np.zeros(len(column), np.int64)
    zoned = pc.match_substring_regex(column, r"[T ].*([Zz]|[+-]\d\d(:?\d\d)?)$").to_numpy()
    for rows in (zoned, ~zoned):  # pandas gives a time without zone the zone of a row before it
        texts = column.filter(pa.array(rows)).to_pandas()
        stamps = pd.to_datetime(texts, utc=True, format="ISO8601", errors="coerce")
        broken[rows] = stamps.isna().to_numpy()
        stamps = stamps.fillna(pd.Timestamp(0, tz="UTC")).dt.as_unit("us")
        since[rows] = stamps.astype("int64").to_numpy()
    beyond = np.zeros(len(column), bool)
    beyond[broken] = [_is_iso(text) for text in column.filter(pa.array(broken)).to_pylist()]
    return since, broken, beyond


def _is_iso(text: str | None) -> bool:
    try:
        return text is not None and datetime.fromisoformat(text) is not None
    except ValueError:
        return False


def describe_form(text: str) -> str:
    """Return the form of a time that is nearly one of ISO 8601; an example for any other text.

    >>> describe_form("1777-01-01"), describe_form("1777-01-01T00:00:00.5Z"), describe_form("15.04.2004")
    ('%Y-%m-%d', '%Y-%m-%dT%H:%M:%S.%f%z', '%d.%m.%Y')
    """
    match = re.fullmatch(r"\d{4}-\d\d-\d\d(?:([T ])\d\d:\d\d(:\d\d(\.\d{1,6})?)?( ?)(Z|[+-]\d\d:?\d\d)?)?", text)
    if match is None:
        return "%d.%m.%Y"
    separator, seconds, fraction, blank, zone = match.groups()
    if separator is None:
        return "%Y-%m-%d"
    seconds = f"{':%S' if seconds else ''}{'.%f' if fraction else ''}"
    return f"%Y-%m-%d{separator}%H:%M{seconds}{blank}{'%z' if zone else ''}"
