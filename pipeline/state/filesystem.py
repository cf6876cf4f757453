"""Files by their location, as Iceberg writes it: a path of this machine, `file:…`, or a URI of an object store.

One layer for all of them, pyarrow's: it finds credentials as each store's own tools do, and asks a store that answers
503 or breaks off again, up to `TRIES` times. What a store says in the end is an `OSError` that names the location.
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

TRIES = 9  # of a request to an object store, with growing pauses: some 10 s
AT_ONCE = 16  # requests to an object store that are under way together
BLOCK = 8 << 20  # bytes of a file that are fetched or sent at once
COPIED_AT_ONCE = 5 << 30  # bytes of an object that S3 copies in one request

Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True)
class FileEntry:
    """A file as a listing shows it. `changed`: seconds since 1970, by the store's clock."""

    bytes: int
    changed: float

    @property
    def stamp(self) -> str:
        return f"{self.bytes}:{round(self.changed * 1e9)}"


def normalize_location(location: str) -> str:
    """One spelling of a location: without `file:`, and without a slash at its end.

    >>> [normalize_location(each) for each in ("/a/b/", "file:/a/b", "file:///a/b", "s3://bucket/a/")]
    ['/a/b', '/a/b', '/a/b', 's3://bucket/a']
    """
    return re.sub(r"^file:(//)?(?=/)", "", location).rstrip("/") or "/"


def local_path(location: str) -> Path | None:
    """The path of a location on this machine."""
    path = normalize_location(location)
    return None if re.match(r"\w+:", path) else Path(path)


def is_same_location(one: str, other: str) -> bool:
    """Do two locations lead to the same place?"""
    paths = local_path(one), local_path(other)
    if paths[0] is None or paths[1] is None:
        return normalize_location(one) == normalize_location(other)
    return os.path.realpath(paths[0]) == os.path.realpath(paths[1])


@functools.lru_cache(maxsize=4)
def _s3_filesystem(settings: S3) -> fs.FileSystem:
    from pyarrow import fs

    # not the standard one: pyarrow never gives its quota back, so that a process tries a hundred times in all
    retry = fs.AwsDefaultS3RetryStrategy(max_attempts=TRIES)
    # delayed: a small file is one request, which succeeds or fails as a whole
    return fs.S3FileSystem(retry_strategy=retry, allow_delayed_open=True, **settings.arrow_options())


@functools.lru_cache(maxsize=4)
def _other_filesystem(root: str) -> tuple[fs.FileSystem, str]:
    """A store of another kind, and the path of its root in it."""
    from pyarrow import fs

    try:
        found, path = fs.FileSystem.from_uri(root)
    except (ValueError, NotImplementedError) as error:  # an unknown kind of store
        raise OSError(f"{root}: {error}") from None
    return found, path


def _filesystem_of(location: str, s3: S3 | None = None) -> tuple[fs.FileSystem, str]:
    from pyarrow import fs  # of all that a small command needs, the slowest to import

    path = local_path(location)
    if path is not None:
        return fs.LocalFileSystem(), str(path)
    uri = normalize_location(location)
    scheme, _, inside = uri.partition("://")
    if scheme in ("s3", "s3a", "s3n"):
        return _s3_filesystem(s3 or S3.from_environment()), inside
    store, _, inside = inside.partition("/")
    found, root = _other_filesystem(f"{scheme}://{store}/")
    return found, f"{root.rstrip('/')}/{inside}"


