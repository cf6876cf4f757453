"""Audits compare the maintained result with a full recomputation by another method.

The recomputation starts from the landed upserts and shares no plan with the maintenance. It takes the last value of
each key as of an epoch and the distinct pairs. Then one task per epoch counts every triangle and peels every truss from
scratch (`algorithms/kernels`), compares all of it with the maintained rows, and returns only the differences. It may
run over several epochs at once, and the graph of an epoch must fit into one task twice. The maintained trussness is
also verified without peeling: no edge is too high, and no set of edges can rise (`kernels.trussness_check`). A graph
that no task can hold is recomputed by `distributed_recount`. On request a third party counts the triangles as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial, reduce
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from algorithms import graphframes_oracle as third
from algorithms import motif_patterns
from algorithms.graphframes_oracle import reference_name
from algorithms.sql_predicates import only_where
from expectations.model import Check

from ..errors import UsageError
from ..home import memory_budget
from ..home.home import Home
from ..home.s3_config import in_s3
from ..optional_dependencies import require_extras
from ..reading import explain
from ..state.ledger import Ledger
from ..state.records import PLAIN, Revision
from ..state.totals import sum_totals
from ..storage import graph_cache, local_frame, truss_checkpoint_table
from ..storage.iceberg import has_jvm
from ..storage.warehouse import Warehouse
from . import distributed_recount, epoch_recount, motif_reference
from .epoch_recount import COUNTED, DIFFERENCES, MOTIF, PER_ROW, RESULTS
from .reported_totals_check import (
    Measure,
    ReportedTotals,
    count_stored_rows,
    differing_rows,
    differing_totals,
    find_unnamed_vertices,
    reported_totals,
)

_STORED = "stored "  # prefix of a table's name, in a row with the number of its rows at the epoch


def select_upserts_in_force(upserts: DataFrame, home: Home, epochs: list[int]) -> DataFrame:
    """Select the landed upserts that make an edge at some epochs, from scratch.

    Returns:
        Rows of _at (one of `epochs`), a, b (a < b), src, dst, epoch (of the upsert), and the value columns.
    """
    config = home.config
    at = F.broadcast(local_frame.local_frame(upserts.sparkSession, {"_at": "bigint"}, [(epoch,) for epoch in epochs]))
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
        .join(at, F.col("epoch") <= F.col("_at"))
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
    relations = [F.struct(F.lit(motif_patterns.PLAIN).alias("relation"), "a", "b")]
    for name in motif_patterns.extra_relations(motif_reference.read_motifs(config.motifs)):
        ends = (F.col("src").alias("a"), F.col("dst").alias("b")) if name.startswith("->") else ("a", "b")
        passes = F.coalesce(F.expr(motif_patterns.relation_condition(name) or "true"), F.lit(False))
        relations.append(F.when(passes, F.struct(F.lit(name).alias("relation"), *ends)))
    return last.select(F.col("_at").alias("epoch"), F.inline(F.array(*relations))).where("relation IS NOT NULL")


def select_stored_rows(read: Callable[[str], DataFrame], epochs: list[int], motifs: Sequence[str] = ()) -> DataFrame:
    """Select the maintained state at some epochs.

    Returns:
        Rows of epoch, what (the index in `PER_ROW`), a, b, k and n (a number of copies, a degree, or a count). For
        motifs, k is the index in `[motifs]`.
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
        place = f"array_position(array({', '.join(repr(name) for name in motifs)}), motif) - 1"
        parts.append(select_part("motif_counts", MOTIF, "vertex", k=place))
    rows = reduce(DataFrame.unionByName, parts).where(F.col("epoch") <= max(epochs)).repartition("a", "b")
    at = F.broadcast(local_frame.local_frame(rows.sparkSession, {"at": "bigint"}, [(epoch,) for epoch in epochs]))
    in_force = (F.col("epoch") <= F.col("at")) & (F.col("until").isNull() | (F.col("at") < F.col("until")))
    key = F.col("at").alias("epoch"), "what", "a", "b", "k"
    return rows.join(at, in_force).groupBy(*key).agg(F.sum("diff").alias("n")).where("n <> 0")


