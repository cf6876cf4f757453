"""Read times of a given form, such as %d/%m/%Y %H:%M, as microseconds since 1970 UTC, a whole column at once.

A form means what it means to Python's `datetime.strptime`, with English names and as much white space as there is; %F,
%T, %R, %D, %e and %h are short for others. A row is read whole or not at all: a day that no calendar has is malformed.
A form that would need a guess is refused: one without a year, with a day but no month, with %I but no %p. %z is an
offset such as +02:00 or Z; %Z may also be UTC, GMT or a name with a slash such as Europe/Berlin, as EST and its like
mean several zones. A form of digits alone also reads numbers that were written with a fraction of zeros.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UsageError

Times = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_SHORT_DIRECTIVES = {
    "F": "%Y-%m-%d",
    "T": "%H:%M:%S",
    "R": "%H:%M",
    "D": "%m/%d/%y",
    "e": "%d",
    "h": "%b",
    "n": " ",
    "t": " ",
}
_SPACE = r"[\x09-\x0d\x1c-\x20\x85\p{Z}]+"
_OFFSET = r"[+-][0-9]{2}:?[0-5][0-9](?::?[0-5][0-9](?:\.[0-9]{1,6})?)?|(?-i:Z)"
_ZONED = r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*"
_EPOCH = datetime(1970, 1, 1)


def _one_of(names: list[str]) -> str:
    return "|".join(sorted(names, key=len, reverse=True))


# directive → the part of a time, and the pattern of its text: it prefers what Python prefers, and no two alternatives
# begin with the same digit, so that RE2 reads a cell in one pass
_DIRECTIVES = {
    "Y": ("year", "[0-9]{4}"),
    "y": ("year", "[0-9]{2}"),
    "m": ("month", "1[0-2]?|0[1-9]|[2-9]"),
    "b": ("month", _one_of([name[:3] for name in _MONTHS])),
    "B": ("month", _one_of(_MONTHS)),
    "d": ("day", "3[0-1]?|[1-2][0-9]?|0[1-9]|[4-9]| [1-9]"),
    "j": ("day of the year", "36[0-6]|3[0-5][0-9]|[1-2][0-9][0-9]|0[1-9][0-9]|00[1-9]|[1-9][0-9]|0[1-9]|[1-9]"),
    "H": ("hour", "2[0-3]?|[0-1][0-9]?|[3-9]"),
    "I": ("hour", "1[0-2]?|0[1-9]|[2-9]"),
    "p": ("half of the day", "am|pm"),
    "M": ("minute", "[0-5][0-9]?|[6-9]"),
    "S": ("second", "6[0-1]?|[0-5][0-9]?|[7-9]"),
    "f": ("fraction", "[0-9]{1,6}"),
    "z": ("zone", _OFFSET),
    "Z": ("zone", f"{_OFFSET}|{_ZONED}"),
    "a": ("weekday", _one_of([name[:3] for name in _WEEKDAYS])),
    "A": ("weekday", _one_of(_WEEKDAYS)),
    "w": ("weekday", "[0-6]"),
    "u": ("weekday", "[1-7]"),
}
_OF_NUMBERS = set("YymdjHMSf")
# a part of a time → the parts without which it has no meaning
_NEEDS = {
    "month": ("year",),
    "day of the year": ("year",),
    "day": ("year", "month"),
    "hour": ("year", "day"),
    "minute": ("year", "day", "hour"),
    "second": ("year", "day", "hour", "minute"),
    "fraction": ("year", "day", "hour", "minute", "second"),
}
_ELSE = {
    "s": "seconds since 1970 are numbers: --time-unit s instead of --time-format",
    "c": "it depends on the language of a machine",
    "x": "it depends on the language of a machine",
    "X": "it depends on the language of a machine",
}
_EXAMPLE = "--time-format '%d/%m/%Y %H:%M'   (any of " + " ".join(f"%{name}" for name in _DIRECTIVES) + ")"


@dataclass(frozen=True)
class TimeForm:
    """A form that can be read. `parts` maps each part of a time to its directive, in the order of the form."""

    text: str
    pattern: str
    parts: dict[str, str]

    def read_times(self, column: pa.ChunkedArray, name: str) -> tuple[Times, dict[str, Mask]]:
        """Return microseconds since 1970 UTC for each row, and a mask of the malformed rows for each reason.

        The time of a malformed row has no meaning.
        """
        texts = column.combine_chunks()
        cells = pc.extract_regex(texts, self.pattern)
        unread = ~np.asarray(pc.fill_null(pc.equal(pc.struct_field(cells, "whole"), texts), False))
        days, no_day = self._read_days(cells)
        seconds = self._read_time_number(cells, "second")
        hours = self._read_time_number(cells, "hour")
        if self.parts.get("hour") == "I":
            afternoon = pc.equal(pc.utf8_lower(pc.struct_field(cells, "p")), "pm")
            hours = hours % 12 + 12 * np.asarray(pc.fill_null(afternoon, False)).astype(np.int64)
        local = days * 86_400 + hours * 3_600 + self._read_time_number(cells, "minute") * 60 + seconds
        shifts, unknown, no_hour = self._read_shifts(cells, local)
        reasons = {
            f"{name} is no time of the form {self.text}": unread,
            f"{name} is a day that there is not": no_day,
            f"{name} has a second beyond 59": seconds > 59,
            f"{name} is in no known zone: known are offsets, Z, UTC, GMT and names such as Europe/Berlin": unknown,
            f"{name} is an hour that its zone has twice or not at all": no_hour,
        }
        return local * 1_000_000 + self._read_fraction(cells) - shifts, reasons

    def _read_time_number(self, cells: pa.StructArray, part: str, default: int = 0) -> Times:
        """Return the number of a part of the time in each row."""
        if part not in self.parts:
            return np.full(len(cells), default, np.int64)
        digits = pc.struct_field(cells, self.parts[part])
        if part == "day":  # its first digit may be a blank
            digits = pc.utf8_ltrim_whitespace(digits)
        return np.asarray(pc.fill_null(digits.cast(pa.int32()), default)).astype(np.int64)

    def _read_days(self, cells: pa.StructArray) -> tuple[Times, Mask]:
        """Return the days since 1970, and a mask of the rows whose day is not in the calendar."""
        years = self._read_time_number(cells, "year", 1970)
        if self.parts["year"] == "y":
            years += np.where(years <= 68, 2000, np.where(years <= 99, 1900, 0))
        months = self._read_months(cells)
        first = (years - 1970).astype("datetime64[Y]").astype("datetime64[M]") + (months - 1)
        if "day of the year" in self.parts:
            numbers, after = self._read_time_number(cells, "day of the year", 1), first + 12
        else:
            numbers, after = self._read_time_number(cells, "day", 1), first + 1
        day = first.astype("datetime64[D]") + (numbers - 1)
        return day.astype(np.int64), np.asarray(day >= after) | (years < 1)

    def _read_months(self, cells: pa.StructArray) -> Times:
        directive = self.parts.get("month")
        if directive in (None, "m"):
            return self._read_time_number(cells, "month", 1)
        starts = pa.array([name[:3] for name in _MONTHS])
        months = pc.index_in(pc.utf8_slice_codeunits(pc.utf8_lower(pc.struct_field(cells, directive)), 0, 3), starts)
        return np.asarray(pc.fill_null(months, 0)).astype(np.int64) + 1

    def _read_fraction(self, cells: pa.StructArray) -> Times:
        if "fraction" not in self.parts:
            return np.zeros(len(cells), np.int64)
        digits = pc.utf8_rpad(pc.struct_field(cells, "f"), 6, "0")
        return np.asarray(pc.fill_null(digits.cast(pa.int64()), 0))

    def _read_shifts(self, cells: pa.StructArray, local: Times) -> tuple[Times, Mask, Mask]:
        """Return the microseconds by which each row's clock is ahead of UTC, and two masks of malformed rows.

        The first mask has the rows of unknown zones, the second the rows whose hour occurs twice or not at all in their
        zone.
        """
        shifts = np.zeros(len(cells), np.int64)
        unknown, no_hour = np.zeros(len(cells), bool), np.zeros(len(cells), bool)
        if "zone" not in self.parts:
            return shifts, unknown, no_hour
        zones = pc.struct_field(cells, self.parts["zone"]).dictionary_encode()
        codes = np.asarray(pc.fill_null(zones.indices, -1))
        for code, text in enumerate(zones.dictionary.to_pylist()):
            rows = codes == code
            zone = _read_zone(text)
            if zone is None:
                unknown |= rows
            elif isinstance(zone, ZoneInfo):
                shifts[rows], no_hour[rows] = _shifts_in(zone, local[rows])
            else:
                shifts[rows] = zone
        return shifts, unknown, no_hour


@cache
def read_form(text: str) -> TimeForm:
    """Return the form that a user has typed. Raise `UsageError` for an unknown directive, or for what the form leaves
    open."""
    parts: dict[str, str] = {}

    def pattern_of(match: re.Match[str]) -> str:
        literal, space, directive = match["literal"], match["space"], match["directive"]
        if space:
            return _SPACE
        if literal or directive == "%":
            return re.escape(literal or "%")
        if directive not in _DIRECTIVES:
            why = _ELSE.get(directive, "altneu does not know it")
            raise UsageError(f"--time-format {text}: %{directive}: {why}. Nothing was landed.", _EXAMPLE)
        part, form = _DIRECTIVES[directive]
        if part in parts:
            raise UsageError(
                f"--time-format {text}: %{parts[part]} and %{directive} both are the {part}. Nothing was landed.",
                "use one directive for each part, and write the rest as it stands in the file",
            )
        parts[part] = directive
        return f"(?P<{directive}>{form})"

    whole = re.sub("%([A-Za-z])", lambda match: _SHORT_DIRECTIVES.get(match[1], match[0]), text.replace("%%", "%\0"))
    whole = whole.replace("%\0", "%%")
    pattern = re.sub(r"%(?P<directive>(?s:.)?)|(?P<space>\s+)|(?P<literal>[^%\s]+)", pattern_of, whole)
    _require_whole_times(text, parts)
    if re.fullmatch("(%[A-Za-z])+", whole) and set(parts.values()) <= _OF_NUMBERS:
        pattern += r"(?:\.0+)?"
    return TimeForm(text, f"(?i)^(?P<whole>{pattern})", parts)


def _require_whole_times(text: str, parts: dict[str, str]) -> None:
    """Raise `UsageError` if a form leaves open which instant a time is."""
    known = {*parts, *(("month", "day") if "day of the year" in parts else ())}
    missing = [need for part in parts for need in _NEEDS.get(part, ()) if need not in known]
    if "year" not in parts:
        missing.insert(0, "year")
    if missing:
        raise UsageError(f"--time-format {text} has no {missing[0]}. Nothing was landed.", _EXAMPLE)
    if "day of the year" in parts and {"month", "day"} & set(parts):
        raise UsageError(f"--time-format {text}: %j is the month and the day already. Nothing was landed.", _EXAMPLE)
    if (parts.get("hour") == "I") != ("half of the day" in parts):
        lone = "%I needs %p" if "half of the day" not in parts else "%p needs %I"
        raise UsageError(f"--time-format {text}: {lone}. Nothing was landed.", _EXAMPLE)


@cache
def _read_zone(text: str | None) -> int | ZoneInfo | None:
    """Return an offset in microseconds, or a zone whose offset depends on the day, or None for an unknown text."""
    if text is None:
        return None
    if text.upper() in ("Z", "UTC", "GMT"):
        return 0
    if "/" in text:
        try:
            return ZoneInfo(text)
        except (ValueError, OSError, LookupError):  # the type of the error depends on what the text may be a path to
            return None
    match = re.fullmatch(r"([+-])(\d\d):?(\d\d)(?::?(\d\d)(?:\.(\d+))?)?", text)
    if not match or int(match[2]) > 23:
        return None
    seconds = int(match[2]) * 3_600 + int(match[3]) * 60 + int(match[4] or 0)
    return (seconds * 1_000_000 + int((match[5] or "0").ljust(6, "0"))) * (1 if match[1] == "+" else -1)


def _shifts_in(zone: ZoneInfo, local: Times) -> tuple[Times, Mask]:
    """Return the microseconds by which a zone's clock is ahead of UTC when it shows these seconds, and a mask of
    unclear ones.

    The mask has the seconds that the clock shows twice or not at all.
    """
    seconds, rows = np.unique(local, return_inverse=True)
    shifts = np.zeros(len(seconds), np.int64)
    unclear = np.zeros(len(seconds), bool)
    for index, second in enumerate(seconds.tolist()):
        try:
            shown = (_EPOCH + timedelta(seconds=second)).replace(tzinfo=zone)
        except OverflowError:  # the row is malformed anyway, since it is beyond the calendar
            continue
        ahead, other = shown.utcoffset(), shown.replace(fold=1).utcoffset()
        assert ahead is not None
        shifts[index], unclear[index] = ahead // timedelta(microseconds=1), ahead != other
    return shifts[rows], unclear[rows]
