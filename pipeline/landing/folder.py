"""What is landed: `landing/epoch=<label>/*.{csv,csv.gz,parquet,jsonl}`, one folder an epoch, one batch a folder.

`listing` finds the folders, `digest` says whether their content changed (not their times). A folder counts as landed
when it holds a data file and is complete: a `_SUCCESS` in it is younger than all else (altneu and Spark write it last),
or nothing in it has changed for `[ingest] settle` seconds. An empty batch is asked for by the file `_EMPTY`.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..errors import AltneuError, UsageError
from ..home.directory import Home
from ..state.ledger import Ledger
from .journal import interrupted

SUFFIXES = (".csv", ".csv.gz", ".parquet", ".jsonl", ".jsonl.gz")
UNFINISHED = (".part", ".partial", ".filepart", ".tmp", ".crdownload", "~")  # what tools call a file until it is whole
COMPLETE, EMPTY = "_SUCCESS", "_EMPTY"
OPERATIONS = ("upsert", "delete")
EMPTY_DIGEST = hashlib.sha256().hexdigest()
BYTES_PER_ROW = 20.0  # about, before anything was published
clock = time.time


@dataclass(frozen=True)
class Landed:
    """The files of one epoch's folder; `incomplete` says why they are no batch yet."""

    epoch: int
    label: str
    files: tuple[Path, ...]
    bytes: int = 0
    incomplete: str | None = None

    def newest(self) -> datetime:
        """When the youngest of the files was written."""
        return datetime.fromtimestamp(max(file.stat().st_mtime for file in self.files), UTC).replace(microsecond=0)


def listing(home: Home) -> dict[int, Landed]:
    """Epoch → what is landed for it. Raises `AltneuError` on a folder whose name is no epoch."""
    found: dict[int, Landed] = {}
    if not home.landing.is_dir():
        return found
    disturbed = interrupted(home.landing)
    for folder in sorted(home.landing.iterdir()):
        if not folder.is_dir() or not folder.name.startswith("epoch="):
            continue
        text = folder.name.removeprefix("epoch=")
        epoch = _epoch(home, folder)
        if epoch in found:
            raise AltneuError(f"landing/{folder.name} and epoch={found[epoch].label} are the same epoch.", "merge them")
        try:
            found[epoch] = _landed(home, folder, epoch, disturbed.pop(text, None))
        except FileNotFoundError:  # a land replaces it at this moment
            found[epoch] = Landed(epoch, text, (), incomplete="it is being replaced")
    for text, reason in disturbed.items():
        epoch = _epoch(home, home.landing / f"epoch={text}")
        found[epoch] = Landed(epoch, text, (), incomplete=reason)
    return found


def _epoch(home: Home, folder: Path) -> int:
    try:
        return home.schedule.epoch(folder.name.removeprefix("epoch="))
    except UsageError as error:
        raise AltneuError(f"landing/{folder.name}: {error.what}", f"rename or remove {folder}") from None


def _landed(home: Home, folder: Path, epoch: int, disturbed: str | None) -> Landed:
    files: list[Path] = []
    unfinished = None
    for file in sorted(folder.iterdir()):
        if file.name.startswith((".", "_")):
            continue
        if file.name.endswith(UNFINISHED):
            unfinished = f"{file.name} is still being written, by its name"
        elif not file.name.endswith(SUFFIXES):
            raise AltneuError(
                f"landing/{folder.name}/{file.name} is none of {', '.join(SUFFIXES)}.",
                f"remove it, or give it a name that starts with _ ({file})",
            )
        else:
            files.append(file)
    if not home.schedule.drawable(epoch):
        unfinished = "the epoch lies beyond the years 1 to 9999 (or 2^62): remove its folder"
    why = disturbed or unfinished or (_unsettled(home, folder, files) if files else _not_asked_for(folder))
    size = sum(file.stat().st_size for file in files)
    return Landed(epoch, folder.name.removeprefix("epoch="), tuple(files), size, why)


