"""Repeated headers among the rows, as in files that were joined: no row is lost in them."""

from __future__ import annotations

import functools

import pyarrow.compute as pc

from .csv_reader import guess_separator
from .record_boundaries import split_record
from .row_schema import Block, RowSchema

REPEATED_HEADER = "the header again"
HARMLESS = ("empty line", REPEATED_HEADER)  # the reasons of lines in which no row is lost


def reject_repeated_headers(block: Block, layout: RowSchema) -> Block:
    """Move rows of delimited text that repeat its header to the malformed ones, with this reason.

    If the layout does not have the file's own names of its columns (`fields`), the names of the layout are compared.
    """
    if not layout.header or (layout.names and not layout.fields):
        return block
    bad = [
        (line, REPEATED_HEADER if _is_header(text, layout) else reason, text)
        for line, reason, text in block.malformed_rows
    ]
    header = dict(zip(layout.names, layout.fields, strict=True)) if layout.names and layout.fields else {}
    header = header or {name: name for name in layout.types}
    good = block.rows
    first = layout.key[0]
    if layout.types[first] == "string" and pc.any(pc.equal(good[first], header[first])).as_py():
        tests = []
        for name, type_ in layout.types.items():
            is_empty = pc.is_null(good[name])
            is_named = pc.fill_null(pc.equal(good[name], header.get(name)), False) if type_ == "string" else is_empty
            tests.append(is_named if name in layout.key else pc.or_(is_named, is_empty))
        repeated = functools.reduce(pc.and_, tests)
        text = (layout.separator or ",").join(layout.fields or [header[name] for name in layout.key])
        bad += [(line, REPEATED_HEADER, text) for line in good.filter(repeated)["line"].to_pylist()]
        good = good.filter(pc.invert(repeated))
    return Block(good, sorted(bad), block.comments)


def _is_header(text: str, layout: RowSchema) -> bool:
    try:
        cells = split_record(text, layout.separator or guess_separator(text))
    except ValueError:
        return False
    return cells == list(layout.fields) if layout.fields else {*layout.key} <= set(cells) <= set(layout.types)
