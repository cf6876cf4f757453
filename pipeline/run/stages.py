"""The stages of a run: `ingest → edges → triangles → truss → audit → publish → report`.

Each is a function of a `Run` that reads the parent's pinned tables and the run's own branches, writes its own tables
and returns its facts (rows, plans, choices). Safe to retry: a stage replaces what an earlier try of it wrote. Nothing
is visible to a reader before publish.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from algorithms import edges as graph
from algorithms import motifs, patterns, triangles, truss
from algorithms.plans import Choice, MotifChoice

from .. import landing
from ..checking import audit as auditing
from ..checking.shown import staged
from ..errors import CheckFailed, Disturbed, Unavailable, explained
from ..home.directory import Home
from ..home.schedule import sample
from ..landing import filters
from ..landing import frames as reading
from ..reading.views import accumulate, at_epochs, named
from ..state.ledger import Ledger, Revision
from ..storage.warehouse import LANDED, Warehouse, shown
from .forecast import BROADCAST_ROWS

SAMPLE, TOP, REPORTED = 20, 5, 400  # rows kept for the report: quarantined, most changed, and of how many epochs
LOOKED_AT, ENTERED = 50_000_000, 50  # rows times epochs that the search for a core's newcomers may cost; how many
SPREAD = 5  # into how many stretches the audit of a rebuild cuts history, to look at one epoch of each

Facts = dict[str, Any]
Say = Callable[[str], None]


@dataclass
class Run:
    """One run: what it builds on, which epochs' batches it replaces, and where to write."""

    home: Home
    ledger: Ledger
    spark: SparkSession
    run_id: str
    parent: Revision
    epochs: list[int]
    say: Say = lambda text: None
    kind: str = "run"

    @property
    def revision(self) -> int:
        return self.parent.revision + 1

    @property
    def frontier(self) -> int:
        """The greatest epoch whose state is final once this run is published."""
        return max([*self.epochs, *([] if self.parent.frontier is None else [self.parent.frontier])])

    @cached_property
    def warehouse(self) -> Warehouse:
        return Warehouse(self.spark, self.home)

    def keeps(self, table: str) -> bool:
        """Does the run add to a table? A rebuild makes all but the landed rows anew, a reload those as well."""
        return self.kind == "run" or (self.kind == "rebuild" and table in LANDED)

    @cached_property
    def written(self) -> dict[str, int]:
        """Table → the snapshot that its stage has written."""
        return self.ledger.written(self.run_id)

    @cached_property
    def wrote(self) -> dict[str, int]:
        """The same, of the stage that is at work."""
        return {}

    def base(self, table: str) -> int:
        return self.warehouse.base(table, self.parent) if self.keeps(table) else self.warehouse.first(table)

    def before(self, table: str) -> DataFrame:
        """What the run builds on."""
        return self.warehouse.at(table, self.parent) if self.keeps(table) else self.warehouse.empty(table)

    def delta(self, table: str) -> DataFrame:
        """The rows that the run has written."""
        return self.after(table).where(F.col("revision") == self.revision)

    def after(self, table: str) -> DataFrame:
        """Both: what a reader will see."""
        return shown(self.warehouse.snapshot(table, self.head(table)), self.parent)

    def head(self, table: str) -> int:
        """The snapshot of what is there after the run, as its stages wrote it. Raises `Disturbed`."""
        head = self.warehouse.head(table, self.run_id, self.base(table))
        if self.written.get(table, head) != head:
            raise Disturbed(
                f"table {table} of run {self.run_id} is not as its stage has left it: another process, taken for dead, "
                "has written to it since. Nothing of this run is published.",
                "run the same epochs again; in Airflow clear the run from ingest on",
            )
        return head

    def heads(self) -> Revision:
        """What the ledger row of the run would pin, were it published now."""
        pins = {table: self.head(table) for table in self.warehouse.tables}
        return replace(self.parent, revision=self.revision, snapshots=pins)

    def stored(self) -> int:
        """How many rows the stages after ingest have to do with, about."""
        pins = self.heads().snapshots
        return sum(self.warehouse.size(table, pins[table])["rows"] for table in ("upserts", "edges", "trussness"))

    def write(self, table: str, frame: DataFrame | None) -> int:
        """Write the run's rows of a table; how many."""
        stamped = None if frame is None else frame.withColumn("revision", F.lit(self.revision).cast("bigint"))
        return self.put(table, stamped)

    def put(self, table: str, rows: Any | None) -> int:
        self.ledger.beat(self.run_id)  # who has lost the lease does not touch the branches of who has it
        base = self.base(table)
        head = self.warehouse.stage(table, self.run_id, base, rows)
        self.written[table] = self.wrote[table] = head
        return 0 if head == base else self.warehouse.added(table, head)

    def put_totals(self, measures: list[str], rows: list[tuple[str, int, int, int]]) -> None:
        """Total diffs `(measure, k, epoch, diff)` of what the run has written, as the difference to the parent's.

        What a rebuild finds before `since` is no history, but what is in force there: the totals before it stay.
        """
        if self.keeps("edges"):
            self.ledger.put_totals(self.run_id, measures, rows)
            return
        since = self.parent.since if self.keeps("upserts") else None
        sums: Counter[tuple[str, int, int]] = Counter()
        for measure, k, epoch, diff in rows:
            sums[measure, k, epoch if since is None else max(epoch, since)] += diff
        for measure, k, epoch, _, diff in self.ledger.total_diffs(self.parent.revision):
            if measure in measures:
                sums[measure, k, epoch if since is None else max(epoch, since)] -= diff
        self.ledger.put_totals(self.run_id, measures, [(*key, diff) for key, diff in sums.items()])


