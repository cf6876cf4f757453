"""The report pages: one HTML page per epoch and an index over all, made without Spark and without a network.

These pages are made from the SQL database alone. Some epochs also have a page of their rows and trusses, which DuckDB
reads from the tables.

`epoch_document` returns what is known about one epoch as a JSON document, and `render_page` and `render_index` return
HTML on request. `write_pages` writes the pages of the epochs that it is given, and of every other epoch whose page is
out of date. The index also shows where the landing differs from the database, and when it was looked at.
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
