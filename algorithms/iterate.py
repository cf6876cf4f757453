"""iterate: apply a body to collections until nothing changes, at all outer times together.

Law      At every outer time t the result is the fixpoint from scratch: the limit of x, body(x),
         body(body(x)), … on the contents at t. Rounds are a further, inner coordinate of time; round i holds
         the changes of step i, and leaving the scope drops the coordinate. Nothing is carried from one outer
         time to another except through the algebra of diffs, so deletions need no special care: a deleted
         edge is simply absent in the rounds of its time.
Shapes   `body` maps a collection (or a dict of them: mutual recursion) to one with the same data columns and
         times. It may be any mix of this package's operators with outside collections at the same outer
         times.
CAUTION  A delta query in the body must be `delta_query` (total tie-break) unless the outer time is total:
         `calculus` over a partial order loses combinations. The tests hold both claims.
Cost     EXECUTES: one job per round and collection, and a look whether anything changed; one round more than those
         that change something. Every round is CACHED by `localCheckpoint`, so that plans do not grow with the rounds;
         blocks go when their frames are collected as garbage. `iterate` recomputes the body in full each round;
         `semi_naive` works on the round's changes only, and applies the step once to the whole result, to check it. All
         outer times go round together: rounds = the slowest time's rounds. It does not reuse an earlier run.
Errors   `NotConverged`, naming the collections that change in more than `limit` rounds. ValueError for changed
         columns, and for a semi-naive step that shows that it is not linear.
Algebra  A group for the rounds. Termination is the body's affair: monotone on a finite set, or a shrinking
         one.
Source   Seed 1 (iterative contexts), seed 5 (semi-naive, nested clocks), law 6 of the design.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce as fold
from typing import overload

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from algorithms.collection import Collection
from algorithms.reduce import distinct
from algorithms.times import ROUND, Lattice, Product

Collections = dict[str, Collection]
LIMIT = 100


class NotConverged(RuntimeError):
    """An iteration was still changing after its last permitted round."""

    def __init__(self, names: list[str], limit: int) -> None:
        self.names, self.limit = names, limit
        super().__init__(
            f"{', '.join(names)} still changed after {limit} rounds: the body has no fixpoint (a toggle such as "
            f"x = not x has none), or it needs a larger limit=."
        )


def nested(outer: Lattice) -> Product:
    """Times inside iterate: the outer coordinates and the round."""
    return Product(*(outer.parts if isinstance(outer, Product) else (outer,)), ROUND)


@overload
def iterate(start: Collection, body: Callable[[Collection], Collection], limit: int = LIMIT) -> Collection: ...
@overload
def iterate(
    start: Mapping[str, Collection], body: Callable[[Collections], Collections], limit: int = LIMIT
) -> Collections: ...
def iterate(start, body, limit=LIMIT):  # type: ignore[no-untyped-def]
    """The fixpoint of `body` from `start`, at every outer time. A dict of collections iterates them
    together."""
    if isinstance(start, Collection):
        return iterate({"": start}, lambda xs: {"": body(xs[""])}, limit)[""]
    return {name: trace.leave(start[name].time) for name, trace in rounds(start, body, limit).items()}


def rounds(
    start: Mapping[str, Collection], body: Callable[[Collections], Collections], limit: int = LIMIT
) -> Collections:
    """The iteration with its inner clock: collections over (outer time, round), round 0 being `start`."""
    current = {name: pinned(x.consolidate()) for name, x in start.items()}
    trace = {name: [_at_round(x, 0)] for name, x in current.items()}
    number = 0
    while True:
        number += 1
        following = body(dict(current))
        if set(following) != set(current):
            raise ValueError(f"the body returned {sorted(following)} for {sorted(current)}")
        steps = {name: pinned(following[name].minus(x).consolidate()) for name, x in current.items()}
        changed = [name for name, step in steps.items() if not step.df.isEmpty()]
        if not changed:
            return {name: fold(Collection.concat, parts) for name, parts in trace.items()}
        if number > limit:
            raise NotConverged([name or "the collection" for name in changed], limit)
        for name in changed:
            trace[name].append(_at_round(steps[name], number))
            current[name] = pinned(current[name].concat(steps[name]).consolidate())


def semi_naive(start: Collection, step: Callable[[Collection], Collection], limit: int = LIMIT) -> Collection:
    """The least fixpoint of X = distinct(start + step(X)), by the changes of each round alone; `step` must be LINEAR.

    Linear in X are map, filter, join with outside collections; a distinct, a join of X with itself, a collection
    added are not, and belong in `iterate`. That what the rounds added up is `step` of the whole result is checked at
    the end: ValueError. `distinct` is redone only for the records that the round's changes touch. Diffs stay signed
    over outer times, so deletions at later epochs are exact.
    """
    begin = total = pinned(start.consolidate())
    result = change = pinned(distinct(total).consolidate())
    number = 0
    while True:
        number += 1
        more = pinned(step(change).consolidate())
        touched = more.df.select(*more.data).distinct()
        grown = total.concat(more)
        before, after = _only(result, touched), _only(grown, touched)
        change = pinned(distinct(after).minus(before).consolidate())
        total = pinned(grown.consolidate())
        if change.df.isEmpty():
            break
        if number > limit:
            raise NotConverged(["the collection"], limit)
        result = pinned(result.concat(change).consolidate())
    if not total.minus(begin).minus(step(result)).consolidate().df.isEmpty():
        raise ValueError(
            "the step is not linear: of the whole result it is not the sum of what it was of the rounds' changes. "
            "Use iterate(), which takes any body."
        )
    return result


def pinned(collection: Collection) -> Collection:
    """Compute the collection now and cut its plan: an eager local checkpoint (cached blocks, no recovery)."""
    return replace(collection, df=collection.df.localCheckpoint(eager=True))


def _at_round(collection: Collection, number: int) -> Collection:
    return collection.enter(nested(collection.time)).delay({"round": F.lit(number)})


def _only(collection: Collection, records: DataFrame) -> Collection:
    """The triples whose record is among `records` (null equals null)."""
    away = records.select([F.col(c).alias(f"_k_{c}") for c in records.columns])
    same = [F.col(c).eqNullSafe(F.col(f"_k_{c}")) for c in records.columns]
    return replace(collection, df=collection.df.join(away, fold(Column.__and__, same), "left_semi"))
