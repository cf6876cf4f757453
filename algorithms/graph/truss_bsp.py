"""The trussness of every edge of a graph beyond one task's memory, in partitions that exchange messages.

Law      At every epoch of the window the result equals a full peel of that epoch's graph (law 4).
Method   In a round each part that has received messages lowers its bounds of kappa = trussness - 2 until none changes
         any more. It sends each lower bound to the parts that it concerns. When there are no messages, the bounds are
         kappa (`bsp`, `kernels/partition_kernels`). If edges are only deleted, the bounds begin at the kappa before.
         n inserted edges raise others by at most n, so that the bounds begin n above the kappa before, but never above
         the core number of both ends less one, nor above the number of triangles on the edge. The parts hold every
         edge that exists at any epoch of the window, and are made once for it.
Shapes   Edges: a < b. Intervals and triples as in `truss`. Results of an epoch: part, own, a, b, before, value: for the
         edges of a part, kappa before and after, where one of them is not the `level` with which the edge began.
Cost     EXECUTES: the making of the parts; a few rounds of two jobs for each epoch, and one more that closes it. After
         deletions alone, only parts that hold one of these edges, or receive messages about them, do anything.
Errors   ValueError when the edges, or the edges and the stored trussness, contradict each other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial, reduce
from time import perf_counter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from altneu.algorithms.graph import arrow_packing, bsp, partition_cache
from altneu.algorithms.graph.arrow_packing import UNPACKED
from altneu.algorithms.graph.bsp import EDGE, ENDS, ExecutorRoundStore, PartitionedGraph, PartitionLayout, RoundStore
from altneu.algorithms.graph.color_partitioning import Columns, fold_over_cells
from altneu.algorithms.graph.edge_derivation import interval_steps
from altneu.algorithms.graph.kernels import certificate_counts as local
from altneu.algorithms.graph.kernels import graph
from altneu.algorithms.graph.kernels import partition_kernels as kernel
from altneu.algorithms.graph.kernels.graph import Colours, Ints, Shorts
from altneu.algorithms.graph.kernels.intervals import Longs
from altneu.algorithms.graph.kernels.level_sorted_graph import LABEL_GAP
from altneu.algorithms.graph.tagged_rows import RowKind, kind_column
from altneu.algorithms.graph.truss_plan import TRIPLE, ReplayRequest

FACTS = ["triangles", "backing", "first"]
TOO_LOW, TOO_HIGH = "label IS NULL OR first > k - 2", "backing < k - 2"  # conditions on rows of `certificate_counts`
LAST_LABEL = 2**62  # the label of an edge without a place: after all others
MOST_ROUNDS, MOST_TURNS = 2**12, 2**26  # of a place, so that labels have room between them and after the last one
CLOSED_SCHEMA = "part int, own boolean, a bigint, b bigint, before bigint, value bigint"
MERGED_RESULTS = 8  # results of epochs that are merged into one

Say = Callable[[int, str], None]


def trussness_changes(
    intervals: DataFrame,
    trussness: DataFrame,
    request: ReplayRequest,
    *,
    size: int,
    say: Say = lambda epoch, text: None,
    rounds: RoundStore | None = None,
) -> DataFrame:
    """Return trussness changes computed in partitions.

    Args:
        intervals: signed, a, b, epoch, until, diff (`truss.alive_intervals`).
        trussness: the stored triples.
        request: what is computed; nothing is proved or left.
        size: the number of edges for which a task has memory.
        say: takes the progress of each round: the epoch, and a text.
        rounds: the store of the results of rounds.

    Returns:
        Rows of `tagged_rows.RESULT`, without the columns of certificates, to be read while the store holds the rounds.
    """
    rounds = rounds or ExecutorRoundStore()
    trussness = trussness.where(F.col("epoch") <= request.last_epoch)
    rows, epochs = _opening_rows(intervals, trussness, request.first_epoch, rounds)
    later = trussness.where(F.col("epoch") >= request.first_epoch)
    triples = [later.select(*EDGE, "k", "epoch", (-F.col("diff")).alias("diff"))]
    notes: list[tuple[int, str]] = []
    if epochs:
        with bsp.partitioned_graph(rows, size, rounds) as held:
            say(
                epochs[0][0],
                f"{len(held.parts):,} parts hold {held.edges:,} rows, the largest {held.largest_part_edges:,}",
            )
            before: DataFrame | None = None
            unread: list[DataFrame] = []  # persisted rows from which `triples` are still computed
            for place, (epoch, inserted, deleted) in enumerate(epochs, 1):
                began = perf_counter()
                say(epoch, f"({place} of {len(epochs)}) {inserted:,} edges are inserted, {deleted:,} deleted")
                settled, exchange = _settle_epoch(held, rounds, epoch, inserted, before, partial(say, epoch))
                triples.append(_epoch_triples(settled, epoch))
                before = settled
                if len(triples) > MERGED_RESULTS:
                    triples = [rounds.persist_rows(sum_triples(triples))]
                    for frame in unread:
                        rounds.drop_rows(frame)
                    unread = [*triples]
                unread.append(settled)
                note = {
                    "epoch": epoch,
                    "inserted": inserted,
                    "deleted": deleted,
                    "method": "parts",
                    "rounds": exchange.rounds,
                    "evaluations": exchange.looked_at,
                    "messages": exchange.messages,
                    "parts": len(held.parts),
                    "seconds": round(perf_counter() - began, 6),
                }
                notes.append((epoch, json.dumps(note)))
    rounds.drop_rows(rows)
    log = intervals.sparkSession.createDataFrame(notes, "epoch bigint, note string")
    changed = sum_triples(triples).select(kind_column(RowKind.CHANGE), *TRIPLE)
    return changed.unionByName(log.select(kind_column(RowKind.NOTE), "*"), allowMissingColumns=True)


def elimination_order(
    edges: DataFrame,
    size: int,
    rounds: RoundStore | None = None,
    say: Callable[[str], None] = lambda text: None,
    layout: PartitionLayout | None = None,
) -> DataFrame:
    """Return a place for every edge, which proves that no trussness is too low, if none is
    (`kernels/partition_kernels`).

    EXECUTES.

    Args:
        edges: a, b, k (the trussness, >= 2).
        size: the number of edges for which a task has memory.
        rounds: the store of the results of rounds.
        say: takes one line of progress for each round.
        layout: of parts that hold these edges. None: it is made.

    Returns:
        a, b, label: those of the edges that found a place.
    """
    rounds = rounds or ExecutorRoundStore()
    rows = edges.select(*EDGE, (F.col("k") - 2).alias("level"), _long_literal(0, "epoch"), _long_literal(0, "diff"))
    with bsp.partitioned_graph(rows, size, rounds, layout) as held:
        tasks = partial(_place_task, held.name), partial(_place_from_cache, held.name)
        exchange = bsp.exchange_rounds(held, rounds, tasks, None, None, say)
    return bsp.own_values(exchange.message_rows).withColumnRenamed("value", "label").hint(UNPACKED)


def certificate_counts(edges: DataFrame, count: int, size: int) -> DataFrame:
    """Count in cells what proves a trussness, or shows that it is wrong.

    `edges` has a, b, k and label, null for an edge without a place; `count` is the number of edges. The result has
    these columns, and triangles, backing and first (`kernels.certificate_counts`).
    """
    last = edges.fillna({"label": LAST_LABEL})
    types = ENDS | {"k": np.int32, "label": np.int64}
    counted = fold_over_cells(
        last,
        types,
        bsp.count_colours(count, size),
        work=_certificate_task,
        returns=FACTS,
        fold=np.add,
        count=count,
        size=size,
    )
    return edges.join(counted, EDGE, "left").fillna(0, FACTS)


def build_checkpoint(
    edges: DataFrame, count: int, size: int, rounds: RoundStore, say: Callable[[str], None] = lambda text: None
) -> DataFrame:
    """Return the checkpoint of a graph for `truss_local_update`: its trussness and the certificates that prove it.
    EXECUTES.

    The rounds work in the parts of `rounds.layout`, which come from a computation of the trussness of these edges and
    perhaps of others.

    Args:
        edges: a, b, k.
        count: the number of edges.
        size: the number of edges for which a task has memory.
        rounds: the store of the results of rounds.
        say: takes one line of progress for each round.

    Returns:
        a, b, level, label, own, backing, to be read while the store holds the rounds.

    Raises:
        ValueError: the trussness is wrong, or its order has more places than there is room for labels.
    """
    placed = elimination_order(edges, size, rounds, say, rounds.layout)
    judged = rounds.persist_rows(certificate_counts(edges.join(placed, EDGE, "left"), count, size))
    unfit = f"(label >> {kernel.TURN}) >= {MOST_ROUNDS} OR (label & {2**kernel.TURN - 1}) >= {MOST_TURNS}"
    row = judged.where(" OR ".join((TOO_LOW, TOO_HIGH, unfit))).orderBy(*EDGE).first()
    if row:
        raise ValueError(f"the trussness {row.k} of edge ({row.a}, {row.b}) is not proved")
    label = F.expr(f"((label >> {kernel.TURN}) * {MOST_TURNS} + (label & {2**kernel.TURN - 1})) * {LABEL_GAP}")
    values = F.expr("k - 2 AS level"), label.alias("label"), F.col("first").alias("own"), "backing"
    return judged.select(*EDGE, *values)


def _settle_epoch(
    held: PartitionedGraph,
    rounds: RoundStore,
    epoch: int,
    inserted: int,
    before: DataFrame | None,
    say: Callable[[str], None],
) -> tuple[DataFrame, bsp.ExchangeResult]:
    """Return the bounds of the parts after an epoch (`CLOSED_SCHEMA`), from those before it, and the exchange that led
    to them.
    """
    active = None if inserted else held.moves.get(epoch, set())
    known = None if before is None else bsp.initial_messages(before.where("value >= 0"))
    tasks = partial(_settle_task, held.name, epoch, inserted), partial(_settle_from_cache, held.name, epoch)
    exchange = bsp.exchange_rounds(held, rounds, tasks, active, known, say)
    messages = [exchange.message_rows] if known is None else [known, exchange.message_rows]
    touched = None if inserted else exchange.active
    closed = bsp.cogroup_step(held.rows, messages, touched, partial(_close_task, epoch, inserted), CLOSED_SCHEMA)
    if before is not None and touched is not None:
        others = before.where("value >= 0").where(~F.col("part").isin(sorted(touched)))
        closed = closed.unionByName(others.withColumn("before", F.col("value")))
    settled = rounds.persist_rows(closed)
    rounds.drop_rows(exchange.message_rows)
    return settled, exchange


def _epoch_triples(settled: DataFrame, epoch: int) -> DataFrame:
    """Return the changes of an epoch as diff triples of the trussness."""
    signed = (("before", -1), ("value", 1))
    both = F.array(*(F.struct(F.col(c).alias("k"), _long_literal(sign, "diff")) for c, sign in signed))
    moved = settled.where("own AND before <> value").select(*EDGE, F.inline(both)).where("k >= 0")
    return moved.select(*EDGE, F.expr("k + 2 AS k"), _long_literal(epoch, "epoch"), "diff")


def sum_triples(triples: list[DataFrame]) -> DataFrame:
    """Return the sum of triples a, b, k, epoch, diff."""
    whole = reduce(DataFrame.unionByName, triples)
    return whole.groupBy(*EDGE, "k", "epoch").agg(F.sum("diff").alias("diff")).where("diff <> 0")


def _opening_rows(
    intervals: DataFrame, trussness: DataFrame, first: int, rounds: RoundStore
) -> tuple[DataFrame, list[tuple[int, int, int]]]:
    """Return the rows of `bsp.partitioned_graph`, persisted, and (epoch, inserted, deleted) of each epoch with events.

    The rows are the levels just before `first`, and the events.
    """
    was = F.col("epoch") < first
    now = F.greatest("epoch", F.lit(first - 1)).alias("epoch")
    moved = interval_steps(intervals, EDGE).select(*EDGE, now, "diff", _long_literal(0, "known"), _long_literal(0, "k"))
    known = F.col("diff").alias("known"), (F.col("k") * F.col("diff")).alias("k")
    stored = trussness.where(was).select(*EDGE, _long_literal(first - 1, "epoch"), _long_literal(0, "diff"), *known)
    both = moved.unionByName(stored).repartition(*EDGE)  # all later steps are by edge
    sums = (F.sum(name).alias(name) for name in ("diff", "known", "k"))
    net = both.groupBy(*EDGE, "epoch").agg(*sums).where("diff <> 0 OR known <> 0")
    times = F.sum("diff").over(Window.partitionBy(*EDGE).orderBy("epoch")).alias("times")
    level = F.when(was, F.col("k") - 2).otherwise(-1).alias("level")
    diff = F.when(was, 0).otherwise(F.col("diff")).alias("diff")
    rows = rounds.persist_rows(net.select(*EDGE, level, "epoch", diff, times, "known"))
    wrong = F.expr(f"if(epoch < {first}, times <> 1 OR known <> 1, times NOT IN (0, 1))")
    counted = rows.groupBy("epoch").agg(
        F.count_if(F.col("diff") > 0),
        F.count_if(F.col("diff") < 0),
        F.min(F.when(wrong, F.struct(*EDGE, "times", "known"))),
    )
    epochs = sorted(tuple(row) for row in counted.collect())
    for epoch, _, _, bad in epochs:
        if bad:
            when = f"just before epoch {first}, with {bad.known} trussness" if epoch < first else f"at epoch {epoch}"
            raise ValueError(f"edge ({bad.a}, {bad.b}) exists {bad.times} times {when}")
    return rows, [(epoch, inserted, deleted) for epoch, inserted, deleted, _ in epochs if epoch >= first]


def _long_literal(value: int, name: str) -> Column:
    return F.lit(value).cast("bigint").alias(name)


# -- the tasks of one part ---------------------------------------------------------------------------------------------


class _PartitionRows(NamedTuple):
    """The edges that a part holds, sorted, and its rows, each with the place of its edge."""

    a: Longs
    b: Longs
    owner: Shorts
    level: Shorts
    cap: Shorts
    place: Shorts
    epoch: Longs
    diff: NDArray[np.int8]

    @classmethod
    def from_rows(cls, rows: pa.Table) -> _PartitionRows:
        """Return the edges and rows of packs (`bsp.PACKED`), which may come in any order."""
        a, b, owner, level, cap, epoch, diff = arrow_packing.unpack_columns(
            rows.sort_by("place").to_batches(), bsp.HELD
        )
        new = np.ones(a.size, bool)
        new[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
        place = np.cumsum(new, dtype=np.int32) - np.int32(1)
        if not new.all():  # an edge that comes and goes has more than one row
            first = np.flatnonzero(new)
            level = np.maximum.reduceat(level, first)
            a, b, owner, cap = (column[first] for column in (a, b, owner, cap))
        return cls(a, b, owner, level, cap, place, epoch, diff)

    def alive_at(self, epoch: int) -> NDArray[np.bool_]:
        """Tell which of the edges exist at an epoch of the window, or just before it."""
        times = (self.level >= 0).astype(np.int8)
        so_far = self.epoch <= epoch
        np.add.at(times, self.place[so_far], self.diff[so_far])
        return times > 0

    def cached_partition(self, name: str, number: int) -> partition_cache.CachedPartition:
        return partition_cache.cache_partition(name, number, self.a, self.b, self.level, self.owner)


class _EpochBounds(NamedTuple):
    """The bounds before an epoch, those with which it begins, and which of the edges are deleted at it."""

    bounds: Shorts
    first: Shorts
    gone: NDArray[np.bool_]

    @classmethod
    def from_rows(cls, holding: _PartitionRows, heard: pa.Table, epoch: int, inserted: int) -> _EpochBounds:
        was, now, before = holding.alive_at(epoch - 1), holding.alive_at(epoch), holding.level.copy()
        earlier = heard.filter(pc.field("round") == bsp.BEFORE)
        for place, value, *_ in _received_messages(holding.a, holding.b, earlier):
            before[place] = value
        before[~was] = -1
        first = np.where(was, np.minimum(holding.cap, before + np.int32(inserted)) if inserted else before, holding.cap)
        first[~now] = -1
        return cls(before, first, was & ~now)


def _received_messages(a: Longs, b: Longs, heard: pa.Table) -> Iterator[tuple[Ints, Longs, int, int]]:
    """Yield the messages (`bsp.MESSAGE_SCHEMA`) to a part that holds the edges a, b, pack by pack, by rounds.

    Each item has the places of edges, each once, and their values; the sender, and the round.
    """
    heard = heard.sort_by("round")
    for at in range(heard.num_rows):
        said_a, said_b, value = arrow_packing.unpack_columns(heard.slice(at, 1).to_batches(), bsp.MESSAGE)
        by = heard["sender"][at].as_py(), heard["round"][at].as_py()
        yield (graph.positions_of(a, b, said_a, said_b), value, *by)


def _lower_bounds(a: Longs, b: Longs, heard: pa.Table, bound: Shorts, part: int, newest: int) -> NDArray[np.bool_]:
    """Lower bounds, in place, by the messages of rounds; return which were lowered by other parts' messages of the
    newest.
    """
    fell = np.zeros(bound.size, bool)
    for place, value, sender, round_ in _received_messages(a, b, heard.filter(pc.field("round") > bsp.BEFORE)):
        lower = place[value < bound[place]]
        bound[place] = np.minimum(bound[place], value)
        if round_ == newest and sender != part:
            fell[lower] = True
    return fell


def _certificate_task(rows: Columns, colours: Colours | None) -> Columns:
    a, b, k, label = rows
    return [a, b, *local.count_certificate(a, b, k - 2, label, colours)]


def _settle_task(
    name: str, epoch: int, inserted: int, number: int, key: tuple[pa.Scalar, ...], rows: pa.Table, heard: pa.Table
) -> pa.Table:
    """Run a part in a round, from its rows and all messages.

    `number` is that of the round; in the first one there are no messages, but the edges that come and go are new to
    all.
    """
    part, holding = key[0].as_py(), _PartitionRows.from_rows(rows)
    before = _EpochBounds.from_rows(holding, heard, epoch, inserted)
    bound = before.first
    fell = _lower_bounds(holding.a, holding.b, heard, bound, part, number - 1)
    if number == 0:
        fell |= before.gone
    cached = holding.cached_partition(name, part)
    everyone = number == 0 and inserted > 0
    queued = cached.part.own & (bound >= 0) if everyone else kernel.shaken_edges(cached.part, bound, fell)
    return _settle_answer(name, epoch, number, cached, bound, queued)


def _settle_from_cache(
    name: str,
    epoch: int,
    number: int,
    since: Mapping[int, int],
    key: tuple[pa.Scalar, ...],
    _: pa.Table,
    heard: pa.Table,
) -> pa.Table:
    part = key[0].as_py()
    cached, bound = (
        partition_cache.load_partition(name, part),
        partition_cache.load_values(name, part, f"epoch{epoch}", since[part]),
    )
    if cached is None or bound is None:
        return bsp.absent_answer(part, number)
    fell = _lower_bounds(cached.a, cached.b, heard, bound, part, number - 1)
    return _settle_answer(name, epoch, number, cached, bound, kernel.shaken_edges(cached.part, bound, fell))


def _settle_answer(
    name: str, epoch: int, number: int, here: partition_cache.CachedPartition, bound: Shorts, queued: NDArray[np.bool_]
) -> pa.Table:
    start = bound.copy()
    looked = kernel.settle_bounds(here.part, bound, queued)
    moved = np.flatnonzero(bound != start)
    partition_cache.save_values(name, here.part.number, f"epoch{epoch}", number, bound)
    return _answer_table(number, here, moved, kernel.partitions_to_notify(here.part, bound, moved), bound, looked)


def _place_task(name: str, number: int, key: tuple[pa.Scalar, ...], rows: pa.Table, heard: pa.Table) -> pa.Table:
    holding = _PartitionRows.from_rows(rows)
    label = np.full(holding.a.size, kernel.NOWHERE, np.int64)
    return _place_answer(name, number, holding.cached_partition(name, key[0].as_py()), label, heard)


def _place_from_cache(
    name: str, number: int, since: Mapping[int, int], key: tuple[pa.Scalar, ...], _: pa.Table, heard: pa.Table
) -> pa.Table:
    part = key[0].as_py()
    here, label = (
        partition_cache.load_partition(name, part),
        partition_cache.load_values(name, part, "places", since[part]),
    )
    if here is None or label is None:
        return bsp.absent_answer(part, number)
    return _place_answer(name, number, here, label, heard)


def _place_answer(
    name: str, number: int, here: partition_cache.CachedPartition, label: Longs, heard: pa.Table
) -> pa.Table:
    for place, value, *_ in _received_messages(here.a, here.b, heard):
        label[place] = value
    moved = kernel.place_edges(here.part, here.level, label, number)
    partition_cache.save_values(name, here.part.number, "places", number, label)
    notified = kernel.partitions_to_notify_of_place(here.part, here.level, label, moved)
    return _answer_table(number, here, moved, notified, label, moved.size)


def _close_task(epoch: int, inserted: int, key: tuple[pa.Scalar, ...], rows: pa.Table, heard: pa.Table) -> pa.Table:
    part, holding = key[0].as_py(), _PartitionRows.from_rows(rows)
    before = _EpochBounds.from_rows(holding, heard, epoch, inserted)
    bound = before.first
    _lower_bounds(holding.a, holding.b, heard, bound, part, bsp.BEFORE)
    is_own = holding.owner == part
    shown = np.flatnonzero((bound != holding.level) | (before.bounds != holding.level))
    columns: dict[str, NDArray[np.integer]] = {"a": holding.a, "b": holding.b}
    columns |= {"before": before.bounds, "value": bound}
    return pa.table(
        {
            "part": np.full(shown.size, part, np.int32),
            "own": is_own[shown],
            **{name: column[shown].astype(np.int64) for name, column in columns.items()},
        }
    )


def _answer_table(
    number: int,
    here: partition_cache.CachedPartition,
    moved: Ints,
    notified: tuple[Shorts, Ints],
    value: NDArray[np.integer],
    looked: int,
) -> pa.Table:
    """Return the messages of a part in a round, to itself about its own edges and to others."""
    part, edges = here.part.number, np.concatenate([moved, notified[1]])
    to = np.concatenate([np.full(moved.size, part), notified[0]])
    rows = {"a": here.a[edges], "b": here.b[edges], "value": value[edges].astype(np.int64)}
    return bsp.round_messages(part, number, to, looked, rows)
