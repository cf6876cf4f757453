"""Files that a part leaves on its executor's disk for later rounds: its edges, its triangles, and its values after a
round.

To find the triangles takes most of a round. From the values after a round a part goes on with the messages since then.
A part holds the same edges in every round, so that these and its lists of triangles are written once on each executor
that works on the part, and later rounds map the files into memory.

Where    In the executor's local directory (`executor_local_store`).
Faults   Without a local directory, or on a full disk, a part's lists are made in every round, and the part receives all
         messages again.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from altneu.algorithms.graph import executor_local_store
from altneu.algorithms.graph.kernels import partition_kernels
from altneu.algorithms.graph.kernels.graph import Ints, Shorts

KIND = "parts"
_FILES = ("a", "b", "level", "owner", "ptr", "left", "right")


class CachedPartition(NamedTuple):
    """The cached files of a part.

    a, b, level: the edges that the part holds, sorted by a and b; part: their owners, and the triangles on its own
    edges.
    """

    a: Ints
    b: Ints
    level: Shorts
    part: partition_kernels.Partition


def cache_partition(name: str, number: int, a: Ints, b: Ints, level: Shorts, owner: Shorts) -> CachedPartition:
    """Return a part with its triangles (`partition_kernels.build_partition`), and leave them in files.

    Args:
        name: the name of the graph whose parts hold these edges, always the same.
        number: the number of the part.
        a: one end of each edge.
        b: the other end.
        level: the level of each edge.
        owner: the part that owns each edge.
    """
    cached = load_partition(name, number)
    if cached is not None:
        return cached
    built = partition_kernels.build_partition(number, a, b, owner)
    folder = executor_local_store.graph_folder(KIND, name)
    if folder is not None:
        with contextlib.suppress(OSError):
            arrays = (a, b, level, owner, built.ptr, built.left, built.right)
            executor_local_store.save_arrays(folder, number, dict(zip(_FILES, arrays, strict=True)))
    return CachedPartition(a, b, level, built)


def load_partition(name: str, number: int) -> CachedPartition | None:
    """Return what a part has left on this executor, or None."""
    folder = executor_local_store.graph_folder(KIND, name)
    if folder is None:
        return None
    try:
        a, b, level, owner, *lists = executor_local_store.load_arrays(folder, number, _FILES)
    except OSError:
        return None
    return CachedPartition(a, b, level, partition_kernels.Partition(number, owner, owner == number, *lists))


def load_values(name: str, number: int, what: str, round_: int) -> NDArray[Any] | None:
    """Return the values of a part after a round (`save_values`), or None if this executor did not compute it."""
    folder = executor_local_store.graph_folder(KIND, name)
    with contextlib.suppress(OSError, ValueError, EOFError):
        if folder is not None:
            return np.asarray(np.load(folder / f"{number}.{what}.{round_}.npy"))
    return None


def save_values(name: str, number: int, what: str, round_: int, values: NDArray[Any]) -> None:
    """Leave the values of a part's edges after a round; `what` names the kind of value.

    Of earlier rounds the newest stays, because this round may have to be repeated from it. All other values that the
    part has left are deleted.
    """
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
