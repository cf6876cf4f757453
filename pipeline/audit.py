"""Audits: the maintained result against a full recomputation by another method, and the suites of `expectations/`.

The recomputation starts from the landed upserts and shares no plan with the maintenance: the last value per key as of
an epoch, distinct pairs, then one task per epoch that counts every triangle and peels every truss from scratch
(`kernels/`). It runs over any epochs at once; an epoch's graph must fit one task.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from algorithms.kernels import triangles as triangle_kernel
from algorithms.kernels import truss as truss_kernel

from .config import Home
from .ledger import Revision
from .views import accumulate
from .warehouse import Warehouse

if TYPE_CHECKING:
    from .stages import Run

Check = dict[str, Any]
_RECOMPUTED = "epoch bigint, kind string, a bigint, b bigint, value bigint"


def recompute(upserts: DataFrame, home: Home, epochs: list[int]) -> DataFrame:
    """The results at some epochs from scratch: epoch, kind, a, b, value.

    Kinds: `trussness` of edge (a, b); `triangles` at vertex a (b = -1), where there are any; `edges`, `vertices`,
    `triangles_total`, `max_trussness` (a = b = -1).
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
    return pairs.groupBy("at").applyInArrow(_from_scratch, _RECOMPUTED)


def _from_scratch(graph: pa.Table) -> pa.Table:
    epoch = graph["at"][0].as_py()
    a, b = graph["a"].to_numpy().astype(np.int64), graph["b"].to_numpy().astype(np.int64)
    total, vertices, per_vertex, _ = triangle_kernel.count(a, b)
    trussness = truss_kernel.peel(a, b)
    busy = per_vertex > 0
    none = np.full(4, -1, np.int64)
    summary = np.array([a.size, vertices.size, total, int(trussness.max())], np.int64)
    kinds = ["trussness"] * a.size + ["triangles"] * int(busy.sum())
    columns = {
        "a": np.concatenate([a, vertices[busy], none]),
        "b": np.concatenate([b, np.full(busy.sum(), -1, np.int64), none]),
        "value": np.concatenate([trussness.astype(np.int64), per_vertex[busy], summary]),
    }
    kind = pa.array([*kinds, "edges", "vertices", "triangles_total", "max_trussness"])
    return pa.table({"epoch": pa.repeat(pa.scalar(epoch, pa.int64()), len(kind)), "kind": kind, **columns})


def maintained(read: Callable[[str], DataFrame], epochs: list[int]) -> DataFrame:
    """The maintained results at the same epochs, in the same shape, from the tables as a reader sees them."""
    spark = read("edges").sparkSession
    at = F.broadcast(spark.createDataFrame([(epoch,) for epoch in epochs], "at bigint"))

    def as_of(table: str, *data: str) -> DataFrame:
        rows = read(table).join(at, F.col("epoch") <= F.col("at"))
        return rows.groupBy("at", *data).agg(F.sum("diff").alias("n")).where("n <> 0")

    minus = F.lit(-1).cast("bigint")
    alive = read("edges").join(at, (F.col("epoch") <= F.col("at")) & (F.col("at") < F.col("until")))
    edges = alive.groupBy("at", "a", "b").agg(F.sum("diff").alias("n")).where("n <> 0")
    degrees, counts = as_of("degrees", "vertex"), as_of("triangle_counts", "vertex")
    trussness = as_of("trussness", "a", "b", "k")

    def total(rows: DataFrame, kind: str, value: Any) -> DataFrame:
        found = rows.groupBy("at").agg(value.alias("value"))
        return found.select(
            F.col("at").alias("epoch"), F.lit(kind).alias("kind"), minus.alias("a"), minus.alias("b"), "value"
        )

    # An edge stored twice, or a trussness of an edge that is not there, must show as a difference: n counts.
    per_edge = trussness.select(F.col("at").alias("epoch"), F.lit("trussness").alias("kind"), "a", "b", F.col("k") * F.col("n"))
    per_vertex = counts.select(
        F.col("at").alias("epoch"), F.lit("triangles").alias("kind"), F.col("vertex").alias("a"), minus.alias("b"), "n"
    )
    frames = [
        per_edge.toDF("epoch", "kind", "a", "b", "value"),
        per_vertex.toDF("epoch", "kind", "a", "b", "value"),
        total(edges, "edges", F.sum("n")),
        total(degrees, "vertices", F.count("*")),
        total(counts, "triangles_total", (F.sum("n") / 3).cast("bigint")),
        total(trussness, "max_trussness", F.max("k")),
    ]
    out = frames[0]
    for frame in frames[1:]:
        out = out.unionByName(frame)
    return out


