"""What can go wrong, as types: an error carries what happened, on which input, and the next command to type.

`cli` alone turns them into text and exit codes (`Exit`).
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every `altneu` command."""

    OK = 0
    FAILED = 1  # a check failed or a run failed
    USAGE = 2  # wrong use or configuration


class AltneuError(Exception):
    """Base: `what` happened (one sentence that names the input), and the `next` command or remedy."""

    exit = Exit.FAILED

    def __init__(self, what: str, next: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.next = next

    def __reduce__(self) -> tuple[type, tuple[str, str | None]]:
        return type(self), (self.what, self.next)


class UsageError(AltneuError):
    """Wrong use or configuration; nothing was changed."""

    exit = Exit.USAGE


class RunFailed(AltneuError):
    """A run stopped before publish; what was published before it is untouched."""


class Conflict(RunFailed):
    """Another writer published first (the ledger's compare-and-swap refused)."""


class CheckFailed(AltneuError):
    """A critical check failed or the maintained result differs from the recomputation."""
