"""The recomputation of an epoch's graph that no task can hold, and its comparison with what is maintained.

It does what `epoch_recount` does, but in cells and partitions. Edges and degrees come from the landed rows by joins.
Triangles are counted in cells (`altneu.algorithms.graph.color_partitioning`). The trussness is not peeled but proved:
an elimination order of all edges is searched for (`truss_bsp.elimination_order`), and then the certificates are counted
in cells (`kernels/certificate_counts`). They prove the trussness however the order was found. A wrong trussness is
therefore reported as too high or too low, without the right one.

Cost    EXECUTES for each epoch the making of partitions and their rounds, and then one query. A task holds one cell or
        partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from types import MappingProxyType

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from altneu.algorithms.graph import motif_patterns
from altneu.algorithms.graph.truss_bsp import TOO_HIGH, TOO_LOW, certificate_counts, elimination_order

from .epoch_recount import DIFFERENCE, PER_ROW, TOTAL


@contextmanager
def compare_distributed(
    stored: DataFrame,
    graph: DataFrame,
    epochs: Sequence[int],
    size: int,
    say: Callable[[str], None],
    labels: Mapping[int, DataFrame] = MappingProxyType({}),
) -> Iterator[DataFrame]:
    """Hold the differences between the stored and the recomputed results at some epochs, to be read in the block.

    Args:
        stored: The maintained rows: epoch, what, a, b, k, n (`audited_rows.select_stored_rows`).
        graph: The recomputed edges: epoch, a, b, relation (`audited_rows.recompute_edges`).
        epochs: The epochs to compare.
        size: The number of edges for which a task has memory.
        say: A function that takes lines about the progress.
        labels: Elimination orders that are known already, by epoch: a, b, label. The proof does not rely on them being
            right.

    Yields:
        Rows of `epoch_recount.RECOUNT`.
    """
    plain, cached = graph.where(F.col("relation") == motif_patterns.OWN_EDGES), list[DataFrame]()

    def persist_rows(rows: DataFrame) -> DataFrame:
        cached.append(rows.persist())
        return cached[-1]

    try:
        parts = []
        for epoch in epochs:
            at_epoch = F.col("epoch") == epoch
            parts.append(
                _compare_epoch(
                    persist_rows(stored.where(at_epoch)),
                    plain.where(at_epoch),
                    epoch,
                    size,
                    say,
                    persist_rows,
                    labels.get(epoch),
                )
            )
        yield reduce(DataFrame.unionByName, parts)
    finally:
        for rows in cached:
            rows.unpersist()


def _compare_epoch(
    stored: DataFrame,
    graph: DataFrame,
    epoch: int,
    size: int,
    say: Callable[[str], None],
    keep: Callable[[DataFrame], DataFrame],
    labels: DataFrame | None,
) -> DataFrame:
    edges = keep(graph.select("a", "b").distinct())
    n = edges.count()

    def select_kind(what: str) -> DataFrame:
        return stored.where(F.col("what") == PER_ROW.index(what))

    # An edge that is stored twice, or with two values, has no known trussness.
    claimed = (
        select_kind("trussness_of_edge")
        .groupBy("a", "b")
        .agg(F.sum(F.col("k") * F.col("n")).alias("k"), F.sum("n").alias("copies"))
    )
    known = (
        edges.join(claimed.where("copies = 1 AND k >= 2"), ["a", "b"], "left").fillna({"k": 2}).select("a", "b", "k")
    )
    known = keep(known)
    placed = elimination_order(known, size, say=say) if labels is None else labels
    proved = keep(certificate_counts(known.join(placed.select("a", "b", "label"), ["a", "b"], "left"), n, size))
    ends = proved.select(F.explode(F.array("a", "b")).alias("a"), "triangles")
    vertices = ends.groupBy("a").agg(F.count("*").alias("degree"), F.expr("SUM(triangles) DIV 2").alias("n"))
    vertices = keep(vertices)
    once = edges.withColumn("n", F.lit(1).cast("bigint"))
    wrong = [
        _find_unequal("edge", select_kind("edge"), once, ["a", "b"]),
        _find_unequal(
            "degree_at_vertex", select_kind("degree_at_vertex"), vertices.select("a", F.col("degree").alias("n")), ["a"]
        ),
        _find_unequal(
            "triangles_at_vertex", select_kind("triangles_at_vertex"), vertices.where("n > 0").select("a", "n"), ["a"]
        ),
        _find_misplaced(claimed, edges),
        _compare_kind("trussness_too_high", proved.where(TOO_HIGH), F.col("k"), None),
        _compare_kind("trussness_too_low", proved.where(TOO_LOW), F.col("k"), None),
        _compare_totals(stored, proved, vertices),
    ]
    listed = reduce(DataFrame.unionByName, wrong)
    each = Window.partitionBy("what")
    numbered = listed.withColumn("count", F.count("*").over(each))
    numbered = numbered.withColumn("_place", F.row_number().over(each.orderBy("a", "b")))
    first, totals = _first_rows(numbered), _count_totals(proved, vertices)
    both = first.select(F.lit(DIFFERENCE).alias("kind"), "*").unionByName(
        totals.select(F.lit(TOTAL).alias("kind"), "*")
    )
    return both.select("kind", F.lit(epoch).cast("bigint").alias("epoch"), *totals.columns)


def _compare_kind(what: str, rows: DataFrame, maintained: Column, recomputed: Column | None) -> DataFrame:
    values = {"maintained": maintained, "recomputed": F.lit(None) if recomputed is None else recomputed}
    columns = [F.lit(what).alias("what"), F.col("a"), F.col("b") if "b" in rows.columns else _null_column("b")]
    return rows.select(*columns, *(value.cast("bigint").alias(name) for name, value in values.items()))


def _null_column(name: str) -> Column:
    return F.lit(None).cast("bigint").alias(name)


def _find_unequal(what: str, stored: DataFrame, fresh: DataFrame, key: list[str]) -> DataFrame:
    """Find the keys whose stored value differs from the recomputed one."""
    old = stored.groupBy(*key).agg(F.sum("n").alias("old"))
    both = old.join(fresh.withColumnRenamed("n", "new"), key, "full")
    return _compare_kind(what, both.where("NOT old <=> new"), F.col("old"), F.col("new"))


def _find_misplaced(claimed: DataFrame, edges: DataFrame) -> DataFrame:
    """Find edges that do not have exactly one trussness of at least 2, and trussness of pairs that are no edges."""
    both = claimed.join(edges.withColumn("_there", F.lit(True)), ["a", "b"], "full")
    wrong = both.where("_there IS NULL OR copies IS NULL OR copies <> 1 OR k < 2")
    return _compare_kind("trussness_of_edge", wrong, F.col("k"), None)


def _compare_totals(stored: DataFrame, proved: DataFrame, vertices: DataFrame) -> DataFrame:
    """Find the totals of the stored rows that differ from the recomputed ones."""

    def sum_of(what: str, value: str) -> Column:
        return F.expr(f"COALESCE({value} FILTER (WHERE what = {PER_ROW.index(what)}), 0)")

    old = stored.agg(
        sum_of("edge", "SUM(n)").alias("edges"),
        sum_of("degree_at_vertex", "COUNT(*)").alias("vertices"),
        F.expr(f"COALESCE(SUM(n) FILTER (WHERE what = {PER_ROW.index('triangles_at_vertex')}), 0) DIV 3").alias(
            "triangles"
        ),
    )
    new = proved.agg(F.count("*").alias("_edges"), F.expr("COALESCE(SUM(triangles), 0) DIV 3").alias("_triangles"))
    both = old.crossJoin(new).crossJoin(vertices.agg(F.count("*").alias("_vertices")))
    rows = F.array(
        *(
            F.struct(F.lit(name).alias("what"), F.col(name).alias("maintained"), F.col(f"_{name}").alias("recomputed"))
            for name in ("edges", "vertices", "triangles")
        )
    )
    listed = both.select(F.inline(rows)).where("maintained <> recomputed")
    return listed.select("what", _null_column("a"), _null_column("b"), "maintained", "recomputed")


def _first_rows(numbered: DataFrame) -> DataFrame:
    from altneu.expectations.gx_runner import ROWS

    return numbered.where(F.col("_place") <= ROWS).drop("_place")


def _count_totals(proved: DataFrame, vertices: DataFrame) -> DataFrame:
    """Return the recomputed totals; those of the trussness are as it was proved."""
    single = proved.agg(
        F.count("*").alias("edges"),
        F.expr("SUM(triangles) DIV 3").alias("triangles"),
        F.max("k").alias("max_trussness"),
    ).crossJoin(
        vertices.agg(F.count("*").alias("vertices"), F.expr("SUM(degree * (degree - 1) DIV 2)").alias("wedges"))
    )
    zero = F.lit(0).cast("bigint")
    names = ("edges", "vertices", "triangles", "max_trussness", "wedges")
    rows = F.array(*(F.struct(F.lit(name).alias("what"), F.col(name).alias("recomputed")) for name in names))
    totals = single.select(F.inline(rows)).where("recomputed > 0").select("what", zero.alias("a"), "recomputed")
    sizes = proved.groupBy(F.col("k").alias("a")).agg(F.count("*").alias("recomputed"))
    sizes = sizes.select(F.lit("trusses").alias("what"), "a", "recomputed")
    both = totals.unionByName(sizes)
    return both.select("what", "a", _null_column("b"), _null_column("maintained"), "recomputed", zero.alias("count"))