def differences(recomputed: DataFrame, kept: DataFrame) -> DataFrame:
    """Rows on which the two disagree: epoch, kind, a, b, maintained, recomputed (null: not there)."""
    key = ["epoch", "kind", "a", "b"]
    left = kept.select(*key, F.col("value").alias("maintained"))
    right = recomputed.where("value <> 0").select(*key, F.col("value").alias("recomputed"))
    return left.where("maintained <> 0").join(right, key, "full").where("NOT maintained <=> recomputed")


def incremental_versus_full(
    warehouse: Warehouse, read: Callable[[str], DataFrame], epochs: list[int], say: Callable[[str], None]
) -> list[Check]:
    """One check per epoch and kind; critical. Offending rows are kept, at most 20 a check."""
    say(f"recomputing {len(epochs)} epoch(s) from scratch")
    found = differences(recompute(read("upserts"), warehouse.home, epochs), maintained(read, epochs)).persist()
    try:
        counted = {(r.epoch, r.kind): r["count"] for r in found.groupBy("epoch", "kind").count().collect()}
        rows: dict[tuple[int, str], list[dict[str, Any]]] = {}
        if counted:
            ranked = found.selectExpr("*", "row_number() OVER (PARTITION BY epoch, kind ORDER BY a, b) AS place")
            for row in ranked.where("place <= 20").drop("place").collect():
                rows.setdefault((row.epoch, row.kind), []).append(row.asDict())
    finally:
        found.unpersist()
    checks = []
    for epoch in epochs:
        for kind, meaning in _MEANINGS.items():
            wrong = counted.get((epoch, kind), 0)
            first = rows.get((epoch, kind), [])
            checks.append(
                {
                    "epoch": epoch,
                    "suite": "incremental_versus_full",
                    "name": f"{kind} equal the recomputation",
                    "severity": "critical",
                    "passed": not wrong,
                    "meaning": meaning,
                    "remedy": f"altneu audit {epoch}",
                    "observed": f"{wrong} difference(s)" + (f", the first: {json.dumps(first[0])}" if first else ""),
                    "rows": first,
                }
            )
    return checks


_MEANINGS = {
    "edges": "As many edges as the landed upserts, taken afresh, leave at this epoch.",
    "vertices": "As many vertices with an edge as a fresh count finds.",
    "triangles_total": "As many triangles as counting them all from scratch finds.",
    "triangles": "Every vertex is in as many triangles as counting them all from scratch finds.",
    "trussness": "Every edge has the trussness that peeling the whole graph from scratch gives it.",
    "max_trussness": "The greatest trussness is that of a full peel.",
}


def suites(run: Run) -> list[Check]:
    """The Great Expectations suites over the run's new tables."""
    from expectations.suite import check_tables

    values = list(run.home.config.values)
    epoch = run.frontier
    delta = run.delta("upserts")
    data = ["src", "dst", *values, "op", "seq", "file", "line", "epoch"]
    touched = delta.select("epoch").distinct()
    copies = run.after("upserts").join(F.broadcast(touched), "epoch").groupBy(*data).agg(F.sum("diff").alias("copies"))
    alive = run.after("edges").where((F.col("epoch") <= epoch) & (F.col("until") > epoch))

    def as_of(table: str, name: str, *columns: str) -> DataFrame:
        rows = run.after(table).where(F.col("epoch") <= epoch).groupBy(*columns).agg(F.sum("diff").alias(name))
        return rows.where(F.col(name) != 0)

    diffs = run.ledger.total_diffs(run.parent.revision) + run.ledger.staged_totals(run.run_id, run.revision)
    series = accumulate(diffs, None, run.frontier)
    now = series.get(epoch, {"vertices": 0, "edges": 0, "triangles": 0, "max_trussness": 0})
    spark = run.spark
    batches = run.ledger.staged_batches(run.run_id)
    frames = {
        "upserts": delta.where("diff > 0"),
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
    before = run.ledger.batches(run.parent.revision)
    history = [
        {"epoch": b.epoch, "rows": b.rows, "bad_rows": b.bad_rows, **_measures(series.get(b.epoch))}
        for b in before.values()
        if b.epoch not in run.epochs
    ]
    context = {
        "epoch": epoch,
        "label": run.home.schedule.label(epoch),
        "value_types": run.home.config.values,
        "history": history,
    }
    run.say("running the suites")
    return check_tables(frames, context)


def _measures(point: dict[str, int] | None) -> dict[str, int]:
    return {"edges": (point or {}).get("edges", 0), "triangles": (point or {}).get("triangles", 0)}


def audit_published(
    warehouse: Warehouse, revision: Revision, epochs: Iterable[int], say: Callable[[str], None]
) -> list[Check]:
    """The full recomputation over published epochs, as `altneu audit` asks for it."""
    return incremental_versus_full(warehouse, lambda table: warehouse.at(table, revision), sorted(epochs), say)