def ingest(run: Run) -> Facts:
    """Landed files → upserts and quarantine, as the difference to the published batches."""
    filters.judge(run.spark, run.home)
    if run.kind == "rebuild" and not run.epochs:
        for table in LANDED:
            run.write(table, None)
        run.ledger.put_batches(run.run_id, [])
        return {"rows": 0, "quarantined": 0, "changed_rows": 0, "replaced_epochs": 0, "quarantine_sample": []}
    everything = landing.listing(run.home)
    batches = [everything.get(e) or landing.Landed(e, run.home.schedule.label(e), ()) for e in run.epochs]
    unready = next((batch for batch in batches if batch.incomplete and batch.files), None)
    if unready:
        raise Unavailable(
            f"epoch {unready.label} is not landed completely: {unready.incomplete}. Nothing was published.",
            "run the same command again",
        )
    digests = landing.digest(run.ledger, batches)
    run.say(f"reading {sum(len(batch.files) for batch in batches)} files of {len(batches)} epochs")
    source = run.spark, run.home, batches
    counts = reading.judge(*source)
    landed, quarantined = (sum(column) for column in zip(*counts.values(), strict=True)) if counts else (0, 0)
    published = run.ledger.batches(run.parent.revision) if run.keeps("upserts") else {}
    again = [epoch for epoch in run.epochs if epoch in published]
    rows = reading.good(*source)
    try:
        if run.home.config.ids == "string":
            always = F.lit(min(run.epochs)).cast("bigint").alias("epoch"), F.lit(1).cast("bigint").alias("diff")
            run.write("names", reading.new_names(rows, run.before("names")).select("id", "name", *always))
            rows = reading.numbered(rows, run.after("names"))
        else:
            run.write("names", None)
        old_rows = run.before("upserts").where(F.col("epoch").isin(again)) if again else None
        old_bad = run.before("quarantine").where(F.col("epoch").isin(again)) if again else None
        changed = run.write("upserts", reading.difference(rows, old_rows))
        some = again or quarantined
        run.write("quarantine", reading.difference(reading.bad(*source), old_bad) if some else None)
    finally:  # what went wrong may be for that very reason
        if not landing.unchanged(run.ledger, batches, digests):
            raise Unavailable(
                "the landing changed while it was read. Nothing was published.", "run the same command again"
            )
    run.ledger.put_batches(
        run.run_id,
        [
            {
                "epoch": batch.epoch,
                "digest": digests[batch.epoch],
                "files": len(batch.files),
                "rows": counts.get(batch.epoch, (0, 0))[0],
                "bad_rows": counts.get(batch.epoch, (0, 0))[1],
            }
            for batch in batches
        ],
    )
    sample = run.delta("quarantine").where("diff > 0").orderBy("epoch", "file", "line").limit(SAMPLE)
    shown = ["epoch", "file", "line", "reason", "text"]
    rows_shown = [row.asDict() for row in sample.select(*shown).collect()] if quarantined else []
    facts = {"rows": landed, "quarantined": quarantined, "changed_rows": changed, "replaced_epochs": len(again)}
    if again:
        facts["rows_before"] = sum(published[epoch].rows for epoch in again)
    return {**facts, "quarantine_sample": rows_shown}


