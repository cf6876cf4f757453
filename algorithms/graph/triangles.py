"""The triangles of a graph, by three plans: delta queries for few changed edges, one enumeration of the whole history
for many, and maintenance of the cached graph if there is one.

Delta    The three rules of seed 4 in alt/neu order, each by count, propose and validate:

    d△(a,b,c) := dE(a,b) ⋈ E(a,c) ⋈ E(b,c)      rule 0: both E without the changes of this revision (alt)
    d△(a,b,c) := dE(a,c) ⋈ E(a,b) ⋈ E(b,c)      rule 1: E(a,b) with these changes (neu), E(b,c) without
    d△(a,b,c) := dE(b,c) ⋈ E(a,b) ⋈ E(a,c)      rule 2: both E with these changes

with a < b < c. The place of the third vertex tells the rules apart, so that one pass runs all three: an edge of this
revision is visible to rule i iff its own relation index is below i. Each triangle is claimed exactly once (law 5).

Bulk     All edges in one task, or in cells (`color_partitioning`, `kernels/triangle_history`); the result is the
         difference from the stored counts. It shares no code with the rules, and returns the same diff triples.

Resume   From the cached graph of the run before, in one task, edge by edge (`kernels/triangle_update`). It is not
         possible if edges live for a number of epochs, because that graph does not know when they will expire.

Shapes   Edges: a, b (a < b), epoch, until, diff: signed validity intervals. A triangle lives on the intersection of its
         edges' intervals, with the product of their diffs, so that one pass computes many epochs.
Cost     Σ over changed edges of min(rows at a, rows at b) proposals (law 8); three scans of the index, and no exchange
         of it when `broadcast` is set: then the proposals must fit into an executor's memory (about 150 bytes each).
         Bulk: one scan; the kernel's time; 200 bytes for each edge interval in the task, of which it has at most about
         `limit_edges`. `cost_model.TrianglePlanChoice` estimates both.
Source   Seed 4 (worst-case optimal joins, delta queries), seed 1 (alt/neu); Ngo et al. 2012, Ammar et al. 2018.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from altneu.algorithms.graph.color_partitioning import Columns, map_cells
from altneu.algorithms.graph.edge_derivation import interval_steps, join_on_pair
from altneu.algorithms.graph.graph_cache_task import CachedGraph, resume_task, split_fresh
from altneu.algorithms.graph.kernels import triangle_update
from altneu.algorithms.graph.kernels.graph import Colours
from altneu.algorithms.graph.kernels.intervals import consolidate, make_disjoint, to_longs
from altneu.algorithms.graph.kernels.persistent_graph import PersistentGraph
from altneu.algorithms.graph.kernels.replay import epoch_batches
from altneu.algorithms.graph.kernels.triangle_history import colours_for, vertex_changes
from altneu.algorithms.graph.tagged_rows import (
    INTERVAL,
    RowKind,
    compute_in_one_task,
    result_table,
    tag_rows,
    take_kinds,
)

CHANGE = ["vertex", "epoch", "diff"]


def _index_both_ends(edges: DataFrame, *, neu: bool) -> DataFrame:
    """Return the index seen from both ends: x, w, and the interval as e, u, d."""
    from_a = F.explode(F.array(F.lit(True), F.lit(False))).alias("from_a")
    x = F.when(F.col("from_a"), F.col("a")).otherwise(F.col("b")).alias("x")
    w = F.when(F.col("from_a"), F.col("b")).otherwise(F.col("a")).alias("w")
    interval = [F.col("epoch").alias("e"), F.col("until").alias("u"), F.col("diff").alias("d")]
    return edges.select("*", from_a).select(x, w, *interval, F.lit(neu).alias("neu"))


def _small_frame(frame: DataFrame, *, broadcast: bool) -> DataFrame:
    return F.broadcast(frame) if broadcast else frame


def count(index: DataFrame, delta: DataFrame, *, broadcast: bool = True) -> DataFrame:
    """Return delta's rows with x, the end with fewer index rows, y, the other end, and `proposals`, the number of rows
    at x.

    This is the first step, count. The sum of `proposals` bounds the work of `propose`.
    """
    x = F.explode(F.array("a", "b")).alias("x")  # the ends alone: cheaper than `_index_both_ends`
    ends = delta.select(x).distinct()
    touching = index.select(x).join(_small_frame(ends, broadcast=broadcast), "x").unionByName(delta.select(x))
    counts = touching.groupBy("x").agg(F.count("*").alias("n"))
    at_a = counts.select(F.col("x").alias("a"), F.col("n").alias("n_a"))
    at_b = counts.select(F.col("x").alias("b"), F.col("n").alias("n_b"))
    both = delta.join(_small_frame(at_a, broadcast=broadcast), "a").join(_small_frame(at_b, broadcast=broadcast), "b")
    from_a = F.col("n_a") <= F.col("n_b")
    return both.select(
        "a",
        "b",
        "epoch",
        "until",
        "diff",
        F.when(from_a, F.col("a")).otherwise(F.col("b")).alias("x"),
        F.when(from_a, F.col("b")).otherwise(F.col("a")).alias("y"),
        F.least("n_a", "n_b").alias("proposals"),
    )


def _rule_of_proposal() -> Column:
    """Return the rule of a proposal (a, b; w): the place of the changed edge among ab, ac, bc of the triangle."""
    return F.when(F.col("w") > F.col("b"), 0).when(F.col("w") > F.col("a"), 1).otherwise(2)


def _edge_position(end: str) -> Column:
    """Return the place among ab, ac, bc of the edge between `end` (x or y, one end of the changed edge) and w."""
    low = F.col(end) == F.col("a")  # the smaller end of the changed edge
    above, between = F.col("w") > F.col("b"), F.col("w") > F.col("a")
    return (
        F.when(above, F.when(low, 1).otherwise(2))
        .when(between, F.when(low, 0).otherwise(2))
        .otherwise(F.when(low, 0).otherwise(1))
    )


def _is_visible(end: str) -> Column:
    """Tell whether a rule sees a row: of this revision it sees the relations before its own (alt/neu)."""
    return ~F.col("neu") | (_edge_position(end) < _rule_of_proposal())


def _met_interval() -> list[Column]:
    """Return the join of the times: the later start, the earlier end, and the product of the diffs."""
    return [
        F.greatest("epoch", "e").alias("epoch"),
        F.least("until", "u").alias("until"),
        (F.col("diff") * F.col("d")).alias("diff"),
    ]


def propose(index: DataFrame, delta: DataFrame, counted: DataFrame, *, broadcast: bool = True) -> DataFrame:
    """Return the proposals a, b, y, w, epoch, until, diff: the neighbours w of each changed edge's end x."""
    few = _small_frame(counted.drop("proposals"), broadcast=broadcast)

    def side(edges: DataFrame, *, neu: bool) -> DataFrame:
        joined = _index_both_ends(edges, neu=neu).join(few, "x").where(F.col("w") != F.col("y")).where(_is_visible("x"))
        return joined.select("a", "b", "y", "w", *_met_interval()).where("epoch < until")

    return side(index, neu=False).unionByName(side(delta, neu=True))


