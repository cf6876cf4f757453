"""Conversion of the arguments of `Graph` to those of a question: whole numbers of any library, texts, vertices, epochs.

Each function takes the name and the value of an argument. It raises `UsageError` with both for a value of another kind:
a truth value and a float are no vertices, and "1" is no revision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, datetime
from numbers import Integral
from typing import Any, NoReturn

from ..errors import UsageError


def read_number(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        _refuse_kind(name, value, "a whole number")
    return int(value)


def read_words(name: str, value: object) -> str:
    if not isinstance(value, str):
        _refuse_kind(name, value, "a text")
    return str(value)


def read_truth(name: str, value: object) -> bool:
    if type(value).__name__ not in ("bool", "bool_"):  # Python's and numpy's
        _refuse_kind(name, value, "True or False")
    return bool(value)


def read_epoch(name: str, value: object) -> str:
    """Read an epoch, and return it as a person would type it."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, Integral):
        _refuse_kind(name, value, "an epoch: a whole number, a date or a label")
    return str(int(value))


def read_moment(name: str, value: object) -> str:
    """Read a moment, and return it as a person would type it."""
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    return read_words(name, value)


def read_vertex(name: str, value: object) -> str:
    """Read a vertex, and return it as a person would type it."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, Integral):
        _refuse_kind(name, value, "a vertex: a whole number or a name")
    return str(int(value))


def read_vertices(name: str, value: object) -> tuple[str, ...]:
    """Read one vertex, or several."""
    if isinstance(value, (str, bytes, Integral)) or not isinstance(value, Iterable):
        return (read_vertex(name, value),)
    return tuple(read_vertex(name, each) for each in value)


def read_edge(name: str, value: object) -> tuple[str, str]:
    ends = value if isinstance(value, Iterable) and not isinstance(value, (str, bytes)) else ()
    pair = tuple(ends)
    if len(pair) != 2:
        _refuse_kind(name, value, "an edge: its two ends")
    return read_vertex(name, pair[0]), read_vertex(name, pair[1])


READERS: dict[str, Callable[[str, object], Any]] = {
    "revision": read_number,
    "since_revision": read_number,
    "k": read_number,
    "top": read_number,
    "limit": read_number,
    "all_epochs": read_truth,
    "where": read_words,
    "sort": read_words,
    "as_of": read_epoch,
    "published_at": read_moment,
    "name": read_words,
    "first": read_epoch,
    "last": read_epoch,
    "vertex": read_vertices,
    "edge": read_edge,
}


def read_argument(name: str, value: object) -> Any:
    """Read an argument of a view; None means that it is not given."""
    return None if value is None else READERS[name](name, value)


def _refuse_kind(name: str, value: object, wanted: str) -> NoReturn:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    raise UsageError(f"{name}={shown} is not {wanted}; it has the type {type(value).__name__}.", "help(Graph)")
