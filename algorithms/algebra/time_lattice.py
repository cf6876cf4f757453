"""Lattices of times with integer coordinates, with one form for Python and one for Spark columns.

Law      A lattice orders times partially (`less_equal`); `join` is the least upper bound, `meet` the greatest
         lower bound, `minimum` is below everything. A collection's contents at `t` are the sum of its diffs
         at times <= t.
Shapes   In Python a time is a tuple of ints, one per name in `columns`. In Spark it is one bigint column per
         name; the `…_columns` methods take and return sequences of `Column`, so that Spark orders and joins
         times itself.
Kinds    `Total(name)` (epoch, revision, round), `Product(a, b, …)` (coordinate by coordinate), and
         `Lexicographic(inner, name, top)`: (T, index) where the index decides only between equal T.
         `AltNeu(inner)` is Lexicographic with two moments, alt = 0 < neu = 1. `Interval(start, end)` has the
         intervals of validity `[start, end)`, of which some pairs have no time in common: `is_possible`.
Cost     Constant per comparison. Time coordinates must not be null (`greatest` would skip a null).
Errors   ValueError when a tuple has the wrong number of coordinates or two parts share a column name.
Source   Seed 1 (AltNeu), seed 4 (lexicographic (T, relation index)), design §2.

Any lexicographic arrangement of the columns of a Product extends its order, and so do the columns of
Lexicographic taken in their given order: delta queries break ties with such a total order.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from operator import and_
from typing import Protocol, TypeVar

from pyspark.sql import Column
from pyspark.sql import functions as F

FOREVER = 9223372036854775807
"""The open end of an interval `[from, until)`: the greatest bigint, which is therefore not a time itself."""
LEAST = -FOREVER - 1
"""The least bigint: below every time that a column can hold."""

Time = tuple[int, ...]
Columns = Sequence[Column]
Cut = TypeVar("Cut", Time, Columns)


class Lattice(Protocol):
    """A lattice of times. `columns` names its coordinates; the column forms mirror the Python forms."""

    @property
    def columns(self) -> tuple[str, ...]: ...
    def minimum(self) -> Time: ...
    def less_equal(self, a: Time, b: Time) -> bool: ...
    def join(self, a: Time, b: Time) -> Time: ...
    def meet(self, a: Time, b: Time) -> Time: ...
    def less_equal_columns(self, a: Columns, b: Columns) -> Column: ...
    def join_columns(self, a: Columns, b: Columns) -> list[Column]: ...
    def meet_columns(self, a: Columns, b: Columns) -> list[Column]: ...


@dataclass(frozen=True)
class Total:
    """Integers >= `least` (by default all bigints) in their usual order, held in one column.

    >>> Total("epoch").join((3,), (5,))
    (5,)
    """

    name: str
    least: int = LEAST

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    def minimum(self) -> Time:
        return (self.least,)

    def less_equal(self, a: Time, b: Time) -> bool:
        return a[0] <= b[0]

    def join(self, a: Time, b: Time) -> Time:
        return (max(a[0], b[0]),)

    def meet(self, a: Time, b: Time) -> Time:
        return (min(a[0], b[0]),)

    def less_equal_columns(self, a: Columns, b: Columns) -> Column:
        return a[0] <= b[0]

    def join_columns(self, a: Columns, b: Columns) -> list[Column]:
        return [F.greatest(a[0], b[0])]

    def meet_columns(self, a: Columns, b: Columns) -> list[Column]:
        return [F.least(a[0], b[0])]


@dataclass(frozen=True, init=False)
class Product:
    """Times with several coordinates, ordered coordinate by coordinate.

    >>> both = Product(Total("epoch"), Total("revision"))
    >>> both.less_equal((1, 9), (2, 3)), both.join((1, 9), (2, 3)), both.meet((1, 9), (2, 3))
    (False, (2, 9), (1, 3))
    """

    parts: tuple[Lattice, ...]

    def __init__(self, *parts: Lattice) -> None:
        object.__setattr__(self, "parts", parts)
        names = self.columns
        if len(set(names)) < len(names):
            raise ValueError(f"the parts of a product must not share a time column: {', '.join(names)}")

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for part in self.parts for name in part.columns)

    def split(self, time: Cut) -> list[Cut]:
        """Split a time of the product into the times of its parts."""
        if len(time) != len(self.columns):
            raise ValueError(f"a time of this product has the coordinates {self.columns}, got {len(time)} of them")
        cuts, start = [], 0
        for part in self.parts:
            cuts.append(time[start : start + len(part.columns)])
            start += len(part.columns)
        return cuts

    def minimum(self) -> Time:
        return tuple(x for part in self.parts for x in part.minimum())

    def less_equal(self, a: Time, b: Time) -> bool:
        cut = zip(self.parts, self.split(a), self.split(b), strict=True)
        return all(part.less_equal(x, y) for part, x, y in cut)

    def join(self, a: Time, b: Time) -> Time:
        cut = zip(self.parts, self.split(a), self.split(b), strict=True)
        return tuple(z for part, x, y in cut for z in part.join(x, y))

    def meet(self, a: Time, b: Time) -> Time:
        cut = zip(self.parts, self.split(a), self.split(b), strict=True)
        return tuple(z for part, x, y in cut for z in part.meet(x, y))

    def less_equal_columns(self, a: Columns, b: Columns) -> Column:
        cut = zip(self.parts, self.split(a), self.split(b), strict=True)
        return functools.reduce(and_, [part.less_equal_columns(x, y) for part, x, y in cut])

    def join_columns(self, a: Columns, b: Columns) -> list[Column]:
        cut = zip(self.parts, self.split(a), self.split(b), strict=True)
        return [z for part, x, y in cut for z in part.join_columns(x, y)]

    def meet_columns(self, a: Columns, b: Columns) -> list[Column]:
        cut = zip(self.parts, self.split(a), self.split(b), strict=True)
        return [z for part, x, y in cut for z in part.meet_columns(x, y)]


@dataclass(frozen=True)
class Lexicographic:
    """Pairs (T, index), 0 <= index <= top: T decides, the index decides between equal T only.

    (a1, b1) <= (a2, b2) when a1 < a2, or a1 == a2 and b1 <= b2. T may be partial. The join of incomparable
    times has the least index, because every index at the joined T is already above both; the meet dually has
    the greatest.

    >>> t = Lexicographic(Product(Total("epoch"), Total("revision")), "relation", top=2)
    >>> t.join((1, 5, 2), (3, 4, 1)), t.meet((1, 5, 2), (3, 4, 1)), t.join((1, 4, 2), (3, 4, 1))
    ((3, 5, 0), (1, 4, 2), (3, 4, 1))
    """

    inner: Lattice
    name: str
    top: int = 1

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.inner.columns, self.name)

    def minimum(self) -> Time:
        return (*self.inner.minimum(), 0)

    def less_equal(self, a: Time, b: Time) -> bool:
        return a[-1] <= b[-1] if a[:-1] == b[:-1] else self.inner.less_equal(a[:-1], b[:-1])

    def join(self, a: Time, b: Time) -> Time:
        time = self.inner.join(a[:-1], b[:-1])
        return (*time, max([x[-1] for x in (a, b) if x[:-1] == time], default=0))

    def meet(self, a: Time, b: Time) -> Time:
        time = self.inner.meet(a[:-1], b[:-1])
        return (*time, min([x[-1] for x in (a, b) if x[:-1] == time], default=self.top))

    def less_equal_columns(self, a: Columns, b: Columns) -> Column:
        inside = self.inner.less_equal_columns(a[:-1], b[:-1])
        return F.when(is_same_time(a[:-1], b[:-1]), a[-1] <= b[-1]).otherwise(inside)

    def join_columns(self, a: Columns, b: Columns) -> list[Column]:
        time = self.inner.join_columns(a[:-1], b[:-1])
        seen = [F.when(is_same_time(x[:-1], time), x[-1]).otherwise(F.lit(0).cast("bigint")) for x in (a, b)]
        return [*time, F.greatest(*seen)]

    def meet_columns(self, a: Columns, b: Columns) -> list[Column]:
        time = self.inner.meet_columns(a[:-1], b[:-1])
        seen = [F.when(is_same_time(x[:-1], time), x[-1]).otherwise(F.lit(self.top).cast("bigint")) for x in (a, b)]
        return [*time, F.least(*seen)]


def AltNeu(inner: Lattice, name: str = "neu") -> Lexicographic:
    """Return the lattice of two moments at every time of `inner`: alt (0) just before neu (1), compared by time
    otherwise.

    >>> t = AltNeu(Total("epoch"))
    >>> t.less_equal((4, 1), (4, 0)), t.less_equal((4, 1), (5, 0))
    (False, True)
    """
    return Lexicographic(inner, name, top=1)


@dataclass(frozen=True)
class Interval:
    """Intervals of validity `[start, end)` as times: the join of two is the interval in which both hold.

    A collection over them has at epoch t the sum of the diffs of the intervals that contain t. A diff triple
    `(epoch, diff)` is the interval `[epoch, FOREVER)`; `Collection.from_intervals` returns the triples of intervals.

    >>> Interval("epoch", "until").join((3, 9), (5, 12))
    (5, 9)
    """

    start: str
    end: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.start, self.end)

    def minimum(self) -> Time:
        return (LEAST, FOREVER)

    def less_equal(self, a: Time, b: Time) -> bool:
        return a[0] <= b[0] and b[1] <= a[1]

    def join(self, a: Time, b: Time) -> Time:
        return (max(a[0], b[0]), min(a[1], b[1]))

    def meet(self, a: Time, b: Time) -> Time:
        return (min(a[0], b[0]), max(a[1], b[1]))

    def less_equal_columns(self, a: Columns, b: Columns) -> Column:
        return (a[0] <= b[0]) & (b[1] <= a[1])

    def join_columns(self, a: Columns, b: Columns) -> list[Column]:
        return [F.greatest(a[0], b[0]), F.least(a[1], b[1])]

    def meet_columns(self, a: Columns, b: Columns) -> list[Column]:
        return [F.least(a[0], b[0]), F.greatest(a[1], b[1])]


EPOCH = Total("epoch")
VALIDITY = Interval("epoch", "until")
REVISION = Total("revision", 0)
ROUND = Total("round", 0)
EPOCH_REVISION = Product(EPOCH, REVISION)
"""altneu's time: the product of valid time and order of publication."""