def edges(run: Run) -> Facts:
    """Upserts → edges (filter, window, distinct), degrees, and the totals of both."""
    config = run.home.config
    values = list(config.values)
    if run.keeps("edges"):
        base, delta = run.before("upserts") if run.parent.frontier is not None else None, run.delta("upserts")
        changed = run.ledger.facts(run.run_id, "ingest")["changed_rows"]
    else:
        base, delta = None, run.after("upserts")
        changed = run.warehouse.size("upserts", run.heads().snapshots["upserts"])["rows"]
    few = changed <= BROADCAST_ROWS
    facts: Facts = {"broadcast": few}
    relations = patterns.kept(config.patterns())
    if changed:
        pairs = graph.touched_pairs(delta, values)
        new = graph.edge_changes(base, delta, pairs, values, config.live_for, config.condition, broadcast=few)
        rows = run.write("edges", new)
        if relations:
            how = (values, relations, config.live_for, config.condition)
            facts["motif_edges"] = run.write("motif_edges", graph.relation_changes(base, delta, pairs, *how, few))
    else:
        rows = run.write("edges", None)
    if config.motifs and not facts.get("motif_edges"):
        run.write("motif_edges", None)
    if not rows:
        run.write("degrees", None)
        run.put_totals(["edges", "vertices", "wedges"], [])
        return {"rows": 0, **facts}
    delta_edges = run.delta("edges")
    run.write("degrees", graph.degree_changes(delta_edges))
    edge_diffs = graph.steps(delta_edges, []).groupBy("epoch").agg(F.sum("diff").alias("diff"))
    degree_diffs = graph.degree_total_changes(run.before("degrees"), run.delta("degrees"), broadcast=few)
    known = run.ledger.total_diffs(run.parent.revision) if run.keeps("edges") else []
    if known and not any(measure == "wedges" for measure, *_ in known):
        # no wedge yet, or published before they were counted: from nothing
        all_diffs = graph.degree_total_changes(run.warehouse.empty("degrees"), run.after("degrees"), broadcast=few)
        degree_diffs = degree_diffs.where("measure <> 'wedges'").unionByName(all_diffs.where("measure = 'wedges'"))
    found = edge_diffs.select(F.lit("edges").alias("measure"), "epoch", "diff").unionByName(degree_diffs).collect()
    run.put_totals(["edges", "vertices", "wedges"], [(row.measure, 0, row.epoch, row.diff) for row in found])
    # a sum of 0 is a row as well: the first epoch is that of the first changed interval
    return {"rows": rows, "first_epoch": min(row.epoch for row in found), **facts}


def count(run: Run) -> Facts:
    """Changed edges → changed triangles and motifs, per vertex and in total."""
    return count_triangles(run) | count_motifs(run)


def count_motifs(run: Run) -> Facts:
    """By the generic delta query or, as `[triangles] plan` says, one enumeration of all, in one task; beyond its
    `limit_edges` by the delta query in joins."""
    wanted = run.home.config.patterns()
    if not wanted:
        if not run.keeps("edges"):
            run.put_totals(["motif"], [])  # takes back what there may have been
        return {}
    facts = run.ledger.facts(run.run_id, "edges")
    of = {"edges": facts["rows"]} if patterns.PLAIN in patterns.relations(wanted) else {}
    of |= {"motif_edges": facts.get("motif_edges", 0)} if patterns.kept(wanted) else {}
    changed = sum(of.values())
    if not changed:
        run.write("motif_counts", None)
        run.put_totals(["motif"], [])
        return {"motif_rows": 0}
    stored = sum(run.warehouse.size(table, run.base(table))["rows"] for table in of)

    def relations(read: Callable[[str], DataFrame]) -> DataFrame:
        name = {"edges": F.lit(patterns.PLAIN).alias("relation"), "motif_edges": F.col("relation")}
        parts = [read(table).select(name[table], "a", "b", "epoch", "until", "diff") for table in of]
        return reduce(DataFrame.unionByName, parts)

    config = run.home.config
    choice = MotifChoice(config.triangles_plan, stored, changed, patterns.rules(wanted), config.triangles_limit)
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
    return {"motif_rows": written, "motif_plan": choice.words()}


def count_triangles(run: Run) -> Facts:
    """Changed edges → changed triangles, per vertex and in total: by the delta query, or by one enumeration of all."""
    rows = run.ledger.facts(run.run_id, "edges")["rows"]
    if not rows:
        run.write("triangle_counts", None)
        run.put_totals(["triangles"], [])
        return {"rows": 0, "proposals": 0}
    config, few = run.home.config, rows <= BROADCAST_ROWS
    index, delta = run.before("edges"), run.delta("edges")
    stored = run.warehouse.size("edges", run.base("edges"))["rows"]
    choice = Choice(config.triangles_plan, stored, rows)
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
            new = triangles.recounted_vertex_changes(run.after("edges"), before, stored + rows, config.triangles_limit)
        written = run.write("triangle_counts", new)
    finally:
        if counted is not None:
            counted.unpersist()
    diffs = run.delta("triangle_counts").groupBy("epoch").agg((F.sum("diff") / 3).cast("bigint").alias("diff"))
    run.put_totals(["triangles"], [("triangles", 0, row.epoch, row.diff) for row in diffs.collect()])
    most = _most_changed(run, run.after("triangle_counts"), ["vertex"], F.col("diff"), "triangles")
    return {"rows": written, **choice.facts(), "top_vertices": most}


