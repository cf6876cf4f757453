"""Epochs and what people call them: `epoch = intervals since 1970-01-01 UTC`, shown as the interval's start.

Without `every`, epochs are plain integers and their own labels.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ..errors import UsageError

_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST, _GREATEST = -(2**63), 2**63 - 2  # a bigint; the greatest one says in intervals that they are open
_UNITS = {"d": 86_400, "h": 3_600, "m": 60}


@dataclass(frozen=True)
class Schedule:
    """`seconds` of one epoch, or None for plain integer epochs."""

    seconds: int | None = None

    @classmethod
    def from_text(cls, every: str | None) -> Schedule:
        """`1d`, `12h`, `7d`, `15m` or None."""
        if every is None:
            return cls()
        match = re.fullmatch(r"([1-9]\d*)([dhm])", every)
        if not match:
            raise UsageError(f"every = {every!r}: expected a number and d, h or m (1d, 12h, 7d, 15m).")
        return cls(int(match[1]) * _UNITS[match[2]])

    def epoch_of(self, when: datetime) -> int:
        """The epoch that holds an instant."""
        assert self.seconds is not None
        return int((when - _ORIGIN).total_seconds() // self.seconds)

    def start_of(self, epoch: int) -> datetime:
        """The first instant of an epoch (by-time schedules only)."""
        assert self.seconds is not None
        return _ORIGIN + timedelta(seconds=epoch * self.seconds)

    def end_of(self, epoch: int) -> datetime | None:
        """The first instant after an epoch; None for plain integers, and beyond what the calendar knows."""
        try:
            return None if self.seconds is None else self.start_of(epoch + 1)
        except OverflowError:
            return None

    def has_date(self, epoch: int) -> bool:
        """Whether the epoch has a date: its whole interval lies in the years 1 to 9999. Plain integers: below 2^62."""
        if self.seconds is None:
            return abs(epoch) < 1 << 62
        try:
            return self.start_of(epoch) < self.start_of(epoch + 1)
        except OverflowError:
            return False

    def is_far(self, epoch: int, known: Iterable[int], now: datetime | None = None) -> bool:
        """Whether an epoch begins 100 years or more from today and from all epochs that are known; never of plain
        integers."""
        if self.seconds is None:
            return False
        century = 36_525 * _UNITS["d"] // self.seconds
        near = (self.epoch_of(now or datetime.now(UTC)), *known)
        return all(abs(epoch - other) >= century for other in near)

    def date_in(self, text: str) -> str | None:
        """The label of the epoch that a date of digits alone is in, such as 20240515; None: it is no such date.

        >>> Schedule.from_text("1h").date_in("20240515"), Schedule.from_text("1h").date_in("476520")
        ('2024-05-15T00', None)
        """
        if self.seconds is None or not re.fullmatch(r"(19|20|21)\d{6}", text):
            return None
        try:
            return self.format_label(self.epoch_of(datetime.strptime(text, "%Y%m%d").replace(tzinfo=UTC)))
        except ValueError:
            return None

    def format_label(self, epoch: int) -> str:
        """What a person reads: `2004-04-15`, `2004-04-15T12`, `2004-04-15T12-15`, or the integer."""
        if self.seconds is None:
            return str(epoch)
        try:
            start = self.start_of(epoch)
        except OverflowError:
            return str(epoch)
        text = start.isoformat()  # not strftime, which writes the year 999 with three digits
        if self.seconds % _UNITS["d"] == 0:
            return text[:10]
        return text[:13] if self.seconds % _UNITS["h"] == 0 else text[:16].replace(":", "-")

    def parse_epoch(self, text: str) -> int:
        """A label or an integer, as typed, → the epoch. Raises `UsageError` naming the text."""
        if re.fullmatch(r"-?\d+", text):
            epoch = int(text)
            if not _LEAST <= epoch <= _GREATEST:
                raise UsageError(f"epoch {text} is not between {_LEAST} and {_GREATEST}.")
            return epoch
        if self.seconds is None:
            raise UsageError(f"epoch {text!r} is not an integer (this home has no [epochs] every).", "altneu status")
        iso = re.sub(r"T(\d\d)-(\d\d)$", r"T\1:\2", text)
        try:
            when = datetime.fromisoformat(iso)
        except ValueError:
            raise UsageError(
                f"epoch {text!r} is neither an integer nor a date such as {self.format_label(0)}.",
                "altneu status   (lists the epochs)",
            ) from None
        when = when.replace(tzinfo=when.tzinfo or UTC)
        epoch = self.epoch_of(when)
        if self.start_of(epoch) != when:
            raise UsageError(
                f"epoch {text!r} is no interval's start; the interval that holds it is {self.format_label(epoch)}.",
                f"the same with {self.format_label(epoch)}",
            )
        return epoch


def sample_epochs(epochs: list[int], how_many: int, seed: str) -> list[int]:
    """So many of the epochs, the last always among them; 0: all. The same seed draws the same epochs.

    >>> sample_epochs([1, 2, 3, 4], 0, "any"), sample_epochs([1, 2, 3, 4], 1, "any")
    ([1, 2, 3, 4], [4])
    """
    epochs = sorted(epochs)
    if not how_many or how_many >= len(epochs):
        return epochs
    return sorted([*random.Random(seed).sample(epochs[:-1], how_many - 1), epochs[-1]])
