"""The stage `truss`: it maintains the trussness of every edge, and then the serving tables.

The trussness is replayed from the earliest changed epoch to the frontier. The serving tables come last, because they
contain the trussness.
"""

from __future__ import annotations

from contextlib import ExitStack

from pyspark.sql import Window
from pyspark.sql import functions as F

from altneu.algorithms.graph.graph_cache_task import CachedGraph
from altneu.algorithms.graph.truss_plan import ReplayRequest

from ...home.memory_budget import task_threads
from ...reading.vertex_names import replace_with_names
from ...state.stage_results import TrussFacts
from ...state.totals import sum_totals, totals_at
from ...storage import graph_cache, local_frame
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
    first = choice.first
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
        first=first,
        last=run.frontier,
        scope=proof_scope(run.choose(AuditChoice), run.revision),
        cache=None if files is None else CachedGraph(files, key, run.frontier),
        checkpoint_edges=CERTIFIED if choice.edges.value <= choice.most else None,
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
    most = find_most_changed(run, run.read_after("trussness"), ["a", "b"], F.col("k") * F.col("diff"), "trussness")
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
    least = min(core for _, core in cores)
    come = (F.col("k") >= least) & F.col("epoch").isin([at for at, _ in cores]) & (F.col("diff") > 0)
    if run.read_after("trussness").where(come).isEmpty():  # a cheap test: the bounds of the files exclude most of them
        return {}
    # A vertex is in the k-truss while it has edges of trussness k or more. These are counted for each k of a core.
    level = F.broadcast(
        local_frame.local_frame(run.spark, {"core": "bigint"}, [(k,) for k in sorted({core for _, core in cores})])
    )
    inside = run.read_after("trussness").where(F.col("k") >= least).join(level, F.col("k") >= F.col("core"))
    ends = inside.select("core", "epoch", "diff", F.explode(F.array("a", "b")).alias("vertex"))
    steps = ends.groupBy("core", "vertex", "epoch").agg(F.sum("diff").alias("step"))
    now = F.sum("step").over(Window.partitionBy("core", "vertex").orderBy("epoch"))
    came = steps.withColumn("now", now).where("now > 0 AND now = step")
    at = F.broadcast(local_frame.local_frame(run.spark, {"epoch": "bigint", "core": "bigint"}, cores))
    new = came.join(at, ["epoch", "core"]).select(F.col("epoch").alias("at"), "vertex")
    order = F.row_number().over(Window.partitionBy("at").orderBy("vertex"))
    first = new.withColumn("place", order).where(F.col("place") <= ENTERED).select("at", "vertex")
    entered: dict[str, list[int | str]] = {}
    for row in sorted(replace_with_names(run.warehouse, run.unpublished_revision(), first, ["vertex"]).collect()):
        entered.setdefault(str(row["at"]), []).append(row["vertex"])
    return entered
