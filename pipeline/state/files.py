"""Files by their location, as Iceberg writes it: a path of this machine, `file:…`, or a URI of an object store."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow import fs


def plain(location: str) -> str:
    """One spelling of a location: without `file:`, and without a slash at its end.

    >>> [plain(each) for each in ("/a/b/", "file:/a/b", "file:///a/b", "s3://bucket/a/")]
    ['/a/b', '/a/b', '/a/b', 's3://bucket/a']
    """
    return re.sub(r"^file:(//)?(?=/)", "", location).rstrip("/") or "/"


def local(location: str) -> Path | None:
    """The path of a location on this machine."""
    path = plain(location)
    return None if re.match(r"\w+:", path) else Path(path)


def same(one: str, other: str) -> bool:
    """Do two locations lead to the same place?"""
    paths = local(one), local(other)
    if paths[0] is None or paths[1] is None:
        return plain(one) == plain(other)
    return os.path.realpath(paths[0]) == os.path.realpath(paths[1])


def _system(location: str) -> tuple[fs.FileSystem, str]:
    from pyarrow import fs  # of all that a small command needs, the slowest to import

    path = local(location)
    if path is not None:
        return fs.LocalFileSystem(), str(path)
    found, inside = fs.FileSystem.from_uri(re.sub(r"^s3[an]:", "s3:", plain(location)))
    return found, inside


def read(location: str) -> bytes:
    """Raises `OSError`."""
    system, path = _system(location)
    with system.open_input_stream(path, compression=None) as stream:
        return bytes(stream.read())


def write(location: str, content: bytes) -> None:
    """Raises `OSError`."""
    system, path = _system(location)
    with system.open_output_stream(path, compression=None) as stream:
        stream.write(content)


def sizes(folder: str) -> dict[str, int]:
    """Every file below a folder, by its path from there, with its bytes; none when the folder is not there."""
    from pyarrow import fs

    system, path = _system(folder)
    found = system.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
    return {info.path.removeprefix(path).lstrip("/"): info.size for info in found if info.is_file}
