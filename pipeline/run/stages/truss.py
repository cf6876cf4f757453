"""The stage `truss`: it maintains the trussness of every edge, and then the serving tables.

The trussness is replayed from the earliest changed epoch to the frontier. The serving tables come last, because they
contain the trussness.
"""

from __future__ import annotations

from contextlib import ExitStack

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from algorithms import truss, truss_local_update
from algorithms.bsp import RoundStore
from algorithms.graph_cache_task import GraphCacheLocation
from algorithms.proof_records import ProofScope
from algorithms.truss_local_update import RegionUpdate

from ...home import memory_budget
from ...reading.vertex_names import replace_with_names
from ...state.fingerprint_sums import RunningFingerprint
from ...state.stage_results import TrussFacts
from ...state.totals import sum_totals, totals_at
from ...storage import bsp_round_tables, graph_cache, local_frame
from .. import resume_inputs, serving_tables, truss_checkpoint
from ..plan_choice import Strategy
from ..plan_choices import CERTIFIED, AuditChoice, TrussChoice
from ..proof_verification import proof_scope
from ..run_context import RunContext
from ..top_changes import REPORTED, find_most_changed

ENTERED = 50  # vertices per epoch that are named as new in the densest truss


def maintain_truss(run: RunContext) -> TrussFacts:
    facts = maintain_trussness(run)
    serving_tables.maintain_serving_tables(run)
    return facts


def maintain_trussness(run: RunContext) -> TrussFacts:
    decision = run.choose(TrussChoice)
    first = decision.first
    if decision.strategy is Strategy.NOTHING or first is None:
        run.write_rows("trussness", None)
        run.put_totals(["truss"], [])
        run.ledger.outputs.put_proof(run.run_id, None)
        return TrussFacts(
            rows=0,
            epochs=0,
            graph=resume_inputs.parent_graph_key(run),
            certified=truss_checkpoint.parent_checkpoint(run),
        )
    label = run.home.schedule.format_label
    run.say(f"replaying from epoch {label(first)} to {label(run.frontier)}")
    files, key = graph_cache.cache_location(run.home), graph_cache.new_key(run.run_id)
    keep = None if files is None else (files, key)
    ask = proof_scope(run.choose(AuditChoice), run.revision)
    with ExitStack() as stack:
        place = (
            stack.enter_context(bsp_round_tables.round_tables(run.warehouse, run.ledger, run.run_id))
            if decision.needs_edge_count
            else None
        )
        plan, region, new = "replay", None, None
        if decision.strategy is Strategy.RESUME:
            new = _resume_from_graph(run, first, files, key, ask)
        elif decision.strategy is Strategy.STATE:
            new = _restore_from_checkpoint(run, first, keep, ask)
        if new is not None:
            plan = str(decision.strategy)
        elif place is not None and decision.strategy is Strategy.REGION:
            region = _update_region(run, first, decision, stack, place)
        if region is not None:
            plan, new = "region", region.changes.persist()
        elif new is None:
            new = _replay_from_tables(run, decision, first, keep, ask, place)
        stack.callback(new.unpersist)
        changes = truss.result_triples(new)
        written = run.write_rows("trussness", changes.where(F.col("diff") != 0))
        rows = changes.groupBy("k", "epoch", "note").agg(F.sum("diff").alias("diff")).collect()
        notes = [row for row in sorted(rows, key=lambda row: int(row.epoch)) if row.note is not None]
        log = [row.note for row in notes if row.k not in (truss.PROOF, truss.LEFT)]
        notes_by_kind = {row.k: row.note for row in notes}
        summary = truss.summarize_notes(log)
        certified = (
            None if log else truss_checkpoint.parent_checkpoint(run)
        )  # nothing was replayed, so that the parent's checkpoint is still right
        if region is not None:
            certified = truss_checkpoint.extend_checkpoint(run, region.state, region.ends)
        elif place is not None and summary.rounds:
            certified = truss_checkpoint.create_checkpoint(run, place)
        elif truss.LEFT in notes_by_kind:
            certified = truss_checkpoint.save_checkpoint(run, truss.checkpoint_rows(new, notes_by_kind[truss.LEFT]))
    parent, name = resume_inputs.parent_graph_key(run), None
    run.ledger.outputs.put_proof(run.run_id, notes_by_kind.get(truss.PROOF))
    if graph_cache.cached_epoch(run.home, key) is not None:
        name = key
    elif plan == "resume" and not log:
        name = parent
    graph_cache.drop_other_graphs(run.home, parent, name)
    run.put_totals(["truss"], [("truss", row.k, row.epoch, row.diff) for row in rows if row.note is None])
    most = find_most_changed(run, run.read_after("trussness"), ["a", "b"], F.col("k") * F.col("diff"), "trussness")
    entered = _vertices_entering_core(run)
    return TrussFacts(
        rows=written,
        first_epoch=first,
        epochs=len(log),
        plan=plan,
        graph=name,
        certified=certified,
        methods=summary.methods,
        inserted=summary.inserted,
        deleted=summary.deleted,
        looked_at=summary.looked_at,
        seconds=summary.seconds,
        rounds=summary.rounds or None if region is None else region.hops,
        region=None if region is None else region.edges,
        top_edges=most,
        entered_core=entered,
    )


