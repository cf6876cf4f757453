"""The names that a value column may have, and types in SQL. It imports nothing of altneu, because executors use it."""

from __future__ import annotations

import re

SQL_TYPES = {"long": "bigint", "double": "double", "string": "string", "boolean": "boolean"}
_RESERVED = {"src", "dst", "op", "seq", "file", "line", "epoch", "revision", "diff", "until", "a", "b"}
_RESERVED |= {
    "copies",
    "foreign",
    "rivals",
    "not_finite",
    "no_value",
    "self_loop",
}  # columns that the checks on upserts add


def reserved(column: str) -> str | None:
    """Say why a value column cannot have this name; None: it can.

    >>> reserved("b"), reserved("my col")
    ('the name is reserved: a table of altneu has such a column', None)
    """
    if column.startswith("_"):
        return "the name is reserved, like every name that begins with an underscore"
    if column.lower() in _RESERVED:
        return "the name is reserved: a table of altneu has such a column"
    if not re.fullmatch(r"\w([\w -]{0,62}\w)?", column):
        return "a name consists of up to 64 letters, digits, _, - and inner blanks"
    return None
