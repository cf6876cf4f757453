"""Text that is safe for a terminal: characters that would move, colour or reverse the output are escaped.

Names of vertices, columns and files come from other people's data. Tables, messages and lines of progress show them
with `escape_controls`; JSON, CSV and Parquet are data and contain them unchanged.
"""

from __future__ import annotations

import re

# C0 and C1 controls with their escape sequences, line and paragraph separators, marks that change the direction of the
# text, and lone surrogates, which cannot be encoded
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_controls(text: str, keep: str = "") -> str:
    r"""Write each control character of a text as Python's escape sequence, except those in `keep`.

    >>> escape_controls("a\x1b[31mb\nc"), escape_controls("\u202etxt.exe"), escape_controls("a\nb\r", keep="\n")
    ('a\\x1b[31mb\\nc', '\\u202etxt.exe', 'a\nb\\r')
    """
    return _CONTROLS.sub(lambda found: found[0] if found[0] in keep else _write_out(found[0]), text)


def _write_out(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
