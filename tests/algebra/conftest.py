"""Spark set for thousands of tiny cases: they are compile time, not work, so nothing is compiled or re-planned."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

TINY = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture
def spark(spark: SparkSession) -> Iterator[SparkSession]:
    before = {name: spark.conf.get(name) for name in TINY}
    for name, value in TINY.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)
