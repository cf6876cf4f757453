"""The verification of the proof of a run: at every epoch that it may have changed, at a cost that follows the change.

The parent's run has proved the state before. Of the state after, this module shows that

- the edges of all pairs that landed again are those that follow from the landed rows, derived by another plan
  (`landed`);
- edges, degrees, triangle counts, trussness and their totals are, wherever they change, those that the truss stage has
  proved in its task from the edges alone (`altneu.algorithms.graph.proof_records`): the fingerprints of the stored rows
  are compared;
- one share of the vertices has the same rows when all of it is counted again, where `[audit] mode` asks for that;
- where edges live for a window, what will expire after the newest epoch leaves nothing behind. The rows of these epochs
  are compared one by one by the runs that reach them.

Where nothing is known of the state before (in a home of an earlier version), all pairs and all rows are looked at once.
The state on which the first change builds is proved with them, and nothing is stated about the epochs before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.algorithms.fingerprint import Fingerprint, from_lane_sums, hash_lanes, lane_sums
from altneu.algorithms.graph.edge_derivation import interval_steps as edge_steps
from altneu.algorithms.graph.edge_derivation import join_on_pair
from altneu.algorithms.graph.proof_records import COLLECTIONS, GraphCounts, Proof, ProofScope, add_counts

from ...checking import duckdb_audit, edge_rederivation
from ...checking.reported_totals_check import make_difference
from ...state.fingerprint_sums import (
    ByEpoch,
    Prints,
    RunningFingerprint,
    add_fingerprints,
    fold_fingerprints,
    subtract_fingerprints,
)
from ...state.stage_results import TrussFacts
from ...state.totals import sum_totals, totals_at
from ...storage import table_fingerprints
from ...storage.arrow_fingerprints import fingerprints_by_epoch
from ...storage.horizons import table_horizon
from ...storage.table_schemas import ALWAYS
from ..choices.plan_choice import Strategy
from ..choices.plan_choices import AuditChoice, EdgesChoice
from ..run_context import RunContext
from .held_rows import HeldRows

EXPIRING = ("degrees", "triangle_counts", "motif_counts")  # tables that are empty once every edge has expired


@dataclass(frozen=True)
class ProofResult:
    """What a proof has shown.

    `epochs` are those about which something is stated. `rows` are the differences, in the form that the suite `proof`
    takes: epoch, what, a, b, maintained, recomputed, count. `part` is the share of the vertices that was recounted.
    `looked_at` is the number of edges that the proof has looked at.
    """

    epochs: list[int]
    rows: list[dict[str, Any]]
    part: ProofScope | None
    looked_at: int


def proof_scope(audit: AuditChoice, revision: int) -> ProofScope:
    """Return what the task that maintains the trussness has to prove besides the changes."""
    return ProofScope(audit.audit_shares, revision % audit.audit_shares) if audit.audit_shares else ProofScope()


def unprovable_reason(run: RunContext) -> str | None:
    """Return why there is no proof of what the run has written; None when there is one, or nothing has changed."""
    proof = run.ledger.outputs.get_proof(run.run_id)
    if proof is not None and (proof.base or is_known(run.fingerprinted_tables)):
        return None
    if proof is None and run.get_result(TrussFacts).epochs:
        return "the graph was too large for one task"
    if run.parent.frontier is not None and not is_known(run.fingerprinted_tables):
        return "nothing changes, and nothing is known of the state before"
    return None


def verify_proof(run: RunContext, audit: AuditChoice, held: HeldRows | None = None) -> ProofResult | None:
    """Compare what is stored with what is proved, and stage the fingerprints of what the run has written; EXECUTES.

    Args:
        run: The run.
        audit: How it is audited.
        held: Its rows, where they are in memory.

    Returns:
        What the proof has shown, or None where there is no proof (`unprovable_reason`).
    """
    facts, proof = run.get_result(TrussFacts), run.ledger.outputs.get_proof(run.run_id)
    before, change = run_fingerprints(run, held)
    run.ledger.outputs.put_fingerprints(run.run_id, change)
    if unprovable_reason(run):
        return None
    first = first_affected_epoch(run)
    epochs = sorted(epoch for epoch in _batch_epochs(run) if first <= epoch <= run.frontier)
    ask = proof.scope if proof is not None and proof.scope.parts else None
    part = None if ask is None else proof
    whole = not run.appends_to("edges") or not is_known(before)
    rows = _compare_landed(run, first, epochs, whole=whole, part=part, held=held)
    if proof is None:  # nothing was replayed: nothing may have changed
        rows += [make_difference(epoch, "stored", table, 0, 1) for table in COLLECTIONS for epoch in change[table]]
    else:
        rows += _unproved_edges(proof, first, epochs[-1])
        after = {table: add_fingerprints(before.get(table, {}), change.get(table, {})) for table in COLLECTIONS}
        rows += _compare_stored(run, proof, facts.first_epoch, before, after, first, epochs)
        if is_known(before):
            rows += _changes_before(run, facts.first_epoch, change, epochs)
    rows += _lasting_rows(run, before, change)
    times = Counter((row["epoch"], row["what"]) for row in rows)
    rows = [{**row, "count": max(row["count"], times[row["epoch"], row["what"]])} for row in rows]
    return ProofResult(epochs, rows, ask, 0 if proof is None else proof.looked_at)


def _unproved_edges(proof: Proof, first: int, last: int) -> list[dict[str, Any]]:
    """Return the edges that are not proved, at the epoch where that shows; if it is not known, at the last one."""
    wrong: dict[int | None, int] = {step.epoch: step.wrong for step in proof.steps}
    wrong[None] = proof.wrong - sum(wrong.values())
    return [
        make_difference(last if epoch is None else max(epoch, first), "facts", f"{a}-{b}", k, None, wrong[epoch])
        | {"why": why}
        for a, b, k, why, epoch in proof.listed_edges
    ]


def _lasting_rows(run: RunContext, before: Prints, change: Prints) -> list[dict[str, Any]]:
    """Return the tables of the run of which something would remain after every edge has expired."""
    live_for = run.home.config.edges.live_for
    if live_for is None or run.frontier >= FOREVER - live_for:
        return []
    return [
        make_difference(run.frontier, "stored", f"the rows of {table}, once all edges have expired", None, None)
        for table in EXPIRING
        if table in change and Fingerprint.sum_all([*before.get(table, {}).values(), *change[table].values()])
    ]


def run_fingerprints(run: RunContext, held: HeldRows | None = None) -> tuple[Prints, Prints]:
    """Compute the fingerprints of the tables that the run builds on, and the change of each by the run's rows.

    Where the run adds to all tables, those of the epochs before all that it may have changed are one sum.
    """
    first = run.parent.frontier is None
    adds = all(map(run.appends_to, run.warehouse.collections))
    known = run.known_fingerprints_since(_first_compared_epoch(run)) if adds else run.known_fingerprints

    def appends_to(table: str) -> bool:
        return run.appends_to(table) and (first or table in known)

    def read_table(table: str) -> DataFrame:
        return run.read_delta(table) if appends_to(table) else run.read_after(table)

    collections = run.warehouse.collections
    if held is None:
        fingerprints = table_fingerprints.table_fingerprints(read_table, run.warehouse, collections)
    else:
        written = {table: (held.delta if appends_to(table) else held.rows)[table] for table in collections}
        fingerprints = {table: fingerprints_by_epoch(table, rows) for table, rows in written.items()}
    # A table that is written again has new rows only, so its known fingerprints are subtracted.
    new = {table: each for table, each in fingerprints.items() if not run.appends_to(table)}
    gone = fold_fingerprints({table: known.get(table, {}) for table in new}, _folded_since(run))
    new = fold_fingerprints(new, _folded_since(run))
    return {**known, **gone}, {
        **fingerprints,
        **{table: subtract_fingerprints(new[table], gone[table]) for table in new},
    }


def is_known(before: Iterable[str]) -> bool:
    """Tell whether every collection is among the tables whose fingerprints are known."""
    return set(COLLECTIONS) <= set(before)


def _folded_since(run: RunContext) -> int | None:
    """Return the epoch to which a compaction has folded history, or None where the run writes the landed rows again."""
    return run.parent.since if run.appends_to("upserts") else None


def first_affected_epoch(run: RunContext) -> int:
    """Return the first epoch that the run may have changed; the proof is about this epoch and all later ones."""
    first, replayed = min(_batch_epochs(run)), run.get_result(TrussFacts).first_epoch
    if run.appends_to("edges"):
        first = min([*run.epochs, *([] if replayed is None else [replayed])], default=first)
    since = _folded_since(run)
    return first if since is None else max(first, since)


def _first_compared_epoch(run: RunContext) -> int:
    """Return the first epoch that was replayed or is proved: what is before it is compared as one state."""
    replayed = run.get_result(TrussFacts).first_epoch
    return min([first_affected_epoch(run), *([] if replayed is None else [replayed])])


def _batch_epochs(run: RunContext) -> set[int]:
    return {*run.published_batches, *run.epochs, run.frontier}


def _compare_stored(
    run: RunContext,
    proof: Proof,
    replayed: int | None,
    before: Mapping[str, ByEpoch],
    after: Mapping[str, ByEpoch],
    first: int,
    epochs: list[int],
) -> list[dict[str, Any]]:
    """Return where tables or totals differ from what was proved.

    They are compared at the state on which the first step builds, at every later epoch of the proof, and wherever
    something changes between them, for example where edges expire and nothing lands. Before the epoch to which a
    compaction has folded history, the tables have no state: the proof begins with nothing there.
    """
    assert replayed is not None, "a proof exists only where epochs were replayed"
    base = replayed - 1
    since = _folded_since(run)
    has_base = since is None or base >= since
    changes = {step.epoch for step in proof.steps}.union(*(after[table] for table in COLLECTIONS))
    later = {epoch for epoch in {*epochs, *changes} if base < epoch <= run.frontier}
    looked_at = sorted({base, *later} if has_base else later)
    shown = totals_at(sum_totals(run.total_diffs(looked_at[0]), run.frontier), looked_at)
    held = {table: RunningFingerprint(after[table]) for table in COLLECTIONS}
    right, counts, steps = dict(proof.base), proof.counts, iter([*proof.steps, None])
    if not right:  # trussness maintained by region: the runs before have proved this state
        known = before if has_base else {}
        right = {table: RunningFingerprint(known.get(table, {})).advance_to(base) for table in COLLECTIONS}
        counts = published_counts(run, base) if has_base else GraphCounts()
    step = next(steps)
    rows = []
    for epoch in looked_at:
        while step is not None and step.epoch <= epoch:
            right = {table: right[table] + step.prints[table] for table in COLLECTIONS}
            counts = add_counts(counts, step.counts)
            step = next(steps)
        # a difference in the state before is reported at the first epoch, which builds on it
        reported_epoch = max(epoch, first)
        for table in COLLECTIONS:
            if held[table].advance_to(epoch) != right[table]:
                rows.append(make_difference(reported_epoch, "stored", f"the rows of {table}", None, None))
        rows += [
            make_difference(reported_epoch, "totals", name, *pair)
            for name, pair in _unequal_totals(shown[epoch], counts)
        ]
    return rows


def _changes_before(
    run: RunContext, replayed: int | None, change: Mapping[str, ByEpoch], epochs: list[int]
) -> list[dict[str, Any]]:
    """Return where tables or totals change before the replayed epochs.

    Nothing may: at the epochs of batches that the run has taken up and that change nothing, the parent's state stays.
    """
    earlier = [epoch for epoch in epochs if replayed is not None and epoch < replayed - 1]
    if not earlier:
        return []
    running = {table: RunningFingerprint(change[table]) for table in COLLECTIONS}
    shown = totals_at(sum_totals(run.total_diffs(earlier[0]), run.frontier), earlier)
    counts = _published_counts(run, earlier)
    rows = []
    for epoch in earlier:
        rows += [
            make_difference(epoch, "stored", f"the rows of {table}", None, None)
            for table in COLLECTIONS
            if running[table].advance_to(epoch)
        ]
        rows += [
            make_difference(epoch, "totals", name, *pair) for name, pair in _unequal_totals(shown[epoch], counts[epoch])
        ]
    return rows


def published_counts(run: RunContext, epoch: int) -> GraphCounts:
    """Return the counts of the published graph at an epoch."""
    return _published_counts(run, [epoch])[epoch]


def _published_counts(run: RunContext, epochs: list[int]) -> dict[int, GraphCounts]:
    """Return the counts of the published graph at some epochs, which are in order."""
    diffs = run.ledger.outputs.total_diffs(run.parent.revision, epochs[0])
    return {
        epoch: GraphCounts(known["edges"], known["vertices"], known["wedges"], known["triangles"], known["trusses"])
        for epoch, known in totals_at(sum_totals(diffs, run.frontier), epochs).items()
    }


def _unequal_totals(shown: Mapping[str, Any], counts: GraphCounts) -> Iterable[tuple[str, tuple[int, int]]]:
    """Yield the totals that differ from those of the proof, with both values."""
    for name in ("edges", "vertices", "wedges", "triangles"):
        if shown[name] != getattr(counts, name):
            yield name, (shown[name], getattr(counts, name))
    for k in sorted({*shown["trusses"], *counts.trusses}):
        pair = shown["trusses"].get(k, 0), counts.trusses.get(k, 0)
        if pair[0] != pair[1]:
            yield f"edges of trussness {k}", pair


def _landed_fingerprints(
    run: RunContext, first: int, *, whole: bool, part: Proof | None, held: HeldRows | None
) -> dict[str, dict[int, Fingerprint]]:
    """Compute the fingerprints that `_compare_landed` compares, in one job; EXECUTES.

    The edges of the pairs that landed again, and of the share (`part`) of the vertices that the proof has recounted,
    are derived from the landed rows (`landed`), and read (`stored`): those that are alive at epoch `first` or later. So
    their sums up to an epoch are right from `first` on. The rows of that share are read from all tables.
    """
    whole = whole or run.choose(EdgesChoice).strategy is not Strategy.BROADCAST
    if held is not None:
        return duckdb_audit.landed_fingerprints(
            held.rows,
            held.delta["upserts"],
            run.home,
            held.conditions,
            first=first,
            whole=whole,
            part=part,
            frontier=run.frontier,
        )
    pairs = edge_rederivation.add_pairs(run.read_delta("upserts"))
    pairs = pairs.select(F.col("a").alias("_a"), F.col("b").alias("_b")).distinct()

    def chosen_rows(table: str) -> DataFrame:
        rows = _read_since(run, table, first)
        rows = edge_rederivation.add_pairs(rows) if table == "upserts" else rows
        if whole:
            return rows
        if part is None:
            return join_on_pair(rows, ("a", "b"), pairs, ("_a", "_b"))
        joined = join_on_pair(rows, ("a", "b"), pairs, ("_a", "_b"), how="left")
        return joined.where(F.col("_a").isNotNull() | _is_in_share("a", part))

    pair, diff = [F.col("a"), F.col("b")], F.col("diff")
    upserts = edge_rederivation.edge_steps(chosen_rows("upserts"), run.home)
    stored = edge_steps(chosen_rows("edges"), ["a", "b"])
    jobs = [_sum_lanes([_hash_lanes("landed", upserts, pair, diff), _hash_lanes("stored", stored, pair, diff)])]
    if part is not None:
        jobs.append(_sum_lanes(_rows_of_share(run, part, first)))
    fingerprints: dict[str, dict[int, Fingerprint]] = {"landed": {}, "stored": {}}
    for row in reduce(DataFrame.unionByName, jobs).collect():
        fingerprints.setdefault(row["kind"], {})[row["epoch"]] = from_lane_sums(row)
    return fingerprints


def _compare_landed(
    run: RunContext,
    first: int,
    epochs: list[int],
    *,
    whole: bool,
    part: Proof | None,
    held: HeldRows | None = None,
) -> list[dict[str, Any]]:
    """Return where stored rows differ from what the landed rows and the recounted share say."""
    fingerprints = _landed_fingerprints(run, first, whole=whole, part=part, held=held)
    pairs_found = fold_fingerprints({kind: fingerprints[kind] for kind in ("landed", "stored")}, _folded_since(run))
    apart = subtract_fingerprints(pairs_found["landed"], pairs_found["stored"])
    running = RunningFingerprint(apart)
    in_order = sorted({*epochs, *apart})
    wrong = [epoch for epoch in in_order if first <= epoch <= run.frontier and running.advance_to(epoch)]
    later = [
        epoch for epoch in apart if epoch > run.frontier and running.advance_to(epoch)
    ]  # where edges will expire after the frontier
    rows = [make_difference(epoch, "landed", "edges of the pairs that landed", None, None) for epoch in wrong]
    if later and not wrong:
        rows = [
            make_difference(run.frontier, "landed", f"edges of the pairs that landed, at epoch {later[0]}", None, None)
        ]
    if part is not None:
        for table in COLLECTIONS:
            if fingerprints.get(table, {}).get(run.frontier, Fingerprint()) != part.part[table]:
                rows.append(make_difference(run.frontier, "part", f"the rows of {table}", None, None))
    return rows


def _read_since(run: RunContext, table: str, first: int) -> DataFrame:
    """Read the rows of landed upserts or of edges that matter to the epochs from `first` on."""
    rows, horizon = run.read_after(table), table_horizon(table, first, run.home.config.edges.live_for)
    return rows if horizon is None else rows.where(horizon.condition)


def _rows_of_share(run: RunContext, proof: Proof, first: int) -> list[DataFrame]:
    """Return the hashed rows of each table at the frontier that belong to a share of the vertices."""
    frames = []
    for table in COLLECTIONS:
        rows = edge_steps(_read_since(run, table, first), ["a", "b"]) if table == "edges" else run.read_after(table)
        keys = ALWAYS[table]
        rows = rows.where((F.col("epoch") <= run.frontier) & _is_in_share(keys[0], proof))
        rows = rows.withColumn("epoch", F.lit(run.frontier).cast("bigint"))
        frames.append(_hash_lanes(table, rows, [F.col(key) for key in keys], F.col("diff").cast("decimal(20, 0)")))
    return frames


def _hash_lanes(kind: str, rows: DataFrame, data: list[Column], diff: Column) -> DataFrame:
    return rows.select(F.lit(kind).alias("kind"), "epoch", *hash_lanes(data, diff))


def _sum_lanes(frames: list[DataFrame]) -> DataFrame:
    """Sum hashed rows to one row for each kind and epoch, for `from_lane_sums`."""
    return reduce(DataFrame.unionByName, frames).groupBy("kind", "epoch").agg(*lane_sums())


def _is_in_share(vertex: str, proof: Proof) -> Column:
    """Return the condition that a vertex is in the recounted share, as a range, by which sorted files are skipped."""
    return F.col(vertex).between(*proof.between)
