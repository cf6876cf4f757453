"""A graph in partitions that compute for themselves and exchange messages in rounds (bulk synchronous parallel).

A partition, or part, owns edges; it also holds every edge that lies in a triangle with one of them
(`kernels/partition_kernels`). Vertices are ordered by a bound of their core number: the h-index of their neighbours'
degrees. The lower end of an edge decides which part owns the edge. Parts are ranges of that order with about equally
many triangles, so that most messages about an edge stay within its own part. The parts that must hold an edge are found
in cells (`color_partitioning`), as one bit for each part.

Shapes   Edges: a < b. `partitioned_graph`: part, owner, a, b, level (-1: the edge does not exist), cap, and a row for
         each event: epoch, diff. Messages: part (the receiver), sender, round, the packs of a, b, value
         (`arrow_packing`), and how many edges the sender looked at.
Cost     EXECUTES. The degrees, `SHARPER` rounds of h-indices and two passes over the cells: some 15 shuffles of the
         edges; and one of all that the parts hold, which then lies on executors' disks. A round is one job, and one
         that counts its messages. In its first round a part writes its edges and triangles into files of its executor
         (`executor_adjacency`), and after each round its state, so that a later round reads these files and the
         messages of the round before. If an idle executor that does not have the files took a part, the part is run
         again. A part whose files are lost (the executor was lost, or another one worked on the part) is read anew,
         with all messages that it has received, in a job that passes over all parts.
Memory   A task has one part: `HELD_BYTES` for each edge that it holds and `SIDE_BYTES` for each triangle on an edge
         that it owns. Or it has one cell: `CELL_BYTES` for each edge of it.
Source   reference/truss/region of the design; Lu, Zhou, Zhang, Stanley 2016 for h-indices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from math import ceil
from typing import Protocol
from uuid import uuid4

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from altneu.algorithms.graph import arrow_packing, executor_local_store, partition_cache
from altneu.algorithms.graph.color_partitioning import EDGE_BYTES, Columns, fold_over_cells
from altneu.algorithms.graph.kernels import partition_kernels as kernel
from altneu.algorithms.graph.kernels.graph import Colours
from altneu.algorithms.graph.kernels.intervals import Longs, to_longs
from altneu.algorithms.graph.kernels.triangle_history import colours_for
from altneu.algorithms.spark_conf import configured

EDGE = ["a", "b"]
ENDS = dict.fromkeys(EDGE, np.int64)
SHARPER = 1  # rounds of h-indices: the order is then about as good as that of core numbers
HELD_BYTES, SIDE_BYTES = 170, 8  # bytes for each edge that a part holds, and for each triangle on an edge that it owns
CELL_BYTES = 150  # bytes for each edge in a cell
MOST_PARTS = 1000
EDGE_WEIGHT = 25  # the weight of an edge, in triangles, when parts are made equal
HELD = {
    **{"a": np.int64, "b": np.int64, "owner": np.int32, "level": np.int32, "cap": np.int32},
    **{"epoch": np.int64, "diff": np.int8},
}
# The rows that a part holds, in packs of `HELD`, sorted by a and b: one row costs Spark more than all that parts do
# with an edge in a late round. moves: the epochs at which edges of the pack come or go.
PACKED = "part int, place int, n bigint, moves array<bigint>, rows binary"
MESSAGE_SCHEMA = "part int, sender int, round int, n bigint, looked bigint, rows binary"
BEFORE = -1
MESSAGE = {"a": np.int64, "b": np.int64, "value": np.int64}
# Adaptive execution forgets how cached rows are partitioned: every round would shuffle all that the parts hold.
FIXED = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}

FirstRoundTask = Callable[
    [tuple[pa.Scalar, ...], pa.Table, pa.Table], pa.Table
]  # part, its rows, its messages: both in packs
Task = Callable[
    [int, tuple[pa.Scalar, ...], pa.Table, pa.Table], pa.Table
]  # round; then the parameters of `FirstRoundTask`
# The task of a part that goes on: the round, and the round in which each part worked last; then the parameters of
# `FirstRoundTask`. It returns `absent_answer` on an executor where the part did not work last.
LaterRoundTask = Callable[[int, Mapping[int, int], tuple[pa.Scalar, ...], pa.Table, pa.Table], pa.Table]


class RoundStore(Protocol):
    """A store for the results of rounds, so that nothing before them is ever computed again.

    `layout` is that of the parts that were made last, for other graphs of the same edges. `parallel_tasks` is the
    number of tasks that run at once.
    """

    layout: PartitionLayout | None

    @property
    def parallel_tasks(self) -> int: ...

    def persist_rows(self, rows: DataFrame, after: DataFrame | None = None) -> DataFrame:
        """Compute and persist rows; return them with the rows of `after`, which are persisted already. EXECUTES."""

    def drop_rows(self, rows: DataFrame) -> None:
        """Release persisted rows that nobody needs any more."""


class ExecutorRoundStore:
    """A store of results on the executors that computed them. They are lost with their executor."""

    layout: PartitionLayout | None = None
    parallel_tasks = 1

    def persist_rows(self, rows: DataFrame, after: DataFrame | None = None) -> DataFrame:
        persisted = rows.localCheckpoint()
        return persisted if after is None else after.unionByName(persisted)

    def drop_rows(self, rows: DataFrame) -> None:
        """Do nothing: the rows are freed with their frame, as garbage."""


@dataclass(frozen=True)
class PartitionLayout:
    """The owner and the holders of each edge.

    rows: a, b, owner, cap, and the bits of the parts that hold the edge (`partition_kernels.edge_holders`), in words
    `w0`, `w1` and so on. parts: about how many parts there are.
    """

    rows: DataFrame
    parts: int


@dataclass
class PartitionedGraph:
    """A graph dealt to parts.

    name: unique to this graph; rows: the rows that the parts hold, partitioned by part; places: one small row for each
    part, where its rows are; parts: the numbers of the parts; edges: the number of edges held, in all parts together;
    largest_part_edges: the number that the largest part holds; moves: epoch → the parts that hold an edge that comes or
    goes at that epoch.
    """

    name: str
    rows: DataFrame
    places: DataFrame
    parts: set[int]
    edges: int
    largest_part_edges: int
    moves: dict[int, set[int]]


@contextmanager
def partitioned_graph(
    rows: DataFrame, size: int, rounds: RoundStore, layout: PartitionLayout | None = None
) -> Iterator[PartitionedGraph]:
    """Hold a graph in parts while the block runs. Within the block Spark runs plans as they are written.

    Args:
        rows: a, b, level, epoch, diff. Each edge that exists at first has a row of diff 0 with its level; each event
            has a row.
        size: the number of edges for which a task has memory.
        rounds: the store of intermediate results. It receives the layout that is made here.
        layout: parts of all these edges, and perhaps of others. None: the layout is made.
    """
    spark, cached = rows.sparkSession, list[DataFrame]()

    def persist_frame(frame: DataFrame, level: StorageLevel = StorageLevel.MEMORY_AND_DISK) -> DataFrame:
        cached.append(frame.persist(level))
        return cached[-1]

    with configured(spark, FIXED):
        try:
            if layout is None:
                rounds.layout = layout = _partition_layout(rows, size, rounds, persist_frame)
                while cached:  # the executors need the memory
                    cached.pop().unpersist()
            known = layout.rows.join(rows, EDGE)
            dealt = known.mapInArrow(_deal_to_holders, "part int, n bigint, rows binary").repartition(
                layout.parts, "part"
            )
            packed = dealt.groupBy("part").applyInArrow(_pack_task, PACKED).repartition(layout.parts, "part")
            # A part is one block, and a heap of some gigabyte has no tens of megabytes in one piece: so on disk.
            parted = persist_frame(packed.sortWithinPartitions("part", "place"), StorageLevel.DISK_ONLY)
            epochs = F.array_distinct(F.flatten(F.collect_list("moves"))).alias("moves")
            places = persist_frame(parted.groupBy("part").agg(F.sum("n").alias("n"), epochs))
            sizes = places.collect()
            moves: dict[int, set[int]] = {}
            for row in sizes:
                for epoch in row.moves:
                    moves.setdefault(epoch, set()).add(row.part)
            edges = [row.n for row in sizes]
            name = uuid4().hex
            yield PartitionedGraph(
                name, parted, places, {row.part for row in sizes}, sum(edges), max(edges, default=0), moves
            )
            places.select("part").mapInArrow(
                partial(executor_local_store.delete_graph_batches, partition_cache.KIND, name), "part int"
            ).count()
        finally:
            for frame in cached:
                frame.unpersist()


@dataclass
class ExchangeResult:
    """The result of an exchange.

    message_rows: the messages of all rounds; active: the parts that worked; rounds: their number; looked_at: how many
    edges the parts looked at; messages: how many messages went to other parts.
    """

    message_rows: DataFrame
    active: set[int]
    rounds: int
    looked_at: int
    messages: int


def exchange_rounds(
    held: PartitionedGraph,
    rounds: RoundStore,
    tasks: tuple[Task, LaterRoundTask],
    active: set[int] | None,
    known: DataFrame | None,
    say: Callable[[str], None],
) -> ExchangeResult:
    """Run rounds until no part receives a message.

    Args:
        held: the graph in parts.
        rounds: the store of the messages.
        tasks: two functions. The first receives all messages of earlier rounds; the second receives those of the round
            before, and goes on from the files that its part left.
        active: the parts that begin. None: all parts.
        known: messages that the parts have received before the first round (`MESSAGE_SCHEMA`).
        say: takes one line of progress for each round.
    """
    so_far: DataFrame | None = None  # the messages of all rounds
    ever, since = set[int](), dict[int, int]()  # the parts that have worked; the last round of each
    round_ = looked = messages = 0
    active = held.parts if active is None else active
    while so_far is None or active:
        before, counted, waiting = so_far, list[Row](), set(active)
        while before is not None and (ready := {part: since[part] for part in waiting & since.keys()}):
            newest = before.where(F.col("round") == round_ - 1)
            so_far = rounds.persist_rows(
                cogroup_step(held.places, [newest], ready, partial(tasks[1], round_, ready)), so_far
            )
            counted = _count_messages(so_far, round_)
            worked = {row.part for row in counted if row.worked}
            waiting -= worked
            if not ready.keys() & worked:
                break  # otherwise idle executors took some parts: the next attempt will run them where their files are
        if waiting or so_far is None:
            # a persisted frame may also show rows that were persisted after it
            earlier = None if before is None else before.where(F.col("round") < round_)
            heard = [frame for frame in (known, earlier) if frame is not None]
            so_far = rounds.persist_rows(cogroup_step(held.rows, heard, waiting, partial(tasks[0], round_)), so_far)
            counted = _count_messages(so_far, round_)
        ever |= active
        since |= dict.fromkeys(active, round_)
        active = {row.part for row in counted if row.n}
        seen, passed = sum(row.looked for row in counted), sum(row.n for row in counted)
        round_, looked, messages = round_ + 1, looked + seen, messages + passed
        say(f"round {round_}: looked at {seen:,} edges, sent {passed:,} messages to {len(active):,} parts")
    return ExchangeResult(so_far, ever, round_, looked, messages)


def _count_messages(messages: DataFrame, round_: int) -> list[Row]:
    """Count the messages of a round by receiving part: n from other parts; looked; whether the part worked itself."""
    others = F.sum(F.when(F.expr("sender <> part"), F.col("n")).otherwise(0)).alias("n")
    worked = F.coalesce(F.bool_or(F.expr("sender = part")), F.lit(False)).alias("worked")
    now = messages.where(F.col("round") == round_)
    return now.groupBy("part").agg(others, F.sum("looked").alias("looked"), worked).collect()


def cogroup_step(
    here: DataFrame,
    told: list[DataFrame],
    active: Collection[int] | None,
    task: FirstRoundTask,
    schema: str = MESSAGE_SCHEMA,
) -> DataFrame:
    """Apply a task to the rows of each part and the messages to it.

    Args:
        here: the rows of the parts, partitioned by part.
        told: frames of messages (`MESSAGE_SCHEMA`).
        active: the parts to work on. None: all parts.
        task: receives the part, its rows and its messages.
        schema: the columns that the task returns.
    """
    nothing = here.sparkSession.createDataFrame([], MESSAGE_SCHEMA)
    messages = reduce(DataFrame.unionByName, told, nothing).where("n > 0").drop("looked")
    if active is not None:
        chosen = F.col("part").isin(sorted(active))
        here, messages = here.where(chosen), messages.where(chosen)
    return here.groupBy("part").cogroup(messages.groupBy("part")).applyInArrow(task, schema)


def initial_messages(rows: DataFrame) -> DataFrame:
    """Return known values (part, a, b, value) as messages (`MESSAGE_SCHEMA`) of each part to itself in a round
    `BEFORE`."""
    return rows.select("part", *EDGE, "value").mapInArrow(_remember_task, MESSAGE_SCHEMA)


def own_values(said: DataFrame) -> DataFrame:
    """Return a, b, value: the messages of parts about their own edges."""
    themselves = said.where("part = sender AND n > 0")
    return themselves.select("rows").mapInArrow(_message_batches, "a bigint, b bigint, value bigint")


def round_messages(sender: int, round_: int, to: Longs, looked: int, rows: dict[str, Longs]) -> pa.Table:
    """Return the messages (`MESSAGE_SCHEMA`) of one part in one round.

    Args:
        sender: the part.
        round_: the round.
        to: the receiver of each row.
        looked: how many edges the part looked at.
        rows: the columns of `MESSAGE`.
    """
    packs = arrow_packing.pack_by_number(to, pa.RecordBatch.from_pydict(rows))
    return _message_table(
        [(sender, sender, 0, looked, None), *((part, sender, n, 0, pack) for part, n, pack in packs)], round_
    )


def absent_answer(part: int, round_: int) -> pa.Table:
    """Return the answer (`MESSAGE_SCHEMA`) of an executor that does not have the files of the part."""
    return _message_table([(part, None, 0, 0, None)], round_)


def no_messages() -> pa.Table:
    """Return the messages to a part before the first round: none."""
    return _message_table([], 0)


def _message_table(messages: Sequence[tuple[int, int | None, int, int, bytes | None]], round_: int) -> pa.Table:
    """Return rows of (part, sender, n, looked, rows) as a table of messages (`MESSAGE_SCHEMA`)."""
    part, sender, n, looked, rows = zip(*messages, strict=True) if messages else ((),) * 5
    return pa.table(
        {
            "part": pa.array(part, pa.int32()),
            "sender": pa.array(sender, pa.int32()),
            "round": pa.array([round_] * len(messages), pa.int32()),
            "n": pa.array(n, pa.int64()),
            "looked": pa.array(looked, pa.int64()),
            "rows": pa.array(rows, pa.binary()),
        }
    )


def pack_partition(part: int, rows: dict[str, NDArray[np.integer]]) -> pa.Table:
    """Return the rows of a part as packs (`PACKED`); `rows` are the columns of `HELD`, in any order."""
    order = np.lexsort((rows["b"], rows["a"]))
    places = [
        order[place : place + arrow_packing.MAX_PACK_ROWS]
        for place in range(0, order.size, arrow_packing.MAX_PACK_ROWS)
    ]
    moves = [np.unique(rows["epoch"][each][rows["diff"][each] != 0]) for each in places]
    batches = (pa.RecordBatch.from_pydict({name: rows[name][each] for name in HELD}) for each in places)
    return pa.table(
        {
            "part": np.full(len(places), part, np.int32),
            "place": np.arange(len(places), dtype=np.int32),
            "n": pa.array([each.size for each in places], pa.int64()),
            "moves": pa.array(moves, pa.list_(pa.int64())),
            "rows": pa.array(map(arrow_packing.pack_rows, batches), pa.binary()),
        }
    )


def count_colours(count: int, size: int, each: int = CELL_BYTES) -> int:
    """Return the number of colors with which the cells of a graph of `count` edges fit into tasks.

    Args:
        count: the number of edges.
        size: the number of edges for which a task has memory.
        each: the bytes that the work on a cell takes for an edge.
    """
    return colours_for(count, size * EDGE_BYTES // each)


def count_support(pairs: DataFrame, count: int, size: int) -> DataFrame:
    """Return a, b, n for each edge (a, b) that is in a triangle: the number of triangles it is in, counted in cells.

    `count` is about the number of edges, `size` the number for which a task has memory.
    """
    return fold_over_cells(
        pairs, ENDS, count_colours(count, size), work=_support_task, returns=["n"], fold=np.add, count=count, size=size
    )


# -- the owners and the holders of edges ---------------------------------------------------------------------------


def _partition_layout(
    rows: DataFrame, size: int, rounds: RoundStore, persist: Callable[[DataFrame], DataFrame]
) -> PartitionLayout:
    pairs = persist(rows.select(*EDGE).distinct())
    count = pairs.count()
    number, owned = _assign_owners(pairs, count, size, rounds.parallel_tasks, persist)
    owned = rounds.persist_rows(owned)
    words = [f"w{word}" for word in range(number // 64 + 1)]  # one bit for each part
    in_cell = count_colours(count, size, CELL_BYTES + 2 * 8 * len(words))
    types, work = ENDS | {"owner": np.int32}, partial(_holders_task, len(words))
    holders = fold_over_cells(
        owned, types, in_cell, work=work, returns=words, fold=np.bitwise_or, count=count, size=size
    )
    layout = rounds.persist_rows(owned.join(holders, EDGE, "left").fillna(0, words))
    rounds.drop_rows(owned)
    return PartitionLayout(layout, number)


def _assign_owners(
    pairs: DataFrame, count: int, size: int, tasks: int, persist: Callable[[DataFrame], DataFrame]
) -> tuple[int, DataFrame]:
    """Return the number of parts, and a, b, owner, cap."""
    supported = count_support(pairs, count, size)
    order = _core_order(pairs, persist)
    ends = pairs.join(supported, EDGE, "left").fillna(0, ["n"])
    for end in EDGE:
        at = F.struct("c", "degree", "vertex").alias(f"at_{end}")
        ends = ends.join(order.select(F.col("vertex").alias(end), at), end)
    low, high = F.least("at_a", "at_b"), F.greatest("at_a", "at_b")
    cap = F.least(F.col("n"), F.greatest(F.least(low["c"], high["c"]) - 1, F.lit(0))).cast("int").alias("cap")
    weighed = persist(ends.select(*EDGE, cap, "n", low["c"].alias("c"), low["vertex"].alias("low")))
    weights = weighed.groupBy("c").agg((F.sum("n") + EDGE_WEIGHT * F.count("*")).alias("weight")).collect()
    wanted = count_partitions(count, sum(row.weight for row in weights), size, tasks)
    number, cuts = cut_ranges([(row.c, row.weight) for row in weights], wanted)
    ranges = F.broadcast(pairs.sparkSession.createDataFrame(cuts, "c bigint, first int, buckets int"))
    owner = (F.col("first") + F.pmod(F.hash("low"), F.col("buckets"))).cast("int").alias("owner")
    return number, weighed.join(ranges, "c").select(*EDGE, owner, "cap")


def _core_order(pairs: DataFrame, persist: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """Return vertex, c (a bound of its core number), degree."""
    ways = F.inline(F.array(*(F.struct(F.col(x).alias("vertex"), F.col(w).alias("w")) for x, w in ("ab", "ba"))))
    near = pairs.select(ways)
    order = persist(near.groupBy("vertex").agg(F.count("*").alias("c")).withColumn("degree", F.col("c")))
    for _ in range(SHARPER):
        seen = near.join(order.select(F.col("vertex").alias("w"), F.col("c").alias("of")), "w")
        rank = F.row_number().over(Window.partitionBy("vertex").orderBy(F.desc("of")))
        h = seen.select("vertex", F.least("of", rank).alias("h")).groupBy("vertex").agg(F.max("h").alias("c"))
        order = persist(order.drop("c").join(h, "vertex").select("vertex", F.col("c").cast("bigint"), "degree"))
    return order


def count_partitions(count: int, weight: int, size: int, tasks: int) -> int:
    """Return into how many parts to divide a graph of `count` edges.

    There is one part for each of the `tasks` that run at once, and more until the largest fits into the memory of a
    task (`size` edges); at most `MOST_PARTS`. `weight` is the number of triangles on all edges plus `EDGE_WEIGHT` for
    each edge.

    With n parts the largest of an R-MAT graph with t triangles an edge holds some 0.8 * t**0.2 / n**0.45 of the edges
    (tests/benchmarks/RESULTS.md). More parts are more copies and messages.

    >>> count_partitions(10**7, 7 * 10**8, 10**8, 2), count_partitions(10**7, 7 * 10**8, 3 * 10**6, 2)
    (2, 16)
    """
    memory = size * EDGE_BYTES
    most = max(tasks, ceil(weight * SIDE_BYTES / memory)) + count // 100  # a part of a handful of edges never holds few
    triangles = (weight - EDGE_WEIGHT * count) / 3
    whole = 0.8 * (triangles / count) ** 0.2 if count else 1.0
    for n in range(max(1, tasks), min(most, MOST_PARTS)):
        if count * min(1.0, whole * n**-0.45) * HELD_BYTES + weight * SIDE_BYTES / n <= memory:
            return n
    return min(most, MOST_PARTS)


def cut_ranges(weights: list[tuple[int, int]], parts: int) -> tuple[int, list[tuple[int, int, int]]]:
    """Cut the values of c into ranges of about equal weight, about `parts` of them.

    Return the number of parts, and for each c its first part and the number of parts that share its vertices.

    >>> cut_ranges([(1, 4), (2, 4), (3, 9), (4, 1), (5, 1)], 3)
    (5, [(1, 0, 1), (2, 1, 1), (3, 2, 2), (4, 4, 1), (5, 4, 1)])
    """
    whole = sum(weight for _, weight in weights)
    target = max(1.0, whole / parts)
    number, filled, ranges = 0, 0.0, []
    for c, weight in sorted(weights):
        if filled and filled + weight > target:
            number, filled = number + 1, 0.0
        buckets = ceil(weight / target)
        ranges.append((c, number, buckets))
        number, filled = number + buckets - 1, filled + weight if buckets == 1 else target
    return number + 1, ranges


def _support_task(rows: Columns, colours: Colours | None) -> Columns:
    a, b = rows
    return [a, b, kernel.count_cell_support(kernel.build_cell(a, b, colours))]


def _holders_task(words: int, rows: Columns, colours: Colours | None) -> Columns:
    a, b, owner = rows
    return [a, b, *kernel.edge_holders(kernel.build_cell(a, b, colours), owner, words).T]


def _deal_to_holders(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the packs of edges for each part that holds them. The owner of an edge is one of its holders."""
    for batch in arrow_packing.gather_batches(rows, arrow_packing.MAX_PACK_ROWS):
        owner, *bits = to_longs(batch, ["owner", *(name for name in batch.schema.names if name.startswith("w"))])
        words = np.stack(bits, axis=1)
        words[np.arange(owner.size), owner // 64] |= np.int64(1) << owner % 64
        edge, part = kernel.set_bits(words)
        yield arrow_packing.packs_by_number("part", part, batch.select([*HELD]).take(pa.array(edge)))


def _pack_task(key: tuple[pa.Scalar, ...], dealt: pa.Table) -> pa.Table:
    return pack_partition(
        key[0].as_py(), dict(zip(HELD, arrow_packing.unpack_columns(dealt.to_batches(), HELD), strict=True))
    )


def _remember_task(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        (part,) = to_longs(batch, ["part"])
        messages = [
            (number, number, n, 0, pack)
            for number, n, pack in arrow_packing.pack_by_number(part, batch.select([*MESSAGE]))
        ]
        yield from _message_table(messages, BEFORE).to_batches()


def _message_batches(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        yield from arrow_packing.unpack_rows(batch, [*MESSAGE]).to_batches()
