"""The suites of `expectations` on the new tables, and the incremental result against a full recomputation."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from ...checking import audit
from ...checking.shown import Shown, of
from ...errors import CheckFailed
from ...state.facts import AuditFacts
from ..context import Run
from ..decisions import Audit
from ..suites import suites


def work(run: Run) -> AuditFacts:
    from expectations.suite import check_differences

    # The recomputation is one task per epoch, the suites are many short queries: at the same time on two cores.
    with ThreadPoolExecutor(1) as pool:
        epochs = list(run.decide(Audit).epochs)
        parts = run.warehouse, run.after, epochs, run.say
        full = pool.submit(audit.differences, *parts, revision=run.heads(), shown=staged(run, epochs))
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
    return AuditFacts(checks=len(results), failed=len(failed), critical=len(critical), epochs=epochs)


def staged(run: Run, epochs: Iterable[int]) -> Shown:
    """As the run would be shown, were it published now."""
    ledger = run.ledger
    diffs = ledger.total_diffs(run.parent.revision) + ledger.staged_totals(run.run_id, run.revision)
    rows = {epoch: (batch.rows, batch.bad_rows) for epoch, batch in ledger.batches(run.parent.revision).items()}
    rows |= {batch.epoch: (batch.rows, batch.bad_rows) for batch in ledger.staged_batches(run.run_id)}
    return of(diffs, rows, epochs)
