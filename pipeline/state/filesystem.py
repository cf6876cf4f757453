"""Files by their locations, as Iceberg writes them: a path of this machine, `file:…`, or a URI of an object store.

All go through pyarrow, which finds credentials as each store's own tools do. A request that a store answers with 503,
or whose answer breaks off, is tried up to `TRIES` times. A final failure is an `OSError` that names the location.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from ..home.s3_config import S3

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

TRIES = 9  # tries of a request to an object store, with growing pauses: some 10 s
AT_ONCE = 16  # requests to an object store at the same time
BLOCK = 8 << 20  # bytes that are read or written at once
COPIED_AT_ONCE = 5 << 30  # the greatest number of bytes that S3 copies in one request

Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True)
class FileEntry:
    """A file in a listing. `changed` is the time of its last change, in seconds since 1970 by the store's clock."""

    bytes: int
    modified_at: float

    @property
    def stamp(self) -> str:
        return f"{self.bytes}:{round(self.modified_at * 1e9)}"


def normalize_location(location: str) -> str:
    """Return the normal form of a location: without `file:`, and without a slash at its end.

    >>> [normalize_location(each) for each in ("/a/b/", "file:/a/b", "file:///a/b", "s3://bucket/a/")]
    ['/a/b', '/a/b', '/a/b', 's3://bucket/a']
    """
    return re.sub(r"^file:(//)?(?=/)", "", location).rstrip("/") or "/"


def local_path(location: str) -> Path | None:
    """Return the path of a location on this machine; None: it is in an object store."""
    path = normalize_location(location)
    return None if re.match(r"\w+:", path) else Path(path)


def is_same_location(one: str, other: str) -> bool:
    """Tell whether two locations lead to the same place."""
    paths = local_path(one), local_path(other)
    if paths[0] is None or paths[1] is None:
        return normalize_location(one) == normalize_location(other)
    return os.path.realpath(paths[0]) == os.path.realpath(paths[1])


@functools.lru_cache(maxsize=4)
def _s3_filesystem(settings: S3) -> fs.FileSystem:
    from pyarrow import fs

    # not pyarrow's default strategy, whose quota is never refilled: then a process could retry a hundred times in all
    retry = fs.AwsDefaultS3RetryStrategy(max_attempts=TRIES)
    # delayed open: a small file is written in one request, which succeeds or fails as a whole
    return fs.S3FileSystem(retry_strategy=retry, allow_delayed_open=True, **settings.arrow_options())


@functools.lru_cache(maxsize=4)
def _other_filesystem(root: str) -> tuple[fs.FileSystem, str]:
    """Open a store of another kind than S3. Return it and the path of its root in it. Raises `OSError`."""
    from pyarrow import fs

    try:
        store, path = fs.FileSystem.from_uri(root)
    except (ValueError, NotImplementedError) as error:  # an unknown kind of store
        raise OSError(f"{root}: {error}") from None
    return store, path


def _filesystem_of(location: str, s3: S3 | None = None) -> tuple[fs.FileSystem, str]:
    from pyarrow import fs  # imported here, because it is the slowest import of a small command

    path = local_path(location)
    if path is not None:
        return fs.LocalFileSystem(), str(path)
    uri = normalize_location(location)
    scheme, _, inside = uri.partition("://")
    if scheme in ("s3", "s3a", "s3n"):
        return _s3_filesystem(s3 or S3.from_environment()), inside
    store, _, inside = inside.partition("/")
    system, root = _other_filesystem(f"{scheme}://{store}/")
    return system, f"{root.rstrip('/')}/{inside}"


