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


def catalog(spark: SparkSession, database: str, warehouse: str) -> str:
    """Register the Iceberg JDBC catalog of a home in the session and return its name."""
    import hashlib
    name = "altneu_" + hashlib.sha256(f"{database} {warehouse}".encode()).hexdigest()[:8]
    key = f"spark.sql.catalog.{name}"
    if spark.conf.get(key, None) is None:
        spark.conf.set(f"{key}.type", "jdbc")
        spark.conf.set(f"{key}.uri", "jdbc:sqlite:" + database.removeprefix("sqlite:///") + "?busy_timeout=60000")
        spark.conf.set(f"{key}.warehouse", warehouse)
        spark.conf.set(f"{key}.jdbc.schema-version", "V1")
        spark.conf.set(key, "org.apache.iceberg.spark.SparkCatalog")
    return name