def format_store_error(error: OSError) -> str:
    """What a store says, in one line: one whose library is not here lists every place where it might have been."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _is_broken_off(error: BaseException) -> bool:
    """Did an answer end before it should? That alone pyarrow does not try again by itself."""
    return isinstance(error, OSError) and ("INTERNAL_FAILURE" in str(error) or "broke off" in str(error))


def _retry_reading(work: Callable[[], Made]) -> Made:
    """`work`, which reads, again when an answer breaks off."""
    wait = wait_random_exponential(multiplier=0.1, max=5)
    return Retrying(retry=retry_if_exception(_is_broken_off), wait=wait, stop=stop_after_attempt(TRIES), reraise=True)(
        work
    )


def read_file(location: str) -> bytes:
    """Raises `OSError`."""

    def read_all() -> bytes:
        with open_stream(location) as stream:
            return stream.read()

    return _retry_reading(read_all)


def write_file(location: str, content: bytes) -> None:
    """Raises `OSError`."""
    system, path = _filesystem_of(location)
    _make_folder(system, path)
    with system.open_output_stream(path, compression=None) as stream:
        stream.write(content)


def list_sizes(folder: str) -> dict[str, int]:
    """Every file below a folder, by its path from there, with its bytes; none when the folder is not there."""
    return {name: found.bytes for name, found in list_files(folder).items()}


def list_files(folder: str) -> dict[str, FileEntry]:
    """Every file below a folder, by its path from there; none when the folder is not there. Raises `OSError`, also
    when there is no such bucket."""
    from pyarrow import fs

    system, path = _filesystem_of(folder)
    path = path.rstrip("/")
    infos = system.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
    if not infos and local_path(folder) is None:
        bucket = path.partition("/")[0]
        if bucket and system.type_name != "hdfs" and system.get_file_info(bucket).type == fs.FileType.NotFound:
            raise FileNotFoundError(f"{normalize_location(folder)}: there is no {bucket}, or it may not be seen.")
    found = (info for info in infos if info.is_file)
    return {info.path.removeprefix(path).lstrip("/"): FileEntry(info.size, info.mtime_ns / 1e9) for info in found}


def stat_file(location: str) -> FileEntry:
    """One file as it is now. Raises `OSError`."""
    system, path = _filesystem_of(location)
    info = system.get_file_info(path)
    if not info.is_file:
        raise FileNotFoundError(errno.ENOENT, "no such file", location)
    return FileEntry(info.size, info.mtime_ns / 1e9)


def get_etag(location: str) -> str:
    """What an object store calls this content of a file; "" where it has no name for it. Raises `OSError`."""
    system, path = _filesystem_of(location)
    with system.open_input_file(path) as file:
        said: dict[str | bytes, bytes] = file.metadata() or {}
        return (said.get("ETag") or said.get(b"ETag") or b"").decode()


def delete_file(location: str) -> None:
    """A file that is not there is deleted. Raises `OSError`."""
    system, path = _filesystem_of(location)
    with contextlib.suppress(FileNotFoundError):
        system.delete_file(path)


def upload_file(file: Path, location: str) -> None:
    """Copy a file of this machine. What an error leaves may be a part of it. Raises `OSError`."""
    system, path = _filesystem_of(location)
    _make_folder(system, path)
    with file.open("rb") as source, system.open_output_stream(path, compression=None) as target:
        while block := source.read(BLOCK):
            target.write(block)


def _make_folder(system: fs.FileSystem, path: str) -> None:
    if system.type_name != "s3":  # object stores have no folders
        system.create_dir(path.rpartition("/")[0], recursive=True)


def copy_file(source: str, target: str, size: int, changed: float = 0.0) -> int:
    """Copy a file of `size` bytes, within a store by the store itself; the bytes that were copied. What an error leaves
    in a store may be a part of it; on this machine it is under another name, and hidden. `changed`: when it was last
    changed, as a copy on this machine says as well. Raises `OSError`."""
    (one, inside), (other, outside), place = _filesystem_of(source), _filesystem_of(target), local_path(target)
    if one is other and one.type_name == "s3" and size <= COPIED_AT_ONCE:
        one.copy_file(inside, outside)
        return size
    with open_stream(source) as stream:
        if place is None:
            _make_folder(other, outside)
            with other.open_output_stream(outside, compression=None) as there:
                return _copy_stream(stream, there)
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f".{place.name}.part")
        with part.open("wb") as there:
            done = _copy_stream(stream, there)
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
    """`work` of each item, in their order; many at once, since an object store takes its time for each."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(work, items))


def open_stream(location: str, s3: S3 | None = None) -> IO[bytes]:
    """A file to be read from its beginning. `s3`: how S3 is reached, in a process whose environment does not say it.
    Raises `OSError`, also when a file of an object store ends before it should."""
    path = local_path(location)
    if path is not None:
        return path.open("rb")
    return io.BufferedReader(_CompleteStream(open_random_access(location, s3)), BLOCK)


def open_random_access(location: str, s3: S3 | None = None) -> pa.NativeFile:
    """A file to be read in any order. Raises `OSError`."""
    system, inside = _filesystem_of(location, s3)
    return system.open_input_file(inside)


class _CompleteStream(io.RawIOBase):
    """All bytes of a file, or an error."""

    def __init__(self, file: pa.NativeFile) -> None:
        self._file, self._size, self._at = file, file.size(), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = _retry_reading(lambda: self._next(min(len(buffer), self._size - self._at)))
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)

    def _next(self, size: int) -> bytes:
        self._file.seek(self._at)
        found = bytes(self._file.read(size))
        if len(found) < size:
            raise OSError(f"the file broke off after {self._at + len(found)} of {self._size} bytes")
        return found

    def close(self) -> None:
        self._file.close()
        super().close()