def _unsettled(home: Home, folder: Path, files: list[Path]) -> str | None:
    """Why the files may not be whole yet. ctime, not mtime: copying tools set the latter back."""
    changes = {file.name: file.stat().st_ctime for file in files} | {"its list of files": folder.stat().st_mtime}
    last = max(changes, key=lambda name: changes[name])
    if _sealed(folder, files) is not None or (
        (folder / COMPLETE).exists() and (folder / COMPLETE).stat().st_ctime >= changes[last]
    ):
        return None
    age, settle = max(clock() - changes[last], 0), home.config.ingest.settle
    if age >= settle:
        return None
    return (
        f"still being written: {last} changed {age:.0f} s ago; it counts as landed {settle:g} s after its last change, "
        f"or at once with a new file {COMPLETE} next to it"
    )


def _not_asked_for(folder: Path) -> str | None:
    if (folder / EMPTY).exists():
        return None
    return f"empty: no data file; an empty batch is made by altneu land --empty (a file {EMPTY})"


def seal(folder: Path, rows: int) -> None:
    """Mark a folder as complete: the last thing that is written into it."""
    if not rows:
        (folder / EMPTY).touch()
    files = {file.name: _stamp(file) for file in folder.iterdir() if not file.name.startswith((".", "_"))}
    (folder / COMPLETE).write_text(json.dumps({"rows": rows, "files": files}) + "\n")


def _stamp(file: Path) -> str:
    stat = file.stat()
    return f"{stat.st_size}:{stat.st_mtime_ns}"


def _sealed(folder: Path, files: Iterable[Path]) -> int | None:
    """How many rows the files hold, if they are those that the folder was sealed with."""
    try:
        seal = json.loads((folder / COMPLETE).read_text())
        return int(seal["rows"]) if seal["files"] == {file.name: _stamp(file) for file in files} else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def rows(landed: Landed) -> int:
    """How many rows a folder holds: as its seal says, else the lines of its files, counted. Of a broken file, which a
    run will name, the rows that its size stands for."""
    if not landed.files:
        return 0
    sealed = _sealed(landed.files[0].parent, landed.files)
    return sealed if sealed is not None else sum(map(_rows, landed.files))


def _rows(file: Path) -> int:
    try:
        return _count(file)
    except (OSError, EOFError, zlib.error, ValueError):  # Arrow's errors of a broken file are ValueErrors
        return round(file.stat().st_size / BYTES_PER_ROW)


def _count(file: Path) -> int:
    if file.name.endswith(".parquet"):
        import pyarrow.parquet as pq

        return int(pq.ParquetFile(file).metadata.num_rows)
    with gzip.open(file) if file.name.endswith(".gz") else file.open("rb") as stream:
        lines = sum(1 for line in stream if line.strip())
    return max(lines - (".csv" in file.suffixes), 0)


def digest(ledger: Ledger, landed: Iterable[Landed], remember: bool = True) -> dict[int, str]:
    """Epoch → digest of its content (names of the files do not matter, their bytes do).

    A file whose size, times and inode are as before is not read again.
    """
    known = ledger.known_digests()
    new: dict[str, tuple[str, str]] = {}
    out: dict[int, str] = {}
    for batch in landed:
        parts = []
        for file in batch.files:
            stat = file.stat()
            stamp = f"{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ctime_ns}:{stat.st_ino}"
            before = known.get(str(file))
            if before and before[0] == stamp:
                parts.append(before[1])
                continue
            with file.open("rb") as stream:
                content = hashlib.file_digest(stream, "sha256").hexdigest()
            parts.append(content)
            if time.time_ns() - stat.st_mtime_ns > 2_000_000_000:  # a younger file may change within its own stamp
                new[str(file)] = (stamp, content)
        out[batch.epoch] = hashlib.sha256(" ".join(sorted(parts)).encode()).hexdigest() if parts else EMPTY_DIGEST
    if remember:
        ledger.put_digests(new)
    return out


def unchanged(ledger: Ledger, landed: Iterable[Landed], digests: dict[int, str]) -> bool:
    """Are the files as they were when they had these digests?"""
    try:
        return digest(ledger, landed, remember=False) == digests
    except FileNotFoundError:
        return False
