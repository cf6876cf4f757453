"""What a run has written, proved: every epoch that it may have changed, at the price of the change.

The state before was proved, by the run before. Of the state after it is shown here that

- the edges of all pairs that landed again are those that the landed rows leave, derived by another plan (`landed`);
- edges, degrees, triangle counts, trussness and their totals are, at every epoch, those that the truss stage has proved
  in its task from the edges alone (`algorithms.proof`): by fingerprints of the rows as they are stored;
- one part of the vertices holds the same when all of it is counted afresh, where `[audit] mode` asks for that.

Where nothing is known of the state before (a home of an earlier version), all pairs and all rows are looked at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from algorithms.edges import steps as edge_steps
from algorithms.fingerprint import Fingerprint, lanes, of_row, sums
from algorithms.proof import COLLECTIONS, Ask, Counts, Proof, added

from ..checking import landed
from ..state.facts import TrussFacts
from ..state.prints import Prints
from ..state.totals import accumulate, at_epochs
from ..storage import prints
from .context import Run
from .decisions import Audit, Edges, Way

ByEpoch = Mapping[int, Fingerprint]
_KEYS = {"edges": ("a", "b"), "degrees": ("vertex",), "triangle_counts": ("vertex",), "trussness": ("a", "b", "k")}
_TOTALS = ("edges", "vertices", "wedges", "triangles", "trusses")


@dataclass(frozen=True)
class Proved:
    """epochs: of which something is said; rows: what is wrong (epoch, what, a, b, maintained, recomputed, count), as
    the suite `proof` takes it; part: which part of the vertices was recounted; looked_at: edges, by the proof."""

    epochs: list[int]
    rows: list[dict[str, Any]]
    part: Ask | None
    looked_at: int


def asked(audit: Audit, revision: int) -> Ask:
    """What the task that maintains the trussness has to prove besides what changes."""
    return Ask(audit.parts, revision % audit.parts) if audit.parts else Ask()


def provable(run: Run) -> bool:
    """Whether the truss stage has made a proof, or had nothing to do; not in rounds, beyond one task."""
    return not run.ledger.facts(run.run_id, TrussFacts).epochs or run.ledger.proof(run.run_id) is not None


def proved(run: Run, audit: Audit) -> Proved | None:
    """Compare what is stored with what is proved, and stage the fingerprints of what the run has written; EXECUTES.
    None: it is not `provable`."""
    found, proof = run.ledger.facts(run.run_id, TrussFacts), run.ledger.proof(run.run_id)
    before, change = fingerprints(run)
    run.ledger.put_fingerprints(run.run_id, change)
    if proof is None and found.epochs:
        return None
    whole = not run.keeps("edges") or not set(COLLECTIONS) <= set(before)
    epochs = _epochs(run, found, whole)
    after = {table: _sum(before.get(table, {}), change.get(table, {})) for table in COLLECTIONS}
    ask = proof.asked if proof is not None and proof.asked.parts else None
    rows = _landed(run, epochs, whole, ask, proof)
    if proof is None:  # nothing was replayed: nothing may have changed
        rows += [_row(epoch, "stored", table, 0, 1) for table in COLLECTIONS for epoch in change[table] if not whole]
    else:
        rows += [
            {**_row(epochs[-1], "facts", f"{a}-{b}", k, None), "count": proof.wrong, "why": why}
            for a, b, k, why in proof.shown
        ]
        rows += _stored(run, proof, found, after, epochs)
    times = Counter((row["epoch"], row["what"]) for row in rows)
    rows = [{**row, "count": max(row["count"], times[row["epoch"], row["what"]])} for row in rows]
    return Proved(epochs, rows, ask, 0 if proof is None else proof.looked_at)


def fingerprints(run: Run) -> tuple[Prints, Prints]:
    """Of the tables that the run builds on, and by how much it changes them, as its rows are stored."""
    parent = run.parent
    known = run.ledger.fingerprints(parent.revision) if parent.revision else {}
    first = parent.frontier is None

    def adds(table: str) -> bool:
        return run.keeps(table) and (first or table in known)

    def read(table: str) -> DataFrame:
        return run.delta(table) if adds(table) else run.after(table)

    found = prints.of_tables(read, run.warehouse, run.warehouse.tables)
    since = parent.since if run.keeps("upserts") else None
    before, change = dict(known), dict(found)
    for table in found:
        if run.keeps(table):  # its rows are added; or all of them were read, for the first time
            continue
        # all of its rows are new: what was known of it goes
        before[table] = _folded(known.get(table, {}), since)
        change[table] = _sum(_folded(found[table], since), {e: -x for e, x in before[table].items()})
    return {table: dict(each) for table, each in before.items()}, {table: dict(each) for table, each in change.items()}


def _epochs(run: Run, found: TrussFacts, whole: bool) -> list[int]:
    """The epochs of which the run says something: from the first that it may have changed to the frontier."""
    known = {*run.ledger.batches(run.parent.revision), *run.epochs, run.frontier}
    first = min([*run.epochs, *([] if found.first_epoch is None else [found.first_epoch])], default=min(known))
    since = run.parent.since
    low = min(known) if whole else first
    if since is not None and run.keeps("upserts"):
        low = max(low, since)
    return sorted(epoch for epoch in known if low <= epoch <= run.frontier)


def _stored(
    run: Run, proof: Proof, found: TrussFacts, after: Mapping[str, ByEpoch], epochs: list[int]
) -> list[dict[str, Any]]:
    """Where tables or totals are not what was proved, by epoch."""
    diffs = run.ledger.total_diffs(run.parent.revision) + run.ledger.staged_totals(run.run_id, run.revision)
    shown = at_epochs(accumulate(diffs, run.frontier), [(found.first_epoch or 0) - 1, *epochs])
    held = {table: _Running(after[table]) for table in COLLECTIONS}
    right, counts, steps = dict(proof.base), proof.counts, iter([*proof.steps, None])
    step = next(steps)
    rows = []
    for epoch in sorted({(found.first_epoch or 0) - 1, *epochs}):
        while step is not None and step.epoch <= epoch:
            right = {table: right[table] + step.prints[table] for table in COLLECTIONS}
            counts = added(counts, step.counts)
            step = next(steps)
        at = max(epoch, epochs[0])  # the state before is what the first epoch builds on
        for table in COLLECTIONS:
            if held[table].at(epoch) != right[table]:
                rows.append(_row(at, "stored", f"the rows of {table}", None, None))
        rows += [_row(at, "totals", name, *pair) for name, pair in _unlike(shown[epoch], counts)]
    return rows


def _unlike(shown: Mapping[str, Any], counts: Counts) -> Iterable[tuple[str, tuple[int, int]]]:
    """The totals that are not those of the proof, and both values."""
    for name in _TOTALS[:-1]:
        if shown[name] != getattr(counts, name):
            yield name, (shown[name], getattr(counts, name))
    for k in sorted({*shown["trusses"], *counts.trusses}):
        pair = shown["trusses"].get(k, 0), counts.trusses.get(k, 0)
        if pair[0] != pair[1]:
            yield f"edges of trussness {k}", pair


def _landed(run: Run, epochs: list[int], whole: bool, ask: Ask | None, proof: Proof | None) -> list[dict[str, Any]]:
    """The edges of the pairs that landed again, and of the part, derived from the landed rows; and the part's rows of
    all tables. One job."""
    delta = run.delta("upserts")
    few = run.decide(Edges).way is Way.BROADCAST
    pairs = landed.with_pairs(delta).select("a", "b").distinct().withColumn("_landed", F.lit(True))

    def chosen(rows: DataFrame) -> DataFrame:
        if whole or not few:
            return rows
        joined = rows.join(F.broadcast(pairs), ["a", "b"], "left")
        test = F.col("_landed").isNotNull()
        return joined.where(test if ask is None else test | _in_part("a", ask)).drop("_landed")

    upserts = landed.edge_steps(chosen(landed.with_pairs(run.after("upserts"))), run.home)
    stored = edge_steps(chosen(run.after("edges")), ["a", "b"])
    pair = [F.col("a"), F.col("b")]
    frames = [
        frame.select(F.lit(kind).alias("kind"), "epoch", *lanes(pair, F.col("diff")))
        for kind, frame in (("landed", upserts), ("stored", stored))
    ]
    jobs = [reduce(DataFrame.unionByName, frames).groupBy("kind", "epoch").agg(*sums())]
    if ask is not None:
        jobs.append(_part(run, ask))
    found: dict[str, dict[int, Fingerprint]] = {}
    for row in reduce(DataFrame.unionByName, jobs).collect():
        found.setdefault(row["kind"], {})[row["epoch"]] = of_row(row)
    since = run.parent.since if run.keeps("upserts") else None
    apart = _sum(
        _folded(found.get("landed", {}), since), {e: -x for e, x in _folded(found.get("stored", {}), since).items()}
    )
    running = _Running(apart)
    wrong = [epoch for epoch in epochs if running.at(epoch)]
    later = [epoch for epoch in apart if epoch > run.frontier and running.at(epoch)]  # when they will expire
    rows = [_row(epoch, "landed", "edges of the pairs that landed", None, None) for epoch in wrong]
    if later and not wrong:
        rows = [_row(run.frontier, "landed", f"edges of the pairs that landed, at epoch {later[0]}", None, None)]
    if ask is not None and proof is not None:
        for table in COLLECTIONS:
            if found.get(table, {}).get(run.frontier, Fingerprint()) != proof.part[table]:
                rows.append(_row(run.frontier, "part", f"the rows of {table}", None, None))
    return rows


def _part(run: Run, ask: Ask) -> DataFrame:
    """Fingerprints of the rows at the frontier that belong to a part of the vertices: kind (the table), epoch."""
    frames = []
    for table in COLLECTIONS:
        rows = run.after(table)
        if table == "edges":
            rows = edge_steps(rows, ["a", "b"])
        rows = rows.where((F.col("epoch") <= run.frontier) & _in_part(_KEYS[table][0], ask))
        data, diff = [F.col(name) for name in _KEYS[table]], F.col("diff").cast("decimal(20, 0)")
        frames.append(rows.select(F.lit(table).alias("kind"), *lanes(data, diff)))
    at = F.lit(run.frontier).cast("bigint").alias("epoch")
    return (
        reduce(DataFrame.unionByName, frames)
        .select("kind", at, "_l0", "_l1", "_l2", "_l3")
        .groupBy("kind", "epoch")
        .agg(*sums())
    )


def _in_part(vertex: str, ask: Ask) -> Column:
    """As `kernels.proof.in_part`."""
    return F.pmod(F.xxhash64(vertex), F.lit(ask.parts)) == ask.which


class _Running:
    """The sum up to an epoch, for epochs that rise."""

    def __init__(self, found: ByEpoch) -> None:
        self.rest = sorted(found.items(), reverse=True)
        self.sum = Fingerprint()

    def at(self, epoch: int) -> Fingerprint:
        while self.rest and self.rest[-1][0] <= epoch:
            self.sum += self.rest.pop()[1]
        return self.sum


def _sum(*parts: ByEpoch) -> dict[int, Fingerprint]:
    out: dict[int, Fingerprint] = {}
    for part in parts:
        for epoch, each in part.items():
            out[epoch] = out.get(epoch, Fingerprint()) + each
    return {epoch: each for epoch, each in sorted(out.items()) if each}


def _folded(found: ByEpoch, since: int | None) -> dict[int, Fingerprint]:
    """What a compaction has folded into `since` counts as of it."""
    if since is None:
        return dict(found)
    return _sum(*({max(epoch, since): each} for epoch, each in found.items()))


def _row(epoch: int, what: str, a: str, maintained: int | None, recomputed: int | None) -> dict[str, Any]:
    return {
        "epoch": epoch,
        "what": what,
        "a": a,
        "b": None,
        "maintained": maintained,
        "recomputed": recomputed,
        "count": 1,
    }
