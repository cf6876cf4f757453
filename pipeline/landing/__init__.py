"""The landing folder and what puts epochs into it.

`listing` finds what is landed and `digest` whether it changed (`folder`; in an object store `objects`). `land`
(`batches`) takes raw event files: `sources` makes them readable, `sampling` and `form` understand them, `parsing` reads
their rows, `times` their times, `raw` splits them into epochs, `journal` places all of these or none. What understands
files is imported when it is asked for: it takes Arrow, and who only looks what has landed needs none.
"""

from typing import TYPE_CHECKING, Any

from .batch_files import SUFFIXES, BatchFiles
from .local_landing import (
    BYTES_PER_ROW,
    EMPTY_DIGEST,
    OPERATIONS,
    count_batch_rows,
    digest_batches,
    is_unchanged,
    list_batches,
)

if TYPE_CHECKING:
    from .format_inference import RawFormat
    from .land_command import LandReport, land
    from .options import LandOptions

__all__ = [
    "BYTES_PER_ROW",
    "EMPTY_DIGEST",
    "OPERATIONS",
    "SUFFIXES",
    "BatchFiles",
    "LandOptions",
    "LandReport",
    "RawFormat",
    "count_batch_rows",
    "digest_batches",
    "is_unchanged",
    "land",
    "list_batches",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(name)
    from . import format_inference, land_command, options

    return getattr({"RawFormat": format_inference, "LandOptions": options}.get(name, land_command), name)
