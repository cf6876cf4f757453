"""Epochs and their labels: an epoch counts intervals since 1970-01-01 UTC, and its label is the start of the interval.

Without `[epochs] every`, epochs are plain integers, and each one is its own label.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ..errors import UsageError

_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST, _GREATEST = -(2**63), 2**63 - 2  # the range of a bigint; its greatest value marks an interval without an end
_UNITS = {"d": 86_400, "h": 3_600, "m": 60}
_INTEGER = re.compile(r"-?\d+")


@dataclass(frozen=True)
class Schedule:
    """The schedule of a home: an epoch lasts `seconds`; None: epochs are plain integers."""

    seconds: int | None = None

    @classmethod
    def from_text(cls, every: str | None) -> Schedule:
        """Read a length such as `1d`, `12h` or `15m`; None: plain integers. Raises `UsageError` for another text."""
        if every is None:
            return cls()
        match = re.fullmatch(r"([1-9]\d*)([dhm])", every)
        if not match:
            raise UsageError(f"every = {every!r}: expected a number and d, h or m (1d, 12h, 7d, 15m).")
        return cls(int(match[1]) * _UNITS[match[2]])

    def epoch_of(self, when: datetime) -> int:
        """Return the epoch whose interval contains an instant (schedules by time only)."""
        assert self.seconds is not None
        return int((when - _ORIGIN).total_seconds() // self.seconds)

    def start_of(self, epoch: int) -> datetime:
        """Return the first instant of an epoch (schedules by time only)."""
        assert self.seconds is not None
        return _ORIGIN + timedelta(seconds=epoch * self.seconds)

    def end_of(self, epoch: int) -> datetime | None:
        """Return the first instant after an epoch; None for plain integers, and after the year 9999."""
        try:
            return None if self.seconds is None else self.start_of(epoch + 1)
        except OverflowError:
            return None

    def has_date(self, epoch: int) -> bool:
        """Tell whether the whole interval of an epoch lies in the years 1 to 9999; of a plain integer, whether |epoch|
        < 2^62."""
        if self.seconds is None:
            return abs(epoch) < 1 << 62
        try:
            return self.start_of(epoch) < self.start_of(epoch + 1)
        except OverflowError:
            return False

    def is_far(self, epoch: int, known: Iterable[int]) -> bool:
        """Tell whether an epoch begins 100 years or more from today and from every known epoch.

        A plain integer is never far.
        """
        if self.seconds is None:
            return False
        century = 36_525 * _UNITS["d"] // self.seconds
        near = (self.epoch_of(datetime.now(UTC)), *known)
        return all(abs(epoch - other) >= century for other in near)

    def date_in(self, text: str) -> str | None:
        """Return the label of the epoch that contains a date written as digits, such as 20240515; None: it is no such
        date.

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
        """Format the label of an epoch: `2004-04-15`, `2004-04-15T12`, `2004-04-15T12-15`, or the integer."""
        if self.seconds is None:
            return str(epoch)
        try:
            start = self.start_of(epoch)
        except OverflowError:
            return str(epoch)
        text = start.isoformat()  # strftime would write the year 999 with three digits
        if self.seconds % _UNITS["d"] == 0:
            return text[:10]
        return text[:13] if self.seconds % _UNITS["h"] == 0 else text[:16].replace(":", "-")

    def parse_epoch(self, text: str) -> int:
        """Read an epoch from a label or an integer. Raises `UsageError`, which names the text."""
        if _INTEGER.fullmatch(text):
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
                f"epoch {text!r} does not start an interval; it lies in the interval {self.format_label(epoch)}.",
                f"the same command with {self.format_label(epoch)}",
            )
        return epoch


def sample_epochs(epochs: list[int], how_many: int, seed: str) -> list[int]:
    """Draw `how_many` of the epochs (0: all), always including the last one. The same seed draws the same epochs.

    >>> sample_epochs([1, 2, 3, 4], 0, "any"), sample_epochs([1, 2, 3, 4], 1, "any")
    ([1, 2, 3, 4], [4])
    """
    epochs = sorted(epochs)
    if not how_many or how_many >= len(epochs):
        return epochs
    return sorted([*random.Random(seed).sample(epochs[:-1], how_many - 1), epochs[-1]])
