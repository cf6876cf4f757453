"""Operators that carry their state from run to run: from the state before and a delta they compute the delta of the
result.

Law      With `op` the operator of the same name, each function here returns the Change from op(before) to
         op(before + delta), at every time. A delta may have any times: late epochs, replaced ones, and times that
         `before` has already.
State    The input itself is the state: `before`, and for the next run `after`, an append. So results can be inputs: the
         result of a chain of operators is a Change again, whose `before` is a plan that nothing computes unless it is
         used. A stored collection takes its place: `Change(stored, result.delta)`.
Shapes   A `Change` is a collection in two parts. The triples of a result's delta are not consolidated.
Cost     One scan of `before` finds the history of the delta's keys: with `broadcast` the keys (for `join` the deltas)
         must fit into an executor's memory, and stored rows are not exchanged. Then the cost is that of the operator on
         this history. With `whole` all of `before` is used instead: for few rows, where a join costs more than they do.
Errors   Those of the operator, and ValueError for parts that do not fit together.
Source   Seed 1 (operators respond with the diffs of their recomputation), seed 5 (incremental forms); law 6.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from operator import and_
from typing import Literal

from pyspark.sql import Column
from pyspark.sql import functions as F

import altneu.algorithms.algebra.reduce
from altneu.algorithms.algebra import delta_query, joins
from altneu.algorithms.algebra.collection import DIFF, Collection
from altneu.algorithms.algebra.query import Query


class Change:
    """A collection in two parts: its state before, or a function that makes it, and the delta that is added."""

    def __init__(self, before: Collection | Callable[[], Collection], delta: Collection) -> None:
        self._before, self.delta = before, delta

    @cached_property
    def before(self) -> Collection:
        return self._before if isinstance(self._before, Collection) else self._before()

    @property
    def after(self) -> Collection:
        """Return both parts together: the state for the next change."""
        return self.before.concat(self.delta)

    def through(self, linear: Callable[[Collection], Collection]) -> Change:
        """Return the change of a linear operator's result."""
        return Change(lambda: linear(self.before), linear(self.delta))

    def concat(self, *others: Change) -> Change:
        """Return the change of a sum."""
        befores = lambda: self.before.concat(*[other.before for other in others])  # noqa: E731
        return Change(befores, self.delta.concat(*[other.delta for other in others]))


def reduce(
    change: Change,
    key: Sequence[str],
    aggregates: Mapping[str, Column],
    rows: Literal["positive", "nonzero"] = "positive",
    *,
    broadcast: bool = False,
    whole: bool = False,
) -> Change:
    """Return the change of the result of `reduce`."""
    return _reduce_again(
        change,
        key,
        lambda c, by: altneu.algorithms.algebra.reduce.reduce(c, by, aggregates, rows),
        broadcast=broadcast,
        whole=whole,
    )


def count(
    change: Change, key: Sequence[str], name: str = "count", *, broadcast: bool = False, whole: bool = False
) -> Change:
    """Return the change of the result of `count`."""
    return _reduce_again(
        change, key, lambda c, by: altneu.algorithms.algebra.reduce.count(c, by, name), broadcast=broadcast, whole=whole
    )


def running_sums(
    change: Change, key: Sequence[str], sums: Mapping[str, Column], *, broadcast: bool = False, whole: bool = False
) -> Change:
    """Return the change of the result of `running_sums`."""
    return _reduce_again(
        change,
        key,
        lambda c, by: altneu.algorithms.algebra.reduce.running_sums(c, by, sums),
        broadcast=broadcast,
        whole=whole,
    )


def top(
    change: Change,
    key: Sequence[str],
    order: Sequence[str],
    descending: Sequence[str],
    most: int,
    *,
    broadcast: bool = False,
    whole: bool = False,
) -> Change:
    """Return the change of the result of `top`."""
    return _reduce_again(
        change,
        key,
        lambda c, by: altneu.algorithms.algebra.reduce.top(c, by, order, descending, most),
        broadcast=broadcast,
        whole=whole,
    )


def threshold(
    change: Change, function: Callable[[Column], Column], *, broadcast: bool = False, whole: bool = False
) -> Change:
    """Return the change of the result of `threshold`."""
    return _reduce_again(
        change,
        change.delta.data,
        lambda c, _: altneu.algorithms.algebra.reduce.threshold(c, function),
        broadcast=broadcast,
        whole=whole,
    )


def distinct(change: Change, *, broadcast: bool = False, whole: bool = False) -> Change:
    """Return the change of the result of `distinct`."""
    return _reduce_again(
        change,
        change.delta.data,
        lambda c, _: altneu.algorithms.algebra.reduce.distinct(c),
        broadcast=broadcast,
        whole=whole,
    )


def join(left: Change, right: Change, on: Sequence[str] | None = None, *, broadcast: bool = False) -> Change:
    """Return the change of the result of `join`: dR ⋈ S + R ⋈ dS + dR ⋈ dS."""
    came, other = (replace(c.delta, df=F.broadcast(c.delta.df)) if broadcast else c.delta for c in (left, right))
    new = joins.join(came, right.before, on).concat(joins.join(left.before, other, on))
    return Change(lambda: joins.join(left.before, right.before, on), new.concat(joins.join(left.delta, other, on)))


def query(
    query: Query, changes: Mapping[str, Change], fanout: Mapping[str, float] | None = None, *, broadcast: bool = False
) -> Change:
    """Return the change of the result of a delta query; the rules start from the deltas alone."""
    before = {name: change.before for name, change in changes.items()}
    delta = {name: change.delta for name, change in changes.items()}
    new = delta_query.query_changes(query, before, delta, fanout, broadcast)
    return Change(lambda: delta_query.delta_query(query, before, fanout=fanout), new)


def _reduce_again(
    change: Change,
    key: Sequence[str],
    operator: Callable[[Collection, list[str]], Collection],
    *,
    broadcast: bool,
    whole: bool,
) -> Change:
    """Apply the operator to the history of the delta's keys, with the delta and without it, and return the difference.

    Both are one pass: a column of the key distinguishes them.
    """
    after = change.after
    names = {c.lower() for c in after.df.columns}
    version = next(name for i in range(len(names) + 1) if (name := f"version{i}") not in names)
    signs = F.explode(F.array(F.lit(-1), F.lit(1))).alias(version)
    columns = change.delta.df.columns
    history = change.before if whole else _history_of_keys(change, key, broadcast=broadcast)
    old = history.df.select(*columns, signs)
    both = old.unionByName(change.delta.df.select(*columns, F.lit(1).alias(version)))
    result = operator(replace(after, df=both), [version, *key])
    delta = replace(result, df=result.df.withColumn(DIFF, F.col(DIFF) * F.col(version)).drop(version))
    return Change(lambda: operator(change.before, list(key)), delta)


def _history_of_keys(change: Change, key: Sequence[str], *, broadcast: bool) -> Collection:
    """Return the rows of `before` that have keys of the delta (null equals null)."""
    if not key:
        return change.before
    away = change.delta.df.select([F.col(c).alias(f"_k_{c}") for c in key]).distinct()
    same = functools.reduce(and_, [F.col(c).eqNullSafe(F.col(f"_k_{c}")) for c in key])
    history = change.before.df.join(F.broadcast(away) if broadcast else away, same, "left_semi")
    return replace(change.before, df=history)
