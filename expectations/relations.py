"""Queries over the frames of a suite: Spark frames, which Spark queries, or Arrow tables, which DuckDB queries here.

A query is SQL that both understand alike, and names its frames in braces. All frames of a query are of one kind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

_ARROW = {"int64": "bigint", "double": "double", "string": "string", "bool": "boolean"}


def is_arrow(frame: Any) -> bool:
    import pyarrow as pa

    return isinstance(frame, pa.Table)


def select_rows(query: str, **frames: Any) -> Any:
    """Return the rows of a query: a Spark frame, or an Arrow table."""
    first = next(iter(frames.values()))
    if not is_arrow(first):
        return first.sparkSession.sql(query, **frames)
    with open_cursor() as cursor:
        for name, table in frames.items():
            cursor.register(name, table)
        return cursor.sql(query.format(**{name: name for name in frames})).to_arrow_table()


def open_cursor() -> duckdb.DuckDBPyConnection:
    """Open a cursor for a query over frames in memory, whose names only this cursor knows."""
    return _database().cursor()


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """Return the one database in memory of this process: a new one for each query would cost more than the query."""
    import duckdb

    return duckdb.connect(config={"threads": 1})


def fetch_tuples(frame: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a small frame."""
    if is_arrow(frame):
        return list(zip(*(column.to_pylist() for column in frame.columns), strict=True))
    return [tuple(row) for row in frame.collect()]


def column_types(frame: Any) -> dict[str, str]:
    """Return the types of a frame's columns in SQL."""
    if is_arrow(frame):
        return {column.name: _ARROW.get(str(column.type), str(column.type)) for column in frame.schema}
    return dict(frame.dtypes)


def quote_identifier(frame: Any) -> Callable[[str], str]:
    """Return the function that writes the name of a column in a query over a frame."""
    sign = '"' if is_arrow(frame) else "`"
    return lambda name: _escape_braces(sign + name.replace(sign, 2 * sign) + sign)


def text_literal(frame: Any) -> Callable[[str], str]:
    """Return the function that writes a text in a query over a frame."""
    if is_arrow(frame):
        return lambda text: _escape_braces("'" + text.replace("'", "''") + "'")
    return lambda text: _escape_braces("'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'")


def _escape_braces(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
