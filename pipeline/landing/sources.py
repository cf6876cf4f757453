"""The raw files of one `land`: each can be read as often as needed, under a name whose ending shows its format.

A pipe, a terminal or a socket delivers its bytes once: they are copied into the private folder of the land. The ending
of the user's name decides the format; if it shows none, the first bytes do (gzip, Parquet, JSON). The readers know only
some endings: a file with another ending gets a link with a known one in the private folder.
"""

from __future__ import annotations

import contextlib
import gzip
import re
import shutil
import stat
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import AltneuError, UsageError
from ..formatting import format_name
from .options import HELP
from .row_schema import BOM, OTHER_CONTENT

Format = Literal["text", "json", "parquet"]
STANDARD_INPUT = Path("-")
HEAD = 4096  # the number of bytes that show a format
PARQUET, GZIP = b"PAR1", b"\x1f\x8b"

_BY_ENDING: dict[str, Format] = {".csv": "text", ".tsv": "text", ".tab": "text", ".mtx": "text"}
_BY_ENDING |= {".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet", ".pq": "parquet"}
_OWN_ENDING: dict[Format, str] = {"text": ".txt", "json": ".jsonl", "parquet": ".parquet"}  # for the readers
_READ_AS_THEY_ARE: dict[str, Format] = {".csv": "text", ".tsv": "text", ".txt": "text"}
_READ_AS_THEY_ARE |= {".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}


@dataclass(frozen=True)
class Source:
    """A raw file.

    `name` is its name as the user has it, `label` the name that its rejected rows have, `path` the path to read,
    `ending` the ending of its name (without .gz, in small letters), and `format` its format.
    """

    name: str
    label: str
    path: Path
    ending: str
    format: Format


def require_files(files: list[Path]) -> None:
    """Raise `UsageError` for a file that does not exist, is a folder, or is given twice."""
    if not files:
        raise UsageError("no file is given.", HELP)
    known: dict[object, Path] = {}
    for file in files:
        name = format_name(file)
        if file == STANDARD_INPUT:
            identity: object = file
        elif file.is_dir():
            raise UsageError(f"{name} is a folder, not a file.", f"altneu land {name}/* …")
        elif not file.exists():
            raise UsageError(f"{name}: no such file.")
        else:
            status = file.stat()
            identity = (status.st_dev, status.st_ino)
        if identity in known:
            first = format_name(known[identity])
            same = "is given twice" if first == name else f"and {first} are the same file"
            raise UsageError(f"{name} {same}: its rows would count twice.")
        known[identity] = file


def prepare_sources(files: list[Path], folder: Path) -> list[Source]:
    """Make every file readable again and again, with copies and links in `folder`. Raise `UsageError` if one cannot be
    read."""
    return [_prepare_source(file, folder, number) for number, file in enumerate(files)]


def _prepare_source(file: Path, folder: Path, number: int) -> Source:
    name = "standard input" if file == STANDARD_INPUT else format_name(file)
    again = _can_be_read_again(file)
    label = format_name(file.name) if again else name
    whole = file.name.lower()
    ending = Path(whole.removesuffix(".gz")).suffix
    try:
        path = file if again else _copy(file, folder / f"{number:03d}")
        with path.open("rb") as stream:
            head = stream.read(HEAD)
        packed = whole.endswith(".gz") or head.startswith(GZIP)
        head = _unpack(path) if packed else head
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror or error}. Nothing was landed.", HELP) from None
    form = _BY_ENDING.get(ending) or _format_by_content(head)
    _require_readable(head, form, name)
    wanted = _OWN_ENDING[form] + (".gz" if packed else "")
    if path is file and _READ_AS_THEY_ARE.get(ending) == form and path.name.endswith(ending + ".gz" * packed):
        return Source(name, label, path, ending, form)
    link = folder / f"{number:03d}{wanted}"
    _link(path, link)
    return Source(name, label, link, ending, form)


def _can_be_read_again(file: Path) -> bool:
    """Tell whether a file that is opened a second time starts at its first byte again; /dev/fd does so on some systems
    only."""
    if file == STANDARD_INPUT or str(file.parent) in ("/dev", "/dev/fd"):
        return False
    return stat.S_ISREG(file.stat().st_mode)


def _copy(file: Path, target: Path) -> Path:
    target.parent.mkdir(exist_ok=True)
    try:
        with contextlib.ExitStack() as stack:
            source = sys.stdin.buffer if file == STANDARD_INPUT else stack.enter_context(file.open("rb"))
            shutil.copyfileobj(source, stack.enter_context(target.open("wb")))
    except OSError as error:
        raise AltneuError(
            f"{format_name(file)} could not be copied to {target}: {error.strerror or error}. Nothing was landed.",
            "make room on the disk, or give a file instead of a pipe",
        ) from None
    return target


def _link(path: Path, link: Path) -> None:
    link.parent.mkdir(exist_ok=True)
    if path.parent == link.parent:
        path.rename(link)
        return
    try:
        link.symlink_to(path.absolute())
    except OSError:  # a file system without links
        shutil.copyfile(path, link)


def _unpack(path: Path) -> bytes:
    """Return the first bytes of a packed file; none if it is broken, since its reader has the better message."""
    try:
        with gzip.open(path) as stream:
            return stream.read(HEAD)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return b""


def _format_by_content(head: bytes) -> Format:
    if head.startswith(PARQUET):
        return "parquet"
    return "json" if re.match(rb"\s*(\{|\[\s*\{)", head.removeprefix(BOM)) else "text"


def _require_readable(head: bytes, form: Format, name: str) -> None:
    for mark, what in OTHER_CONTENT.items():
        if head.startswith(mark) and not (form == "parquet" and mark == PARQUET):
            raise UsageError(f"{name} is {what}. Nothing was landed.", "altneu land - …   (- is standard input)")
    if form == "json" and head.removeprefix(BOM).lstrip()[:1] == b"[":
        raise UsageError(
            f"{name} is one JSON array, but rows are read from one JSON object per line. Nothing was landed.",
            f"jq -c '.[]' {name} | altneu land - …",
        )