def select_maintained(read: Callable[[str], DataFrame], epochs: list[int]) -> DataFrame:
    """Select the maintained results at some epochs, from the tables as a reader sees them.

    Returns:
        Rows of epoch, what, a, b, value, without zeros. `what` is `edge` (a, b; the value is its number of copies),
        `trussness_of_edge` (a, b), `triangles_at_vertex` (a), `motif_at_vertex` (a; b is the motif's index in
        `[motifs]`), or one of the totals `edges`, `vertices`, `triangles` and `max_trussness` (a and b are null).
    """

    def read_maintained(rows: pa.Table) -> pa.Table:
        epoch, found = rows["epoch"][0].as_py(), epoch_recount.maintained_results(rows)
        return pa.concat_tables(
            epoch_recount.result_table(RESULTS, epoch, what, a, b, value) for what, (a, b, value) in found.items()
        )

    return select_stored_rows(read, epochs).groupBy("epoch").applyInArrow(read_maintained, RESULTS)


def check_incremental_versus_full(
    warehouse: Warehouse,
    read: Callable[[str], DataFrame],
    epochs: list[int],
    say: Callable[[str], None],
    *,
    third_party: bool = False,
    revision: Revision | None = None,
    shown: ReportedTotals | None = None,
) -> list[Check]:
    """Compare the maintained results with a full recomputation.

    Args:
        warehouse: The tables of the home.
        read: A function that reads a table as a reader sees it.
        epochs: The epochs to compare.
        say: A function that takes lines about the progress.
        third_party: Whether GraphFrames counts the triangles as well.
        revision: The revision that `read` reads; with it the first differing row is explained.
        shown: The totals of the epochs in the SQL database; with it these are compared as well.

    Returns:
        One check per epoch and kind of result, with the first differing rows.
    """
    from expectations.suite import check_differences

    return check_differences(
        *find_differences(warehouse, read, epochs, say=say, third_party=third_party, revision=revision, shown=shown)
    )


