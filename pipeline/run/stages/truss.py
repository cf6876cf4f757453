"""The stage `truss`: it maintains the trussness of every edge, and then the serving tables.

The trussness is replayed from the earliest changed epoch to the frontier. The serving tables come last, because they
contain the trussness.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from pyspark.sql import functions as F

from altneu.algorithms.graph.graph_cache_task import CachedGraph
from altneu.algorithms.graph.truss_plan import ReplayRequest

from ...home.memory_budget import task_threads
from ...reading.engine_protocol import R, Tables
from ...reading.vertex_names import replace_with_names
from ...state.stage_results import TrussFacts
from ...state.totals import sum_totals, totals_at
from ...storage import graph_cache
from .. import serving_tables
from ..choices.plan_choice import Strategy
from ..choices.plan_choices import CERTIFIED, AuditChoice, TrussChoice
from ..run_context import RunContext
from . import resume_inputs, truss_checkpoint
from .proof_verification import proof_scope
from .top_changes import REPORTED, find_most_changed
from .truss_strategies import ResumeFromCache, run_with_fallbacks

ENTERED = 50  # vertices per epoch that are named as new in the densest truss


def maintain_truss(run: RunContext) -> TrussFacts:
    facts = maintain_trussness(run)
    serving_tables.maintain_serving_tables(run)
    return facts


def maintain_trussness(run: RunContext) -> TrussFacts:
    choice = run.choose(TrussChoice)
    first = choice.first_epoch
    if choice.strategy is Strategy.NOTHING or first is None:
        run.write_rows("trussness", None)
        run.put_totals(["truss"], [])
        run.ledger.outputs.put_proof(run.run_id, None)
        return TrussFacts(
            rows=0,
            epochs=0,
            graph=resume_inputs.parent_graph_key(run),
            certified=truss_checkpoint.parent_checkpoint(run),
        )
    label, key = run.home.schedule.format_label, graph_cache.new_key(run.run_id)
    run.say(f"replaying from epoch {label(first)} to {label(run.frontier)}")
    files = graph_cache.cache_location(run.home)
    request = ReplayRequest(
        first_epoch=first,
        last_epoch=run.frontier,
        scope=proof_scope(run.choose(AuditChoice), run.revision),
        cache=None if files is None else CachedGraph(files, key, run.frontier),
        checkpoint_edges=CERTIFIED if choice.edges.value <= choice.max_certified_edges else None,
        threads=task_threads(run.home.config, choice.edges.value),
    )
    with ExitStack() as stack:
        strategy, result = run_with_fallbacks(run, choice, request, stack)
        written = run.write_rows("trussness", result.changes)
        checkpoint = strategy.save_checkpoint(result)
    summary = result.summary
    run.ledger.outputs.put_proof(run.run_id, result.proof)
    parent, graph = resume_inputs.parent_graph_key(run), None
    if graph_cache.cached_epoch(run.home, key) is not None:
        graph = key
    elif isinstance(strategy, ResumeFromCache) and not summary.epochs:
        graph = parent
    graph_cache.drop_other_graphs(run.home, parent, graph)
    run.put_totals(["truss"], [("truss", *total) for total in result.totals])
    most = find_most_changed(run, run.read_after("trussness"), ["a", "b"], "k * diff", "trussness")
    entered = _vertices_entering_core(run)
    return TrussFacts(
        rows=written,
        first_epoch=first,
        plan=strategy.plan,
        graph=graph,
        certified=checkpoint,
        **vars(summary),  # its fields have the names of the facts
        region=result.region_edges,
        top_edges=most,
        entered_core=entered,
    )


def _vertices_entering_core(run: RunContext) -> dict[str, list[int | str]]:
    """Return for each epoch the vertices that are in its densest truss and were not in that k-truss before."""
    epochs = sorted(run.epochs)[-REPORTED:]
    diffs = run.total_diffs(min(epochs, default=None))
    points = totals_at(sum_totals(diffs, run.frontier), epochs)
    cores = [(epoch, points[epoch]["max_trussness"]) for epoch in epochs if points[epoch]["max_trussness"] > 2]
    if not cores:
        return {}
    tables, least = run.scanning_tables, min(core for _, core in cores)
    revision = replace(run.unpublished_revision(), frontier=run.frontier)  # a first run has a parent without rows
    come = (F.col("k") >= least) & F.col("epoch").isin([core_epoch for core_epoch, _ in cores]) & (F.col("diff") > 0)
    # a cheap test before Spark reads all rows: the bounds of the files exclude most of them
    if tables.distributed and run.read_after("trussness").where(come).isEmpty():
        return {}
    entered: dict[str, list[int | str]] = {}
    first = select_entering(tables, tables.read_table("trussness", revision), cores)
    for row in tables.collect_rows(replace_with_names(tables, revision, first, ["vertex"])):
        entered.setdefault(str(row["moment"]), []).append(row["vertex"])
    return {epoch: sorted(entered[epoch]) for epoch in sorted(entered, key=int)}


def select_entering(tables: Tables[R], trussness: R, cores: Sequence[tuple[int, int]]) -> R:
    """Select `moment, vertex`: of each pair (epoch, k) at most `ENTERED` vertices that were not in the k-truss before.

    A vertex is in the k-truss while it has edges of trussness k or more.
    """
    levels = ", ".join(f"({k})" for k in sorted({k for _, k in cores}))
    wanted = ", ".join(f"({epoch}, {k})" for epoch, k in cores)
    return tables.select_rows(
        f"""
        WITH inside AS (SELECT * FROM {{rows}} JOIN (VALUES {levels}) levels(core) ON k >= core),
        ends AS (
            SELECT core, a AS vertex, epoch, diff FROM inside UNION ALL SELECT core, b, epoch, diff FROM inside
        ),
        steps AS (SELECT core, vertex, epoch, sum(diff) AS step FROM ends GROUP BY core, vertex, epoch),
        sums AS (SELECT *, sum(step) OVER (PARTITION BY core, vertex ORDER BY epoch) AS now FROM steps),
        came AS (
            SELECT moment, vertex, row_number() OVER (PARTITION BY moment ORDER BY vertex) AS place
            FROM sums JOIN (VALUES {wanted}) wanted(moment, level) ON epoch = moment AND core = level
            WHERE now > 0 AND now = step
        )
        SELECT CAST(moment AS bigint) AS moment, vertex FROM came WHERE place <= {ENTERED}""",
        rows=trussness,
    )
