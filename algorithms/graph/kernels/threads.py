"""How many threads the kernels of this process may use, and work on ranges in that many.

Kernels release the GIL, so that plain threads of Python run them side by side. They live within one call: none is left
when a process forks, or when Spark gives its worker another task.

Law     Results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_allowed = 1


def allowed_threads() -> int:
    """Return how many threads a kernel may use."""
    return _allowed


@contextmanager
def use_threads(number: int) -> Iterator[None]:
    """Let the kernels that are called within use this number of threads."""
    global _allowed
    before, _allowed = _allowed, max(1, number)
    try:
        yield
    finally:
        _allowed = before
