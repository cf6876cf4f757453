"""The Spark session: one per process, and the Iceberg catalog of a home.

`start_session()` starts (or returns) the process's session: offline, from what set-up left in `ASSETS`. There: `jars/`;
`java/`, the home of the Java that set-up chose; `spark.jsa`, a class-data archive that halves the start of the JVM (and
is ignored when the JVM is another one). Without `java/` and the archive any Java on the PATH will do.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from algorithms.spark_conf import configured

from .. import interrupt
from ..errors import AltneuError, Unavailable, UsageError, describe_error
from ..home.memory_budget import PYTHON_MEMORY, driver_memory_mb
from ..home.setting_types import MASTERS, is_master
from . import code_shipping
from .iceberg import has_jvm
from .py4j_class_cache import cache_java_classes

if TYPE_CHECKING:
    from ..home.home import Home
    from ..state.ledger import Ledger

ASSETS = Path(sys.prefix) / "altneu"
ARCHIVE = ASSETS / "spark.jsa"
REPO = Path(__file__).resolve().parents[2]
STANDALONE = "spark://"  # how the master of a standalone cluster begins
DAEMON = "spark.python.daemon.module"  # the module that Python workers are forked from
REMOTE, PORT = "sc://", 15002  # how the master of a Spark Connect server begins, and where Spark lets one listen
IDLE_MS = 15_000  # how long a Spark Connect server's connection to PostgreSQL may idle

_STATIC = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # a run has more stages than the default of 100: the next run would compile them all again
    "spark.sql.codegen.cache.maxEntries": "2000",
    # a dozen calls to the JVM for each column expression, to name its line of Python in error messages
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # every query is described for a web page that is not there; this is the shortest description
    "spark.sql.ui.explainMode": "simple",
}
_RUNTIME = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",  # and more where there are many rows, see `size_plans`
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}

# Below so many stored rows a run's time is planning and compiling, not work. An epoch of 1,000 rows, in turns with
# Spark's defaults: 7.7 s and 9.7 s with 20,000 stored rows, as long with 100,000.
FEW_ROWS = 100_000
# A partition of a shuffle takes about so many rows: some 50 MB. Where there are fewer, adaptive execution merges them.
PARTITION_ROWS = 500_000
# Where there are more cores than that, they share, but of fewer rows a task takes less time than its start.
TASK_ROWS = 50_000
PARTITIONS = "spark.sql.shuffle.partitions"
# Of such a process, most time is the JVM compiling itself. With one compiler it would keep 48 MiB for what is compiled,
# which are full after some 80 epochs: it compiles nothing any more then.
QUICK = ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m", "-XX:+UseParallelGC"]
SIMPLE = {
    PARTITIONS: "1",  # and one new file a table, not four
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@contextlib.contextmanager
def size_plans(spark: SparkSession, rows: float | None) -> Iterator[None]:
    """Inside, plans over few rows are not compiled to bytecode, not planned again while they run, and not cut into
    partitions; plans over many are cut into as many as the rows fill, or as there are cores. None: unknown."""
    settings: dict[str, str] = {}
    if rows is not None and rows <= FEW_ROWS:
        settings = SIMPLE
    elif rows is not None:
        least = int(spark.conf.get(PARTITIONS) or 1)
        shared = math.ceil(rows / TASK_ROWS)
        if shared > least:  # else the cores do not matter
            shared = min(shared, count_cores(spark))
        settings = {PARTITIONS: str(max(least, shared, math.ceil(rows / PARTITION_ROWS)))}
    with configured(spark, settings):
        yield


def count_cores(spark: SparkSession) -> int:
    """How many tasks run at once, of the executors that are there now."""
    if has_jvm(spark):
        return int(spark.sparkContext.defaultParallelism)
    return spark.range(TASK_ROWS).select(F.spark_partition_id()).distinct().count()  # a server says it by no setting


def start_session(master: str | None = None, conf: dict[str, str] | None = None, *, few: bool = False) -> SparkSession:
    """Start or return the Spark session; `conf` holds further Spark settings, `master` a Spark master URL.

    `few`: the process is for a few rows (`FEW_ROWS`), and short: its JVM optimises less. Long work takes longer then.
    `sc://host:port` is a Spark Connect server, whose own configuration must hold the jars and the Iceberg extension.
    """
    master, conf = master or "local[*]", conf or {}
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # the exception says it all
    if master.startswith(REMOTE):
        return _connect_remote(master, conf)
    if SparkContext._active_spark_context is not None:  # static settings cannot change any more
        return _apply_settings(SparkSession.builder, conf).getOrCreate()
    if (
        "PYSPARK_GATEWAY_PORT" in os.environ
    ):  # inside spark-submit, which has brought a JVM, a master and `submit_settings`
        spark = _apply_settings(SparkSession.builder, _RUNTIME | conf).getOrCreate()
        code_shipping.ensure_code_on_executors(spark, str(spark.sparkContext.master))
        return spark
    os.environ.update(read_environment(master, conf))
    if master.startswith(STANDALONE):
        _require_cluster_head(master)
    builder = SparkSession.builder.appName("altneu").master(master)
    settings = _session_settings(master, conf, few=few)
    try:
        with interrupt.preserve_sigint_handler():
            spark = _apply_settings(builder, settings).getOrCreate()
    except (Py4JError, PySparkException) as error:
        memory = settings["spark.driver.memory"]
        raise AltneuError(
            f"Spark did not start (master {master}, spark.driver.memory {memory}): "
            f"{describe_error(error)[0].rstrip('.')}.",
            "altneu doctor; [spark] in altneu.toml says master and conf",
        ) from error
    spark.sparkContext.setLogLevel(os.environ.get("ALTNEU_LOG", "error").upper())
    cache_java_classes(spark)
    code_shipping.ensure_code_on_executors(spark, master)
    return spark


def _session_settings(master: str, conf: dict[str, str], *, few: bool) -> dict[str, str]:
    """Everything that a driver's JVM and its session start with."""
    settings = _STATIC | _RUNTIME | _jar_settings(master) | {"spark.driver.memory": f"{driver_memory_mb()}m"} | conf
    driver = "spark.driver.extraJavaOptions"
    settings[driver] = " ".join([*java_options(), *(QUICK if few else []), conf.get(driver, "")]).strip()
    settings |= _executor_settings(conf)
    if not code_shipping.on_this_machine(master):
        return settings
    # processes of their own (executors, Python workers) find our packages, also when altneu is not installed
    path = [str(REPO), *filter(None, [conf.get("spark.executorEnv.PYTHONPATH"), os.environ.get("PYTHONPATH")])]
    found = {"PYTHONPATH": os.pathsep.join(path), "PYTHONSAFEPATH": "1"}  # and no others that lie where we are called
    environment = {f"spark.executorEnv.{name}": value for name, value in found.items()}
    return {DAEMON: "algorithms.python_worker_daemon"} | settings | environment


