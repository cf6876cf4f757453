"""Changed edges → changed triangles and motifs, per vertex and in total."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from algorithms import motifs, patterns, triangles
from algorithms.plans import BROADCAST_ROWS, Choice, MotifChoice

from ...state.facts import EdgesFacts, TrianglesFacts
from ..changed import most_changed
from ..context import Run


def work(run: Run) -> TrianglesFacts:
    facts, (rows, plan) = count_triangles(run), count_motifs(run)
    return replace(facts, motif_rows=rows, motif_plan=plan)


def count_motifs(run: Run) -> tuple[int | None, str | None]:
    """Changed edges → changed motifs; how many rows, and the plan in words, where there are some.

    By the generic delta query or, as `[triangles] plan` says, one enumeration of all, in one task; beyond its
    `limit_edges` by the delta query in joins.
    """
    wanted = run.home.config.patterns()
    if not wanted:
        if not run.keeps("edges"):
            run.put_totals(["motif"], [])  # takes back what there may have been
        return None, None
    facts = run.ledger.facts(run.run_id, EdgesFacts)
    of = {"edges": facts.rows} if patterns.PLAIN in patterns.relations(wanted) else {}
    of |= {"motif_edges": facts.motif_edges or 0} if patterns.kept(wanted) else {}
    changed = sum(of.values())
    if not changed:
        run.write("motif_counts", None)
        run.put_totals(["motif"], [])
        return 0, None
    stored = sum(run.warehouse.size(table, run.base(table))["rows"] for table in of)

    def relations(read: Callable[[str], DataFrame]) -> DataFrame:
        name = {"edges": F.lit(patterns.PLAIN).alias("relation"), "motif_edges": F.col("relation")}
        parts = [read(table).select(name[table], "a", "b", "epoch", "until", "diff") for table in of]
        return reduce(DataFrame.unionByName, parts)

    config = run.home.config
    choice = MotifChoice(config.triangles.plan, stored, changed, patterns.rules(wanted), config.triangles.limit_edges)
    before = relations(run.before) if stored else None
    if choice.plan == "joins":
        new = motifs.motif_changes_in_joins(wanted, before, relations(run.delta))
    elif choice.plan == "delta" and before is not None:
        new = motifs.motif_changes(wanted, before, relations(run.delta))
    else:
        new = motifs.motif_counts(wanted, relations(run.after))
        if stored:
            old = run.before("motif_counts").select("motif", "vertex", "epoch", (-F.col("diff")).alias("diff"))
            both = new.unionByName(old).groupBy("motif", "vertex", "epoch").agg(F.sum("diff").alias("diff"))
            new = both.where("diff <> 0")
    run.say(f"motifs: {choice.words()}, {changed:,} changed edge intervals on {stored:,}")
    written = run.write("motif_counts", new)
    places = {name: (place, len(found[0].vertices)) for place, (name, found) in enumerate(wanted.items())}
    sums = run.delta("motif_counts").groupBy("motif", "epoch").agg(F.sum("diff").alias("diff")).collect()
    rows = [("motif", places[row.motif][0], row.epoch, row.diff // places[row.motif][1]) for row in sums]
    run.put_totals(["motif"], rows)
    return written, choice.words()


def count_triangles(run: Run) -> TrianglesFacts:
    """Changed edges → changed triangles, per vertex and in total: by the delta query, or by one enumeration of all."""
    rows = run.ledger.facts(run.run_id, EdgesFacts).rows
    if not rows:
        run.write("triangle_counts", None)
        run.put_totals(["triangles"], [])
        return TrianglesFacts(rows=0, proposals=0)
    config, few = run.home.config, rows <= BROADCAST_ROWS
    index, delta = run.before("edges"), run.delta("edges")
    stored = run.warehouse.size("edges", run.base("edges"))["rows"]
    choice = Choice(config.triangles.plan, stored, rows)
    counted: DataFrame | None = None
    try:
        if choice.plan == "delta":
            counted = triangles.count(index, delta, broadcast=few).persist()
            row = counted.agg(F.sum("proposals")).first()
            proposals = int(row[0] or 0) if row else 0
            choice = replace(choice, proposals=proposals)
        if counted is not None and choice.plan == "delta":
            run.say(f"delta query: {rows:,} changed edge intervals, at most {proposals:,} proposals")
            candidates = triangles.propose(index, delta, counted, broadcast=few)
            found = triangles.validate(index, delta, candidates, broadcast=proposals <= BROADCAST_ROWS)
            new = triangles.vertex_triangle_changes(found)
        else:
            run.say(f"enumeration of all {stored + rows:,} edge intervals, of which {rows:,} are new")
            before = run.before("triangle_counts") if run.keeps("triangle_counts") and run.parent.snapshots else None
            new = triangles.recounted_vertex_changes(
                run.after("edges"), before, stored + rows, config.triangles.limit_edges
            )
        written = run.write("triangle_counts", new)
    finally:
        if counted is not None:
            counted.unpersist()
    diffs = run.delta("triangle_counts").groupBy("epoch").agg((F.sum("diff") / 3).cast("bigint").alias("diff"))
    run.put_totals(["triangles"], [("triangles", 0, row.epoch, row.diff) for row in diffs.collect()])
    most = most_changed(run, run.after("triangle_counts"), ["vertex"], F.col("diff"), "triangles")
    return TrianglesFacts(
        rows=written,
        plan=choice.plan,
        chosen=choice.words(),
        proposals=choice.proposals,
        estimate={name: round(value, 2) for name, value in choice.seconds().items()},
        top_vertices=most,
    )
