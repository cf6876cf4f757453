"""The columns that a file of rows has to hold, and what all its readers share."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..home.columns import reserved

if TYPE_CHECKING:
    from ..home.home import Home

BLOCK = 16 << 20  # the number of bytes of text that are read at once
COMMENTS = ("#", "%")  # the marks of comments before a header
ARROW = {"long": pa.int64(), "double": pa.float64(), "string": pa.string(), "boolean": pa.bool_()}
BOM = b"\xef\xbb\xbf"
OTHER_CONTENT = {
    b"\xff\xfe\x00\x00": "UTF-32, not UTF-8 text: write it as UTF-8 (iconv -f UTF-32 -t UTF-8)",
    b"\xff\xfe": "UTF-16, not UTF-8 text: write it as UTF-8 (iconv -f UTF-16 -t UTF-8)",
    b"\xfe\xff": "UTF-16, not UTF-8 text: write it as UTF-8 (iconv -f UTF-16 -t UTF-8)",
    b"BZh91AY&SY": "packed by bzip2, not text: unpack it (bzip2 -dc)",
    b"\xfd7zXZ\x00": "packed by xz, not text: unpack it (xz -dc)",
    b"\x28\xb5\x2f\xfd": "packed by zstd, not text: unpack it (zstd -dc)",
    b"\x1f\x8b": "packed by gzip: let its name end with .gz",
    b"PK\x03\x04": "a ZIP archive or a spreadsheet, not text: write it as CSV",
    b"PAR1": "Parquet, not text: let its name end with .parquet",
}  # the first bytes of a file → what it is


class BrokenFileError(Exception):
    """The file as a whole cannot be trusted; the text says why. `transient`: it may be right the next time."""

    def __init__(self, reason: str, transient: bool = False) -> None:
        super().__init__(reason)
        self.transient = transient


@dataclass(frozen=True)
class RowSchema:
    r"""The columns of a row with their types (see `ARROW`); `optional` columns may be missing or null.

    `names` are the columns of the file in order, whatever its header calls them; "_" skips one. With None the file
    names its columns itself. In delimited text and in Parquet they are taken by position. An object of JSON has no
    positions: `fields` are the file's own names for `names`, in the same order (None for the same names).

    `separator` is any text; " " (and `\s+`) stands for any run of blanks and tabs, None for a guessed one.
    `comment` holds the prefixes of the lines that are comments when they stand before the header, or before the first
    row of a file without one. Without a header a row may begin like a comment: pass `()` unless the user names them.
    """

    types: dict[str, str]
    optional: frozenset[str] = frozenset()
    names: tuple[str, ...] | None = None
    separator: str | None = None
    header: bool = True
    comment: tuple[str, ...] = COMMENTS
    fields: tuple[str, ...] | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """Return the columns that say which thing a row is about: src and dst, or the key of a relation."""
        return (
            ("src", "dst") if "src" in self.types else tuple(name for name in self.types if name not in self.optional)
        )


@dataclass
class Block:
    """Some of the rows of a file, and some of its malformed rows."""

    rows: pa.Table  # the layout's columns and `line` (int64, 1 = the file's first line)
    malformed_rows: list[tuple[int, str, str]] = field(default_factory=list)  # line, reason, text
    comments: int = 0  # the number of comment lines before the header, in the first block of a file


def relation_schema(home: Home, relation: str) -> RowSchema:
    """Return the schema of a landed file of a declared relation."""
    declared = home.config.relations[relation]
    vertex = "long" if home.config.vertices.ids == "integer" else "string"
    types = {name: vertex if type_ == "vertex" else type_ for name, type_ in declared.columns.items()}
    types |= {"op": "string", "seq": "long"}
    return RowSchema(types, optional=frozenset(types) - set(declared.key))


def skip_bom(stream: Any) -> None:
    """Skip the byte order mark of UTF-8. Raise `BrokenFileError` if the first bytes show that it is not UTF-8 text."""
    begin = stream.peek(16)[:16]
    if begin.startswith(BOM):
        stream.read(len(BOM))
    for mark, what in OTHER_CONTENT.items():
        if begin.startswith(mark):
            raise BrokenFileError(f"it is {what}")


def require_known_columns(names: Sequence[str], layout: RowSchema, guess_types: Callable[[], dict[str, str]]) -> None:
    """Raise `BrokenFileError` unless a file with these columns has what a layout requires, and nothing more.

    `guess_types` returns the likely types of the columns, for the advice.
    """
    shown = ", ".join(names)
    missing = [name for name in layout.types if name not in names and name not in layout.optional]
    if missing:
        raise BrokenFileError(f"column {', '.join(missing)} is missing; the header has: {shown}")
    if "" in names:
        raise BrokenFileError(f"column {names.index('') + 1} has no name; the header has: {shown}")
    unknown = [name for name in names if name not in layout.types and name != "_"]
    if unknown:
        types = guess_types()
        reserved_name = next((name for name in unknown if reserved(name)), None)
        if reserved_name is not None:
            raise BrokenFileError(
                f"column {reserved_name} is unknown; the header has: {shown}. It cannot be declared "
                f"({reserved(reserved_name)}): give it another name in the file, or leave it out"
            )
        entries = ", ".join(f'{json.dumps(n, ensure_ascii=False)} = "{types.get(n, "string")}"' for n in unknown)
        place = "[values]" if "src" in layout.types else "among the values of the relation,"
        raise BrokenFileError(
            f"column {', '.join(unknown)} is unknown; the header has: {shown}. "
            f"Declare it in altneu.toml, by its first row: {place} {entries}"
        )
    twice = sorted({name for name in names if names.count(name) > 1 and name != "_"})
    if twice:
        raise BrokenFileError(f"column {', '.join(twice)} is there twice")


def trim_texts(table: pa.Table) -> pa.Table:
    """Remove the blanks and tabs around all texts of a table; a text that is empty then becomes null."""
    for at, column in enumerate(table.columns):
        if column.type == pa.string():
            trimmed = pc.ascii_trim(column, " \t")
            has_changed = pc.sum(pc.binary_length(trimmed)) != pc.sum(pc.binary_length(column))
            if has_changed or pc.any(pc.equal(trimmed, "")).as_py():
                filled = pc.if_else(pc.equal(trimmed, ""), None, trimmed)
                table = table.set_column(at, table.column_names[at], filled)
    return table


def beside_newlines(block: bytes) -> bytes:
    """Return the bytes that begin and end the lines of a block, each once.

    >>> beside_newlines(b"{..}" + bytes([10]) + b"{.}" + bytes([10]))
    b'{}'
    """
    codes = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(codes == ord("\n"))
    beside = np.concatenate([codes[:1], codes[ends[:-1] + 1], codes[ends - 1]])
    return bytes(np.flatnonzero(np.bincount(beside)).astype(np.uint8))
