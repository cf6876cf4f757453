"""The laws compare with plain Python; the audit stage has tests of its own."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _tiny(tiny: SparkSession, unaudited: None) -> None:
    """The graphs are tiny and many."""
