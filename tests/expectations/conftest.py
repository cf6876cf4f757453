"""Tiny frames are compile time, not work: one partition, nothing compiled, nothing re-planned."""

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


@pytest.fixture(scope="module")
def tiny(spark: SparkSession) -> Iterator[SparkSession]:
    before = {name: spark.conf.get(name, None) for name in TINY}
    for name, value in TINY.items():
        spark.conf.set(name, value)
    yield spark
    for name, old in before.items():
        spark.conf.unset(name) if old is None else spark.conf.set(name, old)
