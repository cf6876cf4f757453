"""From upserts of a keyed relation to the simple undirected graph: filter, window, distinct; and the vertices' degrees.

Law      At epoch t the edge {a, b} (a < b) is there iff at least one of the keys (a, b), (b, a) has a value then that
         passes the filter. Self-loops make no edge. Only touched pairs are recomputed: delta = new timeline - old one,
         so the same input again gives an empty delta (laws 1 to 3).
Shapes   Upsert rows are diff triples of landed rows: src, dst, value columns, op, seq, epoch, `diff`. Edges are signed
         validity intervals: a, b, epoch (from), until, diff: the two triples `(epoch, +diff)`, `(until, -diff)`.
Cost     One shuffle of the touched rows, on (a, b). The stored rows are scanned once; they are joined to the touched
         pairs by broadcast with `broadcast=True`, otherwise by a shuffle.
Source   Seed 3 (upserts), seed 2 (temporal filter, distinct is not linear).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from algorithms.patterns import condition
from algorithms.times import FOREVER
from algorithms.upserts import distinct_changes, lives


def _pair() -> tuple[Column, Column]:
    """The ends of a key as an unordered pair: a < b."""
    return F.least("src", "dst").alias("a"), F.greatest("src", "dst").alias("b")


def touched_pairs(delta: DataFrame, values: Sequence[str]) -> DataFrame:
    """The unordered pairs (a < b) for which an upsert really changed; from which file and line does not count."""
    net = delta.where("src <> dst").groupBy("src", "dst", *values, "op", "seq", "epoch").agg(F.sum("diff").alias("_n"))
    return net.where("_n <> 0").select(*_pair()).distinct()


def edge_changes(
    base: DataFrame | None,
    delta: DataFrame,
    pairs: DataFrame | None,
    values: Sequence[str],
    live_for: int | None = None,
    where: Column | str | None = None,
    broadcast: bool = True,
) -> DataFrame:
    """Signed intervals `a, b, epoch, until, diff` by which the edges change when `delta` is added to `base`.

    `base`: upsert rows before (None: there are none); `pairs`: the touched pairs of `delta`, or None: all pairs are
    looked at, of which the others change nothing. With `broadcast` the pairs must fit an executor's memory (about 100
    bytes each).
    """
    versions = _versions(base, delta, pairs, values, broadcast)
    found = lives(versions, _KEY, values, live_for, where, by=["_version"])
    return distinct_changes(found.selectExpr(*_LIFE), ["a", "b"])


def relation_changes(
    base: DataFrame | None,
    delta: DataFrame,
    pairs: DataFrame | None,
    values: Sequence[str],
    relations: Sequence[str],
    live_for: int | None = None,
    where: str | None = None,
    broadcast: bool = True,
) -> DataFrame:
    """Signed intervals `relation, a, b, epoch, until, diff` by which some relations of motifs change (`patterns`).

    An upsert counts that passes `where` and the relation's own condition. Of a relation that is directed (a, b) is the
    key; of others, as of the edges, a < b, and one direction is enough. All in the one shuffle of `edge_changes`.
    """
    versions = _versions(base, delta, pairs, values, broadcast)
    each = versions.withColumn("_relation", F.explode(F.array(*[F.lit(name) for name in relations])))
    asks = [(name, " AND ".join(f"({test})" for test in (where, condition(name)) if test)) for name in relations]
    test = F.coalesce(*[F.when(F.col("_relation") == name, F.expr(ask or "true")) for name, ask in asks])
    found = lives(each, _KEY, values, live_for, test, by=["_version", "_relation"])
    directed = F.col("_relation").startswith("->")
    x = F.when(directed, F.col("src")).otherwise(F.col("a")).alias("x")
    y = F.when(directed, F.col("dst")).otherwise(F.col("b")).alias("y")
    each_life = found.select(*map(F.expr, _LIFE), F.col("_relation").alias("relation"), x, y)
    net = distinct_changes(each_life, ["a", "b", "relation", "x", "y"])
    return net.select("relation", F.col("x").alias("a"), F.col("y").alias("b"), "epoch", "until", "diff")


_KEY = ["a", "b", "src", "dst"]
_LIFE = ["a", "b", "epoch", "until", "_version AS version"]


def _versions(
    base: DataFrame | None, delta: DataFrame, pairs: DataFrame | None, values: Sequence[str], broadcast: bool
) -> DataFrame:
    """The upserts of the touched pairs (of all, where they are None) before (`_version` -1) and now (1), by pair.

    Columns of our own begin with an underscore here: those of values may have any other name.
    """
    columns = ["src", "dst", *values, "op", "seq", "epoch", "diff"]
    rows = delta.where("src <> dst").select(*columns, F.lit(0).cast("bigint").alias("_before"))
    if base is not None:
        old = base.where("src <> dst")
        if pairs is not None:
            few = pairs.select(F.col("a").alias("_a"), F.col("b").alias("_b"))
            old = on_pair(base.select(*columns, *_pair()), ("a", "b"), few, ("_a", "_b"), broadcast)
        rows = rows.unionByName(old.select(*columns, F.col("diff").alias("_before")))
    rows = rows.select(*_pair(), *columns, "_before").repartition("a", "b")
    # One landed row may stand in several files: what counts is whether it is there, before and after.
    there = rows.groupBy(*_KEY, *values, "op", "seq", "epoch").agg(
        F.sum("diff").alias("_now"), F.sum("_before").alias("_before")
    )
    signs = F.array(F.when(F.col("_now") > 0, F.lit(1)), F.when(F.col("_before") > 0, F.lit(-1)))
    rows = there.select(*_KEY, *values, "op", "seq", "epoch", F.explode(signs).alias("_version"))
    return rows.where("_version IS NOT NULL")


def on_pair(
    rows: DataFrame, pair: tuple[str, str], few: DataFrame, other: tuple[str, str], broadcast: bool = True
) -> DataFrame:
    """Join where `pair` of the rows and `other` of the few are the same two longs; all columns of both.

    By one long as the key, for Spark's faster hash table: 2.4 s → 1.3 s on 10M edges. Hashes may collide, so the pairs
    are compared as well, in a form that does not become part of the key.
    """
    keyed = few.withColumn("_key", F.xxhash64(*other))
    away = [F.col(x).bitwiseXOR(F.col(y)) for x, y in zip(pair, other, strict=True)]
    both = rows.withColumn("_key", F.xxhash64(*pair)).join(F.broadcast(keyed) if broadcast else keyed, "_key")
    return both.where(away[0].bitwiseOR(away[1]) == 0).drop("_key")


def steps(intervals: DataFrame, data: Sequence[str]) -> DataFrame:
    """Signed intervals → diff triples over epochs: data, epoch, diff. An open interval has no second triple."""
    ends = F.array(
        F.struct(F.col("epoch"), F.col("diff")),
        F.struct(F.col("until").alias("epoch"), (-F.col("diff")).alias("diff")),
    )
    return intervals.select(*data, F.inline(ends)).where(F.col("epoch") < FOREVER)


def degree_changes(edges: DataFrame) -> DataFrame:
    """Signed edge intervals → diff triples `vertex, epoch, diff` of the degrees (linear: seed 2)."""
    ends = steps(edges, ["a", "b"]).select(F.explode(F.array("a", "b")).alias("vertex"), "epoch", "diff")
    return ends.groupBy("vertex", "epoch").agg(F.sum("diff").alias("diff")).where("diff <> 0")


def degree_total_changes(before: DataFrame, delta: DataFrame, broadcast: bool = True, whole: bool = False) -> DataFrame:
    """How many vertices have an edge, and how many wedges (pairs of edges that meet) there are: diff triples
    `measure` (vertices, wedges), epoch, diff, from degree triples.

    `before`: degrees until now (vertex, epoch, diff); `delta`: their change. Neither is linear in the degrees, so the
    timelines of the vertices of `delta`, and with `whole` those of all others as well, are looked at, before and after.
    """
    old = before
    if not whole:
        few = delta.select("vertex").distinct()
        old = before.join(F.broadcast(few) if broadcast else few, "vertex")
    zero = F.lit(0).cast("bigint")
    both = old.select("vertex", "epoch", F.col("diff").alias("old"), zero.alias("new")).unionByName(
        delta.select("vertex", "epoch", zero.alias("old"), F.col("diff").alias("new"))
    )
    by_epoch = both.groupBy("vertex", "epoch").agg(F.sum("old").alias("old"), F.sum("new").alias("new"))
    line = Window.partitionBy("vertex").orderBy("epoch")
    old_degree = F.sum("old").over(line)
    degree = F.sum(F.col("old") + F.col("new")).over(line)

    def pairs(d: Column) -> Column:
        return F.shiftright(d * (d - 1), 1)

    measures = {
        "vertices": (degree > 0).cast("bigint") - (old_degree > 0).cast("bigint"),
        "wedges": pairs(degree) - pairs(old_degree),
    }
    levels = by_epoch.select("vertex", "epoch", *[change.alias(name) for name, change in measures.items()])
    steps_ = [
        F.struct(F.lit(name).alias("measure"), (F.col(name) - F.coalesce(F.lag(name).over(line), zero)).alias("diff"))
        for name in measures
    ]
    diffs = levels.select("epoch", F.array(*steps_).alias("steps")).select("epoch", F.inline("steps"))
    return diffs.groupBy("measure", "epoch").agg(F.sum("diff").alias("diff")).where("diff <> 0")
