"""The names that a value column may have. It imports nothing, because executors read files with it."""

from __future__ import annotations

import re

_RESERVED = {"src", "dst", "op", "seq", "file", "line", "epoch", "revision", "diff", "until", "a", "b"}
_RESERVED |= {"copies", "foreign", "rivals", "not_finite", "no_value", "self_loop"}  # of the checks on upserts


def reserved(column: str) -> str | None:
    """Why a value column cannot have this name; None: it can.

    >>> reserved("b"), reserved("my col")
    ("the name is altneu's own: its tables have such a column", None)
    """
    if column.startswith("_"):
        return "the name is altneu's own, as all that begin with an underscore"
    if column.lower() in _RESERVED:
        return "the name is altneu's own: its tables have such a column"
    if not re.fullmatch(r"\w([\w -]{0,62}\w)?", column):
        return "a name is of letters, digits, _, - and blanks within, up to 64 of them"
    return None
