"""Names of files as text: to the system a name is any bytes; what is shown or stored is UTF-8 without controls.

Linux gives Python a name that is no UTF-8 with lone surrogates in it, which neither a terminal nor a database takes.
"""

from __future__ import annotations

import os
import re

from .terminal import escape_controls

LONGEST = 100  # bytes of a name that land gives its files: the rest of the name has room within the system's 255


def is_text(name: str) -> bool:
    """Whether a name is UTF-8 text.

    >>> is_text("größe.csv"), is_text("\\udce9.csv")
    (True, False)
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def format_name(name: str | os.PathLike[str]) -> str:
    """Write a name so that a terminal, a log and a database take it: other bytes and controls as they are escaped.

    >>> format_name("a\\udce9\\x1b[1m.csv")
    'a\\\\xe9\\\\x1b[1m.csv'
    """
    return escape_controls(os.fsencode(name).decode("utf-8", "backslashreplace"))


def make_stem(name: str) -> str:
    """Make of a file's name the part before its first dot, with what may disturb a path, a URI or a shell replaced.

    >>> make_stem("soc/edges 1.csv.gz"), make_stem("a%41?#.csv"), make_stem(".csv")
    ('soc_edges 1', 'a_41__', '')
    """
    stem = re.sub(r"[^\w +=@-]", "_", name.split(".")[0])
    return stem.encode()[:LONGEST].decode(errors="ignore")
