"""The clock of altneu: the present time, and how the database stores it."""

from __future__ import annotations

from datetime import UTC, datetime


def read_clock() -> datetime:
    """Return the present time. Tests replace this function."""
    return datetime.now(UTC)


def timestamp() -> str:
    """Return the present time as the database stores it."""
    return store_moment(read_clock())


def store_moment(moment: datetime) -> str:
    """Return a time as the database stores it."""
    return moment.isoformat(timespec="milliseconds")
