"""Settings of a Spark session that hold for a block of code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Run the block with these settings of the session, then restore the old ones.

    Spark makes plans when something is EXECUTED: that has to be inside the block, too.
    """
    conf = spark.conf  # each look at this property is a call to the JVM
    before = {name: conf.get(name) for name in settings}
    for name, value in settings.items():
        conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            conf.set(name, old or "")
