"""What a part leaves on the executor's disk for later rounds: the edges that it holds; its triangles, which it takes
most of a round to look for; and what it knows after a round, so that it need hear only what was said since.

A part holds the same edges in every round, so that these and its lists of triangles are written once on each executor
that works on it, and later rounds map the files into memory.

Where    In the executor's local directory (`scratch`).
Faults   Without a local directory, or on a full disk, a part's lists are made in every round, and all is heard again.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from algorithms import executor_local_store
from algorithms.kernels import partition_kernels
from algorithms.kernels.graph import Ints, Shorts

KIND = "parts"
_FILES = ("a", "b", "level", "owner", "ptr", "left", "right")


class CachedPartition(NamedTuple):
    """a, b, level: of the edges that a part holds, in order; part: whose they are, and the triangles on its own."""

    a: Ints
    b: Ints
    level: Shorts
    part: partition_kernels.Partition


def cache_partition(name: str, number: int, a: Ints, b: Ints, level: Shorts, owner: Shorts) -> CachedPartition:
    """What it holds, and its triangles (`kernels.bsp.part`), which it leaves. name: of the graph whose parts hold
    these edges, always the same."""
    found = load_partition(name, number)
    if found is not None:
        return found
    made = partition_kernels.build_partition(number, a, b, owner)
    folder = executor_local_store.graph_folder(KIND, name)
    if folder is not None:
        with contextlib.suppress(OSError):
            arrays = (a, b, level, owner, made.ptr, made.left, made.right)
            executor_local_store.save_arrays(folder, number, dict(zip(_FILES, arrays, strict=True)))
    return CachedPartition(a, b, level, made)


def load_partition(name: str, number: int) -> CachedPartition | None:
    """What a part has left here; None: nothing."""
    folder = executor_local_store.graph_folder(KIND, name)
    if folder is None:
        return None
    try:
        a, b, level, owner, *lists = executor_local_store.load_arrays(folder, number, _FILES)
    except OSError:
        return None
    return CachedPartition(a, b, level, partition_kernels.Partition(number, owner, owner == number, *lists))


def load_values(name: str, number: int, what: str, round_: int) -> NDArray[Any] | None:
    """What the part knew after a round (`save_values`), if it was here that it worked on it."""
    folder = executor_local_store.graph_folder(KIND, name)
    with contextlib.suppress(OSError, ValueError, EOFError):
        if folder is not None:
            return np.asarray(np.load(folder / f"{number}.{what}.{round_}.npy"))
    return None


def save_values(name: str, number: int, what: str, round_: int, values: NDArray[Any]) -> None:
    """Leave what the part knows after a round, for each of its edges; what: it is that is known. Of earlier rounds the
    newest stays, from which this one may have to be done again; of anything else that the part has left nothing."""
    folder = executor_local_store.graph_folder(KIND, name)
    if folder is None:
        return
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as unfinished:
            written = Path(unfinished, "values.npy")
            np.save(written, values)
            written.rename(folder / f"{number}.{what}.{round_}.npy")
        earlier = sorted(n for n in _list_rounds(folder, number, what) if n < round_)
        stay = {f"{number}.{what}.{n}.npy" for n in (round_, *earlier[-1:])}
        for path in folder.glob(f"{number}.*.npy"):
            if path.name not in stay:
                path.unlink(missing_ok=True)


def _list_rounds(folder: Path, number: int, what: str) -> list[int]:
    return [int(path.name.split(".")[2]) for path in folder.glob(f"{number}.{what}.*.npy")]
