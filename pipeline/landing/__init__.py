"""The landing folder and what puts epochs into it.

`listing` finds what is landed and `digest` whether it changed (`folder`; in an object store `objects`). `land`
(`batches`) takes raw event files: `form` understands them, `times` their times, `raw` splits them into epochs,
`journal` places all of these or none.
"""

from .batches import LandReport, land
from .folder import BYTES_PER_ROW, EMPTY_DIGEST, OPERATIONS, digest, layout, listing, rows, unchanged
from .form import Form, Options
from .landed import SUFFIXES, Landed

__all__ = [
    "BYTES_PER_ROW",
    "EMPTY_DIGEST",
    "OPERATIONS",
    "SUFFIXES",
    "Form",
    "LandReport",
    "Landed",
    "Options",
    "digest",
    "land",
    "layout",
    "listing",
    "rows",
    "unchanged",
]
