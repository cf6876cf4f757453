"""The two sides of an audit: the edges recomputed from the landed upserts, and the maintained rows, at some epochs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from altneu.algorithms.graph import motif_patterns
from altneu.algorithms.sql_predicates import only_where

from ..home.home import Home
from ..storage import local_frame
from . import motif_reference
from .epoch_recount import MOTIF, PER_ROW


def select_upserts_in_force(upserts: DataFrame, home: Home, epochs: list[int]) -> DataFrame:
    """Select the landed upserts that make an edge at some epochs, from scratch.

    Returns:
        Rows of _at (one of `epochs`), a, b (a < b), src, dst, epoch (of the upsert), and the value columns.
    """
    config = home.config
    epoch_frame = F.broadcast(
        local_frame.local_frame(upserts.sparkSession, {"_at": "bigint"}, [(epoch,) for epoch in epochs])
    )
    pair = F.least("src", "dst").alias("a"), F.greatest("src", "dst").alias("b")
    rows = (
        upserts.where("src <> dst").select("*", *pair).repartition("a", "b")
    )  # the only exchange, because every later key contains both
    key = ["a", "b", "src", "dst"]
    landed = rows.groupBy(*key, *config.values, "op", "seq", "epoch").agg(F.sum("diff").alias("_n"))
    value = F.struct(F.lit(1).alias("_one"), *config.values)
    order = F.struct("epoch", "seq", (F.col("op") == "upsert").alias("_is_value"), value.alias("_value"))
    last = (
        landed.where("_n > 0")
        .join(epoch_frame, F.col("epoch") <= F.col("_at"))
        .groupBy("_at", *key)
        .agg(F.max(order).alias("_last"))
        .select("_at", *key, "_last.epoch", "_last._is_value", "_last._value.*")
        .where("_is_value")
    )
    if config.edges.live_for is not None:
        last = last.where(F.col("_at") < F.col("epoch") + config.edges.live_for)
    if config.edge_condition is None:
        return last
    return last.where(
        only_where("_is_value", config.edge_condition)
    )  # Spark may evaluate this before the other filters


def recompute_edges(upserts: DataFrame, home: Home, epochs: list[int]) -> DataFrame:
    """Recompute the edges that follow from the landed upserts at some epochs, from scratch.

    Returns:
        Rows of relation, a, b (a < b in undirected relations) and epoch. The relation is `-` for plain edges, or the
        name of a relation of motifs. A pair whose directions both have a value has two rows.
    """
    config = home.config
    last = select_upserts_in_force(upserts, home, epochs)
    relations = [F.struct(F.lit(motif_patterns.OWN_EDGES).alias("relation"), "a", "b")]
    for name in motif_patterns.extra_relations(motif_reference.read_motifs(config.motifs)):
        ends = (F.col("src").alias("a"), F.col("dst").alias("b")) if name.startswith("->") else ("a", "b")
        passes = F.coalesce(F.expr(motif_patterns.relation_condition(name) or "true"), F.lit(False))
        relations.append(F.when(passes, F.struct(F.lit(name).alias("relation"), *ends)))
    return last.select(F.col("_at").alias("epoch"), F.inline(F.array(*relations))).where("relation IS NOT NULL")


def select_stored_rows(read: Callable[[str], DataFrame], epochs: list[int], motifs: Sequence[str] = ()) -> DataFrame:
    """Select the maintained state at some epochs.

    Returns:
        Rows of epoch, what (the index in `PER_ROW`), a, b, k and n (a number of copies, a degree, or a count). For
        motifs, k is the index in `[motifs]`, or -1 if the name is not there.
    """

    def select_part(table: str, what: str, a: str, b: str = "null", k: str = "null", until: str = "null") -> DataFrame:
        names = {"a": a, "b": b, "k": k, "until": until}
        longs = [f"CAST({column} AS bigint) AS {name}" for name, column in names.items()]
        return read(table).selectExpr("epoch", f"{PER_ROW.index(what)}Y AS what", *longs, "diff")

    parts = [
        select_part("edges", "edge", "a", "b", until="until"),
        select_part("degrees", "degree_at_vertex", "vertex"),
        select_part("triangle_counts", "triangles_at_vertex", "vertex"),
        select_part("trussness", "trussness_of_edge", "a", "b", "k"),
    ]
    if motifs:
        place = f"coalesce(array_position(array({', '.join(repr(name) for name in motifs)}), motif), 0) - 1"
        parts.append(select_part("motif_counts", MOTIF, "vertex", k=place))
    rows = reduce(DataFrame.unionByName, parts).where(F.col("epoch") <= max(epochs)).repartition("a", "b")
    epoch_frame = F.broadcast(
        local_frame.local_frame(rows.sparkSession, {"at": "bigint"}, [(epoch,) for epoch in epochs])
    )
    in_force = (F.col("epoch") <= F.col("at")) & (F.col("until").isNull() | (F.col("at") < F.col("until")))
    key = F.col("at").alias("epoch"), "what", "a", "b", "k"
    return rows.join(epoch_frame, in_force).groupBy(*key).agg(F.sum("diff").alias("n")).where("n <> 0")
