"""What a file of rows is to hold, and what all its readers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

BLOCK = 16 << 20  # bytes of text that are read at once
COMMENTS = ("#", "%")  # what marks the comments before a header
ARROW = {"long": pa.int64(), "double": pa.float64(), "string": pa.string(), "boolean": pa.bool_()}
BOM = b"\xef\xbb\xbf"


class FileBroken(Exception):
    """The file as a whole cannot be trusted; the text says why. `again`: it may be right the next time."""

    def __init__(self, reason: str, again: bool = False) -> None:
        super().__init__(reason)
        self.again = again


@dataclass(frozen=True)
class Layout:
    r"""What a row holds: column → type (see `ARROW`); `optional` columns may be missing or null.

    `names` are the columns of the file in order, whatever its header calls them; "_" leaves one out. None: the file
    names its columns itself. In delimited text and in Parquet they are taken by position. An object of JSON has no
    positions: `fields` are the file's own words for `names`, in the same order (None: the same words).

    `separator` is any text; " " (and `\s+`) stands for any run of blanks and tabs, None for one that is guessed.
    `comment` holds the prefixes of the lines that are comments when they stand before the header, or before the first
    row of a file without one. Where there is no header, a row may begin so, too: pass `()` unless the user says which.
    """

    types: dict[str, str]
    optional: frozenset[str] = frozenset()
    names: tuple[str, ...] | None = None
    separator: str | None = None
    header: bool = True
    comment: tuple[str, ...] = COMMENTS
    fields: tuple[str, ...] | None = None


def skip_bom(stream: Any) -> None:
    if stream.peek(len(BOM))[: len(BOM)] == BOM:
        stream.read(len(BOM))


def beside_newlines(block: bytes) -> bytes:
    """The bytes that begin and end the lines of a block, each once.

    >>> beside_newlines(b"{..}" + bytes([10]) + b"{.}" + bytes([10]))
    b'{}'
    """
    codes = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(codes == ord("\n"))
    beside = np.concatenate([codes[:1], codes[ends[:-1] + 1], codes[ends - 1]])
    return bytes(np.flatnonzero(np.bincount(beside)).astype(np.uint8))