def lexicographic_parts(time: Lattice) -> list[Lexicographic]:
    """Return the lexicographic parts of a lattice, the inner ones first."""
    if isinstance(time, Product):
        return [index for part in time.parts for index in lexicographic_parts(part)]
    return [*lexicographic_parts(time.inner), time] if isinstance(time, Lexicographic) else []


def is_possible(lattice: Lattice, time: Columns) -> Column | None:
    """Tell whether a joined time exists: an interval is not empty. Return None where every time does."""
    return time[0] < time[1] if isinstance(lattice, Interval) else None


def time_columns(lattice: Lattice) -> list[Column]:
    """Return the columns that hold a time."""
    return [F.col(name) for name in lattice.columns]


def literal_time(lattice: Lattice, time: Time) -> list[Column]:
    """Return a constant time as bigint columns."""
    if len(time) != len(lattice.columns):
        raise ValueError(f"a time of this lattice has the coordinates {lattice.columns}, got {time}")
    return [F.lit(x).cast("bigint") for x in time]


def require_finite(time: str) -> str:
    """Return the SQL of a time; the job fails with a message if it is null or `FOREVER`: no interval begins there."""
    message = f"'an epoch is an integer below {FOREVER}, got ', coalesce(CAST({time} AS STRING), 'null')"
    return f"CASE WHEN {time} < {FOREVER}L THEN {time} ELSE raise_error(concat({message})) END"


def is_same_time(a: Columns, b: Columns) -> Column:
    """Tell whether two times have the same coordinates."""
    return functools.reduce(and_, [x == y for x, y in zip(a, b, strict=True)])