def _executor_settings(conf: dict[str, str]) -> dict[str, str]:
    """An executor that is out of memory ends at once. By itself it takes seconds to, in which it refuses all tasks that
    it is sent, within milliseconds: four times the same one, and the job has failed. And what it takes outside of its
    heap lies in two arenas: by itself the C library makes eight for each processor, and each keeps what was freed."""
    options, environment = "spark.executor.extraJavaOptions", {"MALLOC_ARENA_MAX": "2"}
    if conf.get(PYTHON_MEMORY):  # a limit of the address space, of which Arrow's own allocator reserves a gigabyte
        environment["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    settings = {f"spark.executorEnv.{name}": value for name, value in environment.items()}
    settings |= {name: conf[name] for name in settings if name in conf}
    return settings | {options: f"-XX:+ExitOnOutOfMemoryError {conf.get(options, '')}".strip()}


def submit_settings(conf: dict[str, str], master: str, *, cluster: bool) -> tuple[dict[str, str], dict[str, str]]:
    """What `spark-submit` needs so that its session is like ours: settings and environment.

    `cluster`: the driver is on another machine, which has altneu installed, and where nothing of this one's files may
    be named but the jars, which Spark sends unless `conf` names those of there. Of this process's own environment only
    the Java is set, with which it starts `spark-submit`: the next master may be another one.
    """
    environment = read_environment(master, conf)
    os.environ.update((name, environment[name]) for name in ("JAVA_HOME", "SPARK_LAUNCHER_OPTS") if name in environment)
    if cluster:
        settings = {
            "spark.submit.deployMode": "cluster",
            code_shipping.PYTHON: code_shipping.executor_python(master, conf),
        }
        jars = {name: value for name, value in _jar_settings(master).items() if name == "spark.jars"}
        return _STATIC | _RUNTIME | settings | jars | conf | _executor_settings(conf), {}
    settings = {"spark.submit.deployMode": "client"} | _session_settings(master, conf, few=True)
    path = [str(REPO), *filter(None, [os.environ.get("PYTHONPATH")])]
    return settings, environment | {"PYTHONPATH": os.pathsep.join(path)}


def master_of(home: Home) -> str | None:
    """The Spark master of a home: `ALTNEU_MASTER`, else the one in its altneu.toml."""
    given = os.environ.get("ALTNEU_MASTER")
    if given and not is_master(given):
        raise UsageError(f"ALTNEU_MASTER = {given!r}: {MASTERS}.", "export ALTNEU_MASTER='local[*]'")
    return given or home.config.spark.master


def session_for(home: Home, ledger: Ledger, landed: Callable[[], float] = lambda: 0) -> SparkSession:
    """The session of a process that does one thing with a home: with what is stored and, besides, `landed` rows."""
    master, few = master_of(home), False
    if SparkContext._active_spark_context is None and not (master or "").startswith(REMOTE):
        sizes = ledger.table_sizes()
        stored = sum(size.rows for table, size in sizes.items() if table in ("upserts", "edges", "trussness"))
        few = stored + landed() <= FEW_ROWS
    return start_session(master, home.config.spark.conf, few=few)


def _connect_remote(master: str, conf: dict[str, str]) -> SparkSession:
    """A session of a Spark Connect server."""
    from .spark_connect_client import connect_session

    logging.getLogger("pyspark.sql.connect.logging").setLevel(logging.CRITICAL)  # what is tried again is no news
    # the server would answer a question asked before from the table's metadata of that time
    settings = _RUNTIME | {"spark.connect.session.planCache.enabled": "false"}
    return connect_session(
        master, settings | {name: value for name, value in conf.items() if name.startswith("spark.sql.")}
    )


def _require_cluster_head(master: str) -> None:
    """Raise `Unavailable` when no head of a standalone cluster listens: Spark would ask it for a minute."""
    heads = [each.rpartition(":") for each in master.removeprefix(STANDALONE).split(",")]
    if not any(is_listening(host, int(port)) for host, _, port in heads):
        raise Unavailable(f"no Spark master answers at {master}.", "start the cluster's head; altneu doctor")


def release_session() -> None:
    """Let go of this process's session at a Spark Connect server, if it has one: a server keeps it for an hour."""
    connect = getattr(sys.modules.get("pyspark.sql.connect.session"), "SparkSession", None)  # None: not quite imported
    spark = connect.getActiveSession() if connect else None
    if spark is not None:
        with contextlib.suppress(Exception):  # the server is gone, and the session with it
            spark.client.set_retry_policies([])  # so it is asked once
            spark.stop()


def is_listening(host: str, port: int) -> bool:
    """Does anything listen there?"""
    with contextlib.suppress(OSError), socket.create_connection((host.strip("[]"), port), timeout=10):
        return True
    return False


def _apply_settings(builder: SparkSession.Builder, settings: dict[str, str]) -> SparkSession.Builder:
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder


def read_environment(master: str, conf: dict[str, str]) -> dict[str, str]:
    """Return the variables that the JVM and its children read; one that is set stays as it is, but for Java's home.

    Raises `AltneuError` where there is no Java.
    """
    variables = {
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # `bin/spark-submit` first runs a tiny JVM that only words the command line of the real one
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    if code_shipping.on_this_machine(master) or master.startswith(STANDALONE + "127.0.0.1"):
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"  # executors elsewhere have to find the driver
    names = [*variables, "SPARK_LOCAL_IP", "JAVA_HOME"]
    variables |= {name: os.environ[name] for name in names if name in os.environ}
    variables["PYSPARK_PYTHON"] = code_shipping.executor_python(master, conf)
    if (ASSETS / "java" / "bin" / "java").exists():
        variables["JAVA_HOME"] = str(ASSETS / "java")
    elif not os.environ.get("JAVA_HOME") and not shutil.which("java"):
        raise AltneuError(
            "there is no Java here, and Spark needs one (17 to 21).", "altneu setup   (finds or brings one)"
        )
    return variables


def _jar_settings(master: str) -> dict[str, str]:
    """Settings that bring the jars to the driver and to executors in processes of their own.

    On this machine they stand on the class path, because the archive holds no classes that come by `spark.jars`, and
    because nothing is copied then.
    """
    jars = sorted(map(str, (ASSETS / "jars").glob("*.jar")))
    settings = {"spark.driver.extraClassPath": os.pathsep.join(jars)}
    match master.split("[")[0]:
        case "local":
            return settings
        case "local-cluster":
            return settings | {"spark.executor.extraClassPath": os.pathsep.join(jars)}
    return settings | {"spark.jars": ",".join(jars)}


def java_options() -> list[str]:
    """Options of the driver's JVM: a quiet terminal, and the class-data archive when there is one."""
    options = [f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"]
    if ARCHIVE.exists():
        options += [f"-XX:SharedArchiveFile={ARCHIVE}", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]
    return options


def register_catalog(spark: SparkSession, name: str, options: dict[str, str]) -> None:
    """Register the Iceberg catalog of this name in the session."""
    key = f"spark.sql.catalog.{name}"
    if spark.conf.get(key, None) is None:
        if "io-impl" in options:
            _require_aws_jars(spark)
        if not hasattr(spark, "_jsparkSession") and options["uri"].startswith("jdbc:postgresql:"):
            # A Spark Connect server keeps the connections of sessions that are over: they would add up to more than
            # PostgreSQL has. It ends idle ones, and Iceberg connects again where one was still in use.
            query = ("&" if "?" in options["uri"] else "?") + f"options=-c%20idle_session_timeout={IDLE_MS}"
            options = options | {"uri": options["uri"] + query, "clients": "1", "retryable_status_codes": "57P05"}
        for option, value in options.items():
            spark.conf.set(f"{key}.{option}", value)
        spark.conf.set(key, "org.apache.iceberg.spark.SparkCatalog")


AWS = "software.amazon.awssdk.services.s3.S3Client"


def _require_aws_jars(spark: SparkSession) -> None:
    """Raise `UsageError` where the JVM of this process cannot speak with S3; a Spark Connect server says so itself."""
    session: Any = spark
    if hasattr(spark, "_jsparkSession"):
        utils = getattr(session._jvm, "org.apache.spark.util.Utils")
        if not utils.classIsLoadable(AWS):
            raise UsageError("tables in S3 need Amazon's library, which is not installed.", "altneu setup --s3")
