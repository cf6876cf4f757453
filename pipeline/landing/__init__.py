"""The landing folder and what puts epochs into it.

`listing` finds what is landed and `digest` whether it changed (`folder`), `land` splits raw event files into epochs
(`raw`), whose times `times` understands.
"""

from .folder import (
    BYTES_PER_ROW,
    EMPTY_DIGEST,
    OPERATIONS,
    SUFFIXES,
    Landed,
    digest,
    layout,
    listing,
    unchanged,
)
from .raw import LandReport, guess_types, land

__all__ = [
    "BYTES_PER_ROW",
    "EMPTY_DIGEST",
    "OPERATIONS",
    "SUFFIXES",
    "LandReport",
    "Landed",
    "digest",
    "guess_types",
    "land",
    "layout",
    "listing",
    "unchanged",
]
