"""Named arrays that last from one process to the next, in a folder of files: they are complete and correct, or absent.

Files   FOLDER/KEY/{array}.npy and manifest.json, written into a temporary folder that is then renamed. They are never
        changed in place: arrays are mapped copy-on-write, so that memory follows the pages that are touched. A state
        that was made from another one has links to its files, and besides {array}.at.npy and {array}.new.npy: the
        places where its values differ, and these values. It is written in full if the differences would be more than
        an eighth of it, if an array has another size, or if the file system has no links.
        Every array has a checksum, which is verified when the state is read: a state of which an array is truncated,
        damaged, or written in another format counts as absent, and so does every state that shares the file.
Cost    Reading: all of it once (about 5 GB/s), and a copy of each page that is changed. Writing: one comparison with
        the state from which it was made, and the changes.
"""

# numba infers the types of kernels from the arrays that they receive.
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
    """Write arrays and facts to folder/key, replacing what is stored there.

    They are written into a temporary folder, which is then renamed.

    Args:
        folder: the folder of all states.
        key: the name of the state.
        arrays: the arrays by name.
        origin: the folder of the state from which the arrays were read, if any.
        facts: further entries of the manifest.

    Raises:
        OSError: a file cannot be written.
    """
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
        manifest = {"format": FORMAT, "key": key, "sums": sums, **facts}
        (part / "manifest.json").write_text(json.dumps(manifest))
        shutil.rmtree(folder / key, ignore_errors=True)
        part.rename(folder / key)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def read_arrays(folder: Path, key: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]] | None:
    """Return the arrays, which may be changed in memory, and the manifest.

    The result is None if the state is absent, damaged or of another format.
    """
    facts = read_manifest(folder, key)
    if facts is None:
        return None
    mapped = _map_arrays(folder / key, facts["sums"], "c")
    if mapped is None or any(checksum(x) != facts["sums"][name] for name, x in mapped.items()):
        return None
    arrays = {name: x for name, x in mapped.items() if "." not in name}
    for name, x in arrays.items():
        if f"{name}.at" in mapped:
            x.reshape(-1)[mapped[f"{name}.at"]] = mapped[f"{name}.new"]
    return arrays, facts


def read_manifest(folder: Path, key: str) -> dict[str, Any] | None:
    """Return the manifest of a state; None if there is no state of that key in the current format."""
    try:
        facts: dict[str, Any] = json.loads((folder / key / "manifest.json").read_text())
        return facts if facts["format"] == FORMAT and facts["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def sweep_folder(folder: Path, keep: Iterable[str]) -> None:
    """Delete all states except those of the keys to keep, and the temporary folders of killed writers."""
    keep = set(keep)
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name not in keep:
            shutil.rmtree(path, ignore_errors=True)


def checksum(x: NDArray[Any]) -> int:
    """Return 64 bits that depend on all bytes, their places and their number."""
    raw = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    whole = raw.size // 8 * 8
    words = np.frombuffer(raw[:whole].data, np.uint64) if whole else np.empty(0, np.uint64)
    rest = int.from_bytes(raw[whole:].tobytes(), "little")
    return int(_mix_words(words)) ^ (rest * 0x9E3779B97F4A7C15 + raw.size & 0xFFFFFFFFFFFFFFFF)


def _write_or_link(part: Path, arrays: Arrays, origin: Path) -> dict[str, int] | None:
    """Link the files that a state shares with its origin, and write the differences; return the checksums of both.

    The result is None if the state has to be written in full.
    """
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
    """Return the positions at which two vectors differ: uint32."""
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
    """Mix words in four lanes, so that one multiplication does not wait for the other."""
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
