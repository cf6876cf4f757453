"""Audits: the maintained result against a full recomputation by another method, and the suites of `expectations/`.

The recomputation starts from the landed upserts and shares no plan with the maintenance: the last value per key as of
an epoch, distinct pairs, then one task per epoch that counts every triangle and peels every truss from scratch
(`kernels/`). It runs over any epochs at once; an epoch's graph must fit one task. The maintained trussness is proved
besides, without peeling: no edge is too high, and no set of edges can rise (`kernels.check`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from algorithms.kernels import check as certificate_kernel
from algorithms.kernels import triangles as triangle_kernel
from algorithms.kernels import truss as truss_kernel

from .config import Home
from .ledger import Revision
from .views import accumulate, at_epochs
from .warehouse import Warehouse

if TYPE_CHECKING:
    from .stages import Run

Check = dict[str, Any]
_RESULTS = "epoch bigint, what string, a bigint, b bigint, value bigint"


def recompute(upserts: DataFrame, home: Home, epochs: list[int]) -> DataFrame:
    """The results at some epochs from scratch: epoch, what, a, b, value.

    What: `edge` (a, b) (value 1) and `trussness_of_edge` (a, b); `triangles_at_vertex` a (b null), where there are any;
    the totals `edges`, `vertices`, `triangles`, `max_trussness` (a and b null). Zeros are left out.
    """
    config = home.config
    spark = upserts.sparkSession
    at = F.broadcast(spark.createDataFrame([(epoch,) for epoch in epochs], "at bigint"))
    landed = upserts.groupBy("src", "dst", *config.values, "op", "seq", "epoch").agg(F.sum("diff").alias("n"))
    value = F.struct(F.lit(1).alias("one"), *config.values)
    order = F.struct("epoch", "seq", (F.col("op") == "upsert").alias("is_value"), value.alias("value"))
    last = (
        landed.where("n > 0 AND src <> dst")
        .join(at, F.col("epoch") <= F.col("at"))
        .groupBy("at", "src", "dst")
        .agg(F.max(order).alias("last"))
        .select("at", "src", "dst", "last.epoch", "last.is_value", "last.value.*")
        .where("is_value")
    )
    if config.live_for is not None:
        last = last.where(F.col("at") < F.col("epoch") + config.live_for)
    if config.where is not None:
        last = last.where(config.where)
    pairs = last.select("at", F.least("src", "dst").alias("a"), F.greatest("src", "dst").alias("b")).distinct()
    return pairs.groupBy("at").applyInArrow(_from_scratch, _RESULTS)


def _from_scratch(graph: pa.Table) -> pa.Table:
    epoch = graph["at"][0].as_py()
    a, b = graph["a"].to_numpy().astype(np.int64), graph["b"].to_numpy().astype(np.int64)
    total, vertices, per_vertex, _ = triangle_kernel.count(a, b)
    trussness = truss_kernel.peel(a, b)
    busy = per_vertex > 0
    parts = [
        ("edge", a, b, np.ones(a.size, np.int64)),
        ("trussness_of_edge", a, b, trussness),
        ("triangles_at_vertex", vertices[busy], None, per_vertex[busy]),
        ("edges", None, None, [a.size]),
        ("vertices", None, None, [vertices.size]),
        ("triangles", None, None, [total] if total else []),
        ("max_trussness", None, None, [trussness.max()]),
    ]
    return pa.concat_tables(_part(epoch, *part) for part in parts)


def _part(epoch: int, what: str, a: Any, b: Any, value: Any) -> pa.Table:
    n, long = len(value), pa.int64()
    columns = [pa.nulls(n, long) if end is None else pa.array(end, long) for end in (a, b)]
    named = [pa.repeat(pa.scalar(epoch, long), n), pa.repeat(pa.scalar(what), n)]
    return pa.table([*named, *columns, pa.array(value, long)], names=["epoch", "what", "a", "b", "value"])


def maintained(read: Callable[[str], DataFrame], epochs: list[int]) -> DataFrame:
    """The maintained results at the same epochs, in the same shape, from the tables as a reader sees them."""
    spark = read("edges").sparkSession
    at = F.broadcast(spark.createDataFrame([(epoch,) for epoch in epochs], "at bigint"))
    none = F.lit(None).cast("bigint")

    def as_of(table: str, *data: str) -> DataFrame:
        rows = read(table).join(at, F.col("epoch") <= F.col("at"))
        return rows.groupBy("at", *data).agg(F.sum("diff").alias("n")).where("n <> 0")

    def results(rows: DataFrame, what: str, a: Column, b: Column, value: Column) -> DataFrame:
        return rows.select(F.col("at"), F.lit(what), a, b, value).toDF("epoch", "what", "a", "b", "value")

    def total(rows: DataFrame, what: str, value: Column) -> DataFrame:
        return results(rows.groupBy("at").agg(value.alias("value")), what, none, none, F.col("value"))

    alive = read("edges").join(at, (F.col("epoch") <= F.col("at")) & (F.col("at") < F.col("until")))
    edges = alive.groupBy("at", "a", "b").agg(F.sum("diff").alias("n")).where("n <> 0")
    degrees, counts = as_of("degrees", "vertex"), as_of("triangle_counts", "vertex")
    trussness = as_of("trussness", "a", "b", "k")
    a, b, n = F.col("a"), F.col("b"), F.col("n")
    # An edge stored twice, or with two values, must show as a difference: n counts, values are not deduplicated.
    frames = [
        results(edges, "edge", a, b, n),
        results(trussness, "trussness_of_edge", a, b, F.col("k") * n),
        results(counts, "triangles_at_vertex", F.col("vertex"), none, n),
        total(edges, "edges", F.sum("n")),
        total(degrees, "vertices", F.count("*")),
        total(counts, "triangles", (F.sum("n") / 3).cast("bigint")),
        total(trussness, "max_trussness", F.max("k")),
    ]
    return reduce(DataFrame.unionByName, frames)


def uncertified(trussness: DataFrame) -> DataFrame:
    """Edges whose trussness is proved wrong, of rows epoch, a, b, value: epoch, what, a, b, value.

    What: `trussness_too_high` (too few triangles hold the edge), `trussness_too_low` (it is of a set that can rise).
    """
    return trussness.groupBy("epoch").applyInArrow(_certify, _RESULTS)


def _certify(claimed: pa.Table) -> pa.Table:
    epoch = claimed["epoch"][0].as_py()
    a, b, k = (claimed[name].to_numpy().astype(np.int64) for name in ("a", "b", "value"))
    # what is no trussness of a graph at all (an edge twice, or below 2) shows as a difference; here the rest is judged
    fine = np.flatnonzero((k >= 2) & (a < b))
    _, once = np.unique(np.stack([a[fine], b[fine]]), axis=1, return_index=True)
    a, b, k = (column[fine][once] for column in (a, b, k))
    verdict = certificate_kernel.check(a, b, k)
    wrong = {"trussness_too_high": verdict.too_high, "trussness_too_low": verdict.too_low}
    return pa.concat_tables(_part(epoch, what, a[at], b[at], k[at]) for what, at in wrong.items())


def differences(recomputed: DataFrame, kept: DataFrame) -> DataFrame:
    """Rows on which the two disagree: epoch, what, a, b, maintained, recomputed (null: not there)."""
    sides = (
        F.sum(F.when(F.col("side") == 1, F.col("value"))).alias("maintained"),
        F.sum(F.when(F.col("side") == 2, F.col("value"))).alias("recomputed"),
    )
    both = kept.withColumn("side", F.lit(1)).unionByName(recomputed.withColumn("side", F.lit(2)))
    return both.groupBy("epoch", "what", "a", "b").agg(*sides).where("NOT maintained <=> recomputed")


def incremental_versus_full(
    warehouse: Warehouse, read: Callable[[str], DataFrame], epochs: list[int], say: Callable[[str], None]
) -> list[Check]:
    """One check per epoch and kind of result, with the first differing rows: the suite of `expectations/`."""
    from expectations.suite import check_differences

    say(f"recomputing {len(epochs)} epoch(s) from scratch")
    kept = maintained(read, epochs)
    found = differences(recompute(read("upserts"), warehouse.home, epochs), kept)
    claimed = kept.where("what = 'trussness_of_edge'").select("epoch", "a", "b", "value")
    nothing = F.lit(None).cast("bigint")
    found = found.unionByName(
        uncertified(claimed).withColumnRenamed("value", "maintained").withColumn("recomputed", nothing)
    )
    keyed = found.select("epoch", "what", F.concat_ws("-", "a", "b").alias("key"), "maintained", "recomputed")
    labels = {epoch: warehouse.home.schedule.label(epoch) for epoch in epochs}
    return check_differences(keyed, {"epochs": epochs, "labels": labels})


def suites(run: Run) -> list[Check]:
    """The Great Expectations suites over the run's new tables."""
    from expectations.suite import check_tables

    values = list(run.home.config.values)
    epoch = run.frontier
    whole = run.kind != "run"  # all edges are new then: what explains them are all landed rows
    delta = run.after("upserts") if whole else run.delta("upserts")
    data = ["src", "dst", *values, "op", "seq", "file", "line", "epoch"]
    touched = delta.select("epoch").distinct()
    copies = run.after("upserts").join(F.broadcast(touched), "epoch").groupBy(*data).agg(F.sum("diff").alias("copies"))
    alive = run.after("edges").where((F.col("epoch") <= epoch) & (F.col("until") > epoch))

    def as_of(table: str, name: str, *columns: str) -> DataFrame:
        rows = run.after(table).where(F.col("epoch") <= epoch).groupBy(*columns).agg(F.sum("diff").alias(name))
        return rows.where(F.col(name) != 0)

    diffs = run.ledger.total_diffs(run.parent.revision) + run.ledger.staged_totals(run.run_id, run.revision)
    published = {e: b for e, b in run.ledger.batches(run.parent.revision).items() if e not in run.epochs}
    before = {} if whole else published
    points = at_epochs(accumulate(diffs, epoch), [*before, epoch])
    now = points[epoch]
    spark = run.spark
    batches = [*run.ledger.staged_batches(run.run_id), *(published.values() if whole else ())]
    frames = {
        "upserts": delta.where("diff > 0"),
        "quarantine": run.delta("quarantine").where("diff > 0"),
        "upserts_net": copies,
        "edge_delta": run.delta("edges"),
        "edges_at": alive.groupBy("a", "b").agg(F.sum("diff").alias("copies")).where("copies <> 0"),
        "degrees_at": as_of("degrees", "degree", "vertex"),
        "triangle_counts_at": as_of("triangle_counts", "triangles", "vertex"),
        "trussness_at": as_of("trussness", "copies", "a", "b", "k"),
        "totals": spark.createDataFrame(
            [(epoch, now["vertices"], now["edges"], now["triangles"], now["max_trussness"])],
            "epoch bigint, vertices bigint, edges bigint, triangles bigint, max_trussness bigint",
        ),
        "volumes": spark.createDataFrame(
            [(b.epoch, b.rows, b.bad_rows) for b in batches], "epoch bigint, rows bigint, bad_rows bigint"
        ),
    }
    history = [
        {"epoch": e, "rows": b.rows, "bad_rows": b.bad_rows, **{m: points[e][m] for m in ("edges", "triangles")}}
        for e, b in before.items()
    ]
    context = {
        "epoch": epoch,
        "label": run.home.schedule.label(epoch),
        "value_types": run.home.config.values,
        "labels": {batch.epoch: run.home.schedule.label(batch.epoch) for batch in batches},
        "history": history,
    }
    run.say("running the suites")
    return check_tables(frames, context)


def audit_published(
    warehouse: Warehouse, revision: Revision, epochs: Iterable[int], say: Callable[[str], None]
) -> list[Check]:
    """The full recomputation over published epochs, as `altneu audit` asks for it."""
    return incremental_versus_full(warehouse, lambda table: warehouse.at(table, revision), sorted(epochs), say)
