"""A batch and its files as a listing of the landing shows them, and the names that mean something in an epoch's
folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
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
    modified_at: float
    stamp: str

    @classmethod
    def from_path(cls, path: Path) -> LandedFile:
        """Describe a file of this machine. Raise `OSError` if it cannot be read."""
        return cls.from_stat(str(path), path.name, path.stat())

    @classmethod
    def from_stat(cls, location: str, name: str, stat: os.stat_result) -> LandedFile:
        """Describe a file of this machine by what the file system says of it."""
        stamp = f"{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ctime_ns}:{stat.st_ino}"
        return cls(location, name, stat.st_size, stat.st_mtime, stamp)


def NO_SEAL() -> None:
    """Take the place of the seal of a batch that has none."""


@dataclass(frozen=True)
class BatchFiles:
    """The files of one epoch's folder, and those of declared relations in its subfolders, whose names begin with the
    relation and a slash.

    `incomplete` is the reason why they are not a batch yet, or None. `read_seal` reads the marker of the folder.
    `digest` is that of the content, where the files are known to be as they were; `folder_stamp` is the stamp of an
    opened folder, or empty where the folder has just changed.
    """

    epoch: int
    label: str
    files: tuple[LandedFile, ...]
    incomplete: str | None = None
    read_seal: Callable[[], int | None] = field(default=NO_SEAL, repr=False, compare=False)
    digest: str | None = field(default=None, repr=False, compare=False)
    folder_stamp: str = field(default="", repr=False, compare=False)
    relation_files: tuple[LandedFile, ...] = ()

    @property
    def all_files(self) -> tuple[LandedFile, ...]:
        return self.files + self.relation_files

    def files_of(self, relation: str) -> tuple[LandedFile, ...]:
        """Return the files of a declared relation."""
        return tuple(file for file in self.relation_files if file.name.startswith(f"{relation}/"))

    @cached_property
    def sealed(self) -> int | None:
        """Return the number of the rows, if the marker of the folder has it."""
        return self.read_seal()

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.all_files)

    def newest_change(self) -> datetime:
        """Return the time at which the newest of the files was written."""
        return datetime.fromtimestamp(max(file.modified_at for file in self.all_files), UTC).replace(microsecond=0)


def parse_epoch_folder(home: Home, folder: str) -> int:
    """Return the epoch of a folder by its name, `epoch=<label>`. Raise `AltneuError` if it is not one."""
    try:
        return home.schedule.parse_epoch(folder.removeprefix("epoch="))
    except UsageError as error:
        raise AltneuError(
            format_name(f"landing/{folder}: {error.what}"), format_name(f"rename or remove {home.landed_at}/{folder}")
        ) from None


def select_folders(
    home: Home, folders: Iterable[str], epochs: Collection[int] | None = None
) -> Iterator[tuple[str, int]]:
    """Yield the folders of some epochs (None: of all), in order of their names, each with its epoch.

    Raise `AltneuError` for any folder whose name is not an epoch.
    """
    for folder in sorted(folders):
        epoch = parse_epoch_folder(home, folder)
        if epochs is None or epoch in epochs:
            yield folder, epoch


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
