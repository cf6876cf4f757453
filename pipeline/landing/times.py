"""Event times of raw rows → microseconds since 1970 UTC: numbers in seconds, ms, µs or ns, ISO 8601, or a given form.

The unit of numbers is the one in which most of them lie between the years 1900 and 2200. A time outside these years is
malformed, and one that lies there in a coarser unit than the others (seconds among milliseconds). Who names the unit
may use the years 1 to 9999.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # ticks a second
WORDS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
Times = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def _second(year: int) -> int:
    return round((datetime(year, 1, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())


USUAL = _second(1900), _second(2200)
CALENDAR = _second(1), _second(9999)


@dataclass
class Clock:
    """How a time column is understood. `seen`: how many numbers looked like which unit, or like a date (20040415)."""

    column: str
    text: bool = False
    form: str | None = None
    unit: str = "s"
    given: bool = False
    seen: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        if self.text:
            return f"{self.column}: times of the form {self.form}" if self.form else f"{self.column}: ISO 8601 times"
        return f"{self.column}: {WORDS[self.unit]} since 1970 UTC"

    def likely(self) -> str:
        """The unit that most of the numbers looked like."""
        units = [unit for unit in UNITS if self.seen[unit]]
        return max(units, key=lambda unit: self.seen[unit], default=self.unit)

    def look(self, cells: list[str]) -> None:
        """Take the unit that most of the first numbers look like."""
        self._like(np.array([float(cell) for cell in cells]))
        self.unit = self.likely()
        self.seen.clear()

    def micros(self, column: pa.ChunkedArray) -> tuple[Times, dict[str, Mask]]:
        """Microseconds since 1970 UTC of each row; reason → which rows are malformed for it (their time is 0)."""
        if self.text:
            return self._of_text(column)
        return self._of_numbers(column)

    def _of_text(self, column: pa.ChunkedArray) -> tuple[Times, dict[str, Mask]]:
        import pandas as pd  # half a second, which most commands have no use for

        if self.form:
            parsed = pc.strptime(column.combine_chunks(), format=self.form, unit="us", error_is_null=True)
            broken = np.asarray(parsed.is_null())
            since = np.asarray(pc.fill_null(parsed.cast(pa.int64()), 0))
            reason = f"{self.column} is no time of the form {self.form}"
        else:
            broken, since = np.ones(len(column), bool), np.zeros(len(column), np.int64)
            zoned = pc.match_substring_regex(column, r"[T ].*([Zz]|[+-]\d\d(:?\d\d)?)$").to_numpy()
            for rows in (zoned, ~zoned):  # pandas gives a time without zone the zone of a row before it
                texts = column.filter(pa.array(rows)).to_pandas()
                stamps = pd.to_datetime(texts, utc=True, format="ISO8601", errors="coerce")
                broken[rows] = stamps.isna().to_numpy()
                stamps = stamps.fillna(pd.Timestamp(0, tz="UTC")).dt.as_unit("us")
                since[rows] = stamps.astype("int64").to_numpy()
            reason = f"{self.column} is no ISO 8601 time"
        outside = ~broken & ~_between(since, *(CALENDAR if self.given else USUAL), 10**6)
        return np.where(outside, 0, since), self._reasons({reason: broken}, outside)

    def _of_numbers(self, column: pa.ChunkedArray) -> tuple[Times, dict[str, Mask]]:
        numbers = column.to_numpy()
        broken = ~np.isfinite(numbers)
        numbers = np.where(broken, 0, numbers)
        like = self._like(numbers)
        ticks = UNITS[self.unit]
        outside = ~broken & ~_between(numbers, *(CALENDAR if self.given else USUAL), ticks)
        reasons = self._reasons({f"{self.column} is no time": broken}, outside)
        if not self.given:
            for coarser in list(UNITS)[: list(UNITS).index(self.unit)]:
                reason = f"{self.column} looks like {WORDS[coarser]}, but most of the times like {WORDS[self.unit]}"
                reasons[reason] = ~broken & (like == coarser)
        numbers = np.where(outside, 0, numbers)
        if ticks > 10**6:
            return np.asarray(numbers // (ticks // 10**6), np.int64), reasons
        return (numbers * (10**6 // ticks)).round().astype(np.int64), reasons

    def _like(self, numbers: npt.NDArray[Any]) -> npt.NDArray[np.str_]:
        like = np.full(len(numbers), "", dtype="<U4")
        for unit in reversed(UNITS):
            like[_between(numbers, *USUAL, UNITS[unit])] = unit
        whole = np.where(_between(numbers, 0, 1, 30_000_000), numbers, 0).astype(np.int64)
        month, day, year = whole // 100 % 100, whole % 100, whole // 10_000
        dates = (whole == numbers) & (year >= 1900) & (year < 2200) & (month >= 1) & (month <= 12)
        self.seen["date"] += int((dates & (day >= 1) & (day <= 31)).sum())
        for unit, count in zip(*np.unique(like, return_counts=True), strict=True):
            self.seen[str(unit)] += int(count)
        return like

    def only_dates(self) -> bool:
        """Were all of the numbers dates without separators, such as 20040415?"""
        return 0 < sum(self.seen[unit] for unit in UNITS) == self.seen["date"]

    def _reasons(self, reasons: dict[str, Mask], outside: Mask) -> dict[str, Mask]:
        years = "1 to 9999" if self.given else "1900 to 2200"
        return reasons | {f"{self.column} is outside the years {years}": outside}


def _between(numbers: npt.NDArray[Any], low: int, high: int, ticks: int) -> Mask:
    return np.asarray((numbers >= low * ticks) & (numbers < high * ticks))