def _resume_from_graph(
    run: RunContext, first: int, files: GraphCacheLocation | None, name: str, ask: ProofScope
) -> DataFrame | None:
    """Compute the changes from the parent's graph cache; EXECUTES. Return None where it is missing or does not fit."""
    graph = resume_inputs.find_graph(run, files)
    if graph is None:
        return None
    edges, stored = resume_inputs.changed_edges(run, graph.at, first), run.read_before("trussness")
    return resume_inputs.execute_plan(run, truss.resumed_changes(edges, stored, graph, first, run.frontier, name, ask))


def _restore_from_checkpoint(
    run: RunContext, first: int, keep: tuple[GraphCacheLocation, str] | None, ask: ProofScope
) -> DataFrame | None:
    """Compute the changes from the parent's truss checkpoint, as a whole in one task; EXECUTES.

    Return None where the checkpoint is missing or does not fit.
    """
    state = truss_checkpoint.read_parent_checkpoint(run)
    counted = None if state is None else truss_checkpoint.published_graph_counts(run, state.at)
    if state is None or counted is None:
        run.say("the truss checkpoint of the last run is missing: computing from the tables")
        return None
    edges, stored = resume_inputs.changed_edges(run, state.at, first), run.read_before("trussness")
    changes = truss.restored_changes(
        edges,
        stored,
        state.rows,
        ends=state.ends,
        counted=counted,
        at=state.at,
        first=first,
        last=run.frontier,
        keep=keep,
        ask=ask,
    )
    return resume_inputs.execute_plan(run, changes)


def _update_region(
    run: RunContext, first: int, decision: TrussChoice, stack: ExitStack, place: RoundStore
) -> RegionUpdate | None:
    """Compute the changes in the region that they reach, from the parent's truss checkpoint; EXECUTES.

    Returns:
        The changes, which can be read while the stack is open, or None where the checkpoint is missing or wrong, or
        the region is too large for a task.
    """
    state = truss_checkpoint.read_parent_checkpoint(run)
    if state is None:
        run.say("the truss checkpoint of the last run is missing: computing in partitions")
        return None
    fingerprints = run.ledger.outputs.fingerprints_of(run.parent.revision)
    update = truss_local_update.trussness_changes(
        state,
        resume_inputs.changed_edges(run, state.at, first),
        run.read_before("trussness"),
        first=first,
        last=run.frontier,
        size=decision.edges.value,
        most=decision.most,
        known=RunningFingerprint(fingerprints.get("trussness", {})).advance_to(state.at),
        rounds=place,
        say=run.say,
    )
    try:
        return stack.enter_context(update)
    except truss_local_update.RegionUnfit as error:
        run.say(f"{error}: computing in partitions")
        return None


def _replay_from_tables(
    run: RunContext,
    decision: TrussChoice,
    first: int,
    keep: tuple[GraphCacheLocation, str] | None,
    ask: ProofScope,
    place: RoundStore | None,
) -> DataFrame:
    """Compute the changes from the tables, in one task or in partitions."""
    label = run.home.schedule.format_label

    def report_epoch(epoch: int, text: str) -> None:
        run.say(f"epoch {label(epoch)}: {text}")

    return truss.trussness_changes(
        run.read_after("edges"),
        run.read_before("trussness"),
        first,
        run.frontier,
        # where the table's whole history is within the limit, the edges need not be counted
        limit_edges=decision.limit if decision.needs_edge_count else None,
        say=report_epoch,
        keep=keep,
        ask=ask,
        rounds=place,
        part_edges=memory_budget.max_partition_edges(run.home.config),
        leave=CERTIFIED if decision.edges.value <= decision.most else None,
    ).persist()


def _vertices_entering_core(run: RunContext) -> dict[str, list[int | str]]:
    """Return for each epoch the vertices that are in its densest truss and were not in that k-truss before."""
    diffs = run.total_diffs()
    epochs = sorted(run.epochs)[-REPORTED:]
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