def maintain_truss(run: Run) -> Facts:
    """Changed edges → changed trussness of every edge, replayed from the earliest changed epoch to the frontier."""
    changed = run.ledger.facts(run.run_id, "edges")
    starts = [changed["first_epoch"]] if changed["rows"] else []
    if run.keeps("edges") and run.parent.frontier is not None and run.frontier > run.parent.frontier:
        starts.append(run.parent.frontier + 1)  # scheduled expiries between the old frontier and the new one
    if not starts or min(starts) > run.frontier:
        run.write("trussness", None)
        run.put_totals(["truss"], [])
        return {"rows": 0, "epochs": 0}
    first = min(starts)
    label = run.home.schedule.label
    run.say(f"replaying from epoch {label(first)} to {label(run.frontier)}")
    limit: int | None = run.home.config.limit_edges
    if run.warehouse.size("edges", run.heads().snapshots["edges"])["rows"] <= run.home.config.limit_edges:
        limit = None  # the table's whole history is within it: nothing to count
    new = truss.trussness_changes(
        run.after("edges"),
        run.before("trussness"),
        first,
        run.frontier,
        limit,
        lambda epoch, text: run.say(f"epoch {label(epoch)}: {text}"),
    ).persist()
    try:
        written = run.write("trussness", new.where(F.col("diff") != 0))
        log = [row.asDict() for row in new.where("diff = 0").select("epoch", "note").orderBy("epoch").collect()]
    finally:
        new.unpersist()
    sizes = run.delta("trussness").groupBy("k", "epoch").agg(F.sum("diff").alias("diff"))
    run.put_totals(["truss"], [("truss", row.k, row.epoch, row.diff) for row in sizes.collect()])
    summary = truss.summary([entry["note"] for entry in log])
    most = _most_changed(run, run.after("trussness"), ["a", "b"], F.col("k") * F.col("diff"), "trussness")
    entered = _entered_core(run)
    facts = {"rows": written, "first_epoch": first, "epochs": len(log), **summary}
    return {**facts, "top_edges": most, "entered_core": entered}


