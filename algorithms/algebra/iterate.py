"""Iteration: apply a body to collections until nothing changes, at all outer times together.

Law      At every outer time t the result is the fixpoint from scratch: the limit of x, body(x),
         body(body(x)), … on the contents at t. Rounds are a further, inner coordinate of time; round i holds
         the changes of step i, and leaving the scope drops the coordinate. Nothing is carried from one outer
         time to another except through the algebra of diffs, so deletions need no special care: a deleted
         edge is simply absent in the rounds of its time.
Shapes   `body` maps a collection (or a dict of them: mutual recursion) to one with the same data columns and
         times. It may be any mix of this package's operators with outside collections at the same outer times.
CAUTION  A delta query in the body must be `delta_query` (total tie-break) unless the outer time is total:
         `calculus` over a partial order loses combinations. The tests hold both claims.
Cost     EXECUTES: one job per round and collection, and one that tests whether anything changed; one round more than
         those that change something. With `exactly` n rounds nothing is tested. Every round is CACHED by
         `localCheckpoint`, so that plans do not grow with the rounds, and released when the next one is computed: at
         most two frames of a collection are held, by `rounds` some more, and only those of the result remain.
         `iterate` recomputes the body in full each round; `semi_naive` works on the round's changes only, and applies
         the step once to the whole result, to check it. All outer times iterate together: there are as many rounds as
         the slowest time needs. `round_changes` goes on from the rounds of an earlier call, and only changes go
         through the body.
Errors   `NotConverged`, naming the collections that change in more than `limit` rounds. ValueError for changed
         columns, and for a semi-naive step that shows that it is not linear.
Algebra  A group for the rounds. The body has to ensure termination: it is monotone on a finite set, or shrinks one.
Source   Seed 1 (iterative contexts), seed 5 (semi-naive, nested clocks), law 6 of the design.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import overload

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from altneu.algorithms.algebra.collection import Collection
from altneu.algorithms.algebra.incremental import Change
from altneu.algorithms.algebra.reduce import distinct
from altneu.algorithms.algebra.time_lattice import ROUND, Lattice, Product

Collections = dict[str, Collection]
LIMIT = 100
PARTS = 8  # rounds that a trace keeps apart before it merges them into one


class NotConverged(RuntimeError):
    """Raised when an iteration still changes after its last permitted round."""

    def __init__(self, names: list[str], limit: int) -> None:
        self.names, self.limit = names, limit
        super().__init__(
            f"{', '.join(names)} still changed after {limit} rounds: the body has no fixpoint (a toggle such as "
            f"x = not x has none), or it needs a larger limit=."
        )


def nested(outer: Lattice) -> Product:
    """Return the times inside iterate: the outer coordinates and the round."""
    return Product(*(outer.parts if isinstance(outer, Product) else (outer,)), ROUND)


@overload
def iterate(
    start: Collection, body: Callable[[Collection], Collection], limit: int = LIMIT, exactly: int | None = None
) -> Collection: ...
@overload
def iterate(
    start: Mapping[str, Collection],
    body: Callable[[Collections], Collections],
    limit: int = LIMIT,
    exactly: int | None = None,
) -> Collections: ...
def iterate(start, body, limit=LIMIT, exactly=None):  # type: ignore[no-untyped-def]
    """Return the fixpoint of `body` from `start`, at every outer time. A dict of collections is iterated together.

    With `exactly` n it returns the n-th application of the body, fixpoint or not (0: `start` as it is).

    Raises:
        NotConverged: the collections still change after `limit` rounds.
    """
    if isinstance(start, Collection):
        return iterate({"": start}, lambda xs: {"": body(xs[""])}, limit, exactly)[""]
    with _Pins() as pins:
        for current, _ in _iterate_rounds(start, body, limit, exactly, pins):
            pins.release_others(*current.values())
        pins.release_others(*current.values())
    return current


def rounds(
    start: Mapping[str, Collection],
    body: Callable[[Collections], Collections],
    limit: int = LIMIT,
    exactly: int | None = None,
) -> Collections:
    """Return the iteration with its inner clock: collections over (outer time, round), where round 0 is `start`."""
    traces: dict[str, list[Collection]] = {name: [] for name in start}
    with _Pins() as pins:
        for number, (current, steps) in enumerate(_iterate_rounds(start, body, limit, exactly, pins)):
            for name, step in steps.items():
                trace = traces[name]
                trace.append(pins.pin(_at_round(step, number)))
                if len(trace) > PARTS:
                    traces[name] = [pins.pin(trace[0].concat(*trace[1:]))]
            pins.release_others(*current.values(), *[part for trace in traces.values() for part in trace])
        pins.release_others(*[part for trace in traces.values() for part in trace])
    return {name: functools.reduce(Collection.concat, trace) for name, trace in traces.items()}


def _iterate_rounds(
    start: Mapping[str, Collection],
    body: Callable[[Collections], Collections],
    limit: int,
    exactly: int | None,
    pins: _Pins,
) -> Iterator[tuple[Collections, Collections]]:
    """Yield the collections after each round, first the start, and the changes of those that may have changed."""
    if exactly is not None and exactly < 0:
        raise ValueError(f"exactly must be at least 0; got {exactly}")
    current = {name: pins.pin(x.consolidate()) for name, x in start.items()}
    yield current, current
    number = 0
    while number != exactly:
        number += 1
        following = body(dict(current))
        if set(following) != set(current):
            raise ValueError(f"the body returned {sorted(following)} for {sorted(current)}")
        after = {name: pins.pin(_with_columns_of(x, following[name]).consolidate()) for name, x in current.items()}
        steps = {name: x.minus(current[name]).consolidate() for name, x in after.items()}
        if exactly is None:
            steps = {name: step for name, step in steps.items() if not step.df.isEmpty()}
            if not steps:
                return
            if number > limit:
                raise NotConverged([name or "the collection" for name in steps], limit)
        current = after
        yield current, steps


def round_changes(
    earlier: Mapping[str, Collection],
    start: Mapping[str, Collection],
    body: Callable[[dict[str, Change]], Mapping[str, Change]],
    limit: int = LIMIT,
) -> Collections:
    """Return the changes of the rounds of an earlier call: what has to be added to `earlier`, the result of `rounds`.

    `start` is the delta of the start, perhaps an empty collection. `body` is the body of the earlier call in the form
    of `incremental`: it receives each round as a Change, so that the earlier rounds, those of all outer times so far,
    are its state. Collections from outside have to be Changes as well.
    """
    traces: dict[str, list[Collection]] = {name: [] for name in start}
    with _Pins() as pins:
        last = max((_last_round(trace) for trace in earlier.values()), default=0)
        delta = {name: pins.pin(x.consolidate()) for name, x in start.items()}
        steps, number = delta, 0
        while True:
            for name, step in steps.items():
                traces[name].append(pins.pin(_at_round(step, number)))
                if len(traces[name]) > PARTS:
                    traces[name] = [pins.pin(traces[name][0].concat(*traces[name][1:]))]
            pins.release_others(*delta.values(), *[part for trace in traces.values() for part in trace])
            number += 1
            changes = body({name: Change(earlier[name].at(round=number - 1), delta[name]) for name in delta})
            after = {
                name: pins.pin(_with_columns_of(x, changes[name].delta).consolidate()) for name, x in delta.items()
            }
            steps = {name: x.minus(delta[name]).consolidate() for name, x in after.items()}
            steps = {name: step for name, step in steps.items() if not step.df.isEmpty()}
            if not steps and number > last:
                break
            if steps and number > limit:
                raise NotConverged([name or "the collection" for name in steps], limit)
            delta = after
        pins.release_others(*[part for trace in traces.values() for part in trace])
    return {name: functools.reduce(Collection.concat, trace) for name, trace in traces.items()}


def _last_round(trace: Collection) -> int:
    row = trace.df.agg(F.max("round")).first()
    return int(row[0] or 0) if row else 0


def semi_naive(start: Collection, step: Callable[[Collection], Collection], limit: int = LIMIT) -> Collection:
    """Return the least fixpoint of X = distinct(start + step(X)), by the changes of each round alone; `step` must be
    LINEAR.

    Map, filter and join with outside collections are linear in X. A distinct, a join of X with itself, and the addition
    of a collection are not, and belong in `iterate`. At the end the sum of the rounds is compared with `step` of the
    whole result. `distinct` is redone only for the records that the round's changes touch. Diffs stay signed over
    outer times, so deletions at later epochs are exact.

    Raises:
        ValueError: the step has turned out not to be linear.
        NotConverged: the result still changes after `limit` rounds.
    """
    with _Pins() as pins:
        begin = total = pins.pin(start.consolidate())
        result = change = pins.pin(distinct(total).consolidate())
        number = 0
        while True:
            number += 1
            more = pins.pin(step(change).consolidate())
            touched = more.df.select(*more.data).distinct()
            grown = total.concat(more)
            before, after = _with_records(result, touched), _with_records(grown, touched)
            change = pins.pin(distinct(after).minus(before).consolidate())
            total = pins.pin(grown.consolidate())
            if change.df.isEmpty():
                break
            if number > limit:
                raise NotConverged(["the collection"], limit)
            result = pins.pin(result.concat(change).consolidate())
            pins.release_others(begin, total, change, result)
        if not total.minus(begin).minus(step(result)).consolidate().df.isEmpty():
            raise ValueError(
                "the step is not linear: step(the whole result) is not the sum of step(the changes of each round). "
                "Use iterate(), which takes any body."
            )
        pins.release_others(result)
    return result


class _Pins:
    """Collections that are computed and cached, with their plans cut, until they are released.

    An exception within the `with` block releases all of them.
    """

    def __init__(self) -> None:
        self.frames: list[DataFrame] = []

    def pin(self, collection: Collection) -> Collection:
        """Compute the collection now, by an eager local checkpoint (cached blocks, no recovery)."""
        frame = collection.df.localCheckpoint(eager=True)
        self.frames.append(frame)
        return replace(collection, df=frame)

    def release_others(self, *kept: Collection) -> None:
        """Release all collections but these."""
        frames = [x.df for x in kept]
        for frame in self.frames:
            if not any(frame is other for other in frames):
                _drop_cached(frame)
        self.frames = [frame for frame in self.frames if any(frame is other for other in frames)]

    def __enter__(self) -> _Pins:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.release_others()


def _drop_cached(frame: DataFrame) -> None:
    """Drop the cached blocks of a local checkpoint.

    With Spark Connect the server drops them when nothing refers to the frame.
    """
    if hasattr(frame, "_jdf"):
        frame._jdf.queryExecution().logical().rdd().unpersist(False)


def _at_round(collection: Collection, number: int) -> Collection:
    return collection.enter(nested(collection.time)).delay({"round": F.lit(number)})


def _with_columns_of(first: Collection, other: Collection) -> Collection:
    """Return the other collection with its columns in the order of the first.

    Raises:
        ValueError: the columns are not the same.
    """
    first.concat(other)
    return replace(other, df=other.df.select(*first.df.columns))


def _with_records(collection: Collection, records: DataFrame) -> Collection:
    """Return the triples whose record is among `records` (null equals null)."""
    away = records.select([F.col(c).alias(f"_k_{c}") for c in records.columns])
    same = [F.col(c).eqNullSafe(F.col(f"_k_{c}")) for c in records.columns]
    return replace(collection, df=collection.df.join(away, functools.reduce(Column.__and__, same), "left_semi"))
