"""The stages of a run in plain Python, for `tests.ledger_only`: the landed rows are read as Spark's tasks read them and
judged as the ingest stage judges them; everything else is recomputed from them by `tests.reference` at every epoch.

A stage writes by how much the whole differs from what the run builds on. So the tables hold, epoch by epoch, what real
stages write, and have the same fingerprints. A row is a tuple of its table's columns, whose last three are epoch,
revision and diff. There are no conditions, motifs or serving tables here, and no folded epochs:
`require_plain_settings`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

from pyspark.sql import Row

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.pipeline.errors import CheckFailed
from altneu.pipeline.home.home import Home
from altneu.pipeline.landing import spark_reader
from altneu.pipeline.landing.local_landing import BatchFiles, LandedFile
from altneu.pipeline.run.choices.plan_choice import Strategy
from altneu.pipeline.run.choices.plan_choices import FULL, AuditChoice, EdgesChoice, TrianglesChoice, TrussChoice
from altneu.pipeline.run.run_context import RunContext
from altneu.pipeline.run.stages.ingest import SAMPLE, accept_batches
from altneu.pipeline.run.stages.top_changes import TOP
from altneu.pipeline.state import fingerprint_sums
from altneu.pipeline.state.records import LANDED_TABLES, RunKind, StagedBatch
from altneu.pipeline.state.stage_results import (
    AuditFacts,
    EdgesFacts,
    IngestFacts,
    QuarantinedRow,
    TrianglesFacts,
    TrussFacts,
)
from altneu.pipeline.storage.table_schemas import TABLES, table_columns
from tests import reference
from tests.fingerprint_helpers import recompute_fingerprints
from tests.report import seed

Rows = tuple[tuple[Any, ...], ...]
Net = Counter[tuple[Any, ...]]  # a table's data with their epoch → how often
Check = dict[str, Any]
PLAN = "replay"


def require_plain_settings(home: Home) -> None:
    """Refuse a home whose settings these stages know nothing of."""
    config = home.config
    unknown = [config.edge_condition, config.motifs, config.publish.serving_tables, config.retention.epochs]
    assert not any(unknown), f"{home.path} needs real runs: {unknown}"


# -- what the run reads and writes -----------------------------------------------------------------------------------


def add_up(rows: Iterable[tuple[Any, ...]]) -> Net:
    """Sum the diffs of rows, whatever revision they are of."""
    found: Net = Counter()
    for row in rows:
        found[row[:-2]] += row[-1]
    return Counter({key: number for key, number in found.items() if number})


def read_before(run: RunContext, table: str) -> Net:
    """Read what the run builds on."""
    if not run.appends_to(table) or run.parent.frontier is None:
        return Counter()
    return add_up(run.warehouse.shown(table, run.base_snapshot(table), run.parent))


def read_after(run: RunContext, table: str) -> Net:
    """Read it with what the run has written."""
    return add_up(run.warehouse.shown(table, run.verified_snapshot(table), run.unpublished_revision()))


def write_whole(run: RunContext, table: str, whole: Mapping[tuple[Any, ...], int]) -> tuple[int, Net]:
    """Write by how much a table becomes another one; how many rows that are, and which."""
    step: Net = Counter(whole)
    step.subtract(read_before(run, table))
    step = Counter({key: number for key, number in step.items() if number})
    rows = [(*key, run.revision, step[key]) for key in sorted(step, key=str)]
    return run.put_rows(table, tuple(rows) if rows else None), step


def put_totals(run: RunContext, sums: Mapping[tuple[str, int], Mapping[int, int]], measures: list[str]) -> None:
    """Put the totals whose diffs are, by measure and k, those of `sums` by epoch."""
    found = Counter({(name, k, epoch): n for (name, k), diffs in sums.items() for epoch, n in diffs.items()})
    if run.appends_to("edges"):
        for name, k, epoch, _, diff in run.ledger.outputs.total_diffs(run.parent.revision):
            if name in measures:
                found[name, k, epoch] -= diff
    run.put_totals(measures, [(*key, diff) for key, diff in found.items() if diff])


# -- the graph, epoch by epoch ---------------------------------------------------------------------------------------

Graphs = dict[int, set[reference.Edge]]  # at every epoch at which an upsert comes or expires, in order


def recompute_graphs(run: RunContext) -> Graphs:
    """Recompute the edges from the upserts that the run leaves."""
    columns = list(table_columns(run.home, "upserts"))
    batches: dict[int, list[reference.Row]] = {}
    for key, number in read_after(run, "upserts").items():
        row = dict(zip(columns, key, strict=False))
        batches.setdefault(row["epoch"], []).extend([(row["src"], row["dst"], None, row["op"], row["seq"])] * number)
    live_for = run.home.config.edges.live_for
    epochs = {*batches, *(epoch + live_for for epoch in batches if live_for is not None)}
    in_force: dict[reference.Edge, int] = {}  # key → the epoch of its last upsert
    graphs: Graphs = {}
    for epoch in sorted(epochs):
        rows = batches.get(epoch, [])
        for src, dst, *_ in rows:
            in_force.pop((src, dst), None)
        in_force |= dict.fromkeys(reference.relation({epoch: rows}, epoch), epoch)
        live = [key for key, at in in_force.items() if live_for is None or epoch < at + live_for]
        graphs[epoch] = {(min(key), max(key)) for key in live if key[0] != key[1]}
    return graphs


def differentiate(states: Mapping[int, Mapping[tuple[Any, ...], int]]) -> Net:
    """Turn what holds at some epochs, key → number, into diffs: (*key, epoch) → by how much the number changes."""
    found: Net = Counter()
    before: Mapping[tuple[Any, ...], int] = {}
    for epoch, state in states.items():
        for key in {*before, *state}:
            if step := state.get(key, 0) - before.get(key, 0):
                found[(*key, epoch)] = step
        before = state
    return found


def find_changed_intervals(run: RunContext, graphs: Graphs) -> list[tuple[Any, ...]]:
    """Find the stretches of epochs in which an edge is there and was not (diff 1), or was and is not (-1)."""
    steps = differentiate({epoch: dict.fromkeys(graph, 1) for epoch, graph in graphs.items()})
    for (a, b, until, epoch), diff in read_before(run, "edges").items():
        steps[a, b, epoch] -= diff
        if until != FOREVER:
            steps[a, b, until] += diff
    by_edge: dict[reference.Edge, dict[int, int]] = {}
    for (a, b, epoch), diff in steps.items():
        by_edge.setdefault((a, b), {})[epoch] = diff
    found = []
    for edge, diffs in sorted(by_edge.items()):
        level, epochs = 0, sorted(epoch for epoch, diff in diffs.items() if diff)
        for epoch, until in pairwise([*epochs, FOREVER]):
            level += diffs[epoch]
            found += [(*edge, until, epoch, run.revision, level)] if level else []
    return found


def by_measure(states: Mapping[int, Mapping[str, int]]) -> dict[tuple[str, int], dict[int, int]]:
    """The diffs of some totals, as `put_totals` takes them."""
    steps = differentiate({epoch: {(name,): n for name, n in state.items()} for epoch, state in states.items()})
    found: dict[tuple[str, int], dict[int, int]] = {}
    for (name, epoch), step in steps.items():
        found.setdefault((name, 0), {})[epoch] = step
    return found


def name_vertices(run: RunContext) -> Callable[[int], int | str]:
    """What a vertex is called outside."""
    if run.home.config.vertices.ids == "integer":
        return lambda number: number
    names = {key[0]: str(key[1]) for key in read_after(run, "names")}
    return names.__getitem__


def choose_most_changed(run: RunContext, columns: list[str], amount: str, sums: Mapping[tuple[Any, ...], int]) -> Any:
    """Choose what changed most at each epoch of the run: `sums`, (*data, epoch) → by how much."""
    name = name_vertices(run)
    found: dict[str, list[dict[str, Any]]] = {}
    for epoch in sorted(run.epochs):
        mine = [(-abs(n), key[:-1], n) for key, n in sums.items() if key[-1] == epoch and n]
        chosen = [dict(zip(columns, map(name, key), strict=True)) | {amount: n} for _, key, n in sorted(mine)[:TOP]]
        found |= {str(epoch): chosen} if chosen else {}
    return found


# -- the stages ------------------------------------------------------------------------------------------------------


class Collected:
    """Rows that Spark's tasks would have read, read here."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def collect(self) -> list[Row]:
        return [Row(**row) for row in self._rows]