def _entered_core(run: Run) -> Facts:
    """Epoch → vertices that are in the densest truss there and were not in that k-truss before, for the report."""
    diffs = run.ledger.total_diffs(run.parent.revision) + run.ledger.staged_totals(run.run_id, run.revision)
    rows = run.warehouse.size("trussness", run.heads().snapshots["trussness"])["rows"]
    epochs = sorted(run.epochs)[-max(1, min(REPORTED, LOOKED_AT // max(rows, 1))) :]
    points = at_epochs(accumulate(diffs, run.frontier), epochs)
    cores = [(epoch, points[epoch]["max_trussness"]) for epoch in epochs if points[epoch]["max_trussness"] > 2]
    if not cores:
        return {}
    core = F.broadcast(run.spark.createDataFrame(cores, "at bigint, core bigint"))
    inside = run.after("trussness").join(core, (F.col("k") >= F.col("core")) & (F.col("epoch") <= F.col("at")))
    ends = inside.select("at", "epoch", "diff", F.explode(F.array("a", "b")).alias("vertex"))
    before = F.sum(F.when(F.col("epoch") < F.col("at"), F.col("diff")).otherwise(0)).alias("before")
    new = ends.groupBy("at", "vertex").agg(F.sum("diff").alias("now"), before).where("now > 0 AND before = 0")
    order = F.row_number().over(Window.partitionBy("at").orderBy("vertex"))
    few = new.withColumn("place", order).where(F.col("place") <= ENTERED).select("at", "vertex")
    found: Facts = {}
    for row in sorted(named(run.warehouse, run.heads(), few, ["vertex"]).collect()):
        found.setdefault(str(row["at"]), []).append(row["vertex"])
    return found


def _most_changed(run: Run, table: DataFrame, data: list[str], amount: Column, name: str) -> Facts:
    """Epoch → the rows whose value changed most there, for the report. Of at most `REPORTED` epochs of the run."""
    epochs = sorted(run.epochs)[-REPORTED:]
    sums = table.where(F.col("epoch").isin(epochs)).groupBy("epoch", *data).agg(F.sum(amount).alias(name))
    order = Window.partitionBy("epoch").orderBy(F.abs(name).desc(), *data)
    top = sums.where(F.col(name) != 0).withColumn("place", F.row_number().over(order)).where(F.col("place") <= TOP)
    readable = named(run.warehouse, run.heads(), top, data)
    found: Facts = {}
    for row in sorted(readable.collect(), key=lambda row: (row.epoch, row.place)):
        found.setdefault(str(row.epoch), []).append({**{c: row[c] for c in data}, name: row[name]})
    return found


def audit(run: Run) -> Facts:
    """Great Expectations suites on the new tables, and the incremental result against a full recomputation."""
    from expectations.suite import check_differences

    # The recomputation is one task per epoch, the suites are many short queries: beside each other on two cores.
    with ThreadPoolExecutor(1) as beside:
        epochs = _audited(run)
        parts = run.warehouse, run.after, epochs, run.say
        full = beside.submit(auditing.differences, *parts, revision=run.heads(), shown=staged(run, epochs))
        results = auditing.suites(run)
        results += check_differences(*full.result())
    run.wrote.update(run.heads().snapshots)  # publish pins these and no others
    run.ledger.put_checks(run.run_id, run.revision, results)
    failed = [result for result in results if not result["passed"] and result["severity"] != "info"]
    critical = [result for result in failed if result["severity"] == "critical"]
    if critical:
        worst = critical[0]
        raise CheckFailed(
            f"{len(critical)} critical check(s) failed; the first: {worst['name']} at epoch "
            f"{run.home.schedule.label(worst['epoch'])}: {worst['observed']}. Nothing was published.",
            f"altneu report {run.home.schedule.label(worst['epoch'])}; {worst['remedy']}",
        )
    return {"checks": len(results), "failed": len(failed), "critical": len(critical)}


def _audited(run: Run) -> list[int]:
    """The epochs that a run compares with a recomputation: its last one, the frontier, and what `[audit]` asks for; of
    a rebuild some of all at the least."""
    known = sorted({*run.ledger.batches(run.parent.revision), *run.epochs, run.frontier})
    since = run.parent.since if run.keeps("upserts") else None
    known = [epoch for epoch in known if since is None or epoch >= since]
    own = run.epochs if run.kind == "run" else known
    mode, _, n = run.home.config.audit.partition(" ")
    chosen = {run.frontier, *own[-1:], *(own[:: max(1, len(own) // SPREAD)] if run.kind != "run" else ())}
    if mode == "all":
        chosen.update(own)
    elif mode == "every":
        chosen.update(epoch for epoch in own if epoch % int(n) == 0)
    elif mode == "sample":
        chosen.update(sample(known, int(n), run.run_id))
    return sorted(chosen.intersection(known))


def publish(run: Run) -> Facts:
    """The ledger row: from here on the revision exists. It pins the snapshots that the audit has seen, and is refused
    when a branch has another one by now. What is tidied after it, the next run would tidy, too."""
    warned = run.ledger.facts(run.run_id, "audit")["failed"]
    row = next((row for row in run.ledger.revisions() if row.run_id == run.run_id), None)
    if row is None:
        row = run.ledger.publish(
            run.run_id,
            run.parent.revision,
            run.frontier,
            run.heads().snapshots,
            run.home.config.digest(),
            "warning" if warned else None,
            None if run.kind == "reload" else run.parent.since,
        )
    sizes = {table: run.warehouse.size(table, snapshot) for table, snapshot in row.snapshots.items()}
    facts: Facts = {"revision": row.revision, "tables": sizes}
    try:
        run.warehouse.follow(run.ledger, run.run_id)
        run.ledger.discard([run.run_id])
        return facts | {"dropped_runs": run.warehouse.discard_leftovers(run.ledger)}
    except Exception as error:
        what, _ = explained(error)
        run.say(f"revision {row.revision} is published; its branches are left to the next run ({what})")
        return facts | {"untidied": what}


def report(run: Run) -> Facts:
    """The HTML pages, from the database alone."""
    from ..report import write

    pages = write(run.home, run.ledger, run.epochs if run.kind == "run" else list(run.ledger.batches()))
    return {"pages": len(pages), "page": str(pages[-1]) if pages else None}


STAGES: dict[str, Callable[[Run], Facts]] = {
    "ingest": ingest,
    "edges": edges,
    "triangles": count,
    "truss": maintain_truss,
    "audit": audit,
    "publish": publish,
    "report": report,
}
