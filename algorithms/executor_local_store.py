"""Arrays that a task leaves on its executor's disk, for later tasks there.

Where    In the local directory that Spark gives an executor and deletes with it: a folder for all of one graph, which
         `delete_graph` deletes. One that a killed driver has left on a server which lives on is deleted after a day, by
         the next task that leaves something there.
Reading  Maps files into memory: they are in the page cache, which gives way to what needs memory.
Faults   `OSError`: they are not there, or damaged, or the disk is full. Of two attempts of a task the first one's
         arrays stay; nothing half written is ever read.
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
    """Delete all of one graph on this executor."""
    found = graph_folder(kind, name)
    if found is not None:
        shutil.rmtree(found, ignore_errors=True)


def delete_graph_batches(kind: str, name: str, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the function that deletes the arrays, for `mapInArrow` over rows on the executors that have them."""
    delete_graph(kind, name)
    for _ in rows:
        pass
    yield from ()


def save_arrays(place: Path, number: int, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Leave arrays in a graph's folder, under a number."""
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
    """Load arrays by name."""
    try:
        # of numpy's own type, and writeable: a kernel is compiled for each other one
        return [np.asarray(np.load(place / str(number) / f"{name}.npy", mmap_mode="c")) for name in names]
    except (ValueError, EOFError) as error:
        raise OSError(f"an array in {place} is damaged") from error
