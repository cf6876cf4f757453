"""Text that people read: without control characters, and names of files, times and epochs in the usual words.

Names of vertices, columns and files come from other people's data. Tables, messages and lines of progress show them
with `escape_controls`, because some characters would move, colour or reverse the output of a terminal; JSON, CSV and
Parquet are data and contain them unchanged. For the system the name of a file is any bytes: on Linux Python reads a
name that is not UTF-8 as text with lone surrogates, which terminals and databases do not accept (`format_name`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

LONGEST = 100  # bytes of the stem of a name that `altneu land` makes: the system's limit for a whole name is 255 bytes
# C0 and C1 controls with their escape sequences, line and paragraph separators, marks that change the direction of the
# text, and lone surrogates, which cannot be encoded
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_controls(text: str, keep: str = "") -> str:
    r"""Write each control character of a text as Python's escape sequence, except those in `keep`.

    >>> escape_controls("a\x1b[31mb\nc"), escape_controls("\u202etxt.exe"), escape_controls("a\nb\r", keep="\n")
    ('a\\x1b[31mb\\nc', '\\u202etxt.exe', 'a\nb\\r')
    """
    return _CONTROLS.sub(lambda match: match[0] if match[0] in keep else _escape_character(match[0]), text)


def _escape_character(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


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


def group_neighbours(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and the last number of each run of neighbours in numbers that ascend.

    >>> group_neighbours([1, 2, 3, 7, 9])
    [(1, 3), (7, 7), (9, 9)]
    """
    spans: list[tuple[int, int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1] = spans[-1][0], number
        else:
            spans.append((number, number))
    return spans


def make_stem(name: str) -> str:
    """Return the part of a file name before its first dot, with `_` for what may disturb a path, a URI or a shell.

    >>> make_stem("soc/edges 1.csv.gz"), make_stem("a%41?#.csv"), make_stem(".csv")
    ('soc_edges 1', 'a_41__', '')
    """
    stem = re.sub(r"[^\w +=@-]", "_", name.split(".")[0])
    return stem.encode()[:LONGEST].decode(errors="ignore")


def format_moment(iso: str | None) -> str:
    """Format a stored time to the minute.

    >>> format_moment("2026-05-01T09:30:12.123+00:00"), format_moment(None)
    ('2026-05-01 09:30 UTC', '–')
    """
    return f"{iso[:10]} {iso[11:16]} UTC" if iso else "–"


def count_epochs(labels: Sequence[str]) -> str:
    """Describe epochs in a few words: their number, and the first and the last label.

    >>> count_epochs(["1"]), count_epochs(["1", "2", "5"]), count_epochs([])
    ('epoch 1', '3 epochs (1 … 5)', '0 epochs')
    """
    if len(labels) == 1:
        return f"epoch {labels[0]}"
    return f"{len(labels)} epochs" + (f" ({labels[0]} … {labels[-1]})" if labels else "")
