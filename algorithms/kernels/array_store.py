"""Named arrays that last from one process to the next, in a folder of files: they are whole and right, or absent.

Files   FOLDER/KEY/{array}.npy and manifest.json, written beside and renamed. They are never changed in place: arrays
        are mapped copy-on-write, so that memory follows what is touched. A state that was made from another has links
        to the same files, and beside them {array}.at.npy and {array}.new.npy: where its values are others, and these
        values. It is written as a whole where they would be more than an eighth of it, where an array has another size,
        and where the file system has no links.
        Every array has a checksum, verified when the state is read: one that was truncated, damaged, or written in
        another format, and every one that shares the file, counts as absent.
Cost    Reading: all of it once (about 5 GB/s), and a copy of each page that has changed. Writing: one comparison with
        what it was made from, and the changes.
"""

# numba infers the types of its kernels from the arrays they get.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

FORMAT = 4
SHARED = 8  # a state that shares files may have changes of one eighth
Arrays = Mapping[str, NDArray[Any]]


def write_arrays(folder: Path, key: str, arrays: Arrays, origin: Path | None, **facts: Any) -> None:
    """Write arrays and facts beside and rename them to folder/key, replacing what is there; OSError as it comes.
    `origin`: the state that they were read from, if they were."""
    part = folder / f".{key}.{os.getpid()}"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        sums = None if origin is None else _write_or_link(part, arrays, origin)
        if sums is None:
            for name, x in arrays.items():
                (part / f"{name}.npy").unlink(missing_ok=True)
                np.save(part / f"{name}.npy", x)
            sums = {name: checksum(x) for name, x in arrays.items()}
        said = {"format": FORMAT, "key": key, "sums": sums, **facts}
        (part / "manifest.json").write_text(json.dumps(said))
        shutil.rmtree(folder / key, ignore_errors=True)
        part.rename(folder / key)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def read_arrays(folder: Path, key: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]] | None:
    """The arrays, which may be changed in memory, and the manifest; None when they are absent, damaged or of another
    format."""
    facts = read_manifest(folder, key)
    if facts is None:
        return None
    found = _map_arrays(folder / key, facts["sums"], "c")
    if found is None or any(checksum(x) != facts["sums"][name] for name, x in found.items()):
        return None
    arrays = {name: x for name, x in found.items() if "." not in name}
    for name, x in arrays.items():
        if f"{name}.at" in found:
            x.reshape(-1)[found[f"{name}.at"]] = found[f"{name}.new"]
    return arrays, facts


def read_manifest(folder: Path, key: str) -> dict[str, Any] | None:
    """What is said of a state; None when there is none of that key in today's format."""
    try:
        facts: dict[str, Any] = json.loads((folder / key / "manifest.json").read_text())
        return facts if facts["format"] == FORMAT and facts["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def sweep_folder(folder: Path, keep: Iterable[str]) -> None:
    """Drop all states but those of the keys to keep, and what killed writers have left."""
    keep = set(keep)
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name not in keep:
            shutil.rmtree(path, ignore_errors=True)


def checksum(x: NDArray[Any]) -> int:
    """64 bits over all bytes, their places and how many there are."""
    raw = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    whole = raw.size // 8 * 8
    words = np.frombuffer(raw[:whole].data, np.uint64) if whole else np.empty(0, np.uint64)
    rest = int.from_bytes(raw[whole:].tobytes(), "little")
    return int(_mix_words(words)) ^ (rest * 0x9E3779B97F4A7C15 + raw.size & 0xFFFFFFFFFFFFFFFF)


def _write_or_link(part: Path, arrays: Arrays, origin: Path) -> dict[str, int] | None:
    """Link what a state shares with the one that it was made from, and write what it does not: the checksums of both;
    None where it has to be written as a whole."""
    known, old = read_manifest(origin.parent, origin.name), _map_arrays(origin, arrays, "r")
    if known is None or old is None:
        return None
    most = sum(x.nbytes for x in arrays.values()) // SHARED
    changes: dict[str, NDArray[Any]] = {}
    for name, x in arrays.items():
        if x.shape != old[name].shape or x.dtype != old[name].dtype:
            return None
        at = differing_positions(x.reshape(-1), old[name].reshape(-1))
        if at.size:
            changes |= {f"{name}.at": at, f"{name}.new": x.reshape(-1)[at]}
            most -= at.nbytes + at.size * x.itemsize
        if most < 0:
            return None
    try:
        for name in arrays:
            os.link(origin / f"{name}.npy", part / f"{name}.npy")
    except OSError:
        return None
    for name, x in changes.items():
        np.save(part / f"{name}.npy", x)
    return {name: known["sums"][name] for name in arrays} | {name: checksum(x) for name, x in changes.items()}


def _map_arrays(state: Path, names: Iterable[str], mode: Literal["c", "r"]) -> dict[str, NDArray[Any]] | None:
    try:
        return {name: np.load(state / f"{name}.npy", mmap_mode=mode).view(np.ndarray) for name in names}
    except (OSError, ValueError, EOFError):
        return None


@njit(cache=True, nogil=True)
def differing_positions(x, y):
    """Where two vectors differ: uint32."""
    out, size = np.empty(1024, np.uint32), 0
    for start in range(0, x.size, 1024):
        stop = min(start + 1024, x.size)
        alike = True
        for i in range(start, stop):
            alike &= x[i] == y[i]
        if alike:
            continue
        if size + 1024 > out.size:
            out = np.concatenate((out, np.empty(out.size, np.uint32)))
        for i in range(start, stop):
            if x[i] != y[i]:
                out[size] = i
                size += 1
    return out[:size].copy()


@njit(cache=True, nogil=True)
def _mix_words(words):
    """Four lanes, so that one multiplication does not wait for the other."""
    prime = np.uint64(0x9E3779B97F4A7C15)
    a, b, c, d = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    n = words.size // 4 * 4
    for i in range(0, n, 4):
        a = (a ^ words[i]) * prime
        b = (b ^ words[i + 1]) * prime
        c = (c ^ words[i + 2]) * prime
        d = (d ^ words[i + 3]) * prime
    for i in range(n, words.size):
        a = (a ^ words[i]) * prime
    for lane in (b, c, d):
        a ^= a >> np.uint64(29)
        a = (a ^ lane) * prime
    return a ^ (a >> np.uint64(32))
