"""Make the class-data archive that shortens the start of Spark: a small round trip, then the JVM saves its classes.

The round trip touches what every run touches: an Iceberg table on the JDBC catalog, a join, an aggregate, Arrow.
Usage: python infra/archive.py
"""

import sys
import tempfile
from pathlib import Path

import pandas as pd
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipeline.spark import ARCHIVE, catalog, session


def double(frames):
    for frame in frames:
        yield pd.DataFrame({"a": frame.a * 2})


def round_trip(options: str) -> None:
    """Start Spark with further JVM options, use it, and wait until the JVM has ended (it saves the archive then)."""
    with tempfile.TemporaryDirectory() as folder:
        spark = session("local[2]", {"spark.driver.extraJavaOptions": options})
        name = catalog(spark, f"sqlite:///{folder}/catalog.db", f"{folder}/warehouse")
        spark.sql(f"CREATE NAMESPACE {name}.graph")
        spark.sql(f"CREATE TABLE {name}.graph.t (a bigint, b bigint) USING iceberg")
        for _ in range(2):
            spark.range(1000).selectExpr("id a", "id % 7 b").writeTo(f"{name}.graph.t").append()
        t = spark.table(f"{name}.graph.t")
        t.join(t.groupBy("b").count(), "b").mapInPandas(double, "a bigint").agg({"a": "sum"}).toPandas()
        spark.stop()
    jvm = SparkContext._gateway.proc
    jvm.stdin.close()
    jvm.wait()


def main() -> None:
    fresh = ARCHIVE.with_name("spark.jsa.new")
    for file in (ARCHIVE, fresh):
        file.unlink(missing_ok=True)
    try:
        round_trip(f"-XX:ArchiveClassesAtExit={fresh} -Xlog:disable -Xlog:all=error:stderr")
    except PySparkRuntimeError:  # a Java that cannot save its classes does not start with that option
        round_trip("")  # raises when Spark does not start at all
    if fresh.exists():
        fresh.rename(ARCHIVE)
    else:
        print("This Java saves no archive: Spark starts some seconds slower.")


if __name__ == "__main__":
    main()
