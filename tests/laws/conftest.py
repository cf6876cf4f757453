"""The laws compare with plain Python; the audit stage has tests of its own and would take half of the time here."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from pipeline.state.facts import AuditFacts


@pytest.fixture(autouse=True)
def _tiny(tiny: SparkSession) -> None:
    """The graphs are tiny and many."""


@pytest.fixture(autouse=True)
def unaudited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.run.stages.audit.work", lambda run: AuditFacts(checks=0, failed=0, critical=0))
