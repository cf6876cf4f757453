"""Make the class-data archive that shortens the start of Spark: after a small round trip the JVM saves its classes.

The round trip touches what every run touches: an Iceberg table on the JDBC catalog, a join, an aggregate, Arrow. It
runs in a process of its own (`python -m altneu.pipeline.local.jvm_cds_archive`): the archive is written when that JVM
ends.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator

import pandas as pd
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError

from ..home.uris import sqlite_uri
from ..storage.assets import ARCHIVE
from ..storage.catalogs import jdbc_options
from ..storage.session import register_catalog, start_session


def make_archive() -> str:
    """Write the archive, and return its size, or that this Java saves no archive. Raise an error if Spark does not
    start."""
    subprocess.run([sys.executable, "-m", __name__], check=True, capture_output=True, text=True)
    if ARCHIVE.exists():
        return f"{ARCHIVE.stat().st_size >> 20} MB"
    return "this Java saves no archive: Spark starts some seconds slower"


def _double_values(frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield pd.DataFrame({"a": frame.a * 2})


def _round_trip(options: str) -> None:
    """Start Spark with further JVM options, use it, and wait until the JVM has ended, which saves the archive."""
    with tempfile.TemporaryDirectory() as folder:
        spark = start_session("local[2]", {"spark.driver.extraJavaOptions": options})
        name = "round_trip"
        register_catalog(spark, name, jdbc_options(sqlite_uri(f"{folder}/catalog.db"), f"{folder}/warehouse"))
        spark.sql(f"CREATE NAMESPACE {name}.graph")
        spark.sql(f"CREATE TABLE {name}.graph.t (a bigint, b bigint) USING iceberg")
        for _ in range(2):
            spark.range(1000).selectExpr("id a", "id % 7 b").writeTo(f"{name}.graph.t").append()
        t = spark.table(f"{name}.graph.t")
        t.join(t.groupBy("b").count(), "b").mapInPandas(_double_values, "a bigint").agg({"a": "sum"}).toPandas()
        spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _run_round_trip() -> None:
    fresh = ARCHIVE.with_name("spark.jsa.new")
    for file in (ARCHIVE, fresh):
        file.unlink(missing_ok=True)
    try:
        _round_trip(f"-XX:ArchiveClassesAtExit={fresh} -Xlog:disable -Xlog:all=error:stderr")
    except PySparkRuntimeError:  # a Java that cannot save its classes does not start with this option
        _round_trip("")
    if fresh.exists():
        fresh.rename(ARCHIVE)


if __name__ == "__main__":
    _run_round_trip()
