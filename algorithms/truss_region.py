"""The trussness of every edge by the region that a change reaches: a task holds that and no more, whatever the graph.

Law      As `truss.trussness_changes`: at every epoch of the window the result equals a full peel there.
Method   The state is every edge with kappa = trussness - 2 and its certificate (`kernels/maintain`), at one epoch. A
         task maintains the trussness on the part of it that it knows (`kernels/region`), at first the edges that come
         and go, and names the edges whose triangles it lacks. Those are looked up, of each at the end with fewer
         neighbours, and the task begins again from the stored values, until it lacks nothing.
Shapes   Edges: a < b. State: a, b, level, label, own, backing. Moved: a, b, epoch, until, diff, fresh: the signed
         intervals that begin or end within the window, or between it and the epoch of the state; `fresh`: those that
         the state has not seen. Trussness: triples a, b, k, epoch, diff.
Cost     EXECUTES. The state is read once and kept by the executors; then two jobs a hop, some ten hops, each of which
         passes over it three times and shuffles what it finds. A task has about 350 bytes for an edge of the region.
Errors   `Unfit` when the state is not that of the stored trussness, or is proved wrong, or the region has more edges
         than a task may hold. ValueError, in the task, when state and edges contradict each other.
Source   reference/truss/region of the design.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from algorithms.configured import configured
from algorithms.fingerprint import Fingerprint, lanes, of_row, sums
from algorithms.kept import INTERVAL, in_task, of_kind, taken
from algorithms.kernels.graph import distinct, places
from algorithms.kernels.intervals import Longs
from algorithms.kernels.levels import UNASKED
from algorithms.kernels.region import Asks, Known, Solved, solve
from algorithms.kernels.replay import moves
from algorithms.kernels.warm import Certificate
from algorithms.parts import EDGE, FIXED, Rounds
from algorithms.truss import PROOF
from algorithms.truss_parts import net

VALUES = [*Certificate._fields]
# What a task is given, and gives back: rows of several kinds, with their numbers in the same columns.
NUMBERS = ["a", "b", "c", "d", "e", "f"]
GIVEN = ["kind", *NUMBERS]
MADE = "kind bigint, a bigint, b bigint, c bigint, d bigint, e bigint, f bigint, epoch bigint, diff bigint, note string"
VALUE, ASKED, MOVED, DEGREE, CHANGED, NOTE, PROVED, SIZE = range(8)

Say = Callable[[str], None]


class Unfit(Exception):
    """There is nothing by region: why, for a person."""


@dataclass(frozen=True)
class State:
    """rows: of the state with a diff, to be summed; at: their epoch; ends: the labels at which what comes to the front
    and to the back is put."""

    rows: DataFrame
    at: int
    ends: tuple[int, int]


@dataclass(frozen=True)
class Region:
    """changes: as of `truss.trussness_changes`, with its notes and a proof; state: by how much that changes; ends: its
    new ones; hops, edges: how often edges were looked up, and how many the task knew at last."""

    changes: DataFrame
    state: DataFrame
    ends: tuple[int, int]
    hops: int
    edges: int


@contextmanager
def trussness_changes(
    state: State,
    moved: DataFrame,
    trussness: DataFrame,
    degrees: DataFrame,
    first: int,
    last: int,
    most: int,
    known: Fingerprint,
    rounds: Rounds,
    say: Say = lambda text: None,
) -> Iterator[Region]:
    """Difference between the trussness over epochs `first`..`last` and the stored one there; see the head of this file.

    `trussness`: the stored triples from `first` on; `degrees`: vertex, degree, as of the state's epoch; `most`: edges
    that the task may hold; `known`: the fingerprint of the trussness at the state's epoch; `rounds`: where what is
    looked up lies. The frames of the result are to be read within.
    """
    spark, cached, kept = moved.sparkSession, list[DataFrame](), list[DataFrame]()

    def keep(frame: DataFrame) -> DataFrame:
        cached.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return cached[-1]

    with configured(spark, FIXED):
        try:
            moved = keep(moved.select(*INTERVAL, "fresh"))
            seeds = keep(moved.select(*EDGE).distinct())
            graph, near = keep(_whole(state.rows, seeds)), keep(degrees.select("vertex", "degree"))
            if _fingerprint(graph) != known:
                raise Unfit("the state that the run before has left is not that of the stored trussness")
            there = _values(graph.where("moves AND level >= 0"))
            changes = of_kind(moved, GIVEN, MOVED, *INTERVAL, "fresh")
            given = [keep(there.unionByName(changes).unionByName(_degrees(near, seeds)))]
            task = in_task(partial(_solved, first, last, state.at, state.ends))
            hops, counted = 0, 0
            while True:
                found = keep(reduce(DataFrame.unionByName, given).repartition(1).mapInArrow(task, MADE))
                greatest = (F.max(name).alias(name) for name in NUMBERS[:4])  # of a kind with one row, that row
                of_kinds = found.groupBy("kind").agg(F.count("*").alias("rows"), *greatest)
                kinds = {row.kind: row for row in of_kinds.collect()}
                ended = kinds.get(SIZE)
                counted = 0 if ended is None else ended.a
                if counted > most:
                    raise Unfit(f"the region has more than the {most:,} edges that a task may hold")
                if ASKED not in kinds:
                    break
                hops += 1
                say(f"hop {hops}: {counted:,} edges are known; looking up the triangles of {kinds[ASKED].rows:,}")
                # By way of the driver: a plan that named the plans of all hops before it would double with each.
                asked = spark.createDataFrame(found.where(F.col("kind") == ASKED).select(*GIVEN).toArrow())
                triangles = rounds.keep(_looked_up(graph, near, asked.select(*EDGE, F.col("c").alias("least"))))
                kept.append(triangles)
                given += [_values(triangles), asked]
            if ended is not None and ended.d:
                raise Unfit(f"by its proof {ended.d:,} edges of the state that the run before has left are wrong")
            ends = state.ends if ended is None else (ended.b, ended.c)
            yield _region(found, trussness.where(F.col("epoch").between(first, last)), ends, hops, counted)
        finally:
            for frame in cached:
                frame.unpersist()
            for frame in kept:
                rounds.forget(frame)


def summed(rows: DataFrame) -> DataFrame:
    """Every edge of a state once."""
    return rows.groupBy(*EDGE, *VALUES).agg(F.sum("diff").alias("diff")).where("diff <> 0")


def _whole(rows: DataFrame, seeds: DataFrame) -> DataFrame:
    """Every edge of the state once, and those that come, of level -1; `moves`: does it come or go?"""
    none = [F.lit(-1).cast("bigint").alias("level"), *(F.lit(0).cast("bigint").alias(name) for name in VALUES[1:])]
    stored = rows.select(*EDGE, *VALUES, "diff", F.lit(False).alias("moves"))
    named = seeds.select(*EDGE, *none, F.lit(1).cast("bigint").alias("diff"), F.lit(True).alias("moves"))
    both = stored.unionByName(named).repartition(*EDGE)
    rows = both.groupBy(*EDGE, *VALUES).agg(F.sum("diff").alias("diff"), F.max("moves").alias("moves"))
    values = F.max(F.struct(*VALUES)).alias("values")
    one = rows.where("diff <> 0").groupBy(*EDGE).agg(values, F.max("moves").alias("moves"))
    return one.select(*EDGE, "values.*", "moves")


def _fingerprint(graph: DataFrame) -> Fingerprint:
    """Of the trussness that it has."""
    row = [*(F.col(end) for end in EDGE), F.col("level") + 2]
    found = graph.where("level >= 0").select(*lanes(row, F.lit(1).cast("bigint"))).agg(*sums()).collect()[0]
    return Fingerprint() if found[0] is None else of_row(found)


def _looked_up(graph: DataFrame, degrees: DataFrame, asked: DataFrame) -> DataFrame:
    """The other edges of each triangle on an asked edge where both have the level that is asked for, or move."""
    ends = F.broadcast(asked.select(F.explode(F.array(*EDGE)).alias("vertex")).distinct())
    sizes = degrees.join(ends, "vertex")
    sized = asked
    for end in EDGE:
        size = F.broadcast(sizes.select(F.col("vertex").alias(end), F.col("degree").alias(f"of_{end}")))
        sized = sized.join(size, end, "left")
    a_first = F.coalesce("of_a", F.lit(0)) <= F.coalesce("of_b", F.lit(0))
    u, v = F.when(a_first, F.col("a")).otherwise(F.col("b")), F.when(a_first, F.col("b")).otherwise(F.col("a"))
    from_ = F.broadcast(sized.select(u.alias("u"), v.alias("v"), "least"))
    edge = F.struct(*EDGE, *VALUES)
    ways = [
        graph.select(F.col(x).alias("u"), F.col(w).alias("w"), edge.alias("one"), "level", "moves")
        for x, w in (("a", "b"), ("b", "a"))
    ]
    right = "moves OR level >= least"
    proposed = ways[0].unionByName(ways[1]).join(from_, "u").where(f"w <> v AND ({right})")
    low, high = F.least("v", "w").alias("a"), F.greatest("v", "w").alias("b")
    proposed = proposed.select(low, high, "least", "one").hint("shuffle_hash")
    closed = graph.join(proposed, EDGE).where(right)
    return closed.select(F.explode(F.array("one", edge)).alias("edge")).select("edge.*").distinct()


def _values(edges: DataFrame) -> DataFrame:
    return of_kind(edges, GIVEN, VALUE, *EDGE, *VALUES)


def _degrees(degrees: DataFrame, seeds: DataFrame) -> DataFrame:
    ends = F.broadcast(seeds.select(F.explode(F.array(*EDGE)).alias("vertex")).distinct())
    return of_kind(degrees.join(ends, "vertex"), GIVEN, DEGREE, "vertex", "degree")


def _region(found: DataFrame, stored: DataFrame, ends: tuple[int, int], hops: int, edges: int) -> Region:
    kind = F.col("kind")
    come = found.where(kind == CHANGED).select(*EDGE, F.col("c").alias("k"), "epoch", "diff")
    gone = stored.select(*EDGE, "k", "epoch", (-F.col("diff")).alias("diff"))
    notes = found.where(kind.isin(NOTE, PROVED)).select(*EDGE, F.col("c").alias("k"), "epoch", "diff", "note")
    changes = net([come, gone]).withColumn("note", F.lit(None).cast("string")).unionByName(notes)
    named = [F.col(number).alias(name) for number, name in zip(NUMBERS, [*EDGE, *VALUES], strict=True)]
    state = found.where(kind == VALUE).select(*named, "diff")
    return Region(changes, state, ends, hops, edges)


# -- what the task does ----------------------------------------------------------------------------------------------


def _solved(first: int, last: int, at: int, ends: tuple[int, int], parts: list[pa.RecordBatch]) -> list[pa.Table]:
    """The next look-ups, or what changes."""
    kind, *numbers = taken(parts, GIVEN)
    columns = dict(zip(NUMBERS, numbers, strict=True))

    def of(wanted: int) -> list[Longs]:
        chosen = kind == wanted
        return [columns[name][chosen] for name in NUMBERS]

    *interval, fresh = of(MOVED)
    known = _known(of(VALUE), interval[:2], of(ASKED))
    where = places(known.a, known.b, *interval[:2])
    made = moves(known.level >= 0, where, (interval[2], interval[3], interval[4]), fresh == 0, at, first, last)
    batches = [each for each in made if each[0] >= first or each[1].size or each[2].size]
    vertex, degree = of(DEGREE)[:2]
    order = np.argsort(vertex)
    result = solve(known, ends, batches, (vertex[order], degree[order]))
    if isinstance(result, Asks):
        pairs = known.a[result.place], known.b[result.place]
        return [_table(SIZE, known.a.size), _table(ASKED, *pairs, result.least.astype(np.int64))]
    return _changes(known, result, first, known.a.size)


def _known(values: list[Longs], seeds: list[Longs], asked: list[Longs]) -> Known:
    """Each edge that is known once: those that move are, the ones that are not there with level -1."""
    size = seeds[0].size
    a, b = (np.concatenate([values[i], seeds[i]]) for i in (0, 1))
    parts = [np.concatenate([values[2 + i], np.full(size, -1 if i == 0 else 0, np.int64)]) for i in range(4)]
    order = np.lexsort((-parts[0], b, a))
    a, b = a[order], b[order]
    new = np.ones(a.size, np.bool_)
    new[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
    level, label, own, backing = (part[order][new] for part in parts)
    floor = np.full(level.size, UNASKED, np.int32)
    shorts = [part.astype(np.int32) for part in (level, own, backing)]
    known = Known(a[new], b[new], shorts[0], label, shorts[1], shorts[2], floor)
    if asked[0].size:
        np.minimum.at(floor, places(known.a, known.b, *asked[:2]), asked[2].astype(np.int32))
    return known


def _changes(known: Known, result: Solved, first: int, size: int) -> list[pa.Table]:
    """Triples of the trussness, what changes of the state, notes."""
    found = [_table(SIZE, size, *result.ends, result.proof.wrong)]
    for each in result.epochs:
        if each.epoch < first:  # the way back from the epoch of the state
            continue
        found.append(_table(NOTE, epoch=each.epoch, note=json.dumps(each.effort._asdict())))
        differ = each.before.level != each.after.level
        place = each.place[differ]
        for level, sign in ((each.before.level[differ], -1), (each.after.level[differ], 1)):
            there = level >= 0
            ends = known.a[place[there]], known.b[place[there]]
            found.append(_table(CHANGED, *ends, level[there].astype(np.int64) + 2, epoch=each.epoch, diff=sign))
    moved = distinct(np.concatenate([np.empty(0, np.int64), *(each.place for each in result.epochs)]))
    old = {name: getattr(known, name)[moved] for name in VALUES}
    new = {name: column.copy() for name, column in old.items()}
    for each in result.epochs:
        for name in VALUES:
            new[name][np.searchsorted(moved, each.place)] = getattr(each.after, name)
    differ = np.any([old[name] != new[name] for name in VALUES], axis=0)
    for values, sign in ((old, -1), (new, 1)):
        there = differ & (values["level"] >= 0)
        ends = known.a[moved[there]], known.b[moved[there]]
        found.append(_table(VALUE, *ends, *(values[name][there] for name in VALUES), diff=sign))
    # of what the state before was like the region knows nothing: it is as it was proved before
    proof = replace(result.proof, base={}, steps=[step for step in result.proof.steps if step.epoch >= first])
    return [*found, _table(PROVED, 0, 0, PROOF, epoch=0, note=proof.to_json())]


def _table(
    kind: int, *numbers: Longs | int, epoch: int | None = None, diff: int = 0, note: str | None = None
) -> pa.Table:
    """Rows of one kind as the task gives them back: `MADE`."""
    size = max((column.size for column in numbers if isinstance(column, np.ndarray)), default=1)
    columns = [np.broadcast_to(np.asarray(column, np.int64), size) for column in (kind, *numbers)]
    columns += [np.zeros(size, np.int64)] * (len(GIVEN) - len(columns))
    return pa.table(
        {
            **dict(zip(GIVEN, map(pa.array, columns), strict=True)),
            "epoch": pa.array([epoch] * size, pa.int64()),
            "diff": pa.array(np.full(size, diff, np.int64)),
            "note": pa.array([note] * size, pa.string()),
        }
    )
