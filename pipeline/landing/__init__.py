"""The landing folder and what puts epochs into it.

`local_landing` lists what is landed and digests it, so that a change is noticed; `object_store_landing` does so in an
object store, and `batch_files` has what both share. `land_command` takes raw event files: `sources` makes them
readable, `sampling` and `format_inference` detect their format, `file_reader` reads their rows, `timestamps` reads
their times, `epoch_splitter` splits them into epochs, and `atomic_placement` places all of these or none. The modules
that read files are imported on first use: they need Arrow, and a caller that only lists the landing does not.
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
