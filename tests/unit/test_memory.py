"""How many edges a task has memory for: each way in which Spark is run, and what a user may set."""

from __future__ import annotations

from pathlib import Path

import pytest

from altneu.pipeline.errors import UsageError
from altneu.pipeline.home import memory_budget
from altneu.pipeline.home.home import Home
from altneu.pipeline.home.settings import Config
from altneu.pipeline.local import doctor
from altneu.pipeline.storage.duckdb_tables import DuckTables, Query
from tests import home_helpers

GIB = 2**30
EDGES = GIB // memory_budget.REPLAY_BYTES


def config(master: str = "local[*]", limit: int | None = None, cells: int | None = None, **conf: str) -> Config:
    settings = {f"spark.{name.replace('_', '.')}": value for name, value in conf.items()}
    truss = {} if limit is None else {"limit_edges": limit}
    triangles = {} if cells is None else {"limit_edges": cells}
    return Config(spark={"master": master, "conf": settings}, truss=truss, triangles=triangles)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 GiB and 4 cores."""
    monkeypatch.delenv("ALTNEU_MASTER", raising=False)
    monkeypatch.setattr(memory_budget, "_total_memory", lambda: 16 * GIB)
    monkeypatch.setattr("os.cpu_count", lambda: 4)


@pytest.mark.parametrize(
    ("settings", "alone", "share"),
    [
        (config(), 8, 2),  # half is the driver's
        (config("local[2]"), 8, 4),
        (config("local[2,4]"), 8, 4),
        (config(driver_memory="12g"), 4, 1),
        (config("sc://localhost:15002"), 8, 2),
        (config("spark://head:7077", executor_memory="4g", executor_cores="2"), 4, 2),
        (config("spark://head:7077", executor_memory="4096"), 4, 4),
        (config("yarn", executor_memory="1g", executor_memoryOverhead="5420m"), 4, 4),
        (config("k8s://https://host", executor_memoryOverhead="9816m", executor_cores="2"), 8, 4),
        (config("yarn", executor_memory="2g", executor_pyspark_memory="4g", executor_memoryOverhead="9g"), 3.25, 3.25),
        (config("spark://head:7077", executor_memory="8g", executor_cores="4", task_cpus="2"), 8, 4),
    ],
)
def test_the_memory_of_a_task(settings: Config, alone: float, share: float) -> None:
    room = memory_budget.memory_budget(settings)
    assert (room.max_edges_exclusive, room.max_edges_shared) == (
        alone * GIB // memory_budget.REPLAY_BYTES,
        share * GIB // memory_budget.EDGE_BYTES,
    )
    several = [memory_budget.max_audit_edges(settings, epochs) for epochs in (1, 2, 100)]
    each = alone * GIB // memory_budget.AUDIT_BYTES
    assert several == [pytest.approx(each // max(1, min(n, room.cores)), abs=8) for n in (1, 2, 100)]
    assert memory_budget.max_region_edges(settings) < room.max_edges_exclusive
    assert f"{room.max_edges_exclusive:,}" in room.describe() and (
        room.cores == 1 or f"{room.max_edges_shared:,}" in room.describe()
    )


@pytest.mark.parametrize(
    ("settings", "each"),
    [
        (config("k8s://https://host", executor_memory="4g", executor_pyspark_memory="6g", executor_cores="3"), 2),
        (config("yarn", executor_pyspark_memory="12g", executor_cores="4", task_cpus="2"), 3),
        (config("spark://head:7077", executor_memory="16g", executor_pyspark_memory="1g"), 1),
        (config("local[2]", executor_pyspark_memory="3g"), 3),
    ],
)
def test_what_spark_gives_each_python_worker_is_the_most_of_a_task(settings: Config, each: int) -> None:
    """Also of one that works alone; and its libraries are within it."""
    room, limit = memory_budget.memory_budget(settings), each * GIB - memory_budget.LIBRARIES
    assert (room.max_edges_exclusive, room.max_edges_shared) == (
        limit // memory_budget.REPLAY_BYTES,
        limit // memory_budget.EDGE_BYTES,
    )
    assert {memory_budget.max_audit_edges(settings, n) for n in (1, room.cores)} == {limit // memory_budget.AUDIT_BYTES}
    assert f"{each}.0 for a worker with its libraries" in room.describe()


@pytest.mark.parametrize(
    ("settings", "least"),
    [
        (config("yarn", executor_pyspark_memory="800m"), "832m"),
        (config("yarn", executor_pyspark_memory="2g", executor_cores="3"), "2496m"),
        (config("local[4]", executor_pyspark_memory="512m"), "832m"),
    ],
)
def test_a_limit_that_leaves_a_worker_nothing_is_refused(settings: Config, least: str) -> None:
    with pytest.raises(UsageError, match="Spark divides it by the cores") as error:
        memory_budget.memory_budget(settings)
    assert f'"{least}" or more' in (error.value.next or "")
    enough = Config(
        spark={"master": settings.spark.master, "conf": settings.spark.conf | {memory_budget.PYTHON_MEMORY: least}}
    )
    assert memory_budget.memory_budget(enough).max_edges_shared > 100_000


@pytest.mark.parametrize("conf", [{}, {"executor_memoryOverhead": "1g"}, {"executor_memoryOverheadFactor": "0.2"}])
def test_a_container_without_memory_for_python_holds_few_edges_and_it_is_said(conf: dict[str, str]) -> None:
    room = memory_budget.memory_budget(config("yarn", executor_memory="4g", **conf))
    assert room.bytes == memory_budget.MIN_ARRAY_BYTES
    assert memory_budget.OVERHEAD in room.describe()


def test_of_a_server_elsewhere_nothing_is_known() -> None:
    room = memory_budget.memory_budget(config("sc://spark.example.org:15002"))
    assert room.max_edges_exclusive == room.max_edges_shared == memory_budget.UNKNOWN
    assert "not known" in room.describe()


@pytest.mark.parametrize(
    ("conf", "as_on"),
    [
        ({"executor_memory": "8g", "executor_cores": "2"}, "spark://head:7077"),
        ({"executor_memory": "8g", "executor_memoryOverhead": "6g"}, "k8s://https://head:6443"),
        ({"executor_pyspark_memory": "4g", "executor_cores": "2"}, "spark://head:7077"),
    ],
)
def test_of_a_server_elsewhere_what_the_settings_say(conf: dict[str, str], as_on: str) -> None:
    room, same = (
        memory_budget.memory_budget(config("sc://spark.example.org:15002", **conf)),
        memory_budget.memory_budget(config(as_on, **conf)),
    )
    assert (room.bytes, room.heap, room.cores, room.limit) == (same.bytes, same.heap, same.cores, same.limit)
    assert "an executor of the server, by [spark] conf: " in room.describe()
    assert memory_budget.memory_budget(config("sc://127.0.0.1:15002", **conf)).whose.startswith("this machine")


@pytest.mark.parametrize(
    ("settings", "edges", "threads"),
    [
        (config(), 1000, 4),
        (config("local[2,4]"), 1000, 2),
        (config("local[2]"), 40_000_000, 1),  # it has memory for one thread
        (config("local[2]", executor_pyspark_memory="8g"), 1000, 1),
        (config("sc://localhost:15002"), 1000, 4),
        (config("spark://head:7077", executor_cores="4"), 1000, 1),
        (config("spark://head:7077", executor_cores="4", task_cpus="2"), 1000, 2),
        (config("sc://head:15002", task_cpus="3"), 1000, 3),
    ],
)
def test_the_threads_of_a_task_that_works_alone(settings: Config, edges: int, threads: int) -> None:
    assert memory_budget.task_threads(settings, edges) == threads
    mine = settings.model_copy(update={"spark": settings.spark.model_copy(update={"threads": 7})})
    assert memory_budget.task_threads(mine, edges) == (7 if edges == 1000 else 1)


def test_the_environment_names_the_master_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALTNEU_MASTER", "local[1]")
    assert memory_budget.memory_budget(config("yarn", executor_memory="4g")).cores == 1


def test_more_memory_never_means_a_smaller_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []
    for gib in (1, 2, 4, 16, 64, 512):
        monkeypatch.setattr(memory_budget, "_total_memory", lambda gib=gib: gib * GIB)
        limits.append(memory_budget.max_task_edges(config()))
    assert limits == sorted(limits) and limits[0] > 100_000


@pytest.mark.parametrize(
    ("limit", "found"), [(None, 8 * EDGES), (100, 100), (0, 0), (10**12, None)], ids=["none", "less", "nothing", "more"]
)
def test_a_users_limit_is_an_upper_bound(limit: int | None, found: int | None) -> None:
    settings = config(limit=limit, cells=limit or None)
    assert memory_budget.max_task_edges(settings) == (
        memory_budget.memory_budget(settings).max_edges_exclusive if found is None else pytest.approx(found, abs=8)
    )
    assert memory_budget.max_partition_edges(settings) <= memory_budget.max_task_edges(settings)
    assert memory_budget.max_region_edges(settings) <= memory_budget.max_task_edges(settings)
    assert (
        memory_budget.max_audit_edges(settings, 3)
        <= memory_budget.max_audit_edges(settings, 1)
        <= memory_budget.max_task_edges(settings)
    )
    assert memory_budget.max_cell_edges(settings) <= memory_budget.memory_budget(settings).max_edges_shared


@pytest.mark.parametrize("total", [16 * GIB, GIB, 256 * GIB])
def test_the_driver_takes_half_within_bounds(monkeypatch: pytest.MonkeyPatch, total: int) -> None:
    monkeypatch.setattr(memory_budget, "_total_memory", lambda: total)
    assert memory_budget.driver_memory_mb() == max(1024, min(total // 2**21, 31 * 1024))


@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        (config("yarn"), GIB // 20 // memory_budget.ROW_BYTES),
        (config("yarn", executor_memory="2g", executor_pyspark_memory="9g"), 2 * GIB // 20 // memory_budget.ROW_BYTES),
        (config(), 1_000_000),
        (config("sc://elsewhere:15002"), GIB // 20 // memory_budget.ROW_BYTES),
    ],
)
def test_what_is_sent_to_every_task_fits_an_executor(settings: Config, rows: int) -> None:
    assert memory_budget.max_broadcast_rows(settings) == rows


def test_doctor_says_what_is_wrong_with_a_limit_and_goes_on(tmp_path: Path) -> None:
    home, _ = home_helpers.make(tmp_path, '[spark]\nconf = { "spark.executor.pyspark.memory" = "500m" }\n')
    check = doctor._check_task_size(home.path)
    assert check.ok is False and "500m" in check.finding and "832m" in check.remedy


def test_duckdb_leaves_memory_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit of its own DuckDB takes four fifths of the machine, whatever Spark's driver has."""
    monkeypatch.setattr(memory_budget, "_total_memory", lambda: 8 * GIB)
    (row,) = DuckTables(Home.draft_home(tmp_path)).collect_rows(Query("SELECT current_setting('memory_limit') AS m"))
    assert row["m"] == "2.0 GiB"
