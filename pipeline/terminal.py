"""Text as a terminal may be given it: characters that would move, colour or turn around what is shown are written out.

Names of vertices, columns and files come from data of others. A table, a message and a line of progress show them with
`escape_controls`; JSON, CSV and Parquet are data and hold them as they are.
"""

from __future__ import annotations

import re

# C0 and C1 with their escape sequences, line and paragraph separators, marks that turn the direction of what follows,
# and halves of characters, which no encoding takes
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_controls(text: str, keep: str = "") -> str:
    r"""Write each such character of a text as Python would, but those to `keep`.

    >>> escape_controls("a\x1b[31mb\nc"), escape_controls("\u202etxt.exe"), escape_controls("a\nb\r", keep="\n")
    ('a\\x1b[31mb\\nc', '\\u202etxt.exe', 'a\nb\\r')
    """
    return _CONTROLS.sub(lambda found: found[0] if found[0] in keep else _write_out(found[0]), text)


def _write_out(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