def find_differences(
    warehouse: Warehouse,
    read: Callable[[str], DataFrame],
    epochs: list[int],
    *,
    say: Callable[[str], None],
    third_party: bool = False,
    revision: Revision | None = None,
    shown: ReportedTotals | None = None,
    placed: Mapping[int, DataFrame] = MappingProxyType({}),
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Find the differences between the maintained results and a full recomputation, without Great Expectations.

    Args:
        warehouse: The tables of the home.
        read: A function that reads a table as a reader sees it.
        epochs: The epochs to compare.
        say: A function that takes lines about the progress.
        third_party: Whether GraphFrames counts the triangles as well.
        revision: The revision that `read` reads; with it the first differing row is explained.
        shown: The totals of the epochs in the SQL database; with it these are compared as well.
        placed: Known labels by epoch, for `distributed_recount.compare_distributed`.

    Returns:
        The differing rows and the context, as `expectations.suite.check_differences` takes them.

    Raises:
        UsageError: A third party is asked for without a JVM in this process, or the motifs of a graph are asked for
            that no task can hold.
    """
    if third_party and not has_jvm(warehouse.spark):
        raise UsageError(
            "GraphFrames and GraphX need a JVM in this process, and cannot be reached through Spark Connect.",
            "ALTNEU_MASTER='local[*]' altneu audit --third-party",
        )
    say(f"recomputing {len(epochs)} epoch(s) from scratch")
    motifs = motif_reference.read_motifs(warehouse.home.config.motifs)
    if revision is not None and "motif_counts" not in revision.snapshots:
        motifs = {}
    rows, graph = (
        select_stored_rows(read, epochs, list(motifs)),
        recompute_edges(read("upserts"), warehouse.home, epochs),
    )
    if epochs and _exceeds_task(warehouse, revision, motifs, len(epochs)):
        say("the graph is too large for one task: recomputing in cells and partitions")
        comparing: AbstractContextManager[DataFrame] = distributed_recount.compare_distributed(
            rows, graph, epochs, memory_budget.max_partition_edges(warehouse.home.config), say, placed
        )
    else:
        kept, fresh = rows.groupBy("epoch"), graph.groupBy("epoch")
        comparing = nullcontext(
            kept.cogroup(fresh).applyInArrow(partial(epoch_recount.compare_epoch, motifs), DIFFERENCES)
        )
    with comparing as compared:
        if shown is not None:
            compared = compared.unionByName(_attach_counts(count_stored_rows(shown, read)))
        differences, counted, stored = _split_results([row.asDict() for row in compared.collect()])
    labels = {epoch: warehouse.home.schedule.format_label(epoch) for epoch in epochs}
    context: dict[str, Any] = {"epochs": epochs, "labels": labels, "motifs": list(motifs)}
    if third_party:
        context["reference"] = reference_name(warehouse.spark)
        for epoch in epochs:
            say(f"{labels[epoch]}: counting triangles with {context['reference']}")
            differences += _compare_third_party(warehouse, read, epoch)
    first = next((row for row in differences if row["a"] is not None), None)
    if first is not None and revision is not None:
        other = first["b"] if first["what"] != MOTIF else None
        first["why"] = explain.explain_difference(warehouse, revision, first["epoch"], first["a"], other)
        ends = {row["a"] for row in differences} | {row["b"] for row in differences if row["what"] != MOTIF}
        numbers = list(ends - {None})
        book = {None: None, **dict(zip(numbers, explain.name_vertices(warehouse, revision, numbers), strict=True))}
        for row in differences:
            row["a"], row["b"] = book[row["a"]], row["b"] if row["what"] == MOTIF else book[row["b"]]
    names = list(motifs)
    differences = [{**row, "b": names[row["b"]]} if row["what"] == MOTIF else row for row in differences]
    if shown is not None:
        context["kinds"] = shown.kinds
        known = {(row["epoch"], row["what"]) for row in differences}
        wrong = [row for row in differing_totals(shown, counted) if (row["epoch"], row["what"]) not in known]
        for row in wrong:
            if row["what"] == "motifs":
                row["a"] = names[row["a"]] if row["a"] < len(names) else f"no motif ({row['a']})"
        differences += wrong + differing_rows(shown, stored)
    return differences, context


def _exceeds_task(warehouse: Warehouse, revision: Revision | None, motifs: Collection[str], epochs: int) -> bool:
    """Tell whether no task can hold the graph of this number of epochs at once.

    Raise `UsageError` when such a graph has motifs, because motifs are recounted in one task.
    """
    if revision is None or "edges" not in revision.snapshots:
        return False
    edges = warehouse.snapshot_size("edges", revision.snapshots["edges"]).rows
    limit = memory_budget.max_audit_edges(warehouse.home.config, epochs)
    if edges > limit and motifs:
        raise UsageError(
            f"motifs are recounted in one task, and {edges:,} edge intervals are more than the {limit:,} that one may "
            f"hold ({memory_budget.memory_budget(warehouse.home.config).describe()}; [truss] limit_edges).",
            "give it more memory ([spark] conf) or a higher [truss] limit_edges, or take [motifs] out of altneu.toml",
        )
    return edges > limit


def _attach_counts(stored: DataFrame) -> DataFrame:
    """Return the numbers of stored rows in the form of differences, so that one query reads both."""
    null, zero = F.lit(None).cast("bigint"), F.lit(0).cast("bigint")
    what = F.concat(F.lit(_STORED), "table").alias("what")
    ends = null.alias("a"), null.alias("b")
    return stored.select(
        "epoch", what, *ends, F.col("n").alias("maintained"), null.alias("recomputed"), zero.alias("count")
    )


def _split_results(
    rows: list[dict[str, Any]],
) -> tuple[list[dict[str, Any]], dict[int, dict[Measure, int]], dict[tuple[int, str], int]]:
    """Split rows into the differences, the recounted totals by epoch, and the stored rows by epoch and table."""
    differences, counted, stored = [], dict[int, dict[Measure, int]](), dict[tuple[int, str], int]()
    for row in rows:
        if row["what"].startswith(_STORED):
            stored[row["epoch"], row["what"].removeprefix(_STORED)] = row["maintained"]
        elif row["what"].startswith(COUNTED):
            counted.setdefault(row["epoch"], {})[row["what"].removeprefix(COUNTED), row["a"]] = row["recomputed"]
        else:
            differences.append(row)
    return differences, counted, stored


def _compare_third_party(warehouse: Warehouse, read: Callable[[str], DataFrame], epoch: int) -> list[dict[str, Any]]:
    """Return the vertices of one epoch whose maintained triangle count differs from the third party's."""
    from expectations.gx_runner import ROWS

    edges = recompute_edges(read("upserts"), warehouse.home, [epoch]).where(F.col("relation") == motif_patterns.PLAIN)
    edges = edges.select("a", "b").distinct()
    # GraphX exchanges files through Spark's Hadoop, which does not know S3.
    folder = str(warehouse.home.path) if in_s3(warehouse.home.warehouse) else warehouse.home.warehouse
    counted = third.triangle_counts(edges, folder).where("triangles <> 0")
    rows = read("triangle_counts").where(F.col("epoch") <= epoch)
    kept = rows.groupBy("vertex").agg(F.sum("diff").alias("maintained")).where("maintained <> 0")
    both = kept.join(counted.withColumnRenamed("triangles", "recomputed"), "vertex", "full_outer")
    wrong = both.where("NOT maintained <=> recomputed").withColumn("count", F.count("*").over(Window.partitionBy()))
    first = wrong.orderBy("vertex").limit(ROWS).collect()
    return [{**row.asDict(), "epoch": epoch, "what": "third_party", "a": row.vertex, "b": None} for row in first]


def audit_published(
    warehouse: Warehouse,
    revision: Revision,
    epochs: Iterable[int],
    say: Callable[[str], None],
    *,
    third_party: bool = False,
) -> list[Check]:
    """Audit published epochs by a full recomputation: tables, totals, batches and names.

    Args:
        warehouse: The tables of the home.
        revision: The revision to audit.
        epochs: The epochs to audit.
        say: A function that takes lines about the progress.
        third_party: Whether GraphFrames counts the triangles as well.

    Returns:
        The results of the checks.
    """
    require_extras("an audit", "quality")
    from expectations.gx_runner import ROWS
    from expectations.suite import check_differences

    def read_table(table: str) -> DataFrame:
        return warehouse.read_table(table, revision)

    wanted = sorted(epochs)
    ledger = Ledger(warehouse.home.database)
    shown = reported_totals(ledger, revision, wanted)
    with warehouse.size_plans(revision):
        placed = truss_checkpoint_table.read_labels(warehouse, graph_cache.saved_checkpoint(ledger, revision))
        differences, context = find_differences(
            warehouse,
            read_table,
            wanted,
            say=say,
            third_party=third_party,
            revision=revision,
            shown=shown,
            placed=placed,
        )
        if warehouse.home.config.vertices.ids == "string" and wanted:
            context["kinds"] |= {"names"}
            differences += find_unnamed_vertices(read_table("upserts"), read_table("names"), wanted[-1], ROWS)
        checks = check_differences(differences, context)
        if wanted and any(table in revision.snapshots for table in PLAIN):
            say("comparing the serving tables")
            checks += _check_serving_tables(warehouse, read_table, revision, wanted)
    return checks


def _check_serving_tables(
    warehouse: Warehouse, read: Callable[[str], DataFrame], revision: Revision, epochs: list[int]
) -> list[Check]:
    """Check all rows of the serving tables of a published revision at some epochs."""
    from expectations.suite import check_plain

    from . import serving_table_checks

    ledger = Ledger(warehouse.home.database)
    sources = serving_table_checks.ServingTableInputs(
        read,
        warehouse.home,
        [table for table in PLAIN if table in revision.snapshots],
        sum_totals(ledger.outputs.total_diffs(revision.revision), revision.frontier),
        set(ledger.outputs.published_batches(revision.revision)),
        int(revision.frontier or 0),
        revision.since,
    )
    differences = serving_table_checks.compare_sums(sources) + serving_table_checks.compare_rows(sources, epochs)
    return check_plain(differences, sources.check_context(epochs))


LANDED = {"batches have as many rows as are stored", "batches have as many quarantined rows as are stored"}
LANDED |= {"every vertex has one name"}


def needs_landing(checks: Iterable[Check]) -> bool:
    """Tell whether a failed check is about the stored landed rows, which only the landing can correct."""
    return any(not check["passed"] and check["name"] in LANDED for check in checks)


def auditable_epochs(ledger: Ledger, revision: Revision) -> list[int]:
    """Return the epochs that have a batch at a revision or at which its totals change, in order."""
    changed = {epoch for _, _, epoch, _, _ in ledger.outputs.total_diffs(revision.revision)}
    last = revision.frontier
    known = {
        *ledger.outputs.published_batches(revision.revision),
        *(e for e in changed if last is not None and e <= last),
    }
    return sorted(epoch for epoch in known if revision.knows_epoch(epoch))
