"""The suites of `expectations` on the new tables, and the incremental result against a full recomputation."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from ...checking import audit
from ...checking.shown import Shown, of
from ...errors import CheckFailed
from ...home.schedule import sample
from ...state.facts import AuditFacts
from ...state.records import RunKind
from ..context import Run
from ..suites import suites

SPREAD = 5  # into how many stretches the audit of a rebuild cuts history, to look at one epoch of each


def work(run: Run) -> AuditFacts:
    from expectations.suite import check_differences

    # The recomputation is one task per epoch, the suites are many short queries: beside each other on two cores.
    with ThreadPoolExecutor(1) as beside:
        epochs = audited(run)
        parts = run.warehouse, run.after, epochs, run.say
        full = beside.submit(audit.differences, *parts, revision=run.heads(), shown=staged(run, epochs))
        results = suites(run)
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
    return AuditFacts(checks=len(results), failed=len(failed), critical=len(critical))


def audited(run: Run) -> list[int]:
    """The epochs that a run compares with a recomputation: its last one, the frontier, and what `[audit]` asks for; of
    a rebuild some of all at the least."""
    known = sorted({*run.ledger.batches(run.parent.revision), *run.epochs, run.frontier})
    since = run.parent.since if run.keeps("upserts") else None
    known = [epoch for epoch in known if since is None or epoch >= since]
    own = run.epochs if run.kind is RunKind.RUN else known
    mode, _, n = run.home.config.audit.epochs.partition(" ")
    chosen = {run.frontier, *own[-1:], *(own[:: max(1, len(own) // SPREAD)] if run.kind is not RunKind.RUN else ())}
    if mode == "all":
        chosen.update(own)
    elif mode == "every":
        chosen.update(epoch for epoch in own if epoch % int(n) == 0)
    elif mode == "sample":
        chosen.update(sample(known, int(n), run.run_id))
    return sorted(chosen.intersection(known))


def staged(run: Run, epochs: Iterable[int]) -> Shown:
    """As the run would be shown, were it published now."""
    ledger = run.ledger
    diffs = ledger.total_diffs(run.parent.revision) + ledger.staged_totals(run.run_id, run.revision)
    rows = {epoch: (batch.rows, batch.bad_rows) for epoch, batch in ledger.batches(run.parent.revision).items()}
    rows |= {batch.epoch: (batch.rows, batch.bad_rows) for batch in ledger.staged_batches(run.run_id)}
    return of(diffs, rows, epochs)