def format_store_error(error: OSError) -> str:
    """Format an error of a store in one line. A missing library would list every place where it was looked for."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _is_broken_off(error: BaseException) -> bool:
    """Tell whether an answer broke off, which is the one failure that pyarrow itself does not retry."""
    return isinstance(error, OSError) and ("INTERNAL_FAILURE" in str(error) or "broke off" in str(error))


def _retry_reading(work: Callable[[], Made]) -> Made:
    """Call `work`, which reads, again when an answer breaks off."""
    wait = wait_random_exponential(multiplier=0.1, max=5)
    return Retrying(retry=retry_if_exception(_is_broken_off), wait=wait, stop=stop_after_attempt(TRIES), reraise=True)(
        work
    )


def read_file(location: str) -> bytes:
    """Read a file. Raises `OSError`."""

    def read_all() -> bytes:
        with open_stream(location) as stream:
            return stream.read()

    return _retry_reading(read_all)


def write_file(location: str, content: bytes) -> None:
    """Write a file. Raises `OSError`."""
    system, path = _filesystem_of(location)
    _make_folder(system, path)
    with system.open_output_stream(path, compression=None) as stream:
        stream.write(content)


def list_sizes(folder: str) -> dict[str, int]:
    """List the files below a folder: path from the folder → bytes. A missing folder has none. Raises `OSError`."""
    return {name: entry.bytes for name, entry in list_files(folder).items()}


def list_files(folder: str) -> dict[str, FileEntry]:
    """List the files below a folder, by their paths from the folder. A missing folder has none.

    Raises `OSError`, also where the bucket does not exist.
    """
    from pyarrow import fs

    system, path = _filesystem_of(folder)
    path = path.rstrip("/")
    infos = system.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
    if not infos and local_path(folder) is None:
        bucket = path.partition("/")[0]
        if bucket and system.type_name != "hdfs" and system.get_file_info(bucket).type == fs.FileType.NotFound:
            raise FileNotFoundError(f"{normalize_location(folder)}: {bucket} does not exist, or you have no access.")
    files = (info for info in infos if info.is_file)
    return {info.path.removeprefix(path).lstrip("/"): FileEntry(info.size, info.mtime_ns / 1e9) for info in files}


def stat_file(location: str) -> FileEntry:
    """Return the present size and time of a file. Raises `OSError`."""
    system, path = _filesystem_of(location)
    info = system.get_file_info(path)
    if not info.is_file:
        raise FileNotFoundError(errno.ENOENT, "no such file", location)
    return FileEntry(info.size, info.mtime_ns / 1e9)


def get_etag(location: str) -> str:
    """Return the ETag of a file in an object store, which changes with its content; "": it has none. Raises
    `OSError`."""
    system, path = _filesystem_of(location)
    with system.open_input_file(path) as file:
        metadata: dict[str | bytes, bytes] = file.metadata() or {}
        return (metadata.get("ETag") or metadata.get(b"ETag") or b"").decode()


def delete_file(location: str) -> None:
    """Delete a file. A missing file is not an error. Raises `OSError`."""
    system, path = _filesystem_of(location)
    with contextlib.suppress(FileNotFoundError):
        system.delete_file(path)


def upload_file(file: Path, location: str) -> None:
    """Copy a file of this machine to a location. After an error a part of it may remain there. Raises `OSError`."""
    system, path = _filesystem_of(location)
    _make_folder(system, path)
    with file.open("rb") as source, system.open_output_stream(path, compression=None) as target:
        while block := source.read(BLOCK):
            target.write(block)


def _make_folder(system: fs.FileSystem, path: str) -> None:
    if system.type_name != "s3":  # object stores have no folders
        system.create_dir(path.rpartition("/")[0], recursive=True)


def copy_file(source: str, target: str, size: int, changed: float = 0.0) -> int:
    """Copy a file. Within one S3 store, the store itself copies it.

    After an error a part of the file may remain in a store. On this machine the part has another, hidden name.

    Args:
        source: The location of the file.
        target: The location of the copy.
        size: The bytes of the file.
        changed: The time of its last change, in seconds since 1970, which a copy on this machine gets; 0: none.

    Returns:
        The number of bytes that were copied.

    Raises:
        OSError: The file cannot be copied.
    """
    (one, inside), (other, outside), place = _filesystem_of(source), _filesystem_of(target), local_path(target)
    if one is other and one.type_name == "s3" and size <= COPIED_AT_ONCE:
        one.copy_file(inside, outside)
        return size
    with open_stream(source) as stream:
        if place is None:
            _make_folder(other, outside)
            with other.open_output_stream(outside, compression=None) as sink:
                return _copy_stream(stream, sink)
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f".{place.name}.part")
        with part.open("wb") as sink:
            done = _copy_stream(stream, sink)
        if changed:
            os.utime(part, (changed, changed))
        part.replace(place)
        return done


def _copy_stream(source: IO[bytes], target: Any) -> int:
    done = 0
    while block := source.read(BLOCK):
        target.write(block)
        done += len(block)
    return done


def map_parallel(work: Callable[[Item], Made], items: Iterable[Item]) -> list[Made]:
    """Call `work` for each item and return the results in order. Up to `AT_ONCE` calls run at once."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(work, items))


def open_stream(location: str, s3: S3 | None = None) -> IO[bytes]:
    """Open a file to be read from its beginning.

    `s3` is the configuration of S3 for a process without it in the environment. Raises `OSError`, also where a file of
    an object store breaks off.
    """
    path = local_path(location)
    if path is not None:
        return path.open("rb")
    return io.BufferedReader(_CompleteStream(open_random_access(location, s3)), BLOCK)


def open_random_access(location: str, s3: S3 | None = None) -> pa.NativeFile:
    """Open a file to be read in any order. Raises `OSError`."""
    system, inside = _filesystem_of(location, s3)
    return system.open_input_file(inside)


class _CompleteStream(io.RawIOBase):
    """A stream that gives all bytes of a file, or raises an error."""

    def __init__(self, file: pa.NativeFile) -> None:
        self._file, self._size, self._at = file, file.size(), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = _retry_reading(lambda: self._next(min(len(buffer), self._size - self._at)))
        buffer[: len(block)] = block
        self._at += len(block)
        return len(block)

    def _next(self, size: int) -> bytes:
        self._file.seek(self._at)
        block = bytes(self._file.read(size))
        if len(block) < size:
            raise OSError(f"the file broke off after {self._at + len(block)} of {self._size} bytes")
        return block

    def close(self) -> None:
        self._file.close()
        super().close()
