"""The stage `edges`: it derives edges (by filter, window and distinct), degrees and their totals from upserts."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from altneu.algorithms.graph import edge_derivation, motif_patterns
from altneu.algorithms.graph.cost_model import WHOLE_ROWS

from ...landing import predicate_validation
from ...state.stage_results import EdgesFacts
from ..choices.plan_choice import Strategy
from ..choices.plan_choices import EdgesChoice
from ..run_context import ActualCounts, RunContext


def _degrees_before(run: RunContext) -> DataFrame:
    """Read the degrees that the run builds on, from just before its first epoch on: from the shorter of two tables.

    Of a short history `degrees` has fewer rows. Of a long one it is the edges that were alive at that epoch, and later
    ones, from which the same diff triples follow.
    """
    counts = ActualCounts(run)
    if not run.appends_to("edges") or counts.stored_rows("degrees") <= 2 * counts.edges_since():
        return run.read_before_since("degrees")
    return edge_derivation.degree_changes(run.read_before_since("edges"))


def derive_edges(run: RunContext) -> EdgesFacts:
    config = run.home.config
    values = list(config.values)
    if run.appends_to("edges"):
        base = None if run.parent.frontier is None else run.read_before_since("upserts")
        delta = run.read_delta("upserts")
    else:
        base, delta = None, run.read_after("upserts")
    decision = run.choose(EdgesChoice)
    few = decision.strategy is Strategy.BROADCAST
    read, stored = run.count_read_rows(), run.count_stored_rows()
    if read < stored:
        run.say(f"reading {read:,} of {stored:,} stored rows: the others have ended before the first epoch of the run")
    tiny = read <= WHOLE_ROWS
    motif_edges: int | None = None
    relations = motif_patterns.extra_relations(config.motif_patterns())
    if decision.upserts.value:
        pairs = None if tiny else edge_derivation.touched_pairs(delta, values)
        if base is None and not tiny and len(run.epochs) == 1:  # in several epochs most pairs have several rows
            new = edge_derivation.first_edges(delta, values, config.edges.live_for, config.edge_condition)
        else:
            new = edge_derivation.edge_changes(
                base, delta, pairs, values, config.edges.live_for, config.edge_condition, broadcast=few
            )
        with predicate_validation.name_conditions(run.home):
            rows = run.write_rows("edges", new)
            if relations:
                changes = edge_derivation.relation_changes(
                    base,
                    delta,
                    pairs,
                    values=values,
                    relations=relations,
                    live_for=config.edges.live_for,
                    where=config.edge_condition,
                    broadcast=few,
                )
                motif_edges = run.write_rows("motif_edges", changes)
    else:
        rows = run.write_rows("edges", None)
    if config.motifs and not motif_edges:
        run.write_rows("motif_edges", None)
    if not rows:
        run.write_rows("degrees", None)
        run.put_totals(["edges", "vertices", "wedges"], [])
        return EdgesFacts(rows=0, broadcast=few, motif_edges=motif_edges)
    delta_edges = run.read_delta("edges")
    run.write_rows("degrees", edge_derivation.degree_changes(delta_edges))
    edge_diffs = edge_derivation.interval_steps(delta_edges, []).groupBy("epoch").agg(F.expr("sum(diff) AS diff"))
    degree_diffs = edge_derivation.degree_total_changes(
        _degrees_before(run), run.read_delta("degrees"), broadcast=few, whole=tiny
    )
    known = run.ledger.outputs.list_measures(run.parent.revision) if run.appends_to("edges") else set()
    if known and "wedges" not in known:
        # There was no wedge, or no version that counts wedges, when the parent was published: count all of them.
        all_diffs = edge_derivation.degree_total_changes(
            run.warehouse.empty_rows("degrees"), run.read_after("degrees"), broadcast=few
        )
        degree_diffs = degree_diffs.where("measure <> 'wedges'").unionByName(all_diffs.where("measure = 'wedges'"))
    totals = edge_diffs.selectExpr("'edges' AS measure", "epoch", "diff").unionByName(degree_diffs).collect()
    run.put_totals(["edges", "vertices", "wedges"], [(row.measure, 0, row.epoch, row.diff) for row in totals])
    # A sum of 0 is a row as well, so that the first epoch is that of the first changed interval.
    first = min(row.epoch for row in totals if row.measure == "edges")
    return EdgesFacts(rows=rows, first_epoch=first, broadcast=few, motif_edges=motif_edges)
