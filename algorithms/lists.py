"""What a part leaves on the executor's disk for later rounds: its triangles, which it takes most of a round to look
for; and what it knows after a round, else it would have to hear again all that was ever said to it.

A part holds the same edges in every round, so that its lists of triangles are made once on each executor that works on
it, and later rounds map the files into memory.
What it knows after a round serves later rounds alone: one that is done again begins with what there was before it.

Where    In the executor's local directory (`scratch`).
Faults   Without a local directory, or on a full disk, a part's lists are made in every round, and all is heard again.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algorithms import scratch
from algorithms.kernels import parts
from algorithms.kernels.graph import Ints, Shorts

KIND = "triangles"
_LISTS = ("ptr", "left", "right")


def part(name: str, number: int, a: Ints, b: Ints, owner: Shorts) -> parts.Part:
    """`kernels.parts.part`. name: of the graph whose parts hold these edges, always the same."""
    folder = scratch.folder(KIND, name)
    if folder is None:
        return parts.part(number, a, b, owner)
    with contextlib.suppress(OSError):
        return parts.Part(number, owner, owner == number, *scratch.load(folder, number, _LISTS))
    made = parts.part(number, a, b, owner)
    if made.left.size:
        with contextlib.suppress(OSError):
            scratch.save(folder, number, {each: getattr(made, each) for each in _LISTS})
    return made


def left(name: str, number: int, what: str, before: int) -> tuple[int, NDArray[Any]] | None:
    """What the part has left last, before a round: the round, and the values (`leave`)."""
    folder = scratch.folder(KIND, name)
    with contextlib.suppress(OSError, ValueError):
        if folder is not None and (found := [n for n in _left(folder, number, what) if n < before]):
            return max(found), np.load(folder / f"{number}.{what}.{max(found)}.npy")
    return None


def leave(name: str, number: int, what: str, round_: int, values: NDArray[Any]) -> None:
    """Leave what the part knows after a round, for each of its edges; what: it is that is known. Of earlier rounds the
    newest stays, from which this one may have to be done again; of anything else that the part has left nothing."""
    folder = scratch.folder(KIND, name)
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
