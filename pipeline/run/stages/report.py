"""The HTML pages, from the database alone."""

from __future__ import annotations

from ...report import write
from ...state.records import RunKind
from ..context import Facts, Run


def work(run: Run) -> Facts:
    pages = write(run.home, run.ledger, run.epochs if run.kind is RunKind.RUN else list(run.ledger.batches()))
    return {"pages": len(pages), "page": str(pages[-1]) if pages else None}
