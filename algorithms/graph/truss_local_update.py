"""The trussness of every edge, by an update of the region that a change can reach: a task holds only this region.

Law      At every epoch of the window the result equals a full peel of that epoch's graph (law 4).
Method   The state is every edge with kappa = trussness - 2 and its certificate (`kernels/maintained_graph`), at one
         epoch. A task maintains the trussness on the part of the state that it knows (`kernels/partial_graph_solver`),
         at first the edges that come and go, and names the edges whose triangles it lacks. These are looked up
         (`executor_adjacency`), and the task begins again from the stored values, until it lacks nothing.
Shapes   Edges: a < b. State: a, b, level, label, own, backing. Moved: a, b, epoch, until, diff, fresh: the signed
         intervals that begin or end within the window, or between it and the epoch of the state; `fresh`: those that
         the state has not seen. Trussness: triples a, b, k, epoch, diff. Rows of the task: `tagged_rows`.
Cost     EXECUTES. The state is read once and left on the executors' disks; then there are some ten hops, each of which
         takes a few small jobs: what they look up grows with the region, not with the graph. A task takes about 350
         bytes for each edge of the region.
Errors   `PlanUnfit` if the state does not have the stored trussness, or is proved wrong, or the region has more
         edges than a task may hold. ValueError, in the task, if state and edges contradict each other.
Source   reference/truss/region of the design.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial, reduce

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from altneu.algorithms.fingerprint import Fingerprint
from altneu.algorithms.graph.bsp import EDGE, FIXED, RoundStore
from altneu.algorithms.graph.executor_adjacency import VALUES, Adjacency, Missing, open_adjacency
from altneu.algorithms.graph.kernels.graph import Ints, distinct_values, positions_of
from altneu.algorithms.graph.kernels.intervals import Longs
from altneu.algorithms.graph.kernels.level_sorted_graph import UNASKED
from altneu.algorithms.graph.kernels.partial_graph_solver import KnownEdges, MissingLookups, SolvedRegion, solve_region
from altneu.algorithms.graph.kernels.replay import pair_batches
from altneu.algorithms.graph.tagged_rows import (
    INTERVAL,
    RESULT,
    RowKind,
    input_table,
    kind_column,
    result_table,
    rows_of_kind,
    run_in_one_task,
    tag_rows,
    take_kinds,
)
from altneu.algorithms.graph.truss_bsp import sum_triples
from altneu.algorithms.graph.truss_plan import (
    TRIPLE,
    CheckpointChange,
    PlanUnfit,
    ReplayRequest,
    TrussCheckpoint,
    TrussResult,
    certificate_rows,
    read_result,
)
from altneu.algorithms.spark_conf import configured

WIDTH = 6  # how many numbers a row of the task's input has
INPUTS = RowKind.CERTIFICATE, RowKind.INTERVAL, RowKind.LOOKUP, RowKind.DEGREE

Say = Callable[[str], None]


def update_region(
    checkpoint: TrussCheckpoint,
    moved: DataFrame,
    trussness: DataFrame,
    request: ReplayRequest,
    *,
    size: int,
    most: int,
    known: Fingerprint,
    rounds: RoundStore,
    stack: ExitStack,
    say: Say = lambda text: None,
) -> TrussResult:
    """Return the changes of the trussness and of the checkpoint, computed in the region that a change reaches.

    The frames of the result have to be read before the stack is closed.

    Args:
        checkpoint: the state.
        moved: the intervals that begin or end; the module docstring has the columns.
        trussness: the stored triples from `first` on.
        request: what is computed; the changes are always proved, and nothing else.
        size: about the number of edges of the graph.
        most: the number of edges that the task may hold.
        known: the fingerprint of the trussness at the epoch of the checkpoint.
        rounds: the store of the edges that are looked up.
        stack: it releases what the update holds.
        say: takes one line of progress for each hop.

    Raises:
        PlanUnfit: an update by region is not possible.
    """
    stack.enter_context(configured(moved.sparkSession, FIXED))
    moved = _persist(moved.select(*INTERVAL, "fresh"), stack)
    seeds = moved.select(*EDGE).distinct()
    say("indexing all edges for look-ups")
    try:
        graph = stack.enter_context(open_adjacency(checkpoint.rows, seeds, size, rounds.parallel_tasks, most))
        if graph.fingerprint != known:
            raise PlanUnfit("the checkpoint of the run before does not have the stored trussness")
        region = RegionUpdate(
            graph, moved, partial(_solve_task, request, checkpoint.epoch, checkpoint.ends), rounds, stack
        )
        region.load_edges([column.to_numpy() for column in seeds.toArrow().columns])
        while True:
            wanted = region.solve()
            if region.edges > most:
                raise PlanUnfit(f"the region has more than the {most:,} edges that a task may hold")
            if not wanted[0].size:
                stored = trussness.where(F.col("epoch").between(request.first_epoch, request.last_epoch))
                return region.read_result(stored, checkpoint.ends)
            region.hops += 1
            say(f"hop {region.hops}: {region.edges:,} edges are known; looking up the triangles of {wanted[0].size:,}")
            region.load_triangles(wanted)
    except Missing as error:
        raise PlanUnfit(str(error)) from error


class RegionUpdate:
    """The part of a graph that a task knows, and what the task makes of it, hop by hop.

    hops: how often triangles were looked up; edges: how many the task knew at last.
    """

    def __init__(
        self,
        graph: Adjacency,
        moved: DataFrame,
        solve: Callable[[list[pa.RecordBatch]], Iterator[pa.Table]],
        rounds: RoundStore,
        stack: ExitStack,
    ) -> None:
        self._graph, self._task, self._rounds, self._stack = graph, run_in_one_task(solve), rounds, stack
        self._inputs = [tag_rows(WIDTH, moved, RowKind.INTERVAL, *INTERVAL, "fresh")]
        self._spark = moved.sparkSession
        self.hops = self.edges = 0

    def load_edges(self, edges: list[Ints]) -> None:
        """Look up edges (a, b), and the degrees of their ends; EXECUTES."""
        ends = distinct_values(np.concatenate(edges))
        values = input_table(WIDTH, RowKind.CERTIFICATE, *self._graph.look_up_edges(*edges))
        degrees = input_table(WIDTH, RowKind.DEGREE, ends, self._graph.look_up_degrees(ends))
        self._inputs.append(self._spark.createDataFrame(pa.concat_tables([values, degrees])))

    def load_triangles(self, wanted: list[Ints]) -> None:
        """Look up the triangles on edges (a, b, level); EXECUTES."""
        values = input_table(WIDTH, RowKind.CERTIFICATE, *self._graph.look_up_triangles(*wanted))
        kept = self._rounds.persist_rows(self._spark.createDataFrame(values))
        self._stack.callback(self._rounds.drop_rows, kept)
        self._inputs += [kept, self._spark.createDataFrame(input_table(WIDTH, RowKind.LOOKUP, *wanted))]

    def solve(self) -> list[Ints]:
        """Run the task, and return the edges (a, b, level) whose triangles it lacks; EXECUTES."""
        whole = reduce(DataFrame.unionByName, self._inputs).repartition(1)
        self._rows = _persist(whole.mapInArrow(self._task, RESULT), self._stack)
        answers = rows_of_kind(self._rows, RowKind.LOOKUP, RowKind.SIZE).select("kind", "a", "b", "k").toArrow()
        kind, *numbers = (column.to_numpy() for column in answers.columns)
        self._sizes = [[int(value) for value in number[kind == RowKind.SIZE]] for number in numbers]
        self.edges = sum(self._sizes[0])
        return [number[kind == RowKind.LOOKUP] for number in numbers]

    def read_result(self, stored: DataFrame, ends: tuple[int, int]) -> TrussResult:
        """Return the result of the task; EXECUTES. `ends`: those of the checkpoint, if the task had nothing to do."""
        come = rows_of_kind(self._rows, RowKind.CHANGE).select(*TRIPLE)
        gone = stored.select(*EDGE, "k", "epoch", (-F.col("diff")).alias("diff"))
        changes = sum_triples([come, gone]).select(kind_column(RowKind.CHANGE), "*")
        others = rows_of_kind(self._rows, RowKind.NOTE, RowKind.PROOF, RowKind.UNFIT)
        result = read_result(_persist(others.unionByName(changes, allowMissingColumns=True), self._stack))
        for front, back in zip(*self._sizes[1:], strict=True):
            ends = front, back
        return replace(
            result,
            summary=replace(result.summary, rounds=self.hops),
            checkpoint=CheckpointChange(certificate_rows(self._rows), ends, anew=False),
            region_edges=self.edges,
        )


def _persist(frame: DataFrame, stack: ExitStack) -> DataFrame:
    stack.callback(frame.persist(StorageLevel.MEMORY_AND_DISK).unpersist)
    return frame


def sum_state(rows: DataFrame) -> DataFrame:
    """Return every edge of a state once."""
    return rows.groupBy(*EDGE, *VALUES).agg(F.sum("diff").alias("diff")).where("diff <> 0")


# -- the task --------------------------------------------------------------------------------------------------------


def _solve_task(
    request: ReplayRequest, at: int, ends: tuple[int, int], parts: list[pa.RecordBatch]
) -> Iterator[pa.Table]:
    """Yield the next look-ups, or the result."""
    values, (*interval, fresh), opened, (vertex, degree, *_) = take_kinds(parts, WIDTH, *INPUTS)
    known = _known_edges(values, interval[:2], opened)
    where = positions_of(known.a, known.b, *interval[:2])
    first, times = request.first_epoch, (interval[2], interval[3], interval[4])
    steps = pair_batches(known.level >= 0, where, times, fresh == 0, at, first, request.last_epoch)
    batches = [each for each in steps if each[0] >= first or each[1].size or each[2].size]
    order = np.argsort(vertex)
    result = solve_region(known, ends, batches, (vertex[order], degree[order]))
    if isinstance(result, MissingLookups):
        a, b = known.a[result.place], known.b[result.place]
        yield result_table(RowKind.SIZE, a=known.a.size, b=ends[0], k=ends[1])
        yield result_table(RowKind.LOOKUP, a=a, b=b, k=result.least.astype(np.int64))
        return
    yield result_table(RowKind.SIZE, a=known.a.size, b=result.ends[0], k=result.ends[1])
    if wrong := result.proof.wrong:
        why = f"{wrong:,} edges of the checkpoint of the run before are wrong by the proof"
        yield result_table(RowKind.UNFIT, why)
    else:
        yield from _result_tables(known, result, first)


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


def _result_tables(known: KnownEdges, result: SolvedRegion, first: int) -> Iterator[pa.Table]:
    """Yield the triples of the trussness, the changes of the state, the notes and the proof."""
    for each in result.epochs:
        if each.epoch < first:  # the way back from the epoch of the state
            continue
        yield result_table(RowKind.NOTE, json.dumps(each.effort._asdict()), epoch=each.epoch)
        differ = each.before.level != each.after.level
        place = each.place[differ]
        for level, sign in ((each.before.level[differ], -1), (each.after.level[differ], 1)):
            exists = level >= 0
            ends = {"a": known.a[place[exists]], "b": known.b[place[exists]]}
            k = level[exists].astype(np.int64) + 2
            yield result_table(RowKind.CHANGE, **ends, k=k, epoch=each.epoch, diff=sign)
    moved = distinct_values(np.concatenate([np.empty(0, np.int64), *(each.place for each in result.epochs)]))
    old = {name: getattr(known, name)[moved] for name in VALUES}
    new = {name: column.copy() for name, column in old.items()}
    for each in result.epochs:
        for name in VALUES:
            new[name][np.searchsorted(moved, each.place)] = getattr(each.after, name)
    differ = np.any([old[name] != new[name] for name in VALUES], axis=0)
    for values, sign in ((old, -1), (new, 1)):
        exists = differ & (values["level"] >= 0)
        level, *others = (values[name][exists].astype(np.int64) for name in VALUES)
        ends = {"a": known.a[moved[exists]], "b": known.b[moved[exists]]}
        named = dict(zip(VALUES[1:], others, strict=True))
        yield result_table(RowKind.CERTIFICATE, **ends, k=level + 2, **named, diff=sign)
    # the region does not know the state before: that state is the one that was proved before
    proof = replace(result.proof, base={}, steps=[step for step in result.proof.steps if step.epoch >= first])
    yield result_table(RowKind.PROOF, proof.to_json())
