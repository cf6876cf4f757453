"""The Spark session, one per process, and the registration of a home's Iceberg catalog in it.

`start_session()` starts or returns the session of the process, without network access, from the files that set-up has
put into `ASSETS`. A JVM that cannot use the class-data archive ignores it. Without `java/` and the archive, any Java on
the PATH is used.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from altneu.algorithms.spark_conf import configured

from .. import interrupt
from ..errors import AltneuError, Unavailable, UsageError, describe_error
from ..home.memory_budget import PYTHON_MEMORY, driver_memory_mb, heap_mb
from ..home.setting_types import MASTERS, is_master
from . import code_shipping, shared_jvm
from .assets import ARCHIVE, ASSETS
from .daemon_client import NoDaemon, caller
from .iceberg import has_jvm
from .network import is_listening
from .py4j_shortcuts import shorten_calls

if TYPE_CHECKING:
    from ..home.home import Home
    from ..state.ledger import Ledger

REPO = Path(__file__).absolute().parents[3]  # it has altneu, through whose links a clone imports
STANDALONE = "spark://"  # the prefix of the master of a standalone cluster
DAEMON = "spark.python.daemon.module"  # the setting for the module from which Python workers are forked
LOCAL = "local[*]"  # the default master
REMOTE, PORT = "sc://", 15002  # the prefix of the master of a Spark Connect server, and its default port
IDLE_MS = 15_000  # milliseconds after which an idle connection of a Spark Connect server to PostgreSQL ends

_STATIC = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # a run has more than the default of 100 stages; with that the next run would compile them all again
    "spark.sql.codegen.cache.maxEntries": "2000",
    # it takes a dozen calls to the JVM for each column expression, to name its line of Python in error messages
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # every query is described for a web page that we do not use; this is the shortest description
    "spark.sql.ui.explainMode": "simple",
}
_RUNTIME = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",  # `size_plans` sets more for many rows
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}

# Up to so many stored rows a run spends its time on planning and compiling, not on rows. Measured for an epoch of 1,000
# rows, alternating with Spark's defaults: 7.7 s and 9.7 s with 20,000 stored rows; equal times with 100,000.
FEW_ROWS = 100_000
# Up to so many rows, expressions are interpreted. Each run has its own epochs and revision, which Spark writes into the
# code that it generates as numbers, so that no run finds the code of the one before: 72 classes an epoch are compiled.
# Measured in turns for an epoch of 1,000 rows: 9.5 and 8.1 CPU s with 350,000 rows to read, equal times with 700,000.
INTERPRETED_ROWS = 400_000
# The rows of a partition of a shuffle: some 50 MB. Adaptive execution merges partitions with fewer rows.
PARTITION_ROWS = 500_000
# Where there are more cores than such partitions, they share the rows; a task of fewer rows takes less time than its
# start.
TASK_ROWS = 50_000
PARTITIONS = "spark.sql.shuffle.partitions"
# In a process for few rows the JVM spends most time on compiling its own code. With one compiler its cache of compiled
# code would have only 48 MiB, which is full after some 80 epochs; then the JVM compiles nothing any more.
_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
QUICK = ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m", "-XX:+UseParallelGC"]
# The JVM of a daemon gives memory back: its heap is at most two fifths larger than what is in use after a collection.
SHARED = ["-XX:-UseParallelGC", "-XX:+UseSerialGC", "-XX:MinHeapFreeRatio=20", "-XX:MaxHeapFreeRatio=40"]
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
SIMPLE = {
    PARTITIONS: "1",  # this also makes one new file for each table, not four
    "spark.sql.adaptive.enabled": "false",
    **INTERPRETED,
}

# Of a plan with many exchanges of few rows, adaptive execution plans the rest again after each of them, which takes
# longer than the rows do. Without it they need one partition, so that they become one file.
PLANNED_ONCE = {PARTITIONS: "1", "spark.sql.adaptive.enabled": "false"}


@contextlib.contextmanager
def size_plans(spark: SparkSession, rows: float | None) -> Iterator[None]:
    """Run the block with plans that fit a number of rows; None: the number is unknown, and nothing is changed.

    Plans over few rows are not compiled to bytecode, not adapted during execution, and have one partition. Plans over
    more rows have as many partitions as the rows fill, or as there are cores; those over many rows are compiled.
    """
    settings: dict[str, str] = {}
    if rows is not None and rows <= FEW_ROWS:
        settings = SIMPLE
    elif rows is not None:
        least = int(spark.conf.get(PARTITIONS) or 1)
        shared = math.ceil(rows / TASK_ROWS)
        if shared > least:  # otherwise the number of cores does not matter
            shared = min(shared, count_cores(spark))
        settings = {PARTITIONS: str(max(least, shared, math.ceil(rows / PARTITION_ROWS)))}
        if rows <= INTERPRETED_ROWS:
            settings |= INTERPRETED
    with configured(spark, settings):
        yield


def count_cores(spark: SparkSession) -> int:
    """Count the tasks that run at once on the present executors."""
    if has_jvm(spark):
        return int(spark.sparkContext.defaultParallelism)
    # a server has no setting that tells it
    return spark.range(TASK_ROWS).select(F.spark_partition_id()).distinct().count()


def start_session(
    master: str | None = None, conf: dict[str, str] | None = None, *, few: bool = False, heap_mb: int | None = None
) -> SparkSession:
    """Start or return the Spark session of this process.

    Args:
        master: The URL of a Spark master (default: `local[*]`). `sc://host:port` is a Spark Connect server, whose own
            configuration must contain the jars and the Iceberg extension.
        conf: Additional Spark settings.
        few: Whether the process is short and for few rows (`FEW_ROWS`): then the JVM optimises less, and long work
            takes longer.
        heap_mb: The MiB of the heap of the JVM, where `conf` does not say it (default: half of the machine).

    Raises:
        AltneuError: Spark does not start, or there is no Java.
        Unavailable: No cluster or server answers at `master`, or its executors cannot work.
    """
    master, conf = master or LOCAL, conf or {}
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # the exception has the same message
    if master.startswith(REMOTE):
        return _connect_remote(master, conf)
    if SparkContext._active_spark_context is not None:  # its static settings cannot be changed any more
        return _apply_settings(SparkSession.builder, conf).getOrCreate()
    if (
        "PYSPARK_GATEWAY_PORT" in os.environ
    ):  # inside spark-submit, which has brought a JVM, a master and `submit_settings`
        spark = _apply_settings(SparkSession.builder, _RUNTIME | conf).getOrCreate()
        code_shipping.ensure_code_on_executors(spark, str(spark.sparkContext.master))
        _write_no_checksum_files(spark)
        return spark
    os.environ.update(read_environment(master, conf))
    if master.startswith(STANDALONE):
        _require_cluster_head(master)
    builder = SparkSession.builder.appName("altneu").master(master)
    settings = _session_settings(master, conf, few=few, heap_mb=heap_mb)
    try:
        with interrupt.preserve_sigint_handler():
            spark = _apply_settings(builder, settings).getOrCreate()
    except (Py4JError, PySparkException) as error:
        memory = settings["spark.driver.memory"]
        raise AltneuError(
            f"Spark did not start (master {master}, spark.driver.memory {memory}): "
            f"{describe_error(error)[0].rstrip('.')}.",
            "altneu doctor; the settings are [spark] master and conf in altneu.toml",
        ) from error
    spark.sparkContext.setLogLevel(os.environ.get("ALTNEU_LOG", "error").upper())
    shorten_calls(spark)
    _write_no_checksum_files(spark)
    code_shipping.ensure_code_on_executors(spark, master)
    return spark


def _write_no_checksum_files(spark: SparkSession) -> None:
    """Let Hadoop write no file `.NAME.crc` beside each file NAME on a local disk. Rows have fingerprints of their own.

    No setting does it. An executor in a process of its own still writes one for each data file.
    """
    java: Any = spark.sparkContext._jvm
    files = getattr(java, "org.apache.hadoop.fs.FileSystem")
    files.getLocal(cast(Any, spark.sparkContext)._jsc.hadoopConfiguration()).setWriteChecksum(False)


def launch_shared_jvm(home: Home, heap_mb: int) -> Any:
    """Start the JVM of a home's daemon, and return the gateway to it.

    The first process that attaches to it makes the context, from the settings with which the JVM was started.
    """
    master, conf = master_of(home) or LOCAL, home.config.spark.conf
    os.environ.update(read_environment(master, conf))
    settings = _session_settings(master, conf, few=True, heap_mb=heap_mb)
    settings[_DRIVER_OPTIONS] = " ".join([settings[_DRIVER_OPTIONS], *SHARED])
    of_python = {"spark.app.name": "altneu", "spark.master": master, "spark.submit.pyFiles": ""}
    of_python |= {"spark.rdd.compress": "True", "spark.serializer.objectStreamReset": "100"}  # as PySpark sets them
    launch = SparkConf(loadDefaults=False)
    for name, value in (of_python | settings).items():
        launch.set(name, value)
    return launch_gateway(launch)


def _session_settings(master: str, conf: dict[str, str], *, few: bool, heap_mb: int | None = None) -> dict[str, str]:
    """Return all settings with which the JVM of a driver and its session start."""
    memory = {"spark.driver.memory": f"{heap_mb or driver_memory_mb()}m"}
    settings = _STATIC | _RUNTIME | _jar_settings(master) | memory | conf
    user_options = conf.get(_DRIVER_OPTIONS, "")
    settings[_DRIVER_OPTIONS] = " ".join([*java_options(), *(QUICK if few else []), user_options]).strip()
    settings |= _executor_settings(conf)
    if not code_shipping.on_this_machine(master):
        return settings
    # so that other processes (executors, Python workers) find our packages, even if altneu is not installed
    path = [str(REPO), *filter(None, [conf.get("spark.executorEnv.PYTHONPATH"), os.environ.get("PYTHONPATH")])]
    # PYTHONSAFEPATH: no modules from the current folder
    variables = {"PYTHONPATH": os.pathsep.join(path), "PYTHONSAFEPATH": "1"}
    environment = {f"spark.executorEnv.{name}": value for name, value in variables.items()}
    return {DAEMON: "altneu.algorithms.python_worker_daemon"} | settings | environment


def _executor_settings(conf: dict[str, str]) -> dict[str, str]:
    """Return the settings of executors.

    An executor that is out of memory ends at once. By default it takes seconds to end, and meanwhile fails every task
    within milliseconds; when the same task has failed four times, the job fails. Its memory outside the heap is in two
    arenas. By default the C library makes eight for each core, and each of them keeps memory that was freed.
    """
    options, environment = "spark.executor.extraJavaOptions", {"MALLOC_ARENA_MAX": "2"}
    if conf.get(PYTHON_MEMORY):  # it limits the address space, of which Arrow's own allocator would reserve a gigabyte
        environment["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    settings = {f"spark.executorEnv.{name}": value for name, value in environment.items()}
    settings |= {name: conf[name] for name in settings if name in conf}
    return settings | {options: f"-XX:+ExitOnOutOfMemoryError {conf.get(options, '')}".strip()}


def submit_settings(conf: dict[str, str], master: str, *, cluster: bool) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings and the environment with which the session of `spark-submit` is like ours.

    In the environment of this process only the variables of Java are set, with which it starts `spark-submit`, because
    the next master may be another one.

    Args:
        conf: The Spark settings of the home.
        master: The URL of the Spark master.
        cluster: Whether the driver runs on another machine, which has altneu installed. No file of this machine may be
            named for it but the jars, which Spark sends unless `conf` names jars on that machine.
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
    """Return the Spark master of a home: `ALTNEU_MASTER`, or the one in its altneu.toml. Raises `UsageError`."""
    variable = os.environ.get("ALTNEU_MASTER")
    if variable and not is_master(variable):
        raise UsageError(f"ALTNEU_MASTER = {variable!r}: expected {MASTERS}.", "export ALTNEU_MASTER='local[*]'")
    return variable or home.config.spark.master


def session_for(ledger: Ledger, count_rows: Callable[[], float] | None = None) -> SparkSession:
    """Start the session of a process for one command on a home, by the number of rows that it reads (default: all).

    The JVM is that of the home's daemon, where one answers and is large enough.
    """
    home = ledger.home
    master = master_of(home)
    if SparkContext._active_spark_context is not None or (master or "").startswith(REMOTE):
        return start_session(master, home.config.spark.conf)
    rows = count_stored_rows(ledger) if count_rows is None else count_rows()
    if caller.uses_daemon and may_have_daemon(home):
        try:
            variables = read_environment(master or LOCAL, home.config.spark.conf)
            return shared_jvm.attach_session(home.path, rows, variables)
        except NoDaemon as absence:
            if absence.reason:
                caller.show_line(f"{absence.reason}; Spark starts for this command alone")
            else:
                caller.show_line(
                    "Spark starts for this command alone; altneu daemon start keeps one ready for the next"
                )
    few = rows <= FEW_ROWS
    return start_session(master, home.config.spark.conf, few=few, heap_mb=heap_mb(rows) if few else None)


def count_stored_rows(ledger: Ledger) -> int:
    """Count the stored rows that runs work on."""
    sizes = ledger.stages.table_sizes()
    return sum(size.rows for table, size in sizes.items() if table in ("upserts", "edges", "trussness"))


def may_have_daemon(home: Home) -> bool:
    """Tell whether the commands of a home may share the JVM of a daemon: Spark works here, and is not there yet."""
    is_local = (master_of(home) or LOCAL).split("[")[0] == "local"
    return home.config.spark.daemon and is_local and "PYSPARK_GATEWAY_PORT" not in os.environ


def _connect_remote(master: str, conf: dict[str, str]) -> SparkSession:
    """Open a session at a Spark Connect server."""
    from .spark_connect_client import connect_session

    logging.getLogger("pyspark.sql.connect.logging").setLevel(logging.CRITICAL)  # retries are not reported
    # from its plan cache the server would answer a repeated query with old metadata of the table
    settings = _RUNTIME | {"spark.connect.session.planCache.enabled": "false"}
    return connect_session(
        master, settings | {name: value for name, value in conf.items() if name.startswith("spark.sql.")}
    )


def _require_cluster_head(master: str) -> None:
    """Raise `Unavailable` where no head of a standalone cluster listens; Spark would try for a minute."""
    heads = [each.rpartition(":") for each in master.removeprefix(STANDALONE).split(",")]
    if not any(is_listening(host, int(port)) for host, _, port in heads):
        raise Unavailable(f"no Spark master answers at {master}.", "start the cluster's head; altneu doctor")


def release_session() -> None:
    """End this process's session in a JVM that is not its own: that of a daemon, or a Spark Connect server's, which
    would keep it for an hour."""
    shared_jvm.detach_session()
    # None: the module is not completely imported
    connect = getattr(sys.modules.get("pyspark.sql.connect.session"), "SparkSession", None)
    spark = connect.getActiveSession() if connect else None
    if spark is not None:
        with contextlib.suppress(Exception):  # the server may have ended, and the session with it
            spark.client.set_retry_policies([])  # so that the request is not repeated
            spark.stop()


def _apply_settings(builder: SparkSession.Builder, settings: dict[str, str]) -> SparkSession.Builder:
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder


def read_environment(master: str, conf: dict[str, str]) -> dict[str, str]:
    """Return the environment variables that the JVM and its child processes read. Raises `AltneuError` without a Java.

    Variables that are set keep their values, except `JAVA_HOME` and `PYSPARK_PYTHON`.
    """
    variables = {
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # `bin/spark-submit` first runs a small JVM, which only builds the command line of the real one
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
            "there is no Java here, and Spark needs one (17 to 21).", "altneu setup   (finds or installs one)"
        )
    return variables


def _jar_settings(master: str) -> dict[str, str]:
    """Return the settings that bring the jars to the driver and to executors in other processes.

    On this machine the jars are on the class path, because the class-data archive cannot contain classes from
    `spark.jars`, and because nothing is copied then.
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
    """Return the options of the driver's JVM, for a quiet terminal and the class-data archive, if there is one."""
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
            # A Spark Connect server keeps the connections of ended sessions, which would exceed the limit of
            # PostgreSQL. So PostgreSQL ends idle connections, and Iceberg reconnects where one was still in use.
            query = ("&" if "?" in options["uri"] else "?") + f"options=-c%20idle_session_timeout={IDLE_MS}"
            options = options | {"uri": options["uri"] + query, "clients": "1", "retryable_status_codes": "57P05"}
        for option, value in options.items():
            spark.conf.set(f"{key}.{option}", value)
        spark.conf.set(key, "org.apache.iceberg.spark.SparkCatalog")


AWS = "software.amazon.awssdk.services.s3.S3Client"


def _require_aws_jars(spark: SparkSession) -> None:
    """Raise `UsageError` where the JVM of this process cannot access S3. A Spark Connect server reports that itself."""
    session: Any = spark
    if hasattr(spark, "_jsparkSession"):
        utils = getattr(session._jvm, "org.apache.spark.util.Utils")
        if not utils.classIsLoadable(AWS):
            raise UsageError("tables in S3 need Amazon's library, which is not installed.", "altneu setup --s3")
