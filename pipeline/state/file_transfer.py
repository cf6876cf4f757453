"""Files from one place to another, each whole or not at all; those that are there already, and right, stay.

A copy is right when it has as many bytes as its original, and is not older than the original's last change where that
is told. A file of this machine appears under its name when it is whole; one of an object store when its upload ends,
and what an upload that failed has left has fewer bytes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from rich.filesize import decimal

from ..errors import Unavailable
from . import filesystem

EVERY = 2.0  # seconds between two words of progress
Say = Callable[[str], None]


@dataclass(frozen=True)
class CopyRequest:
    """A file, the place for its copy, and its bytes. `changed`: when it was last changed, in seconds since 1970; 0: it
    never does, or nobody can say."""

    source: str
    target: str
    bytes: int
    changed: float = 0.0

    def is_copied(self, there: Mapping[str, filesystem.FileEntry]) -> bool:
        """Is the copy there? `list_existing`: what is, by its location."""
        found = there.get(filesystem.normalize_location(self.target))
        # times of files are rounded
        return found is not None and found.bytes == self.bytes and found.changed > self.changed - 1e-3


@dataclass(frozen=True)
class CopyResult:
    """Files and bytes that were copied now; `kept`: files that were there."""

    files: int = 0
    bytes: int = 0
    kept: int = 0

    def __add__(self, other: CopyResult) -> CopyResult:
        return CopyResult(self.files + other.files, self.bytes + other.bytes, self.kept + other.kept)


def list_existing(folder: str) -> dict[str, filesystem.FileEntry]:
    """What is below a folder, by its location. Raises `Unavailable`."""
    try:
        return {
            f"{filesystem.normalize_location(folder)}/{name}": found
            for name, found in filesystem.list_files(folder).items()
        }
    except OSError as error:
        raise Unavailable(
            f"{folder} cannot be listed: {filesystem.format_store_error(error)}", "altneu doctor"
        ) from error


def copy_files(
    wanted: Iterable[CopyRequest], there: Mapping[str, filesystem.FileEntry], what: str, say: Say
) -> CopyResult:
    """Copy what is not there. Raises `Unavailable` at the first file that cannot be; others may be there by then."""
    each = list(wanted)
    due = [file for file in each if not file.is_copied(there)]
    done, total = CopyResult(kept=len(each) - len(due)), sum(file.bytes for file in due)
    told = time.monotonic()
    if due:
        say(f"{what}: {len(due):,} files, {decimal(total)}")
    with ThreadPoolExecutor(filesystem.AT_ONCE) as pool:
        stop = threading.Event()
        futures = [pool.submit(_copy_one, file, stop) for file in due]
        try:
            for future in as_completed(futures):
                done += CopyResult(1, future.result())
                if time.monotonic() - told >= EVERY:
                    told = time.monotonic()
                    say(f"{what}: {done.files:,} of {len(due):,} files, {decimal(done.bytes)} of {decimal(total)}")
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return done


def delete_different(wanted: Iterable[CopyRequest]) -> list[str]:
    """Compare copies with their originals, byte by byte, and delete those that differ; their locations. Raises
    `OSError`."""

    def delete_if_different(file: CopyRequest) -> str | None:
        try:
            with filesystem.open_stream(file.source) as one, filesystem.open_stream(file.target) as other:
                while block := one.read(filesystem.BLOCK):
                    if other.read(len(block)) != block:
                        break
                else:
                    if not other.read(1):
                        return None
        except FileNotFoundError:
            pass
        filesystem.delete_file(file.target)
        return file.target

    return [location for location in filesystem.map_parallel(delete_if_different, wanted) if location]


def _copy_one(wanted: CopyRequest, stop: threading.Event) -> int:
    if stop.is_set():
        return 0
    try:
        size = filesystem.copy_file(wanted.source, wanted.target, wanted.bytes, wanted.changed)
    except OSError as error:
        raise Unavailable(
            f"{wanted.source} could not be copied to {wanted.target}: {filesystem.format_store_error(error)}.",
            "make it possible (room, rights, the store's answer: altneu doctor), then the same command again: what is "
            "copied is not copied again",
        ) from error
    if size != wanted.bytes:
        raise Unavailable(
            f"{wanted.source} has {size:,} bytes and not the {wanted.bytes:,} that it should have.",
            "altneu doctor   (says whether the home is whole)",
        )
    return size
