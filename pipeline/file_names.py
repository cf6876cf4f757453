"""File names as text: for the system a name is any bytes; a shown or stored name is UTF-8 without control characters.

On Linux Python reads a name that is not UTF-8 as text with lone surrogates. Terminals and databases do not accept it.
"""

from __future__ import annotations

import os
import re

from .terminal import escape_controls

LONGEST = (
    100  # bytes of the stem in the names that `altneu land` makes, so that the whole name fits the system's 255 bytes
)


def is_text(name: str) -> bool:
    """Tell whether a name is UTF-8 text.

    >>> is_text("größe.csv"), is_text("\\udce9.csv")
    (True, False)
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def format_name(name: str | os.PathLike[str]) -> str:
    """Write a name so that a terminal, a log and a database accept it: other bytes and control characters are escaped.

    >>> format_name("a\\udce9\\x1b[1m.csv")
    'a\\\\xe9\\\\x1b[1m.csv'
    """
    return escape_controls(os.fsencode(name).decode("utf-8", "backslashreplace"))


def make_stem(name: str) -> str:
    """Return the part of a file name before its first dot, with `_` for what may disturb a path, a URI or a shell.

    >>> make_stem("soc/edges 1.csv.gz"), make_stem("a%41?#.csv"), make_stem(".csv")
    ('soc_edges 1', 'a_41__', '')
    """
    stem = re.sub(r"[^\w +=@-]", "_", name.split(".")[0])
    return stem.encode()[:LONGEST].decode(errors="ignore")
