"""The Spark session: one per process, and the Iceberg catalog of a home.

`session()` starts (or returns) the process's session; it starts offline, from the jars that set-up resolved into
`<venv>/altneu/jars`. `tests/conftest.py` uses the same one for the whole suite.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

ASSETS = Path(sys.prefix) / "altneu"


def session(master: str | None = None, conf: dict[str, str] | None = None) -> SparkSession:
    """Start or return the Spark session; `conf` holds further Spark settings, `master` a Spark master URL."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    jars = sorted((ASSETS / "jars").glob("*.jar"))
    settings = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "4g",
    } | (conf or {})
    builder = SparkSession.builder.appName("altneu").master(master or "local[*]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
