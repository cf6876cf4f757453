"""What runs of tests leave out that has tests of its own: the pages, which are a quarter of a run without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from altneu.pipeline import report
from altneu.pipeline.maintenance import compact, rollback
from altneu.pipeline.run.stages import report as report_stage


def skip_pages(patch: pytest.MonkeyPatch) -> None:
    """Let runs, rollbacks, compactions and decisions write no pages. `altneu report` writes them still."""

    def write_none(ledger: Any, epochs: Iterable[int]) -> tuple[list[str], None]:
        return [], None

    def refresh_none(ledger: Any, epochs: Iterable[int] = ()) -> None:
        return None

    for module in (report, report_stage):
        patch.setattr(module, "write_run_pages", write_none)
    for module in (report, compact, rollback):
        patch.setattr(module, "refresh_pages", refresh_none)
