"""The stage `audit`: the suites on the new tables, the proof of every epoch, and what `[audit] mode` asks for."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from altneu.expectations.model import Check

from ...checking import audit, duckdb_audit, serving_table_checks
from ...checking.motif_reference import Motifs
from ...checking.reported_totals_check import ReportedTotals, reported_totals_from
from ...errors import CheckFailed
from ...state.stage_results import AuditFacts, TrussFacts
from ...state.totals import sum_totals
from ...storage import truss_checkpoint_table
from ..choices.plan_choices import FULL, AuditChoice
from ..run_context import RunContext
from .audited_queries import check_queries_of_run
from .held_rows import HeldRows, read_held_rows
from .proof_verification import first_affected_epoch, unprovable_reason, verify_proof
from .suites import run_suites


def audit_run(run: RunContext) -> AuditFacts:
    from altneu.expectations.suite import check_differences, check_proof

    decision = run.choose(AuditChoice)
    labels = run.home.schedule.format_label
    why = None if decision.mode == FULL else unprovable_reason(run)
    in_full = decision.mode == FULL or why is not None
    if why is not None:
        run.say(f"there is no proof ({why}): recomputing")
    first, recomputed = (None, len(decision.epochs)) if in_full else (first_affected_epoch(run), 0)
    held = read_held_rows(run, first=first, recomputed=recomputed)
    # The recomputation is one task per epoch, and the other checks are many short queries: they run at the same time.
    with ThreadPoolExecutor(2) as pool:
        full = pool.submit(_recompute_epochs, run, held, decision.epochs) if in_full else None
        proving = pool.submit(verify_proof, run, decision, held)
        results = run_suites(run, held, whole=in_full)
        proof = proving.result()
        if full is None and proof is not None and proof.rows:  # a recomputation finds the differing rows
            run.say("the proof fails: recomputing")
            wrong = min(row["epoch"] for row in proof.rows)
            recounted = sorted({*decision.epochs, wrong})
            everything = read_held_rows(run, first=None, recomputed=len(recounted))
            full = pool.submit(_recompute_epochs, run, everything, recounted)
        if proof is not None:
            part = f"{proof.part.which + 1} of {proof.part.parts}" if proof.part else None
            names = {epoch: labels(epoch) for epoch in (*proof.epochs, *(row["epoch"] for row in proof.rows))}
            context = {"epochs": proof.epochs, "labels": names, "looked_at": proof.looked_at, "part": part}
            results += check_proof(proof.rows, context)
        epochs, comparison = full.result() if full is not None else ([], None)
        if comparison is not None:
            results += check_differences(*comparison)
    results += _check_serving_tables(run, epochs)
    query_checks, query_seconds = check_queries_of_run(run, decision, epochs)
    results += query_checks
    pins = run.unpublished_revision().snapshots
    run.ledger.checks.put(run.run_id, run.revision, results)
    failed = [result for result in results if not result["passed"] and result["severity"] != "info"]
    critical = [result for result in failed if result["severity"] == "critical"]
    if critical:
        worst = critical[0]
        raise CheckFailed(
            f"{len(critical)} critical check(s) failed; the first: {worst['name']} at epoch "
            f"{labels(worst['epoch'])}: {worst['observed']}. Nothing was published.",
            f"altneu report {labels(worst['epoch'])}; {worst['remedy']}",
        )
    return AuditFacts(
        checks=len(results),
        failed=len(failed),
        critical=len(critical),
        epochs=epochs,
        mode=FULL if epochs else decision.mode,
        proved=None if proof is None else len(proof.epochs),
        queries=query_seconds,
        snapshots=pins,  # those that publish pins, and no others
    )


def _check_serving_tables(run: RunContext, epochs: list[int]) -> list[Check]:
    """Check the serving tables that the run has written: their sums at every epoch, and all rows at some epochs."""
    from altneu.expectations.suite import check_serving_tables

    if not run.warehouse.serving_tables:
        return []
    diffs = run.total_diffs()
    points, since = sum_totals(diffs, run.frontier), run.parent.since
    sources = serving_table_checks.ServingTableInputs(
        run.read_after, run.home, run.warehouse.serving_tables, points, run.landed_epochs(), run.frontier, since
    )
    wanted = [epoch for epoch in epochs if since is None or epoch >= since]
    differences = serving_table_checks.compare_sums(sources) + (
        serving_table_checks.compare_rows(sources, wanted) if wanted else []
    )
    return check_serving_tables(differences, sources.check_context(wanted or [run.frontier]))


def _recompute_epochs(
    run: RunContext, held: HeldRows | None, epochs: Iterable[int]
) -> tuple[list[int], tuple[list[dict[str, Any]], dict[str, Any]]]:
    listed, shown = list(epochs), staged_totals(run, epochs)
    recount, placed = None, {}
    if held is None:
        placed = truss_checkpoint_table.read_labels(run.warehouse, run.get_result(TrussFacts).certified)
    else:

        def recount(motifs: Motifs) -> audit.Recount:
            return duckdb_audit.recount_epochs(held.rows, run.home, held.conditions, listed, motifs, shown)

    return listed, audit.find_differences(
        run.warehouse,
        run.read_after,
        listed,
        say=run.say,
        revision=run.unpublished_revision(),
        shown=shown,
        placed=placed,
        recount=recount,
    )


def staged_totals(run: RunContext, epochs: Iterable[int]) -> ReportedTotals:
    """Return the totals and batches of some epochs as they would be reported if the run were published now."""
    ledger, wanted = run.ledger, list(epochs)
    diffs = run.total_diffs(min(wanted, default=None))
    rows = {epoch: (batch.rows, batch.bad_rows) for epoch, batch in run.published_batches.items()}
    rows |= {batch.epoch: (batch.rows, batch.bad_rows) for batch in ledger.outputs.staged_batches(run.run_id)}
    return reported_totals_from(diffs, rows, wanted)
