"""The laws compare with plain Python; the audit stage has tests of its own."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from altneu.pipeline.storage import file_tiers


@pytest.fixture(autouse=True)
def _tiny(tiny: SparkSession, unaudited: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The graphs are tiny and many, the histories short: runs merge files as soon as there are two."""
    monkeypatch.setattr(file_tiers, "MERGED_TIERS", 2)