def validate(index: DataFrame, delta: DataFrame, proposals: DataFrame, *, broadcast: bool = True) -> DataFrame:
    """Return the proposals whose third edge {y, w} exists: the changed triangles.

    The columns are a, b, c (a < b < c), epoch, until, diff. The rows are not consolidated: equal rows may occur several
    times.
    """
    few = proposals.select("*", F.least("y", "w").alias("p"), F.greatest("y", "w").alias("q"))

    def side(edges: DataFrame, *, neu: bool) -> DataFrame:
        ends = F.col("a").alias("lo"), F.col("b").alias("hi")
        interval = F.col("epoch").alias("e"), F.col("until").alias("u"), F.col("diff").alias("d")
        stored = edges.select(*ends, *interval, F.lit(neu).alias("neu"))
        joined = join_on_pair(stored, ("lo", "hi"), few, ("p", "q"), broadcast=broadcast).where(_is_visible("y"))
        corners = F.array_sort(F.array("a", "b", "w"))
        return joined.select(corners.alias("t"), *_met_interval()).where("epoch < until")

    both = side(index, neu=False).unionByName(side(delta, neu=True))
    return both.select(
        F.col("t")[0].alias("a"), F.col("t")[1].alias("b"), F.col("t")[2].alias("c"), "epoch", "until", "diff"
    )


