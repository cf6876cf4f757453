"""The session's settings, the catalog's options, and two processes that commit to one SQLite catalog at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import altneu.pipeline.storage.session
from altneu.pipeline.errors import UsageError
from altneu.pipeline.run import runner
from altneu.pipeline.state.stage_results import Size
from altneu.pipeline.storage import session as module
from altneu.pipeline.storage.catalogs import jdbc_options
from altneu.pipeline.storage.session import (
    count_cores,
    driver_memory_mb,
    java_options,
    read_environment,
    register_catalog,
    session_for,
    size_plans,
    submit_settings,
)
from tests import home_helpers

REPO = Path(module.__file__).parents[3]


@pytest.mark.parametrize(
    ("database", "expected"),
    [
        ("sqlite:////data/a b.db", {"uri": "jdbc:sqlite:/data/a b.db?busy_timeout=60000"}),
        ("postgresql+psycopg://db/altneu", {"uri": "jdbc:postgresql://db/altneu"}),
        (
            "postgresql://me:p%40ss@db:5433/altneu",
            {"uri": "jdbc:postgresql://db:5433/altneu", "jdbc.user": "me", "jdbc.password": "p@ss"},
        ),
    ],
)
def test_an_sqlalchemy_uri_becomes_jdbc_options(database: str, expected: dict[str, str]) -> None:
    options = jdbc_options(database, "s3://bucket/w")
    assert options["jdbc.schema-version"] == "V1" and options["warehouse"] == "s3://bucket/w"
    assert {key: options[key] for key in ("uri", "jdbc.user", "jdbc.password") if key in options} == expected


def test_a_relative_sqlite_file_is_the_same_file_for_both_sides() -> None:
    assert jdbc_options("sqlite:///a.db", "w")["uri"] == f"jdbc:sqlite:{Path('a.db').resolve()}?busy_timeout=60000"


@pytest.mark.parametrize("database", ["mysql://me:secret@db/altneu", "sqlite://", "sqlite:///:memory:"])
def test_another_database_is_a_usage_error_without_the_password(database: str) -> None:
    with pytest.raises(UsageError) as error:
        jdbc_options(database, "w")
    assert "secret" not in str(error.value)


def test_memory_is_at_most_half_of_the_machine() -> None:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20
    assert 1024 <= driver_memory_mb() <= max(1024, total / 2)


def test_no_archive_no_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "ARCHIVE", tmp_path / "none")
    assert not any("SharedArchiveFile" in option for option in java_options())


def test_a_process_for_few_rows_is_told_from_one_for_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, ledger = home_helpers.make(tmp_path / "home")
    home_helpers.put(home, 3, [(1, 2, None, "upsert", 0)] * 5)
    assert 1 <= runner._estimate_landed_rows(home, [3, 4]) <= 10 and runner._estimate_landed_rows(home, []) == 0
    started: list[tuple[bool, int | None]] = []
    monkeypatch.setattr(module, "start_session", lambda master, conf, few, heap_mb: started.append((few, heap_mb)))
    monkeypatch.setattr(module.SparkContext, "_active_spark_context", None)
    session_for(ledger)
    session_for(ledger, lambda: 1e6)
    monkeypatch.setattr(ledger.stages, "table_sizes", lambda: dict.fromkeys(("upserts", "edges"), Size(rows=150_000)))
    session_for(ledger)
    assert started == [(True, 1280), (False, None), (False, None)]  # MiB; None: half of the machine


def test_the_session_is_set_as_promised(spark: SparkSession) -> None:
    expected = {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.ui.enabled": "false",
    }
    assert {key: spark.conf.get(key) for key in expected} == expected
    assert spark.conf.get("spark.jars.packages", None) is None, "a session never resolves jars"
    assert module.start_session() is spark or module.start_session().sparkContext is spark.sparkContext


def test_a_catalog_is_registered_once_and_works(spark: SparkSession, tmp_path: Path) -> None:
    database, warehouse = f"sqlite:///{tmp_path}/catalog.db", str(tmp_path / "warehouse")
    name = "once"
    for _ in range(2):
        register_catalog(spark, name, jdbc_options(database, warehouse))
    spark.sql(f"CREATE NAMESPACE {name}.g")
    spark.sql(f"CREATE TABLE {name}.g.t (a bigint) USING iceberg")
    spark.range(5).selectExpr("id a").writeTo(f"{name}.g.t").append()
    assert spark.table(f"{name}.g.t").count() == 5


COMMITS = """
import sys
from altneu.pipeline.storage.catalogs import jdbc_options
from altneu.pipeline.storage.session import register_catalog, start_session

spark = start_session("local[1]", {"spark.driver.memory": "1g"})
name = "together"
register_catalog(spark, name, jdbc_options(sys.argv[1], sys.argv[2]))
print("ready", flush=True)
sys.stdin.readline()
for i in range(int(sys.argv[3])):
    spark.range(1).selectExpr("id a").writeTo(f"{name}.g.t").append()
"""


@pytest.mark.slow
def test_two_processes_commit_to_one_table_and_nothing_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    each = 50
    database, warehouse = f"sqlite:///{tmp_path}/catalog.db", str(tmp_path / "warehouse")
    name = "together"
    register_catalog(spark, name, jdbc_options(database, warehouse))
    spark.sql(f"CREATE NAMESPACE {name}.g")
    spark.sql(f"CREATE TABLE {name}.g.t (a bigint) USING iceberg TBLPROPERTIES ('commit.retry.num-retries'='20')")
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", COMMITS, database, warehouse, str(each)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPO,
        )
        for _ in range(2)
    ]
    for writer in writers:  # both are up before either begins
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    assert [writer.wait(timeout=600) for writer in writers] == [0, 0]
    assert spark.table(f"{name}.g.t").count() == 2 * each
    assert spark.table(f"{name}.g.t.snapshots").count() == 2 * each


EXECUTORS = """
from altneu.pipeline.storage.session import start_session

