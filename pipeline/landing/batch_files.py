"""A batch and its files as a listing of the landing shows them, and the names that mean something in an epoch's
folder."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..errors import AltneuError, UsageError
from ..formatting import format_name, is_text
from ..home.home import Home

SUFFIXES = (".csv", ".csv.gz", ".parquet", ".jsonl", ".jsonl.gz")
UNFINISHED = (
    ".part",
    ".partial",
    ".filepart",
    ".tmp",
    ".crdownload",
    "~",
)  # the endings that tools give to a file until it is whole
COMPLETE, EMPTY = "_SUCCESS", "_EMPTY"
clock = time.time


@dataclass(frozen=True)
class LandedFile:
    """A file as it was when it was listed.

    `stamp` changes with its content; `changed` is the time of its last change, in seconds since 1970. `name` is the
    file name that rows carry; in an object store the object may have another name.
    """

    location: str
    name: str
    bytes: int
    changed: float
    stamp: str

    @classmethod
    def from_path(cls, path: Path) -> LandedFile:
        """Describe a file of this machine. Raise `OSError` if it cannot be read."""
        stat = path.stat()
        stamp = f"{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ctime_ns}:{stat.st_ino}"
        return cls(str(path), path.name, stat.st_size, stat.st_mtime, stamp)


@dataclass(frozen=True)
class BatchFiles:
    """The files of one epoch's folder.

    `incomplete` is the reason why they are not a batch yet, or None. `sealed` is the number of their rows, if the
    marker of the folder has it.
    """

    epoch: int
    label: str
    files: tuple[LandedFile, ...]
    incomplete: str | None = None
    sealed: int | None = None

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def newest_change(self) -> datetime:
        """Return the time at which the newest of the files was written."""
        return datetime.fromtimestamp(max(file.changed for file in self.files), UTC).replace(microsecond=0)


def parse_epoch_folder(home: Home, folder: str) -> int:
    """Return the epoch of a folder by its name, `epoch=<label>`. Raise `AltneuError` if it is not one."""
    try:
        return home.schedule.parse_epoch(folder.removeprefix("epoch="))
    except UsageError as error:
        raise AltneuError(
            format_name(f"landing/{folder}: {error.what}"), format_name(f"rename or remove {home.landed_at}/{folder}")
        ) from None


def index_by_epoch(batches: Iterable[BatchFiles]) -> dict[int, BatchFiles]:
    """Return the batches by their epochs. Raise `AltneuError` if two folders are the same epoch."""
    by_epoch: dict[int, BatchFiles] = {}
    for batch in batches:
        if batch.epoch in by_epoch:
            same = by_epoch[batch.epoch].label
            raise AltneuError(f"landing/epoch={batch.label} and epoch={same} are the same epoch.", "merge them")
        by_epoch[batch.epoch] = batch
    return by_epoch


def iterate_data_names(home: Home, folder: str, names: Iterable[str]) -> Iterator[str]:
    """Yield the names in an epoch's folder that are data files. Raise `AltneuError` for an unknown name."""
    for name in sorted(names):
        if name.startswith((".", "_")) or name.endswith(UNFINISHED):
            continue
        if not name.endswith(SUFFIXES) or "/" in name or not is_text(name):
            shown = format_name(name)
            why = f"ends with none of {', '.join(SUFFIXES)}" if is_text(name) else "has a name that is not UTF-8 text"
            raise AltneuError(
                f"landing/{folder}/{shown} {why}.",
                f"remove it, or give it a name that starts with _ ({home.landed_at}/{folder}/{shown})",
            )
        yield name


def explain_unfinished(home: Home, epoch: int, names: Iterable[str]) -> str | None:
    """Explain why a folder is not a batch, by the names in it alone; return None if they show no reason."""
    if not home.schedule.has_date(epoch):
        return "the epoch lies beyond the years 1 to 9999 (or 2^62): remove its folder"
    for name in sorted(names, reverse=True):
        if name.endswith(UNFINISHED) and not name.startswith((".", "_")):
            return f"{name} is still being written, as its name shows"
    return None


NOT_ASKED_FOR = f"the folder has no data file; altneu land --empty makes an empty batch (a file {EMPTY})"
