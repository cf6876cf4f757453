"""What a listing of the landing says: a batch and its files; the names that mean something in an epoch's folder."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..errors import AltneuError, UsageError
from ..file_names import format_name, is_text
from ..home.home import Home

SUFFIXES = (".csv", ".csv.gz", ".parquet", ".jsonl", ".jsonl.gz")
UNFINISHED = (".part", ".partial", ".filepart", ".tmp", ".crdownload", "~")  # what tools call a file until it is whole
COMPLETE, EMPTY = "_SUCCESS", "_EMPTY"
clock = time.time


@dataclass(frozen=True)
class LandedFile:
    """A file as it was when it was listed. `stamp` changes with its content; `changed`: when it was written, in seconds
    since 1970. `name` is what rows say they come from; in an object store the file may be called otherwise."""

    location: str
    name: str
    bytes: int
    changed: float
    stamp: str

    @classmethod
    def from_path(cls, path: Path) -> LandedFile:
        """Describe a file of this machine. Raises `OSError`."""
        stat = path.stat()
        stamp = f"{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ctime_ns}:{stat.st_ino}"
        return cls(str(path), path.name, stat.st_size, stat.st_mtime, stamp)


@dataclass(frozen=True)
class BatchFiles:
    """The files of one epoch's folder; `incomplete` says why they are no batch yet. `sealed`: how many rows they hold,
    where the folder's marker says so."""

    epoch: int
    label: str
    files: tuple[LandedFile, ...]
    incomplete: str | None = None
    sealed: int | None = None

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def newest_change(self) -> datetime:
        """When the youngest of the files was written."""
        return datetime.fromtimestamp(max(file.changed for file in self.files), UTC).replace(microsecond=0)


def parse_epoch_folder(home: Home, folder: str) -> int:
    """The epoch of a folder by its name, `epoch=<label>`. Raises `AltneuError`."""
    try:
        return home.schedule.parse_epoch(folder.removeprefix("epoch="))
    except UsageError as error:
        raise AltneuError(
            format_name(f"landing/{folder}: {error.what}"), format_name(f"rename or remove {home.landed_at}/{folder}")
        ) from None


def index_by_epoch(batches: Iterable[BatchFiles]) -> dict[int, BatchFiles]:
    """Epoch → its batch. Raises `AltneuError` when two folders are the same epoch."""
    found: dict[int, BatchFiles] = {}
    for each in batches:
        if each.epoch in found:
            same = found[each.epoch].label
            raise AltneuError(f"landing/epoch={each.label} and epoch={same} are the same epoch.", "merge them")
        found[each.epoch] = each
    return found


def iterate_data_names(home: Home, folder: str, names: Iterable[str]) -> Iterator[str]:
    """Yield the names in an epoch's folder that are data files. Raises `AltneuError` for an unknown name."""
    for name in sorted(names):
        if name.startswith((".", "_")) or name.endswith(UNFINISHED):
            continue
        if not name.endswith(SUFFIXES) or "/" in name or not is_text(name):
            shown = format_name(name)
            why = f"is none of {', '.join(SUFFIXES)}" if is_text(name) else "has a name that is no UTF-8 text"
            raise AltneuError(
                f"landing/{folder}/{shown} {why}.",
                f"remove it, or give it a name that starts with _ ({home.landed_at}/{folder}/{shown})",
            )
        yield name


def explain_unfinished(home: Home, epoch: int, names: Iterable[str]) -> str | None:
    """Why a folder is no batch, by the names in it alone."""
    if not home.schedule.has_date(epoch):
        return "the epoch lies beyond the years 1 to 9999 (or 2^62): remove its folder"
    for name in sorted(names, reverse=True):
        if name.endswith(UNFINISHED) and not name.startswith((".", "_")):
            return f"{name} is still being written, by its name"
    return None


NOT_ASKED_FOR = f"empty: no data file; an empty batch is made by altneu land --empty (a file {EMPTY})"
