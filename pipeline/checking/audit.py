"""Audits compare the maintained result with a full recomputation by another method.

The recomputation starts from the landed upserts and shares no plan with the maintenance. It takes the last value of
each key as of an epoch and the distinct pairs. Then one task per epoch counts every triangle and peels every truss from
scratch (`algorithms/graph/kernels`), compares all of it with the maintained rows, and returns only the differences. It
may run over several epochs at once, and the graph of an epoch must fit into one task twice. The maintained trussness is
also verified without peeling: no edge is too high, and no set of edges can rise (`kernels.trussness_check`). A graph
that no task can hold is recomputed by `distributed_recount`. On request a third party counts the triangles as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from altneu.algorithms.graph import graphframes_oracle as third
from altneu.algorithms.graph import motif_patterns
from altneu.algorithms.graph.graphframes_oracle import reference_name
from altneu.expectations.model import Check

from ..errors import UsageError
from ..home import memory_budget
from ..home.s3_config import in_s3
from ..optional_dependencies import require_extras
from ..reading import explain
from ..reading.query_results import published_queries
from ..state.ledger import Ledger
from ..state.records import SERVING_TABLES, Revision
from ..state.totals import sum_totals
from ..storage import graph_cache, truss_checkpoint_table
from ..storage.iceberg import has_jvm
from ..storage.warehouse import Warehouse
from . import distributed_recount, epoch_recount, motif_reference, serving_table_checks
from .audited_rows import recompute_edges, select_stored_rows
from .epoch_recount import MOTIF, RECOUNT, STORED, TOTAL
from .query_recount import explain_first_difference, recompute_published
from .reported_totals_check import (
    Measure,
    ReportedTotals,
    count_stored_rows,
    differing_rows,
    differing_totals,
    find_unnamed_vertices,
    reported_totals,
)


@dataclass(frozen=True)
class Recount:
    """What a recount has found.

    differences: the first differing rows of each epoch and kind, with vertices and motifs as numbers; totals: the
    recounted ones by epoch, without zeros; stored_rows: how many rows are stored, by epoch and table.
    """

    differences: list[dict[str, Any]]
    totals: dict[int, dict[Measure, int]]
    stored_rows: dict[tuple[int, str], int]

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]]) -> Recount:
        """Return the recount that rows (`epoch_recount.RECOUNT`) are."""
        recount = cls([], {}, {})
        for row in rows:
            kind, fields = row["kind"], dict(row)
            del fields["kind"]
            if kind == STORED:
                recount.stored_rows[row["epoch"], row["what"]] = row["maintained"]
            elif kind == TOTAL:
                recount.totals.setdefault(row["epoch"], {})[row["what"], row["a"]] = row["recomputed"]
            else:
                recount.differences.append(fields)
        return recount


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
    recount: Callable[[motif_reference.Motifs], Recount] | None = None,
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
        recount: A function that recounts the epochs with these motifs outside of Spark; None: Spark does.

    Returns:
        The differing rows and the context, as `altneu.expectations.suite.check_differences` takes them.

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
    if recount is not None:
        recounted = recount(motifs)
    else:
        recounted = _recount(warehouse, read, epochs, motifs, say=say, revision=revision, shown=shown, placed=placed)
    differences, names = recounted.differences, list(motifs)
    labels = {epoch: warehouse.home.schedule.format_label(epoch) for epoch in epochs}
    context: dict[str, Any] = {"epochs": epochs, "labels": labels, "motifs": names}
    if third_party:
        context["reference"] = reference_name(warehouse.spark)
        for epoch in epochs:
            say(f"{labels[epoch]}: counting triangles with {context['reference']}")
            differences += _compare_third_party(warehouse, read, epoch)
    if revision is not None:
        differences = _explain_differences(warehouse, revision, differences)
    differences = [{**row, "b": _name_motif(names, row["b"])} if row["what"] == MOTIF else row for row in differences]
    if shown is not None:
        context["kinds"] = shown.kinds
        known = {(row["epoch"], row["what"]) for row in differences}
        wrong = [row for row in differing_totals(shown, recounted.totals) if (row["epoch"], row["what"]) not in known]
        for row in wrong:
            if row["what"] == "motifs":
                row["a"] = _name_motif(names, row["a"])
        differences += wrong + differing_rows(shown, recounted.stored_rows)
    return differences, context


def _name_motif(names: Sequence[str], place: int) -> str:
    """Return the motif at a place in `[motifs]`; -1, or a place that is not there, stands for an undeclared one."""
    return names[place] if 0 <= place < len(names) else f"no motif ({place})"


def _recount(
    warehouse: Warehouse,
    read: Callable[[str], DataFrame],
    epochs: list[int],
    motifs: Mapping[str, Sequence[motif_patterns.Pattern]],
    *,
    say: Callable[[str], None],
    revision: Revision | None,
    shown: ReportedTotals | None,
    placed: Mapping[int, DataFrame],
) -> Recount:
    """Recount epochs, each in a task of its own, or in cells where no task can hold the graph; EXECUTES."""
    rows = select_stored_rows(read, epochs, list(motifs))
    graph = recompute_edges(read("upserts"), warehouse.home, epochs)
    if epochs and _exceeds_task(warehouse, revision, motifs, len(epochs)):
        say("the graph is too large for one task: recomputing in cells and partitions")
        comparing: AbstractContextManager[DataFrame] = distributed_recount.compare_distributed(
            rows, graph, epochs, memory_budget.max_partition_edges(warehouse.home.config), say, placed
        )
    else:
        both = rows.groupBy("epoch").cogroup(graph.groupBy("epoch"))
        comparing = nullcontext(both.applyInArrow(partial(epoch_recount.compare_epoch, motifs), RECOUNT))
    with comparing as compared:
        if shown is not None:
            counts = count_stored_rows(shown, read).withColumn("kind", F.lit(STORED))
            counts = counts.withColumnsRenamed({"table": "what", "n": "maintained"})
            compared = compared.unionByName(counts, allowMissingColumns=True)
        return Recount.from_rows(row.asDict() for row in compared.collect())


def _explain_differences(
    warehouse: Warehouse, revision: Revision, differences: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return differences with the names of their vertices, and the landed rows from which the first one follows."""
    first = next((row for row in differences if row["a"] is not None), None)
    if first is None:
        return differences
    other = first["b"] if first["what"] != MOTIF else None
    why = explain.explain_difference(warehouse, revision, first["epoch"], first["a"], other)
    ends = {row["a"] for row in differences} | {row["b"] for row in differences if row["what"] != MOTIF}
    numbers = list(ends - {None})
    book = {None: None, **dict(zip(numbers, explain.name_vertices(warehouse, revision, numbers), strict=True))}
    return [
        {**row, "a": book[row["a"]], "b": row["b"] if row["what"] == MOTIF else book[row["b"]]}
        | ({"why": why} if row is first else {})
        for row in differences
    ]


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


