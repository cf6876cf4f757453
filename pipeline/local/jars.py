"""Spark's extra jars, which Spark's own Ivy resolves once; only this needs the network.

Required jars must have the digests below. GraphFrames' JVM half is optional: some registries do not have it, and then
GraphX inside Spark is the third-party reference of the audit.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ..errors import UsageError

REQUIRED = {  # coordinate -> sha256
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0": (
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82"
    ),
    "org.xerial:sqlite-jdbc:3.50.3.0": "a3f53a2aa15ae9425a9e793bbe9c8e5288febeb4b65ef5c1a4e80d4c2045cf08",
    "org.postgresql:postgresql:42.7.7": "157963d60ae66d607e09466e8c0cdf8087e9cb20d0159899ffca96bca2528460",
}
S3 = {  # for homes whose tables are in S3, on demand: 60 MB
    "org.apache.iceberg:iceberg-aws-bundle:1.12.0": "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957",
}
OPTIONAL = ["io.graphframes:graphframes-spark4_2.13:0.12.3"]
# dependencies of the jars that Spark has already, or that nothing calls
EXCLUDED_PACKAGES = "org.slf4j:slf4j-api,org.checkerframework:checker-qual,org.scala-lang:scala-library"


def fetch_jars(target: Path, java: Path, *, s3: bool = False) -> str:
    """Put the jars into the folder `target`, and return a description of them.

    Args:
        target: The folder, whose content is replaced.
        java: The home of the Java that resolves them.
        s3: Fetch what tables in S3 need, too.

    Raises:
        UsageError: A jar has another digest.
        CalledProcessError: A required jar was not found.
    """
    required = REQUIRED | (S3 if s3 else {})
    environment = {"SPARK_LOCAL_IP": "127.0.0.1"} | os.environ | ({"JAVA_HOME": str(java)} if java.exists() else {})
    cache, fresh = target.with_name("ivy"), target.with_name("jars.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for jar in _resolve_coordinates(list(required), cache, environment):
        shutil.copy(jar, fresh)
    digests = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in fresh.glob("*.jar")}
    for coordinate, expected in required.items():
        name = coordinate.replace(":", "_", 1).replace(":", "-") + ".jar"
        if digests.get(name) != expected:
            raise UsageError(
                f"{name}: sha256 is {digests.get(name, 'missing')}, expected {expected}.",
                "check the network, or set DEFAULT_ARTIFACT_REPOSITORY to your mirror's address; then altneu setup",
            )
    missing = ""
    try:
        for jar in _resolve_coordinates(OPTIONAL, cache, environment):
            shutil.copy(jar, fresh)
    except subprocess.CalledProcessError:
        missing = f"; optional, not available here: {', '.join(OPTIONAL)}"
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)
    shutil.rmtree(cache, ignore_errors=True)
    return f"{len(list(target.glob('*.jar')))} jars{missing}"


def _resolve_coordinates(coordinates: list[str], cache: Path, environment: dict[str, str]) -> list[Path]:
    """Return the jars of Maven coordinates. Raise `CalledProcessError` if one is not found.

    It runs in a process of its own, because Ivy prints pages.
    """
    shutil.rmtree(cache / "jars", ignore_errors=True)
    command = [sys.executable, "-m", __name__, str(cache), *coordinates]
    subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return sorted((cache / "jars").glob("*.jar"))


def _print_resolved_jars(cache: str, *coordinates: str) -> None:
    """Let Spark's launcher resolve the coordinates, which it does before it starts; no session is made."""
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf(loadDefaults=False)
    conf.set("spark.jars.packages", ",".join(coordinates))
    conf.set("spark.jars.excludes", EXCLUDED_PACKAGES)
    conf.set("spark.jars.ivy", cache)
    gateway = launch_gateway(conf)  # raises if one is not found, because the launcher then ends without a gateway
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    _print_resolved_jars(*sys.argv[1:])
