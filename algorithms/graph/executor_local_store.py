"""Arrays that a task writes to its executor's disk, for later tasks on the same executor.

Where    In the local directory that Spark gives an executor and deletes with it. All arrays of one graph are in one
         folder, which `delete_graph` deletes. If a killed driver has left a folder on a server that lives on, the next
         task that writes there deletes it after a day.
Reading  Maps files into memory: they are in the page cache, which the system frees when other work needs memory.
Faults   `OSError`: the files are missing or damaged, or the disk is full. If two attempts of a task write, the arrays
         of the first one stay; nothing half written is ever read.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

DAY = 86_400  # seconds


def graph_folder(kind: str, name: str) -> Path | None:
    """Return the folder of one graph. None: Spark has given this executor no local directory."""
    local = os.environ.get("SPARK_LOCAL_DIRS")
    return Path(local.split(",")[0], kind, name) if local else None


def delete_graph(kind: str, name: str) -> None:
    """Delete all files of one graph on this executor."""
    folder = graph_folder(kind, name)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def delete_graph_batches(kind: str, name: str, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Delete all files of one graph on this executor and yield nothing, for `mapInArrow` over rows on the executors."""
    delete_graph(kind, name)
    for _ in rows:
        pass
    yield from ()


def save_arrays(place: Path, number: int, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays into a graph's folder, under a number."""
    place.mkdir(parents=True, exist_ok=True)
    for other in place.parent.iterdir():
        if other.stat().st_mtime < time.time() - DAY:
            shutil.rmtree(other, ignore_errors=True)
    unfinished = tempfile.mkdtemp(dir=place)
    try:
        for name, array in arrays.items():
            np.save(Path(unfinished, f"{name}.npy"), array)
        os.rename(unfinished, place / str(number))
    except OSError:  # the disk is full, or another attempt of this task was faster
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def load_arrays(place: Path, number: int, names: Iterable[str]) -> list[NDArray[Any]]:
    """Load arrays by name.

    Raises:
        OSError: an array is missing or damaged.
    """
    try:
        # plain writeable arrays: a kernel would be compiled again for every other array type
        return [np.asarray(np.load(place / str(number) / f"{name}.npy", mmap_mode="c")) for name in names]
    except (ValueError, EOFError) as error:
        raise OSError(f"an array in {place} is damaged") from error
