"""Copies of files from one place to another, each whole or not at all. Correct copies that already exist are kept.

A copy is correct when it has as many bytes as its original, and is not older than the original's last change, where
that is known. On this machine a file appears under its name when it is complete; in an object store it appears when its
upload ends, and a failed upload leaves fewer bytes.
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

EVERY = 2.0  # seconds between two messages of progress
Say = Callable[[str], None]


@dataclass(frozen=True)
class CopyRequest:
    """A file to copy: its location, that of the copy, and its size in bytes.

    `changed` is the time of its last change in seconds since 1970; 0: it never changes, or the time is unknown.
    """

    source: str
    target: str
    bytes: int
    modified_at: float = 0.0

    def is_copied(self, there: Mapping[str, filesystem.FileEntry]) -> bool:
        """Tell whether a correct copy exists. `there` are the existing files, by their locations (`list_existing`)."""
        copy = there.get(filesystem.normalize_location(self.target))
        # file systems round the times of files
        return copy is not None and copy.bytes == self.bytes and copy.modified_at > self.modified_at - 1e-3


@dataclass(frozen=True)
class CopyResult:
    """The numbers of files and bytes that were copied, and of files that existed already."""

    files: int = 0
    bytes: int = 0
    existing_files: int = 0

    def __add__(self, other: CopyResult) -> CopyResult:
        return CopyResult(
            self.files + other.files, self.bytes + other.bytes, self.existing_files + other.existing_files
        )


def list_existing(folder: str) -> dict[str, filesystem.FileEntry]:
    """List the files below a folder, by their locations. Raises `Unavailable` where the folder cannot be listed."""
    try:
        return {
            f"{filesystem.normalize_location(folder)}/{name}": entry
            for name, entry in filesystem.list_files(folder).items()
        }
    except OSError as error:
        raise Unavailable(
            f"{folder} cannot be listed: {filesystem.format_store_error(error)}", "altneu doctor"
        ) from error


def copy_files(
    wanted: Iterable[CopyRequest], there: Mapping[str, filesystem.FileEntry], what: str, say: Say
) -> CopyResult:
    """Copy the files whose copies do not exist yet, several at once.

    Args:
        wanted: The files and the places for their copies.
        there: The existing files at the new place, by location.
        what: The kind of files, for messages.
        say: Prints a message of progress.

    Raises:
        Unavailable: At the first file that cannot be copied. Other files may have been copied by then.
    """
    requests = list(wanted)
    due = [file for file in requests if not file.is_copied(there)]
    done, total = CopyResult(existing_files=len(requests) - len(due)), sum(file.bytes for file in due)
    last_message = time.monotonic()
    if due:
        say(f"{what}: {len(due):,} files, {decimal(total)}")
    with ThreadPoolExecutor(filesystem.AT_ONCE) as pool:
        stop = threading.Event()
        futures = [pool.submit(_copy_one, file, stop) for file in due]
        try:
            for future in as_completed(futures):
                done += CopyResult(1, future.result())
                if time.monotonic() - last_message >= EVERY:
                    last_message = time.monotonic()
                    say(f"{what}: {done.files:,} of {len(due):,} files, {decimal(done.bytes)} of {decimal(total)}")
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return done


def delete_different(wanted: Iterable[CopyRequest]) -> list[str]:
    """Compare copies with their originals byte by byte, delete those that differ, and return their locations.

    Raises `OSError`.
    """

    def delete_if_different(file: CopyRequest) -> str | None:
        try:
            with filesystem.open_stream(file.source) as original, filesystem.open_stream(file.target) as copy:
                while block := original.read(filesystem.BLOCK):
                    if copy.read(len(block)) != block:
                        break
                else:
                    if not copy.read(1):
                        return None
        except FileNotFoundError:
            pass
        filesystem.delete_file(file.target)
        return file.target

    return [location for location in filesystem.map_parallel(delete_if_different, wanted) if location]


def _copy_one(request: CopyRequest, stop: threading.Event) -> int:
    if stop.is_set():
        return 0
    try:
        size = filesystem.copy_file(request.source, request.target, request.bytes, request.modified_at)
    except OSError as error:
        raise Unavailable(
            f"{request.source} could not be copied to {request.target}: {filesystem.format_store_error(error)}.",
            "correct the cause (disk space, permissions, the store: altneu doctor), then run the same command again: "
            "files that are copied are not copied again",
        ) from error
    if size != request.bytes:
        raise Unavailable(
            f"{request.source} has {size:,} bytes instead of {request.bytes:,}.",
            "altneu doctor   (says whether the home is complete)",
        )
    return size