spark = start_session("local-cluster[2,1,1024]", {"spark.driver.memory": "1g"})

def where(frames):
    import os, altneu.algorithms, altneu.pipeline
    for frame in frames:
        frame["parent"] = os.getppid()
        yield frame

parents = spark.range(0, 8, 1, 4).mapInPandas(where, "id bigint, parent bigint").toPandas()
print(len(parents), parents.parent.nunique())
"""


@pytest.mark.slow
def test_executors_in_processes_of_their_own_find_our_packages(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"PYTHONPATH": ""}
    said = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(REPO)!r})\n{EXECUTORS}"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=300,
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout.split()[0] == "8" and int(said.stdout.split()[1]) >= 2


WORKERS = """
from altneu.pipeline.storage.session import start_session

def worker(frames):
    import altneu.algorithms.zipimport_patch
    yield from frames

print(start_session("local[1]", {"spark.driver.memory": "1g"}).range(7).mapInPandas(worker, "id bigint").count())
"""


def test_python_workers_take_no_package_from_where_a_command_is_typed(tmp_path: Path) -> None:
    """Python's `-m`, which Spark starts them with, looks there first."""
    for name in ("altneu", "pyspark"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError")
    said = subprocess.run(
        [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(REPO)!r})\n{WORKERS}"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
    )
    assert said.stdout == "7\n", said.stderr


@pytest.mark.parametrize("cluster", [False, True])
def test_a_submission_to_a_cluster_leaves_the_python_of_this_machine_alone(
    cluster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {name: os.environ[name] for name in ("PATH", "HOME")})
    _, environment = submit_settings({}, "spark://head:7077", cluster=cluster)
    assert environment.get("PYSPARK_PYTHON") == (None if cluster else "python3")
    assert read_environment("local[2]", {})["PYSPARK_PYTHON"] == sys.executable
    assert "SPARK_LOCAL_IP" not in os.environ


@pytest.mark.parametrize("own", ["", "-Xss4m -Xint"])
@pytest.mark.parametrize("cluster", [False, True])
def test_what_executors_are_started_with_is_added_to(cluster: bool, own: str) -> None:
    name = "spark.executor.extraJavaOptions"
    settings, _ = submit_settings({name: own} if own else {}, "spark://head:7077", cluster=cluster)
    assert settings[name].split() == ["-XX:+ExitOnOutOfMemoryError", *own.split()]


@pytest.mark.parametrize("cluster", [False, True])
def test_what_the_environment_of_executors_is_unless_it_is_said(cluster: bool) -> None:
    arenas, pool = "spark.executorEnv.MALLOC_ARENA_MAX", "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL"
    for conf, found in (
        ({}, ("2", None)),
        ({arenas: "4", pool: "jemalloc"}, ("4", "jemalloc")),
        ({"spark.executor.pyspark.memory": "2g"}, ("2", "system")),
        ({"spark.executor.pyspark.memory": "2g", pool: "jemalloc"}, ("2", "jemalloc")),
    ):
        settings, _ = submit_settings(conf, "spark://head:7077", cluster=cluster)
        assert (settings.get(arenas), settings.get(pool)) == found


def test_plans_are_as_simple_as_their_rows_are_few(spark: SparkSession) -> None:
    names = ("spark.sql.adaptive.enabled", "spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")
    before = [spark.conf.get(name) for name in names]
    simple, interpreted = ["false", "false", "NO_CODEGEN"], [before[0], "false", "NO_CODEGEN"]
    for rows, settings in ((10, simple), (300_000, interpreted), (10**7, before), (None, before)):
        with size_plans(spark, rows):
            assert [spark.conf.get(name) for name in names] == settings
        assert [spark.conf.get(name) for name in names] == before


def test_many_rows_are_cut_into_as_many_partitions_as_they_fill(spark: SparkSession) -> None:
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    spark.conf.set(name, "7")  # what somebody has asked for in altneu.toml is the least
    try:
        for rows, partitions in ((10, "1"), (10**6, "7"), (10**9, "2000"), (None, "7")):
            with size_plans(spark, rows):
                assert spark.conf.get(name) == partitions
            assert spark.conf.get(name) == "7"
    finally:
        spark.conf.set(name, before)


def test_as_many_partitions_as_there_are_cores_where_the_rows_are_enough(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    least = int(spark.conf.get("spark.sql.shuffle.partitions") or 0)
    monkeypatch.setattr(altneu.pipeline.storage.session, "count_cores", lambda spark: 48)
    for rows, partitions in ((150_000, least), (500_000, 10), (10**7, 48), (10**9, 2000)):
        with size_plans(spark, rows):
            assert spark.conf.get("spark.sql.shuffle.partitions") == str(partitions)


def test_the_cores_of_a_session_are_told_by_spark_and_by_a_server(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert count_cores(spark) == spark.sparkContext.defaultParallelism
    monkeypatch.setattr(altneu.pipeline.storage.session, "has_jvm", lambda spark: False)
    assert count_cores(spark) == spark.sparkContext.defaultParallelism


def test_python_workers_begin_with_what_they_all_import(spark: SparkSession) -> None:
    """And do not look through it after each task; also where a function brings nothing of ours with it."""

    def found(rows: Any) -> Any:
        import gc
        import sys

        yield gc.get_freeze_count() > 10_000, [name for name in ("numba", "pandas", "pyarrow") if name in sys.modules]

    found.__module__ = "__main__"  # so that it is sent whole
    assert spark.sparkContext.parallelize([0], 1).mapPartitions(found).collect() == [
        (True, ["numba", "pandas", "pyarrow"])
    ]