def _compare_third_party(warehouse: Warehouse, read: Callable[[str], DataFrame], epoch: int) -> list[dict[str, Any]]:
    """Return the vertices of one epoch whose maintained triangle count differs from the third party's."""
    from altneu.expectations.gx_runner import ROWS

    edges = recompute_edges(read("upserts"), warehouse.home, [epoch]).where(
        F.col("relation") == motif_patterns.OWN_EDGES
    )
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
    from altneu.expectations.gx_runner import ROWS
    from altneu.expectations.suite import check_differences, check_queries

    def read_table(table: str) -> DataFrame:
        return warehouse.read_table(table, revision)

    wanted = sorted(epochs)
    ledger = Ledger(warehouse.home)
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
        if wanted and (queries := published_queries(ledger, revision)):
            say(f"recomputing {len(queries)} quer{'y' if len(queries) == 1 else 'ies'} by their texts")
            differing, _ = recompute_published(warehouse, revision, queries, wanted)
            differing = explain_first_difference(warehouse, revision, queries, differing)
            checks += check_queries(differing, context)
        if wanted and any(table in revision.snapshots for table in SERVING_TABLES):
            say("comparing the serving tables")
            checks += _check_serving_tables(warehouse, read_table, revision, wanted)
    return checks


def _check_serving_tables(
    warehouse: Warehouse, read: Callable[[str], DataFrame], revision: Revision, epochs: list[int]
) -> list[Check]:
    """Check all rows of the serving tables of a published revision at some epochs."""
    from altneu.expectations.suite import check_serving_tables

    ledger = Ledger(warehouse.home)
    sources = serving_table_checks.ServingTableInputs(
        read,
        warehouse.home,
        [table for table in SERVING_TABLES if table in revision.snapshots],
        sum_totals(ledger.outputs.total_diffs(revision.revision), revision.frontier),
        set(ledger.outputs.published_batches(revision.revision)),
        int(revision.frontier or 0),
        revision.since,
    )
    differences = serving_table_checks.compare_sums(sources) + serving_table_checks.compare_rows(sources, epochs)
    return check_serving_tables(differences, sources.check_context(epochs))


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
