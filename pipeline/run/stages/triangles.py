"""The stage `triangles`: it counts changed triangles and motifs from changed edges, per vertex and in total."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from altneu.algorithms.graph import motif_patterns, motifs, triangles
from altneu.algorithms.graph.tagged_rows import RowKind, rows_of_kind, unfit_reason

from ...home import memory_budget
from ...state.stage_results import EdgesFacts, TrianglesFacts
from ...storage import graph_cache
from ..choices.plan_choice import Strategy
from ..choices.plan_choices import MotifsChoice, TrianglesChoice
from ..run_context import RunContext
from . import resume_inputs
from .top_changes import find_most_changed


def count_triangles_and_motifs(run: RunContext) -> TrianglesFacts:
    facts, (rows, plan) = count_triangles(run), count_motifs(run)
    return replace(facts, motif_rows=rows, motif_plan=plan)


def count_motifs(run: RunContext) -> tuple[int | None, str | None]:
    """Count changed motifs from changed edges.

    The plan is the generic delta query or an enumeration of all motifs, in one task (`[triangles] plan`); beyond
    `limit_edges` it is the delta query in joins.

    Returns:
        The number of written rows and the plan in words, or None for both where no motifs are declared.
    """
    wanted = run.home.config.motif_patterns()
    if not wanted:
        if not run.appends_to("edges"):
            run.put_totals(["motif"], [])  # removes the totals of motifs that were declared before
        return None, None
    decision = run.choose(MotifsChoice)
    changed, stored = decision.changed_rows.value, decision.stored_rows
    if decision.strategy is Strategy.NOTHING:
        run.write_rows("motif_counts", None)
        run.put_totals(["motif"], [])
        return 0, None

    def read_relation(read: Callable[[str], DataFrame]) -> DataFrame:
        name = {"edges": F.lit(motif_patterns.OWN_EDGES).alias("relation"), "motif_edges": F.col("relation")}
        parts = [read(table).select(name[table], "a", "b", "epoch", "until", "diff") for table in decision.tables]
        return reduce(DataFrame.unionByName, parts)

    before = read_relation(run.read_before_since) if stored else None
    if decision.strategy is Strategy.JOINS:
        new = motifs.motif_changes_in_joins(wanted, before, read_relation(run.read_delta))
    elif decision.strategy is Strategy.DELTA and before is not None:
        new = motifs.motif_changes(wanted, before, read_relation(run.read_delta))
    else:
        new = motifs.motif_counts(wanted, read_relation(run.read_after_since))
        if stored:
            old = run.read_before("motif_counts").select("motif", "vertex", "epoch", (-F.col("diff")).alias("diff"))
            both = new.unionByName(old).where(F.col("epoch") >= run.scope.first_changed_epoch)
            new = both.groupBy("motif", "vertex", "epoch").agg(F.sum("diff").alias("diff")).where("diff <> 0")
    plan = decision.describe(run.home.schedule.format_label)
    run.say(f"motifs: {plan}, {changed:,} changed edge intervals on {stored:,}")
    written = run.write_rows("motif_counts", new)
    places = {name: (place, len(patterns[0].vertices)) for place, (name, patterns) in enumerate(wanted.items())}
    sums = run.read_delta("motif_counts").groupBy("motif", "epoch").agg(F.sum("diff").alias("diff")).collect()
    rows = [("motif", places[row.motif][0], row.epoch, row.diff // places[row.motif][1]) for row in sums]
    run.put_totals(["motif"], rows)
    return written, plan


def count_triangles(run: RunContext) -> TrianglesFacts:
    """Count changed triangles from changed edges, per vertex and in total.

    The plan is chosen: from the graph cache, by the delta query, or by an enumeration of all triangles.
    """
    decision = run.choose(TrianglesChoice)
    rows, stored = decision.changed_edges.value, decision.stored_edges
    if decision.strategy is Strategy.NOTHING:
        run.write_rows("triangle_counts", None)
        run.put_totals(["triangles"], [])
        return TrianglesFacts(rows=0, proposals=0)
    sent = memory_budget.max_broadcast_rows(run.home.config)
    few = rows <= sent
    index, delta = run.read_before_since("edges"), run.read_delta("edges")
    counted: DataFrame | None = None
    resumed = None
    if decision.strategy is Strategy.RESUME and (resumed := _resume_from_graph(run)) is None:
        decision = replace(decision, has_graph_cache=False)
    try:
        if decision.strategy is Strategy.DELTA:
            counted = triangles.count(index, delta, broadcast=few).persist()
            row = counted.agg(F.sum("proposals")).first()
            proposals = int(row[0] or 0) if row else 0
            decision = decision.with_proposals(proposals)
        if resumed is not None:
            run.say(f"from the graph cache: {rows:,} changed edge intervals")
            new = rows_of_kind(resumed, RowKind.CHANGE).selectExpr("a AS vertex", "epoch", "diff")
        elif counted is not None and decision.strategy is Strategy.DELTA:
            run.say(f"delta query: {rows:,} changed edge intervals, at most {proposals:,} proposals")
            candidates = triangles.propose(index, delta, counted, broadcast=few)
            triangle_changes = triangles.validate(index, delta, candidates, broadcast=proposals <= sent)
            new = triangles.vertex_triangle_changes(triangle_changes)
        else:
            run.say(f"enumeration of about {stored + rows:,} edge intervals, of which {rows:,} are new")
            adds = run.appends_to("triangle_counts") and run.parent.snapshots
            new = triangles.recounted_vertex_changes(
                run.read_after_since("edges"),
                run.read_before("triangle_counts") if adds else None,
                intervals=run.warehouse.snapshot_size("edges", run.verified_snapshot("edges")).rows,
                limit_edges=memory_budget.max_cell_edges(run.home.config),
                first=run.scope.first_changed_epoch if run.appends_to("edges") else None,
            )
        written = run.write_rows("triangle_counts", new)
    finally:
        for frame in (counted, resumed):
            if frame is not None:
                frame.unpersist()
    diffs = run.read_delta("triangle_counts").groupBy("epoch").agg(F.expr("sum(diff) DIV 3 AS diff"))
    run.put_totals(["triangles"], [("triangles", 0, row.epoch, row.diff) for row in diffs.collect()])
    most = find_most_changed(run, run.read_after("triangle_counts"), ["vertex"], "diff", "triangles")
    return TrianglesFacts(
        rows=written,
        plan=str(decision.strategy),
        chosen=decision.cost_choice.describe(),
        proposals=decision.cost_choice.proposals,
        estimate={name: round(value, 2) for name, value in decision.cost_choice.estimated_seconds().items()},
        corrections=decision.corrections,
        top_vertices=most,
    )


def _resume_from_graph(run: RunContext) -> DataFrame | None:
    """Compute the changes from the parent's graph cache, and persist them; EXECUTES.

    Return None where it is missing or does not fit, which is reported as progress.
    """
    graph = resume_inputs.find_graph(run, graph_cache.cache_location(run.home))
    first = run.get_result(EdgesFacts).first_epoch
    if graph is None or first is None:
        return None
    edges, stored = resume_inputs.changed_edges(run, graph.epoch, first), run.read_before("triangle_counts")
    rows = triangles.resumed_vertex_changes(edges, stored, graph, first, run.frontier).persist()
    why = unfit_reason(rows)
    if why is None:
        return rows
    rows.unpersist()
    run.say(f"{why}: computing from the tables")
    return None
