"""Files that a command writes for somebody: whole or not at all; and what is no file is written into, never replaced.

A regular file is written beside the place where its links lead, with the permissions that it had, and renamed onto it
when all is on the disk: an error, a full disk or Ctrl-C leaves the former file and nothing else. Another name of the
same file (a hard link) keeps the former content. A pipe, a device or a descriptor (`/dev/stdout`) is opened and written
into as the bytes come.
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
    """Give a stream to write a file with. `synced`: it is on the disk, not only on its way, before the former one goes.
    Raises `OSError`."""
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
    """Give a stream that becomes a regular file, which may not be there yet."""
    beside = file.with_name(f".altneu.{os.getpid()}.{secrets.token_hex(4)}.new")
    try:
        with beside.open("xb") as stream:
            if file.exists():
                shutil.copymode(file, beside)  # before a byte is in it: not everybody may read it
                with contextlib.suppress(OSError):  # not allowed: it belongs to who replaces it
                    os.chown(beside, file.stat().st_uid, file.stat().st_gid)
            yield stream
            stream.flush()
            if synced:
                os.fsync(stream.fileno())
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)


def is_stream(path: Path) -> bool:
    """Is it a pipe, a device, or a descriptor of this process, not a file that is or could be there?"""
    if _find_descriptor(path) is not None:
        return True
    try:
        return not (stat.S_ISREG(mode := path.stat().st_mode) or stat.S_ISDIR(mode))
    except OSError:
        return False


def require_writable(path: Path, called: str) -> None:
    """Raise `UsageError` for a place that `open_whole_file` could not write. `called`: what names it, such as an
    option."""
    if is_stream(path):
        return
    file = Path(os.path.realpath(path))
    if file.is_symlink():
        raise UsageError(f"{called} {path} is a link that leads to itself.", f"rm {path}")
    if not file.parent.is_dir():
        raise UsageError(f"{called} {path}: there is no folder {file.parent}.", f"mkdir -p {file.parent}")
    if not os.access(file.parent, os.W_OK):
        raise UsageError(f"{called} {path}: the folder {file.parent} cannot be written.", "name another folder")
    if file.exists() and not os.access(file, os.W_OK):
        raise UsageError(f"{called} {path}: this file may not be written.", f"chmod u+w {file}")


def _find_descriptor(path: Path) -> int | None:
    """Find the descriptor of this process that a path names: 1 for `/dev/stdout`, which leads to `/proc/self/fd/1`."""
    folders = {os.path.realpath(folder) for folder in _DESCRIPTORS}
    place = os.path.abspath(path)
    for _ in range(40):  # as many links as the system follows
        folder, name = os.path.split(place)
        if name.isdecimal() and os.path.realpath(folder) in folders:
            return int(name)
        if not os.path.islink(place):
            return None
        place = os.path.normpath(os.path.join(os.path.realpath(folder), os.readlink(place)))
    return None