def read_here(
    spark: None,
    home: Home,
    landed: Iterable[BatchFiles],
    rows: Callable[..., Any],
    schema: str,
    choose: Callable[[BatchFiles], Iterable[LandedFile]] = lambda batch: batch.files,
) -> Collected:
    """Take the place of `frames._read`."""
    layout, s3 = spark_reader._row_schema_of(home), spark_reader.S3.from_environment()
    files = [
        spark_reader._File(batch.epoch, file.location, f"epoch={batch.label}/{file.name}", layout, s3)
        for batch in landed
        for file in choose(batch)
    ]
    return Collected([row for file in files for table in rows(file) for row in table.to_pylist()])


def ingest(run: RunContext) -> IngestFacts:
    require_plain_settings(run.home)
    if run.kind is RunKind.REBUILD and not run.epochs:
        for table in LANDED_TABLES:
            run.put_rows(table, None)
        run.ledger.outputs.put_batches(run.run_id, [])
        return IngestFacts(rows=0, quarantined=0, changed_rows=0, replaced_epochs=0, quarantine_sample=())
    accepted = accept_batches(run)
    source: Any = (None, run.home, accepted.batches)
    good = [row.asDict() for row in spark_reader.read_good_rows(*source).collect()]
    malformed = any(bad_rows for _, bad_rows in accepted.counts.values())
    bad = [row.asDict() for row in spark_reader.read_bad_rows(*source).collect()] if malformed else []
    if run.home.config.vertices.ids == "string":
        good = number_vertices(run, good)
    else:
        run.put_rows("names", None)
    changed, _ = write_whole(run, "upserts", replaced(run, "upserts", good))
    write_whole(run, "quarantine", replaced(run, "quarantine", bad))
    again = [epoch for epoch in run.epochs if epoch in accepted.published_batches]
    staged = [
        StagedBatch(b.epoch, accepted.digests[b.epoch], len(b.files), *accepted.counts.get(b.epoch, (0, 0)))
        for b in accepted.batches
    ]
    run.ledger.outputs.put_batches(run.run_id, staged)
    sample = sorted(bad, key=lambda row: (row["epoch"], row["file"], row["line"]))[:SAMPLE]
    return IngestFacts(
        rows=len(good),
        quarantined=len(bad),
        changed_rows=changed,
        replaced_epochs=len(again),
        rows_before=sum(accepted.published_batches[epoch].rows for epoch in again) if again else None,
        quarantine_sample=[QuarantinedRow(**row) for row in sample],
    )


