"""Reports: one HTML page per epoch and an index over all, made from the SQL database alone; and of some epochs a page
with their rows and trusses, read from the tables by DuckDB. No Spark, no network.

`document` gives what is known of one epoch as JSON, `page` and `index` the HTML on request, and `write` the files:
those of the epochs it is asked for, and of every other epoch whose page shows something that has changed since. The
index also says what the landing holds beyond the database, and when that was looked at.
"""

from __future__ import annotations

from .checks import incident
from .html import error_page
from .pages import (
    check,
    document,
    index,
    page,
    page_name,
    refresh,
    write,
    write_difference,
    write_former,
    write_of_run,
    write_vertex,
    written,
)
from .state import totals

__all__ = [
    "check",
    "document",
    "error_page",
    "incident",
    "index",
    "page",
    "page_name",
    "refresh",
    "totals",
    "write",
    "write_difference",
    "write_former",
    "write_of_run",
    "write_vertex",
    "written",
]