def triangle_changes(index: DataFrame, delta: DataFrame, *, broadcast: bool = True) -> DataFrame:
    """Return signed intervals `a, b, c, epoch, until, diff` by which the triangles change, by all three steps.

    `index` has the edges before and `delta` their change, both as signed intervals.
    """
    counted = count(index, delta, broadcast=broadcast)
    return validate(index, delta, propose(index, delta, counted, broadcast=broadcast), broadcast=broadcast)


def vertex_triangle_changes(triangles: DataFrame) -> DataFrame:
    """Return triangle intervals as diff triples `vertex, epoch, diff` of the number of triangles at each vertex."""
    corners = interval_steps(triangles, ["a", "b", "c"]).selectExpr(
        "explode(array(a, b, c)) AS vertex", "epoch", "diff"
    )
    return corners.groupBy("vertex", "epoch").agg(F.expr("sum(diff) AS diff")).where("diff <> 0")


def recounted_vertex_changes(
    edges: DataFrame, stored: DataFrame | None, intervals: int, limit_edges: int, *, first: int | None = None
) -> DataFrame:
    """Return diff triples `vertex, epoch, diff` by which the stored triangle counts change, from all signed edge
    intervals.

    The task raises ValueError if by the intervals an edge exists twice at the same time.

    Args:
        edges: the signed edge intervals; with `first` those of `horizon.intervals_since`.
        stored: diff triples vertex, epoch, diff. None: there are none.
        intervals: the number of rows of `edges`, or more.
        limit_edges: with more intervals the graph is cut into cells, which are counted in parallel and added up.
        first: the first epoch of the result. None: there is no earlier epoch.
    """
    colours = colours_for(intervals, limit_edges)
    rows = edges.select(*INTERVAL)
    if colours == 1:
        new = rows.coalesce(1).mapInArrow(_count_all, ", ".join(f"{name} bigint" for name in CHANGE))
    else:
        new = map_cells(rows, dict.fromkeys(INTERVAL, np.int64), colours, _count_task, CHANGE)
    if stored is not None:
        new = new.unionByName(stored.select("vertex", "epoch", (-F.col("diff")).alias("diff")))
    if first is not None:
        new = new.where(F.col("epoch") >= first)
    if stored is None and colours == 1:
        return new
    return new.groupBy("vertex", "epoch").agg(F.sum("diff").alias("diff")).where("diff <> 0")


def resumed_vertex_changes(
    edges: DataFrame, stored: DataFrame, cached: CachedGraph, first: int, last: int
) -> DataFrame:
    """Return vertex changes computed from the graph cache, as rows of `tagged_rows.RESULT` with the vertex as `a`.

    Args:
        edges: the intervals that begin or end within `first`..max(`cached.epoch`, `last`), and `fresh`: those that the
            cached graph has not seen. Further intervals do no harm. Intervals that end after `last` must be open.
        stored: the stored triples from `first` on.
        cached: the cached graph.
        first: the first epoch of the result.
        last: the last epoch of the result.
    """

    def count_from_graph(graph: PersistentGraph, parts: list[pa.RecordBatch]) -> Iterator[pa.Table]:
        moved, counts = take_kinds(parts, 6, RowKind.INTERVAL, RowKind.STORED)
        batches = epoch_batches(graph, cached.epoch, *split_fresh(moved), first, last)
        vertex, epoch, diff = triangle_update.vertex_changes(graph, batches, first)
        data = [np.concatenate([vertex, counts[0]]), np.concatenate([epoch, counts[1]])]
        vertex, epoch, diff = consolidate(data, np.concatenate([diff, -counts[2]]))
        yield result_table(RowKind.CHANGE, a=vertex, epoch=epoch, diff=diff)

    rows = tag_rows(6, edges, RowKind.INTERVAL, *INTERVAL, "fresh")
    counts = stored.where(f"epoch BETWEEN {first} AND {last}")
    return compute_in_one_task(
        resume_task(cached, count_from_graph), rows, tag_rows(6, counts, RowKind.STORED, *CHANGE)
    )


def _count_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    parts = list(batches)
    if parts:
        counts = _count_task(to_longs(pa.Table.from_batches(parts), INTERVAL), None)
        yield from pa.table([*counts], CHANGE).to_batches(max_chunksize=1 << 20)


def _count_task(rows: Columns, colours: Colours | None) -> Columns:
    return vertex_changes(*make_disjoint(*rows), colours)
