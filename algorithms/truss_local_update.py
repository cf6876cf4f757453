"""The trussness of every edge, by an update of the region that a change can reach: a task holds only this region.

Law      At every epoch of the window the result equals a full peel of that epoch's graph (law 4).
Method   The state is every edge with kappa = trussness - 2 and its certificate (`kernels/maintained_graph`), at one
         epoch. A task maintains the trussness on the part of the state that it knows (`kernels/partial_graph_solver`),
         at first the edges that come and go, and names the edges whose triangles it lacks. These are looked up
         (`executor_adjacency`), and the task begins again from the stored values, until it lacks nothing.
Shapes   Edges: a < b. State: a, b, level, label, own, backing. Moved: a, b, epoch, until, diff, fresh: the signed
         intervals that begin or end within the window, or between it and the epoch of the state; `fresh`: those that
         the state has not seen. Trussness: triples a, b, k, epoch, diff.
Cost     EXECUTES. The state is read once and left on the executors' disks; then there are some ten hops, each of which
         takes a few small jobs: what they look up grows with the region, not with the graph. A task takes about 350
         bytes for each edge of the region.
Errors   `RegionUnfit` if the state does not have the stored trussness, or is proved wrong, or the region has more
         edges than a task may hold. ValueError, in the task, if state and edges contradict each other.
Source   reference/truss/region of the design.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from algorithms.bsp import EDGE, FIXED, RoundStore
from algorithms.executor_adjacency import VALUES, Missing, open_adjacency
from algorithms.fingerprint import Fingerprint
from algorithms.graph_cache_task import INTERVAL, consume_columns, run_in_one_task, tag_rows
from algorithms.kernels.graph import Ints, distinct_values, positions_of
from algorithms.kernels.intervals import Longs
from algorithms.kernels.level_sorted_graph import UNASKED
from algorithms.kernels.partial_graph_solver import KnownEdges, MissingLookups, SolvedRegion, solve_region
from algorithms.kernels.replay import pair_batches
from algorithms.spark_conf import configured
from algorithms.truss import PROOF
from algorithms.truss_bsp import sum_triples

# The input and output of a task: rows of several kinds, with their numbers in the same columns.
NUMBERS = ["a", "b", "c", "d", "e", "f"]
GIVEN = ["kind", *NUMBERS]
MADE = "kind bigint, a bigint, b bigint, c bigint, d bigint, e bigint, f bigint, epoch bigint, diff bigint, note string"
VALUE, ASKED, MOVED, DEGREE, CHANGED, NOTE, PROVED, SIZE = range(8)

Say = Callable[[str], None]


class RegionUnfit(Exception):
    """Raised when an update by region is not possible; the message says why, for a person."""


@dataclass(frozen=True)
class RegionState:
    """A checkpoint of a graph.

    rows: those of the state with a diff, which are summed; at: their epoch; ends: the labels at which the next edges
    are put at the front and at the back.
    """

    rows: DataFrame
    at: int
    ends: tuple[int, int]


@dataclass(frozen=True)
class RegionUpdate:
    """The result of an update.

    changes: those of the trussness, with notes and a proof (`truss.trussness_changes`); state: the change of the
    checkpoint; ends: its new ends; hops: how often edges were looked up; edges: how many edges the task knew at last.
    """

    changes: DataFrame
    state: DataFrame
    ends: tuple[int, int]
    hops: int
    edges: int


@contextmanager
def trussness_changes(
    state: RegionState,
    moved: DataFrame,
    trussness: DataFrame,
    first: int,
    last: int,
    size: int,
    most: int,
    known: Fingerprint,
    rounds: RoundStore,
    say: Say = lambda text: None,
) -> Iterator[RegionUpdate]:
    """Hold the difference between the trussness over epochs `first`..`last` and the stored one, while the block runs.

    The frames of the result have to be read within the block.

    Args:
        state: the checkpoint.
        moved: the intervals that begin or end; the module docstring has the columns.
        trussness: the stored triples from `first` on.
        first: the first epoch of the result.
        last: the last epoch of the result.
        size: about the number of edges of the graph.
        most: the number of edges that the task may hold.
        known: the fingerprint of the trussness at the epoch of the checkpoint.
        rounds: the store of the edges that are looked up.
        say: takes one line of progress for each hop.

    Raises:
        RegionUnfit: an update by region is not possible.
    """
    spark, cached, stored = moved.sparkSession, list[DataFrame](), list[DataFrame]()

    def persist_frame(frame: DataFrame) -> DataFrame:
        cached.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return cached[-1]

    def save_state(found: list[Ints]) -> DataFrame:
        stored.append(rounds.persist_rows(spark.createDataFrame(_input_table(VALUE, *found))))
        return stored[-1]

    with configured(spark, FIXED), ExitStack() as stack:
        try:
            moved = persist_frame(moved.select(*INTERVAL, "fresh"))
            seeds = moved.select(*EDGE).distinct()
            say("indexing all edges for look-ups")
            graph = stack.enter_context(open_adjacency(state.rows, seeds, size, rounds.parallel_tasks, most))
            if graph.fingerprint != known:
                raise RegionUnfit("the checkpoint of the run before does not have the stored trussness")
            edges = [column.to_numpy() for column in seeds.toArrow().columns]
            ends = distinct_values(np.concatenate(edges))
            near = pa.concat_tables(
                [
                    _input_table(VALUE, *graph.look_up_edges(*edges)),
                    _input_table(DEGREE, ends, graph.look_up_degrees(ends)),
                ]
            )
            inputs = [tag_rows(moved, GIVEN, MOVED, *INTERVAL, "fresh"), spark.createDataFrame(near)]
            task = run_in_one_task(partial(_solve_task, first, last, state.at, state.ends))
            hops = 0
            while True:
                found = persist_frame(reduce(DataFrame.unionByName, inputs).repartition(1).mapInArrow(task, MADE))
                answers = found.where(F.col("kind").isin(ASKED, SIZE)).select(*GIVEN).toArrow()
                kind, *numbers = (column.to_numpy() for column in answers.columns)
                counted, front, back, wrong = (int(number[kind == SIZE].sum()) for number in numbers[:4])
                if counted > most:
                    raise RegionUnfit(f"the region has more than the {most:,} edges that a task may hold")
                wanted = [number[kind == ASKED] for number in numbers[:3]]
                if not wanted[0].size:
                    break
                hops += 1
                say(f"hop {hops}: {counted:,} edges are known; looking up the triangles of {wanted[0].size:,}")
                inputs += [
                    save_state(graph.look_up_triangles(*wanted)),
                    spark.createDataFrame(_input_table(ASKED, *wanted)),
                ]
            if wrong:
                raise RegionUnfit(f"{wrong:,} edges of the checkpoint of the run before are wrong by the proof")
            labels = (front, back) if (kind == SIZE).any() else state.ends
            yield _update_region(found, trussness.where(F.col("epoch").between(first, last)), labels, hops, counted)
        except Missing as error:
            raise RegionUnfit(str(error)) from error
        finally:
            for frame in cached:
                frame.unpersist()
            for frame in stored:
                rounds.drop_rows(frame)


def sum_state(rows: DataFrame) -> DataFrame:
    """Return every edge of a state once."""
    return rows.groupBy(*EDGE, *VALUES).agg(F.sum("diff").alias("diff")).where("diff <> 0")


def _input_table(kind: int, *columns: Ints) -> pa.Table:
    """Return rows of one kind for the task, in the columns `GIVEN`."""
    size = columns[0].size
    nothing = [np.zeros(size, np.int64)] * (len(NUMBERS) - len(columns))
    return pa.table(dict(zip(GIVEN, [np.full(size, kind), *columns, *nothing], strict=True)))


def _update_region(result: DataFrame, stored: DataFrame, ends: tuple[int, int], hops: int, edges: int) -> RegionUpdate:
    kind = F.col("kind")
    come = result.where(kind == CHANGED).select(*EDGE, F.col("c").alias("k"), "epoch", "diff")
    gone = stored.select(*EDGE, "k", "epoch", (-F.col("diff")).alias("diff"))
    notes = result.where(kind.isin(NOTE, PROVED)).select(*EDGE, F.col("c").alias("k"), "epoch", "diff", "note")
    changes = sum_triples([come, gone]).withColumn("note", F.lit(None).cast("string")).unionByName(notes)
    named = [F.col(number).alias(name) for number, name in zip(NUMBERS, [*EDGE, *VALUES], strict=True)]
    state = result.where(kind == VALUE).select(*named, "diff")
    return RegionUpdate(changes, state, ends, hops, edges)


# -- the task --------------------------------------------------------------------------------------------------------


def _solve_task(first: int, last: int, at: int, ends: tuple[int, int], parts: list[pa.RecordBatch]) -> list[pa.Table]:
    """Return the next look-ups, or the result."""
    kind, *numbers = consume_columns(parts, GIVEN)
    columns = dict(zip(NUMBERS, numbers, strict=True))

    def columns_of(wanted: int) -> list[Longs]:
        chosen = kind == wanted
        return [columns[name][chosen] for name in NUMBERS]

    *interval, fresh = columns_of(MOVED)
    known = _known_edges(columns_of(VALUE), interval[:2], columns_of(ASKED))
    where = positions_of(known.a, known.b, *interval[:2])
    steps = pair_batches(known.level >= 0, where, (interval[2], interval[3], interval[4]), fresh == 0, at, first, last)
    batches = [each for each in steps if each[0] >= first or each[1].size or each[2].size]
    vertex, degree = columns_of(DEGREE)[:2]
    order = np.argsort(vertex)
    result = solve_region(known, ends, batches, (vertex[order], degree[order]))
    if isinstance(result, MissingLookups):
        pairs = known.a[result.place], known.b[result.place]
        return [_output_table(SIZE, known.a.size), _output_table(ASKED, *pairs, result.least.astype(np.int64))]
    return _result_tables(known, result, first, known.a.size)


def _known_edges(values: list[Longs], seeds: list[Longs], opened: list[Longs]) -> KnownEdges:
    """Return each known edge once. Edges that move are known; those of them that do not exist have the level -1."""
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
    known = KnownEdges(a[new], b[new], shorts[0], label, shorts[1], shorts[2], floor)
    if opened[0].size:
        np.minimum.at(floor, positions_of(known.a, known.b, *opened[:2]), opened[2].astype(np.int32))
    return known


def _result_tables(known: KnownEdges, result: SolvedRegion, first: int, size: int) -> list[pa.Table]:
    """Return the triples of the trussness, the changes of the state, and the notes."""
    tables = [_output_table(SIZE, size, *result.ends, result.proof.wrong)]
    for each in result.epochs:
        if each.epoch < first:  # the way back from the epoch of the state
            continue
        tables.append(_output_table(NOTE, epoch=each.epoch, note=json.dumps(each.effort._asdict())))
        differ = each.before.level != each.after.level
        place = each.place[differ]
        for level, sign in ((each.before.level[differ], -1), (each.after.level[differ], 1)):
            exists = level >= 0
            ends = known.a[place[exists]], known.b[place[exists]]
            tables.append(
                _output_table(CHANGED, *ends, level[exists].astype(np.int64) + 2, epoch=each.epoch, diff=sign)
            )
    moved = distinct_values(np.concatenate([np.empty(0, np.int64), *(each.place for each in result.epochs)]))
    old = {name: getattr(known, name)[moved] for name in VALUES}
    new = {name: column.copy() for name, column in old.items()}
    for each in result.epochs:
        for name in VALUES:
            new[name][np.searchsorted(moved, each.place)] = getattr(each.after, name)
    differ = np.any([old[name] != new[name] for name in VALUES], axis=0)
    for values, sign in ((old, -1), (new, 1)):
        exists = differ & (values["level"] >= 0)
        ends = known.a[moved[exists]], known.b[moved[exists]]
        tables.append(_output_table(VALUE, *ends, *(values[name][exists] for name in VALUES), diff=sign))
    # the region does not know the state before: that state is the one that was proved before
    proof = replace(result.proof, base={}, steps=[step for step in result.proof.steps if step.epoch >= first])
    return [*tables, _output_table(PROVED, 0, 0, PROOF, epoch=0, note=proof.to_json())]


def _output_table(
    kind: int, *numbers: Longs | int, epoch: int | None = None, diff: int = 0, note: str | None = None
) -> pa.Table:
    """Return rows of one kind as the output of the task, in the columns `MADE`."""
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
