"""How many threads the kernels of this process may use, and work on ranges in that many.

Kernels release the GIL, so that plain threads of Python run them side by side. They live within one call of
`run_in_threads`, or within the window of a proof: none is left when a process forks, or when Spark gives its worker
another task. A thread that works for long (`occupy_core`) is counted, so that no core is given away twice.

Law     Results do not depend on the number of threads.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
MOST_COPIES = 4  # threads that have a copy of a result
MANY_ROWS = 50_000  # with fewer rows the start of a thread takes longer than its work

_CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")  # "microseconds of CPU or max, microseconds of time"
_allowed = 1
_occupied = 0  # cores on which another thread of this process works for long
_lock = threading.Lock()


def available_cores() -> int:
    """Return how many cores this process may use, by its affinity and the limit of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = _CPU_LIMIT.read_text().split()
        return max(1, min(cores, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no such file, or no limit
        return cores


def allowed_threads() -> int:
    """Return how many threads may work in this process."""
    return _allowed


@contextmanager
def use_threads(number: int) -> Iterator[None]:
    """Let kernels that are called within use this number of threads, or as many as there are cores, if that is less."""
    global _allowed
    before, _allowed = _allowed, max(1, min(number, available_cores()))
    try:
        yield
    finally:
        _allowed = before


@contextmanager
def occupy_core() -> Iterator[None]:
    """Count this thread as one that works for long, beside the others of the process."""
    global _occupied
    with _lock:
        _occupied += 1
    try:
        yield
    finally:
        with _lock:
            _occupied -= 1


def free_threads() -> int:
    """Return how many threads a kernel may use now, the calling one included."""
    return max(1, _allowed - max(0, _occupied - 1))


def sum_in_threads(count: Callable[..., Sequence[NDArray[Any]]], *arguments: Any, rows: int) -> list[NDArray[Any]]:
    """Return the sums of the arrays that `count` returns in each thread; it takes a shared counter as last argument.

    The threads take slices of the rows by that counter (`atomics.take_slice`) until none is left. At most `MOST_COPIES`
    of them have arrays of their own.
    """
    threads = min(free_threads(), MOST_COPIES) if rows >= MANY_ROWS else 1
    reached = np.zeros(1, np.int64)
    first, *others = run_in_threads(count, [(*arguments, reached)] * threads, threads)
    for other in others:
        for total, part in zip(first, other, strict=True):
            total += part
    return list(first)


def run_in_threads(work: Callable[..., T], calls: Sequence[tuple[Any, ...]], threads: int) -> list[T]:
    """Call `work` with each of these arguments, in so many threads, and return the results in order."""
    if threads < 2 or len(calls) < 2:
        return [work(*arguments) for arguments in calls]
    with ThreadPoolExecutor(min(threads, len(calls)), "kernel") as pool:
        return list(pool.map(work, *zip(*calls, strict=True)))
