"""Output files of commands: a regular file is written as a whole or not at all; a pipe or a device is written into.

A regular file is written under another name beside its final place (links are followed), with the permissions of the
former file, and renamed when all bytes are on the disk. An error, a full disk or Ctrl-C leaves the former file and
nothing else. Another name of the same file (a hard link) keeps the former content. A pipe, a device or a descriptor
(`/dev/stdout`) is opened and written into as the bytes come.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ..errors import UsageError

_DESCRIPTORS = "/proc/self/fd", "/dev/fd"


@contextlib.contextmanager
def open_whole_file(path: Path, *, synced: bool = True) -> Iterator[IO[bytes]]:
    """Hold a stream that writes a file as a whole. Raises `OSError`.

    With `synced`, the new file is flushed to the disk before it replaces the former one.
    """
    if (descriptor := _find_descriptor(path)) is not None:
        sys.stdout.flush()
        with os.fdopen(os.dup(descriptor), "wb") as stream:
            yield stream
    elif is_stream(path):
        with path.open("wb") as stream:
            yield stream
    else:
        with _open_replacement(Path(os.path.realpath(path)), synced=synced) as stream:
            yield stream


@contextlib.contextmanager
def _open_replacement(file: Path, *, synced: bool) -> Iterator[IO[bytes]]:
    """Hold a stream to a new file that replaces the regular file, if there is one, at the end."""
    beside = file.with_name(f".altneu.{os.getpid()}.{secrets.token_hex(4)}.new")
    try:
        with beside.open("xb") as stream:
            if file.exists():
                shutil.copymode(file, beside)  # before it has content, because not everybody may read it
                with contextlib.suppress(OSError):  # not permitted: then the file belongs to the user of this process
                    os.chown(beside, file.stat().st_uid, file.stat().st_gid)
            yield stream
            stream.flush()
            if synced:
                os.fsync(stream.fileno())
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)


def is_stream(path: Path) -> bool:
    """Tell whether a path is a pipe, a device or a descriptor of this process, not an existing or possible file."""
    if _find_descriptor(path) is not None:
        return True
    try:
        return not (stat.S_ISREG(mode := path.stat().st_mode) or stat.S_ISDIR(mode))
    except OSError:
        return False


def require_writable(path: Path, called: str) -> None:
    """Raise `UsageError` for a path that `open_whole_file` could not write.

    `called` is the name of the path in the message, such as an option.
    """
    if is_stream(path):
        return
    file = Path(os.path.realpath(path))
    if file.is_symlink():
        raise UsageError(f"{called} {path} is a link that points to itself.", f"rm {path}")
    if not file.parent.is_dir():
        raise UsageError(f"{called} {path}: there is no folder {file.parent}.", f"mkdir -p {file.parent}")
    if not os.access(file.parent, os.W_OK):
        raise UsageError(f"{called} {path}: the folder {file.parent} cannot be written.", "name another folder")
    if file.exists() and not os.access(file, os.W_OK):
        raise UsageError(f"{called} {path}: you have no permission to write this file.", f"chmod u+w {file}")


def _find_descriptor(path: Path) -> int | None:
    """Find the descriptor of this process that a path names: 1 for `/dev/stdout`, a link to `/proc/self/fd/1`."""
    folders = {os.path.realpath(folder) for folder in _DESCRIPTORS}
    place = os.path.abspath(path)
    for _ in range(40):  # the system follows as many links
        folder, name = os.path.split(place)
        if name.isdecimal() and os.path.realpath(folder) in folders:
            return int(name)
        if not os.path.islink(place):
            return None
        place = os.path.normpath(os.path.join(os.path.realpath(folder), os.readlink(place)))
    return None
