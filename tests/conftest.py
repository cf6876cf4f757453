"""One Spark session for the whole suite (a start costs 6-10 s)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from pipeline.spark import session

    spark = session("local[2]")
    yield spark
    spark.stop()
