"""The triangles of a part, left on the executor's disk for later rounds: to look for them again takes most of a round.

A part holds the same edges in every round, so that its lists are made once on each executor that works on it. Later
rounds map the files into memory: they are in the page cache, which gives way to what needs memory.

Where    In the local directory that Spark gives an executor and deletes with it: a folder for all parts of one graph,
         which `forget` deletes. One that a killed driver has left on a server which lives on is deleted after a day,
         by the next part that is kept there.
Faults   Without a local directory, or on a full disk, a part's lists are made in every round.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

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
