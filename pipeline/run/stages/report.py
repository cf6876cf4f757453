"""The stage `report`: it writes the HTML pages, from the database alone."""

from __future__ import annotations

from ...report import write_run_pages
from ...state.records import RunKind
from ...state.stage_results import ReportFacts
from ..run_context import RunContext


def write_report(run: RunContext) -> ReportFacts:
    epochs = run.epochs if run.kind is RunKind.RUN else list(run.ledger.outputs.published_batches())
    pages, why = write_run_pages(run.ledger, epochs)
    return ReportFacts(pages=len(pages), page=pages[-1] if pages else None, unwritten=why)