def replaced(run: RunContext, table: str, rows: list[dict[str, Any]]) -> Net:
    """A table with these rows in place of those of the run's epochs."""
    columns = list(table_columns(run.home, table))[:-2]
    kept = {key: n for key, n in read_before(run, table).items() if key[-1] not in run.epochs}
    return Counter(kept) + Counter(tuple(row[column] for column in columns) for row in rows)


def number_vertices(run: RunContext, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write the names that are new, numbered in their order after those that are known; rows with numbers."""
    known = read_before(run, "names")
    numbers = {key[1]: key[0] for key in known}
    last = max(numbers.values(), default=-1)
    fresh = sorted({row[end] for row in rows for end in ("src", "dst")} - set(numbers))
    numbers |= {name: last + place for place, name in enumerate(fresh, 1)}
    write_whole(run, "names", known + Counter((numbers[name], name, min(run.epochs)) for name in fresh))
    return [row | {"src": numbers[row["src"]], "dst": numbers[row["dst"]]} for row in rows]


def edges(run: RunContext) -> EdgesFacts:
    graphs = recompute_graphs(run)
    changed = find_changed_intervals(run, graphs)
    written = run.put_rows("edges", tuple(changed) or None)
    near = {epoch: reference.neighbours(graph) for epoch, graph in graphs.items()}
    degrees = {epoch: {(v,): len(around) for v, around in each.items()} for epoch, each in near.items()}
    write_whole(run, "degrees", differentiate(degrees))
    measures = ["edges", "vertices", "wedges"]
    sums = {epoch: reference.totals(graph) for epoch, graph in graphs.items()}
    put_totals(run, by_measure({e: {name: each[name] for name in measures} for e, each in sums.items()}), measures)
    broadcast = run.choose(EdgesChoice).strategy is Strategy.BROADCAST
    return EdgesFacts(rows=written, first_epoch=min((row[-3] for row in changed), default=None), broadcast=broadcast)


def triangles(run: RunContext) -> TrianglesFacts:
    decision = run.choose(TrianglesChoice)
    closed = {epoch: reference.triangles(graph) for epoch, graph in recompute_graphs(run).items()}
    corners = {epoch: Counter((v,) for each in found for v in each) for epoch, found in closed.items()}
    written, step = write_whole(run, "triangle_counts", differentiate(corners))
    put_totals(run, by_measure({e: {"triangles": len(found)} for e, found in closed.items()}), ["triangles"])
    if decision.strategy is Strategy.NOTHING:
        return TrianglesFacts(rows=written, proposals=0)
    return TrianglesFacts(
        rows=written,
        plan=str(decision.strategy),
        chosen=decision.cost_choice.describe(),
        proposals=decision.cost_choice.proposals,
        estimate={name: round(value, 2) for name, value in decision.cost_choice.estimated_seconds().items()},
        top_vertices=choose_most_changed(run, ["vertex"], "triangles", step),
    )


def truss(run: RunContext) -> TrussFacts:
    decision = run.choose(TrussChoice)
    found = {
        epoch: reference.trussness(graph) for epoch, graph in recompute_graphs(run).items() if epoch <= run.frontier
    }
    states = {epoch: {(*edge, k): 1 for edge, k in each.items()} for epoch, each in found.items()}
    written, step = write_whole(run, "trussness", differentiate(states))
    sizes = differentiate({epoch: Counter((k,) for k in each.values()) for epoch, each in found.items()})
    sums: dict[tuple[str, int], dict[int, int]] = {}
    for (k, epoch), number in sizes.items():
        sums.setdefault(("truss", k), {})[epoch] = number
    put_totals(run, sums, ["truss"])
    run.ledger.outputs.put_proof(run.run_id, None)
    if decision.first_epoch is None:
        return TrussFacts(rows=written, epochs=0)
    moved: Net = Counter()
    for (a, b, k, epoch), number in step.items():
        moved[a, b, epoch] += k * number
    replayed = [epoch for epoch in found if epoch >= decision.first_epoch]
    top = choose_most_changed(run, ["a", "b"], "trussness", moved)
    return TrussFacts(rows=written, first_epoch=decision.first_epoch, epochs=len(replayed), plan=PLAN, top_edges=top)


def audit(run: RunContext, more: Callable[[RunContext], list[Check]]) -> AuditFacts:
    """Say that all is equal and proved, since what is written is a recomputation. `more`: other results of checks."""
    decision = run.choose(AuditChoice)
    epochs = list(decision.epochs) if decision.mode == FULL else []
    put_fingerprints(run)
    replayed = run.get_result(TrussFacts).first_epoch
    first = min([*run.epochs, *([] if replayed is None else [replayed])], default=run.frontier)
    proofs = [seed.proof(epoch) for epoch in run.landed_epochs() if first <= epoch <= run.frontier]
    results = [check for each in (*map(seed.audit, epochs), *proofs) for check in each] + more(run)
    run.ledger.checks.put(run.run_id, run.revision, results)
    failed = [result for result in results if not result["passed"] and result["severity"] != "info"]
    critical = [result for result in failed if result["severity"] == "critical"]
    if critical:
        label = run.home.schedule.format_label(critical[0]["epoch"])
        what = f"{len(critical)} critical check(s) failed; the first: {critical[0]['name']} at epoch {label}"
        raise CheckFailed(f"{what}. Nothing was published.", f"altneu report {label}; {critical[0]['remedy']}")
    pins = run.unpublished_revision().snapshots
    return AuditFacts(
        checks=len(results), failed=len(failed), critical=0, epochs=epochs, mode=decision.mode, snapshots=pins
    )


def put_fingerprints(run: RunContext) -> None:
    """Record by how much the fingerprints of all tables change."""
    before = run.ledger.outputs.fingerprints_of(run.parent.revision) if run.parent.revision else {}
    after = {}
    for table in TABLES:
        columns = [*table_columns(run.home, table)]
        columns = [*columns[:-2], "diff"]
        after[table] = recompute_fingerprints(table, columns, [(*key, n) for key, n in read_after(run, table).items()])
    run.ledger.outputs.put_fingerprints(run.run_id, fingerprint_sums.staged_difference(before, after))


WORKS = {"ingest": ingest, "edges": edges, "triangles": triangles, "truss": truss}
