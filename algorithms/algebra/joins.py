"""Joins of collections: bilinear join, semijoin, antijoin.

Law      join(R, S) has `(r s, t ∨ u, d * e)` for every `(r, t, d)` of R and `(s, u, e)` of S that agree on
         `on`; hence d(R⋈S) = dR⋈S + R⋈dS + dR⋈dS. semijoin keeps the records of R whose key is in S, antijoin
         those whose key is not in S.
Shapes   `on` defaults to the data columns that both sides have (a natural join). Other columns must differ:
         use `rename`. Output data: `on`, the rest of R, the rest of S. A null key matches nothing, as in SQL.
Cost     One Spark equi-join, so at most one shuffle of each side; the output is every matching pair of triples,
         before consolidation. semijoin adds one `distinct` of S, if S is not declared a set; antijoin adds one
         union.
Errors   ValueError for lattices that differ, for no common columns, and for names that both sides use.
Algebra  join: a semiring. semijoin: a semiring and the order that `distinct` needs. antijoin: a ring.
Source   Seeds 1 and 5 (bilinear delta join); law 6 of the design.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from operator import and_

from pyspark.sql import functions as F

from altneu.algorithms.algebra import linear
from altneu.algorithms.algebra.collection import DIFF, Collection, common_since
from altneu.algorithms.algebra.reduce import distinct


def join(left: Collection, right: Collection, on: Sequence[str] | None = None) -> Collection:
    """Return the equijoin of two collections at the same lattice of times."""
    keys = _key_columns(left, right, on)
    clash = [c for c in left.data if c in right.data and c not in keys]
    if clash:
        raise ValueError(f"both sides have data columns {clash}, and the join is on {keys}: rename them first")
    away = right.df.withColumnsRenamed({c: f"_r_{c}" for c in (*keys, *right.time.columns, DIFF)})
    both = left.df.join(away, functools.reduce(and_, [F.col(c) == F.col(f"_r_{c}") for c in keys]))
    names = left.time.columns
    later = left.time.join_columns([F.col(c) for c in names], [F.col(f"_r_{c}") for c in names])
    rest = [c for c in (*left.data, *right.data) if c not in keys]
    times = [t.alias(c) for c, t in zip(names, later, strict=True)]
    diff = (F.col(DIFF) * F.col(f"_r_{DIFF}")).alias(DIFF)
    return Collection(both.select(*keys, *rest, *times, diff), left.time, common_since(left, right))


def semijoin(
    left: Collection, right: Collection, on: Sequence[str] | None = None, *, right_is_set: bool = False
) -> Collection:
    """Return the records of `left` whose key is present in `right`, with the multiplicity they have in `left`.

    With `right_is_set` the caller promises that `right` holds each key at most once at every time (0 or 1): then no
    `distinct` is planned. This is not checked; if it is not true, multiplicities multiply.
    """
    keys = _key_columns(left, right, on)
    present = linear.map(right, **{c: F.col(c) for c in keys})
    return join(left, present if right_is_set else distinct(present), keys)


def antijoin(
    left: Collection, right: Collection, on: Sequence[str] | None = None, *, right_is_set: bool = False
) -> Collection:
    """Return the records of `left` whose key is not in `right`: left minus the semijoin."""
    return left.minus(semijoin(left, right, on, right_is_set=right_is_set))


def _key_columns(left: Collection, right: Collection, on: Sequence[str] | None) -> list[str]:
    if left.time.columns != right.time.columns:
        raise ValueError(f"the times differ: {left.time.columns} and {right.time.columns}; enter the same scope")
    keys = [c for c in left.data if c in right.data] if on is None else list(on)
    lost = [c for c in keys if c not in left.data or c not in right.data]
    if lost or not keys:
        raise ValueError(f"cannot join on {lost or 'no columns'}: the sides have data {left.data} and {right.data}")
    return keys
