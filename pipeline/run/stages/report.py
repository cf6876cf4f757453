"""The HTML pages, from the database alone."""

from __future__ import annotations

from ...report import write
from ...state.facts import ReportFacts
from ...state.records import RunKind
from ..context import Run


def work(run: Run) -> ReportFacts:
    pages = write(run.home, run.ledger, run.epochs if run.kind is RunKind.RUN else list(run.ledger.batches()))
    return ReportFacts(pages=len(pages), page=str(pages[-1]) if pages else None)
