"""The facts behind the page of one epoch, as a JSON document, from the SQL database alone.

What a stage has recorded beyond its numbers (`quarantine_sample`, `top_vertices`, `top_edges`, `entered_core`, …) is
contained where it was recorded. `written` has the revision and the time of the document.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, TypeVar

from altneu.expectations import incremental_versus_full, volumes

from ..home.home import Home
from ..state.epoch_status import SUMS, AuditStatus
from ..state.failed_runs import Attempt
from ..state.records import Batch, CheckRecord, LandedBatch, RunState, Severity
from ..state.stage_results import AuditFacts, IngestFacts, TrianglesFacts, TrussFacts, without_version
from ..state.totals import MEASURES, truss_sizes
from .html.formatting import format_observed
from .html.verdict import epoch_verdict
from .page_queries import WINDOW, ReportState
from .query_history import describe_query

SEVERITIES = tuple(Severity)
_QUERY_CHECKS = frozenset(expectation.name for expectation in incremental_versus_full.QUERY_EXPECTATIONS)
SPANS = 12  # spans of later epochs that a correction has changed

Document = dict[str, Any]
T = TypeVar("T")


def describe_epoch(state: ReportState, epoch: int, at: str) -> Document:
    """Return the facts of an epoch.

    Args:
        state: The state of the database, read for this epoch among others.
        epoch: The epoch.
        at: The time now, as it is stored.
    """
    batch, tried = state.batches.get(epoch), state.newest_unresolved(epoch)
    published = state.landings[epoch][-1] if batch else None
    before, after = state.neighbouring_epochs(epoch)
    shown = tried if tried is not None and (tried.state is RunState.FAILED or published is None) else None
    run_id = shown.run_id if shown is not None else published.run_id if published else None
    group = state.checks.get(epoch, [])
    document: Document = {
        "epoch": epoch,
        "label": state.label(epoch),
        "state": state.judge_epoch(epoch),
        "weekday": _weekday_of(state.home, epoch),
        "previous": None if before is None else state.label(before),
        "next": None if after is None else state.label(after),
        "before": None if before is None else state.describe_epoch(before),
        "revision": batch.revision if batch else None,
        "published_at": published.published_at if published else None,
        "frontier": None if state.frontier is None else state.label(state.frontier),
        "final": state.frontier is not None and epoch <= state.frontier,
        "written": {"revision": state.newest.revision, "at": at},
        "landed": _landed_document(state, batch, published) if batch and published else None,
        "graph": _graph_document(state, epoch),
        "queries": _query_documents(state, epoch),
        "checks": [check_document(state, row) for row in group],
        "audit": _audit_document(state, epoch),
        "failed_run": _failed_run_document(state, shown)
        if shown is not None and shown.state is RunState.FAILED
        else None,
        "interrupted": tried is not None and tried.state is RunState.INTERRUPTED,
        "held": _held_run_document(state, tried),
        "approval": state.approval_document(published.run_id) if published else None,
        "run": _run_document(state, run_id) if run_id else None,
        "runs": [run_summary(*one) for one in state.attempts.get(epoch, [])][-WINDOW:],
        "trend": _trend_chart_rows(state, epoch),
    }
    document["checks"].sort(key=lambda c: (c["passed"], SEVERITIES.index(c["severity"]), c["suite"], c["name"]))
    return {**document, "verdict": epoch_verdict(document)}


def epoch_start(home: Home, epoch: int) -> datetime | None:
    """Return the first instant of an epoch, or None without a schedule by time or beyond the calendar."""
    try:
        return None if home.schedule.seconds is None else home.schedule.start_of(epoch)
    except (OverflowError, ValueError):
        return None


def _weekday_of(home: Home, epoch: int) -> str | None:
    """Return the weekday of an epoch, where epochs are days."""
    begin = epoch_start(home, epoch)
    return f"{begin:%A}" if begin is not None and home.schedule.seconds == 86_400 else None


def _trend_chart_rows(state: ReportState, epoch: int) -> list[Document]:
    """Return rows and totals of the last epochs, without those after the frontier."""
    rows = []
    for each in state.epoch_window(epoch):
        if state.frontier is None or each > state.frontier:
            continue
        batch, point = state.batches.get(each), state.totals_at(each)
        landed = {"rows": batch.rows if batch else 0, "bad_rows": batch.bad_rows if batch else 0}
        rows.append({"epoch": each, "label": state.label(each), **landed, **point})
    return rows


def _landed_document(state: ReportState, batch: Batch, published: LandedBatch) -> Document:
    """Return the batch, compared with those of the landed epochs before and with the one that it replaced."""
    place = bisect_right(state.landed_epochs, batch.epoch - 1)
    past = [state.batches[epoch] for epoch in state.landed_epochs[max(0, place - volumes.WINDOW) : place]]
    ingest = state.get_facts(published.run_id, IngestFacts)
    kept = ingest.quarantine_sample if ingest else ()
    sample_rows = [asdict(row) for row in kept if row.epoch in (None, batch.epoch)]
    sample = [{name: value for name, value in row.items() if name != "epoch"} for row in sample_rows]
    return {
        "files": batch.files,
        "rows": batch.rows,
        "quarantined": batch.bad_rows,
        "share": batch.bad_rows / (batch.rows + batch.bad_rows) if batch.bad_rows else 0.0,
        "history": usual_rows(state, batch.epoch) | {"quarantined": sum(each.bad_rows for each in past)},
        "former": _former_batch(state, batch, published),
        "moved": _moved_totals(state, batch, published),
        "quarantine_sample": sample,
    }


def usual_rows(state: ReportState, epoch: int) -> Document:
    """Return the usual number of rows of an epoch (`altneu.expectations.volumes.usual_band`).

    `low` and `high` are None where there are too few epochs before.
    """
    place = bisect_right(state.landed_epochs, epoch - 1)
    past = [(each, state.batches[each].rows) for each in state.landed_epochs[max(0, place - volumes.WINDOW) : place]]
    seasons, width = (
        volumes.season_length(state.home.schedule.seconds),
        volumes.WIDTH[state.home.config.checks.sensitivity],
    )
    band = volumes.usual_rows(past, epoch, seasons, width)
    low, high = band.row_bounds if band else (None, None)
    middle = round(math.expm1(band.middle)) if band else None
    return {
        "epochs": len(past),
        "low": low,
        "high": high,
        "middle": middle,
        "uneven": band is not None and band.is_uneven,
    }


def _former_batch(state: ReportState, batch: Batch, published: LandedBatch) -> Document | None:
    """Return the batch of the same epoch that this one replaced, or None.

    After a rollback the replaced batch is that of a removed epoch (`StagedBatch.for_removed_epoch`).
    """
    former = state.former_batch(batch.epoch)
    if former is None:
        return None
    return {
        "revision": former.revision,
        "at": former.published_at,
        "rows": former.rows,
        "quarantined": former.bad_rows,
        "taken_back": not former.digest,
        "by": published.kind,
    }


def _moved_totals(state: ReportState, batch: Batch, published: LandedBatch) -> Document | None:
    """Return how the run of this batch has changed the totals of later epochs that were final before, or None."""
    frontier, now = state.frontiers.get(batch.revision - 1), state.frontier
    if frontier is None or now is None or min(frontier, now) <= batch.epoch:
        return None
    frontier = min(frontier, now)  # a rollback may have moved it back
    steps = [step for step in state.run_effects(published.run_id) if step[0] <= frontier]
    place = bisect_right(steps, batch.epoch, key=lambda step: step[0])
    later = steps[place:]
    if place and (not later or later[0][0] > batch.epoch + 1):
        later = [(batch.epoch + 1, steps[place - 1][1]), *later]
    spans: list[Document] = []
    for number, (first, sums) in enumerate(later):
        last = later[number + 1][0] - 1 if number + 1 < len(later) else frontier
        if any(sums.values()):
            spans.append({"first": state.label(first), "last": state.label(last), "epochs": last - first + 1, **sums})
    largest = sorted(spans, key=lambda span: -max(abs(span[name]) for name in SUMS))[:SPANS]
    shown = [span for span in spans if span in largest]
    together = next(one.epochs for one, revision in state.attempts[batch.epoch] if revision == batch.revision)
    return {"revision": batch.revision, "together": together, "spans": shown, "others": len(spans) - len(shown)}


def _graph_document(state: ReportState, epoch: int) -> Document | None:
    """Return the totals at an epoch, their change since the epoch before, and how each revision has changed them."""
    if state.frontier is None or epoch > state.frontier:
        return None
    now, then = state.totals_at(epoch), state.totals_at(epoch - 1)
    greatest = max(now["max_trussness"], then["max_trussness"])
    sizes, former = (truss_sizes(point["trusses"], greatest) for point in (now, then))
    trusses = [
        {"k": k, "exactly": now["trusses"].get(k, 0), "size": size, "change": size - former[k]}
        for k, size in sizes.items()
    ]
    motifs = [
        {"name": name, "value": now["motifs"].get(k, 0), "change": now["motifs"].get(k, 0) - then["motifs"].get(k, 0)}
        for k, name in enumerate(state.list_motifs)
    ]
    history = []
    for revision, effects in state.sums_history:
        place = bisect_right(effects, epoch, key=lambda effect: effect[0])
        if place:
            history.append({"revision": revision, "at": state.runs_of[revision][1], **effects[place - 1][1]})
    measures = {m: {"value": now[m], "before": then[m], "change": now[m] - then[m]} for m in MEASURES}
    newest = state.marks.contributing_revision(epoch)
    landed = state.batches[epoch].revision if epoch in state.batches else 0
    runs = [state.runs_of[revision][0] for revision in (newest, landed) if revision]
    counts = [count.top_vertices for run in runs if (count := state.get_facts(run, TrianglesFacts))]
    replays = [replay for run in runs if (replay := state.get_facts(run, TrussFacts))]
    most = {
        "top_vertices": _first_recorded(epoch, counts),
        "top_edges": _first_recorded(epoch, [replay.top_edges for replay in replays]),
        "entered_core": _first_recorded(epoch, [replay.entered_core for replay in replays]),
    }
    document = {"measures": measures, "trusses": trusses, "motifs": motifs}
    return {**document, "revisions": history[-WINDOW:], "revision": newest, **most}


def _query_documents(state: ReportState, epoch: int) -> list[Document]:
    """Return the rows of each declared query at an epoch, and whether a recomputation of its text gave the same."""
    if state.frontier is None or epoch > state.frontier:
        return []
    epochs = [each for each in state.epoch_window(epoch) if each <= state.frontier]
    if not epochs or epochs[-1] != epoch:
        return []
    return [
        describe_query(name, history, epochs, _query_verdict(state, epoch, name))
        for name, history in state.query_histories.items()
    ]


def _query_verdict(state: ReportState, epoch: int, name: str) -> str:
    """Return equal, differs, stale or none: what the newest recomputation of a query at an epoch has found."""
    for row in state.audits.get(epoch, ()):
        if row.name not in _QUERY_CHECKS:
            continue
        audit = None if row.run_id is None else state.get_facts(row.run_id, AuditFacts)
        if row.run_id is None or (audit is not None and name in audit.queries):
            return "stale" if not state.is_fresh(row) else "equal" if row.passed else "differs"
    return "none"


def _first_recorded(epoch: int, recorded: Sequence[Mapping[str, Sequence[T]] | None]) -> list[T]:
    """Return what the first of some runs has recorded for an epoch."""
    return next((list(by_epoch[str(epoch)]) for by_epoch in recorded if by_epoch and by_epoch.get(str(epoch))), [])


def _audit_document(state: ReportState, epoch: int) -> Document:
    """Return what audits say about an epoch.

    `says` is equal, proved, differs, stale or none, and `since` the newest revision that may have changed the epoch.
    The findings are those of the newest comparison with a full recomputation, and in `proof` those of the newest proof.
    """
    says, rows = state.newest_audit(epoch), state.audits.get(epoch, [])
    return {
        "says": says.verdict if says else "none",
        **_audit_findings(state, state.newest_comparison(epoch), rows),
        "proof": _audit_findings(state, state.newest_proof(epoch), state.proofs.get(epoch, [])),
        "since": max(state.marks.contributing_revision(epoch), state.marks.everywhere) or None,
    }


def _audit_findings(state: ReportState, audit: AuditStatus | None, rows: list[CheckRecord]) -> Document:
    return {
        "fresh": bool(audit and audit.is_current),
        "recomputed": bool(audit and audit.recomputed),
        "revision": audit.revision if audit else None,
        "at": audit.at if audit else None,
        "checks": [check_document(state, row) for row in rows],
    }


def check_document(state: ReportState, row: CheckRecord) -> Document:
    """Return a result as a JSON document.

    `fresh` tells whether it is about what is published now, and `counts` whether it is a failure that still matters.
    """
    names = ("suite", "name", "severity", "meaning", "observed", "remedy", "revision", "at")
    document = {name: getattr(row, name) for name in names}
    document["observed"] = format_observed(row.observed)
    document |= {
        "passed": row.passed,
        "fresh": state.is_fresh(row),
        "counts": not row.passed and state.is_relevant(row),
    }
    return {**document, "epoch": row.epoch, "label": state.label(row.epoch), "rows": row.rows}


def run_summary(one: Attempt, revision: int | None) -> Document:
    """Return a run in a few fields."""
    names = ("run_id", "state", "error", "kind", "started_at", "finished_at", "seconds", "epochs")
    return {**{name: getattr(one, name) for name in names}, "revision": revision}


def _failed_run_document(state: ReportState, run: Attempt) -> Document:
    failed = [check_document(state, row) for row in state.failures_of(run.run_id)]
    failed.sort(key=lambda check: (SEVERITIES.index(check["severity"]), check["epoch"]))
    return {**run_summary(run, None), "checks": failed}


def _held_run_document(state: ReportState, run: Attempt | None) -> Document | None:
    """Return the newest run if it waits for a decision or was rejected, otherwise None."""
    if run is None or run.state not in (RunState.HELD, RunState.REJECTED):
        return None
    return {**run_summary(run, None), "approval": state.approval_document(run.run_id)}


def _run_document(state: ReportState, run_id: str) -> Document:
    """Return a published run; the pages of its epochs share it."""
    if run_id not in state.run_documents:
        state.run_documents[run_id] = _describe_run(state, run_id)
    return state.run_documents[run_id]


def _describe_run(state: ReportState, run_id: str) -> Document:
    stages = state.list_stages(run_id)
    kept = [
        {"stage": row.stage, "state": row.state, "seconds": row.seconds, "facts": without_version(row.stored_facts)}
        for row in stages
    ]
    return {
        **run_summary(*state.get_attempt(run_id)),
        "seconds": sum(row.seconds or 0 for row in stages),
        "stages": kept,
        "checked_epochs": [state.label(epoch) for epoch in state.checked_epochs(run_id)],
    }
