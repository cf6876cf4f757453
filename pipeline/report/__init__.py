"""Reports: one HTML page per epoch and an index over all, made from the SQL database alone; and of some epochs a page
with their rows and trusses, read from the tables by DuckDB. No Spark, no network.

`epoch_document` returns what is known of one epoch as JSON, `render_page` and `render_index` return the HTML on
request, and `write_pages` writes the files: those of the epochs that it is given, and of every other epoch whose page
shows something that has changed since. The index also says what the landing holds beyond the database, and when that
was looked at.
"""

from __future__ import annotations

from .check_page import incident_document
from .html import render_error_page
from .page_queries import totals_by_epoch
from .page_writer import (
    epoch_document,
    page_name,
    read_written_page,
    refresh_pages,
    render_check,
    render_index,
    render_page,
    write_difference,
    write_former,
    write_pages,
    write_run_pages,
    write_vertex,
)

__all__ = [
    "epoch_document",
    "incident_document",
    "page_name",
    "read_written_page",
    "refresh_pages",
    "render_check",
    "render_error_page",
    "render_index",
    "render_page",
    "totals_by_epoch",
    "write_difference",
    "write_former",
    "write_pages",
    "write_run_pages",
    "write_vertex",
]
