"""What a part leaves on the executor's disk for later rounds: its triangles, which it takes most of a round to look
for; and what it knows after a round, else it would have to hear again all that was ever said to it.

A part holds the same edges in every round, so that its lists of triangles are made once on each executor that works on
it. Later rounds map the files into memory: they are in the page cache, which gives way to what needs memory.
What it knows after a round serves later rounds alone: one that is done again begins with what there was before it.

Where    In the local directory that Spark gives an executor and deletes with it: a folder for all parts of one graph,
         which `forget` deletes. One that a killed driver has left on a server which lives on is deleted after a day,
         by the next part that is kept there.
Faults   Without a local directory, or on a full disk, a part's lists are made in every round, and all is heard again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algorithms.kernels import parts
from algorithms.kernels.graph import Ints, Shorts

DAY = 86_400  # seconds
_LISTS = ("ptr", "left", "right")


def part(name: str, number: int, a: Ints, b: Ints, owner: Shorts) -> parts.Part:
    """`kernels.parts.part`. name: of the graph whose parts hold these edges, always the same."""
    folder = _folder(name)
    if folder is None:
        return parts.part(number, a, b, owner)
    with contextlib.suppress(OSError):
        lists = (np.load(folder / str(number) / f"{each}.npy", mmap_mode="c") for each in _LISTS)
        return parts.Part(number, owner, owner == number, *map(np.asarray, lists))
    made = parts.part(number, a, b, owner)
    if made.left.size:
        with contextlib.suppress(OSError):
            _keep(folder, made)
    return made


def forget(name: str) -> None:
    """Delete what parts of this name have left on this executor."""
    folder = _folder(name)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def left(name: str, number: int, what: str, before: int) -> tuple[int, NDArray[Any]] | None:
    """What the part has left last, before a round: the round, and the values (`leave`)."""
    folder = _folder(name)
    with contextlib.suppress(OSError, ValueError):
        if folder is not None and (found := [n for n in _left(folder, number, what) if n < before]):
            return max(found), np.load(folder / f"{number}.{what}.{max(found)}.npy")
    return None


def leave(name: str, number: int, what: str, round_: int, values: NDArray[Any]) -> None:
    """Leave what the part knows after a round, for each of its edges; what: it is that is known. Of earlier rounds the
    newest stays, from which this one may have to be done again; of anything else that the part has left nothing."""
    folder = _folder(name)
    if folder is None:
        return
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as unfinished:
            written = Path(unfinished, "values.npy")
            np.save(written, values)
            written.rename(folder / f"{number}.{what}.{round_}.npy")
        earlier = sorted(n for n in _left(folder, number, what) if n < round_)
        stay = {f"{number}.{what}.{n}.npy" for n in (round_, *earlier[-1:])}
        for path in folder.glob(f"{number}.*.npy"):
            if path.name not in stay:
                path.unlink(missing_ok=True)


def _left(folder: Path, number: int, what: str) -> list[int]:
    return [int(path.name.split(".")[2]) for path in folder.glob(f"{number}.{what}.*.npy")]


def _folder(name: str) -> Path | None:
    local = os.environ.get("SPARK_LOCAL_DIRS")
    return Path(local.split(",")[0], "triangles", name) if local else None


def _keep(folder: Path, made: parts.Part) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for other in folder.parent.iterdir():
        if other.stat().st_mtime < time.time() - DAY:
            shutil.rmtree(other, ignore_errors=True)
    unfinished = tempfile.mkdtemp(dir=folder)
    try:
        for each in _LISTS:
            np.save(Path(unfinished, f"{each}.npy"), getattr(made, each))
        os.rename(unfinished, folder / str(made.number))
    except OSError:  # the disk is full, or another attempt of this task was faster
        shutil.rmtree(unfinished, ignore_errors=True)
