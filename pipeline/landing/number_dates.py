"""Detect numbers that may be dates: 20040515, 20040515123000, 2004, or the days of a spreadsheet (38122.5).

Read as seconds since 1970, such numbers are an instant of 1970 or of the future. `DateReadings` counts what else the
numbers of a column may mean, besides the times that they are read as.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

YEARS = 1900, 2200
SERIALS = 20_000, 73_050  # days of a spreadsheet: the years 1954 to 2099
SHARE = 0.9  # the share of the numbers from which another reading is plausible
_DIGITS = {"Y": 4, "y": 2, "m": 2, "d": 2, "H": 2, "M": 2, "S": 2, "f": 3}
_LIMITS = {"m": (1, 12), "d": (1, 31), "H": (0, 23), "M": (0, 59), "S": (0, 59), "f": (0, 999)}
FORMS = ("%Y%m%d%H%M%S%f", "%Y%m%d%H%M%S", "%Y%m%d%H%M", "%Y%m%d%H", "%Y%m%d", "%Y%m", "%y%m%d", "%Y")
SERIAL, DECIMAL = "the days of a spreadsheet", "years with a fraction"


@dataclass
class DateReadings:
    """What the numbers of a column may mean, besides the times that they are read as.

    `examples` has for each reading a number and the time that it is read as, in seconds since 1970.
    """

    total: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, tuple[float, int]] = field(default_factory=dict)

    def count_numbers(self, numbers: Numbers, seconds: Numbers) -> None:
        """Count numbers and the seconds since 1970 that they are read as."""
        self.total += len(numbers)
        odd = (seconds < datetime(1990, 1, 1, tzinfo=UTC).timestamp()) | (seconds > datetime.now(UTC).timestamp())
        if not odd.any():
            return
        numbers, seconds = numbers[odd], seconds[odd]
        for reading in (*FORMS, SERIAL, DECIMAL):
            fits = _match_reading(numbers, reading)
            if fits.any():
                first = int(np.argmax(fits))
                self.counts[reading] += int(fits.sum())
                self.examples.setdefault(reading, (numbers[first], int(seconds[first])))

    def list_plausible(self) -> list[str]:
        """Return the readings that nearly all of the numbers have, the most likely first."""
        return [reading for reading in (*FORMS, SERIAL, DECIMAL) if self.counts[reading] > SHARE * self.total]

    def describe_reading(self, reading: str) -> str:
        """Describe a number, the time that it is read as, and what it may be: 2004 would be 1970-01-01 00:33:24."""
        number, seconds = self.examples[reading]
        taken = datetime(1970, 1, 1) + timedelta(seconds=seconds)
        text = f"{number:.10g}" if number != int(number) else str(int(number))
        return f"{text} would be {taken}, and is {_format_meaning(number, reading)} as {reading}"


def _format_meaning(number: float, reading: str) -> str:
    if reading == SERIAL:
        return str((datetime(1899, 12, 30) + timedelta(days=float(number))).replace(microsecond=0))
    if reading == DECIMAL:
        return f"a day of {int(number)}"
    width = sum(_DIGITS[directive] for directive in reading if directive != "%")
    try:
        return str(datetime.strptime(str(int(number)).zfill(width), reading))
    except ValueError:  # a day such as 31 April, which nothing has checked so far
        return "a date"


def _match_reading(numbers: Numbers, reading: str) -> Mask:
    """Return a mask of the numbers that have a form, or that lie in the range of a reading."""
    if reading == SERIAL:
        return np.asarray((numbers >= SERIALS[0]) & (numbers < SERIALS[1]))
    if reading == DECIMAL:
        return np.asarray((numbers >= YEARS[0]) & (numbers < YEARS[1]) & (numbers != np.floor(numbers)))
    inside = (numbers >= 1) & (numbers < 10**18)
    rest = np.where(inside, numbers, 0).astype(np.int64)
    fits = inside & (rest == numbers)
    for part in reversed(reading.replace("%", "")):
        rest, value = np.divmod(rest, 10 ** _DIGITS[part]) if part != "Y" else (np.zeros_like(rest), rest)
        low, high = _LIMITS.get(part, (YEARS[0], YEARS[1] - 1) if part == "Y" else (0, 99))
        fits &= (value >= low) & (value <= high)
    return np.asarray(fits & (rest == 0))
