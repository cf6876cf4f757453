"""Parsing the DAG files: no error for any home, nothing heavy imported, the right schedule and chain."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.home.schedule import Schedule
from tests import homes

from .conftest import DAGS, REPO

Load = Callable[..., dict[str, Any]]
STAGES = ["plan", "ingest", "edges", "triangles", "truss", "audit", "approve", "publish"]


@pytest.mark.parametrize(
    ("toml", "schedule"),
    [
        ('[epochs]\nevery = "1d"\n', "0 0 * * *"),
        ('[epochs]\nevery = "12h"\n', "0 */12 * * *"),
        ('[epochs]\nevery = "7d"\n', "0 0 * * 4"),
        ('[epochs]\nevery = "15m"\n', "*/15 * * * *"),
        ('[epochs]\nevery = "5d"\n', "5 days, 0:00:00"),
        ("[epochs\n", "0 0 * * *"),
        ('[epochs]\nevery = "soon"\n', "0 0 * * *"),
        (None, "0 0 * * *"),
        ("", None),
    ],
)
def test_the_schedule_comes_from_the_home(load: Load, tmp_path: Path, toml: str | None, schedule: str | None) -> None:
    if toml is not None:
        (tmp_path / "altneu.toml").write_text(toml)
    dag = load(tmp_path)["altneu_epoch"]
    from airflow.serialization.encoders import coerce_to_core_timetable

    assert coerce_to_core_timetable(dag.timetable).summary == (schedule or "None")
    assert ("until it is fixed" in dag.doc_md) is (toml is None or "[epochs\n" in toml or "soon" in toml)


def test_the_intervals_are_the_epochs_of_the_home(load: Load, tmp_path: Path) -> None:
    """Every scheduled interval is one epoch, whatever its length: cron and delta, the grid starts at 1970
    UTC."""
    from airflow.sdk.timezone import coerce_datetime
    from airflow.serialization.encoders import coerce_to_core_timetable
    from airflow.timetables.base import TimeRestriction

    for every in ("1d", "7d", "12h", "5d", "7h", "15m", "20m"):
        (tmp_path / "altneu.toml").write_text(f'[epochs]\nevery = "{every}"\n')
        timetable = coerce_to_core_timetable(load(tmp_path)["altneu_epoch"].timetable)
        between = TimeRestriction(coerce_datetime(datetime(2004, 4, 15, 3, 7, tzinfo=UTC)), None, False)
        info = timetable.next_dagrun_info(last_automated_data_interval=None, restriction=between)
        assert info is not None and info.data_interval is not None
        schedule = Schedule.parse(every)
        epoch = schedule.epoch_of(info.data_interval.start)
        assert schedule.start(epoch) == info.data_interval.start, every
        assert schedule.start(epoch + 1) == info.data_interval.end, every


def test_one_task_a_stage_in_order(load: Load, tmp_path: Path) -> None:
    homes.make(tmp_path, '[epochs]\nevery = "1d"\n')
    dag = load(tmp_path)["altneu_epoch"]
    order = [task.task_id for task in dag.topological_sort()]
    assert order[:9] == ["landed", *STAGES] and order[-1] == "report"
    assert set(order[9:]) == {"assets", "warnings", "report"}
    for waits in ("landed", "approve"):
        assert dag.get_task(waits).execution_timeout is None  # the wait is not work
    assert dag.get_task("approve").response_timeout == timedelta(hours=72)
    dag = load(tmp_path, ALTNEU_APPROVAL_HOURS="5")["altneu_backfill"]
    assert dag.get_task("approve").response_timeout == timedelta(hours=5)


def test_what_computes_shares_a_pool(load: Load, tmp_path: Path) -> None:
    homes.make(tmp_path, '[epochs]\nevery = "1d"\n')
    for name, dag in load(tmp_path).items():
        pools = {task.task_id: task.pool for task in dag.tasks}
        if name in ("altneu_epoch", "altneu_backfill"):
            assert {task for task, pool in pools.items() if pool == "altneu_stages"} == set(STAGES)
        else:
            assert set(pools.values()) == {"default_pool"}
    assert 1 < load(tmp_path)["altneu_epoch"].max_active_runs < 20


def test_every_dag_and_task_is_documented_and_owned(load: Load, tmp_path: Path) -> None:
    for dag in load(tmp_path).values():
        assert dag.doc_md and dag.description and "altneu" in dag.tags
        for task in dag.tasks:
            assert task.doc_md, task
            assert task.owner == "altneu"
            assert task.execution_timeout is not None or task.task_id in ("landed", "approve")
            assert task.has_on_failure_callback or task.task_id == "warnings"


def test_a_start_makes_the_schedule_catch_up(load: Load, tmp_path: Path) -> None:
    assert load(tmp_path)["altneu_epoch"].catchup is False
    dag = load(tmp_path, ALTNEU_START="2004-04-15", ALTNEU_END="2004-05-14")["altneu_epoch"]
    assert dag.catchup is True
    assert load(tmp_path, ALTNEU_START="soon")["altneu_epoch"].catchup is False


@pytest.mark.parametrize(
    ("every", "first", "last", "starts"),
    [
        ("1d", "2004-04-15", "2004-04-17", ["04-15T00", "04-16T00", "04-17T00"]),
        ("12h", "2004-04-15T05:00", "2004-04-16", ["04-15T12", "04-16T00"]),  # from the first whole one on
        ("7d", "2004-04-15", "2004-05-01", ["04-15T00", "04-22T00", "04-29T00"]),
        ("5h", "2004-04-15", "2004-04-15T08:00", ["04-15T03", "04-15T08"]),
    ],
)
def test_the_bounds_are_those_of_the_schedule(
    load: Load, tmp_path: Path, every: str, first: str, last: str, starts: list[str]
) -> None:
    """Each interval once, from the first to the last; a backfill beyond them has its own."""
    from airflow.serialization.serialized_objects import DagSerialization

    (tmp_path / "altneu.toml").write_text(f'[epochs]\nevery = "{every}"\n')
    dag = load(tmp_path, ALTNEU_START=first, ALTNEU_END=last)["altneu_epoch"]
    dag = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    found, info = [], None
    while info := dag.next_dagrun_info(last_automated_run_info=info):
        found.append(info)
    assert [f"{each.data_interval.start:%m-%dT%H}" for each in found] == starts
    seconds = Schedule.parse(every).seconds
    assert {(each.data_interval.end - each.data_interval.start).total_seconds() for each in found} == {seconds}
    begin = datetime(2010, 1, 1, tzinfo=UTC)
    beyond = list(dag.iter_dagrun_infos_between(begin, begin + timedelta(days=20)))
    schedule = Schedule.parse(every)
    epochs = [schedule.epoch_of(each.data_interval.start) for each in beyond]
    assert [schedule.start(epoch) for epoch in epochs] == [each.data_interval.start for each in beyond]
    assert epochs == list(range(epochs[0], epochs[0] + len(epochs))) and epochs[0] - schedule.epoch_of(begin) in (0, 1)
    manual = dag.timetable.infer_manual_data_interval(run_after=begin + timedelta(hours=3))
    assert schedule.start(schedule.epoch_of(manual.start)) == manual.start < manual.end <= begin + timedelta(hours=3)


def test_a_schedule_that_an_older_version_has_serialised_still_loads(load: Load, tmp_path: Path) -> None:
    """Its timetable once was in another module; until the files are parsed again, Airflow's database has that path."""
    from airflow.serialization.serialized_objects import DagSerialization

    (tmp_path / "altneu.toml").write_text('[epochs]\nevery = "1d"\n')
    dag = load(tmp_path, ALTNEU_START="2004-04-15", ALTNEU_END="2004-05-14")["altneu_epoch"]
    text, path = json.dumps(DagSerialization.to_dict(dag)), "pipeline.scheduling.timetable.Bounded"
    assert path in text
    before = DagSerialization.from_dict(json.loads(text.replace(path, "dags.timetable.Bounded")))
    now = DagSerialization.from_dict(json.loads(text))
    assert before.timetable.summary == now.timetable.summary
    assert before.next_dagrun_info(last_automated_run_info=None) == now.next_dagrun_info(last_automated_run_info=None)


def test_the_wait_is_a_setting(load: Load, tmp_path: Path) -> None:
    dag = load(tmp_path, ALTNEU_WAIT_HOURS="6")["altneu_epoch"]
    assert timedelta(seconds=dag.get_task("landed").patience) == timedelta(hours=6)


_PARSE = """
import sys

class Blocked:  # a scheduler on which these are not installed
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

BLOCKED = {"pyspark", "great_expectations", "py4j", "numba"} if sys.argv[1] == "block" else set()
sys.meta_path.insert(0, Blocked())
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[2])
assert not bag.import_errors, bag.import_errors
print(sorted(bag.dags))
heavy = {"pyspark", "great_expectations", "numba", "pyarrow"} & set(sys.modules)
assert not heavy, heavy
"""


@pytest.mark.parametrize("mode", ["plain", "block"])
def test_parsing_imports_nothing_heavy_and_needs_no_spark(tmp_path: Path, mode: str) -> None:
    environment = os.environ | {"ALTNEU_HOME": str(tmp_path / "none"), "PYTHONPATH": str(REPO)}
    command = [sys.executable, "-c", _PARSE, mode, str(DAGS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "altneu_epoch" in done.stdout
