"""Parsing the DAG files: no error for any home, nothing heavy imported, the right schedule and chain."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy.exc
from py4j.protocol import Py4JNetworkError

from altneu.pipeline.errors import CheckFailed, RevisionConflict, Unavailable, UsageError
from altneu.pipeline.home.schedule import Schedule
from tests import home_helpers

from .conftest import DAGS, REPO

Load = Callable[..., dict[str, Any]]
STAGES = ["plan", "ingest", "edges", "triangles", "truss", "queries", "audit", "approve", "publish"]


@pytest.mark.parametrize(
    ("toml", "schedule"),
    [
        ('[epochs]\nevery = "1d"\n', "1 day, 0:00:00"),
        ('[epochs]\nevery = "12h"\n', "12:00:00"),
        ('[epochs]\nevery = "7d"\n', "7 days, 0:00:00"),
        ('[epochs]\nevery = "15m"\n', "0:15:00"),
        ('[epochs]\nevery = "5d"\n', "5 days, 0:00:00"),
        ("[epochs\n", "1 day, 0:00:00"),
        ('[epochs]\nevery = "soon"\n', "1 day, 0:00:00"),
        (None, "1 day, 0:00:00"),
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
    """Every scheduled interval is one epoch, whatever its length: the grid starts at 1970 UTC."""
    from airflow.sdk.timezone import coerce_datetime
    from airflow.serialization.encoders import coerce_to_core_timetable
    from airflow.timetables.base import TimeRestriction

    for every in ("1d", "7d", "12h", "5d", "7h", "15m", "20m"):
        (tmp_path / "altneu.toml").write_text(f'[epochs]\nevery = "{every}"\n')
        timetable = coerce_to_core_timetable(load(tmp_path)["altneu_epoch"].timetable)
        between = TimeRestriction(coerce_datetime(datetime(2004, 4, 15, 3, 7, tzinfo=UTC)), None, False)
        info = timetable.next_dagrun_info(last_automated_data_interval=None, restriction=between)
        assert info is not None and info.data_interval is not None
        schedule = Schedule.from_text(every)
        epoch = schedule.epoch_of(info.data_interval.start)
        assert schedule.start_of(epoch) == info.data_interval.start, every
        assert schedule.start_of(epoch + 1) == info.data_interval.end, every


def test_one_task_a_stage_in_order(load: Load, tmp_path: Path) -> None:
    home_helpers.make(tmp_path, '[epochs]\nevery = "1d"\n')
    dag = load(tmp_path)["altneu_epoch"]
    order = [task.task_id for task in dag.topological_sort()]
    assert order[:10] == ["landed", *STAGES] and order[-1] == "report"
    assert set(order[10:]) == {"assets", "epochs", "warnings", "report"}
    for waits in ("landed", "approve"):
        assert dag.get_task(waits).execution_timeout is None  # the wait is not work
    assert dag.get_task("approve").response_timeout == timedelta(hours=72)
    dag = load(tmp_path, ALTNEU_APPROVAL_HOURS="5")["altneu_backfill"]
    assert dag.get_task("approve").response_timeout == timedelta(hours=5)


def test_what_computes_shares_a_pool(load: Load, tmp_path: Path) -> None:
    home_helpers.make(tmp_path, '[epochs]\nevery = "1d"\n')
    for name, dag in load(tmp_path).items():
        pools = {task.task_id: task.pool for task in dag.tasks}
        if name in ("altneu_epoch", "altneu_backfill", "altneu_relanded"):
            pooled = set(STAGES) - ({"plan"} if name == "altneu_epoch" else set())  # which waits by itself
            assert {task for task, pool in pools.items() if pool == "altneu_stages"} == pooled
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


@pytest.mark.parametrize(
    ("bounds", "says"),
    [
        ({"ALTNEU_START": "soon"}, "start = 'soon' is not a date"),
        ({"ALTNEU_END": "2004-02-30"}, "end = '2004-02-30' is not a date"),
        ({"ALTNEU_START": "2004-05-14", "ALTNEU_END": "2004-04-15"}, "end = '2004-04-15' is before start"),
    ],
)
def test_a_wrong_bound_is_an_import_error(load: Load, tmp_path: Path, bounds: dict[str, str], says: str) -> None:
    """In a log it would be found when the schedule has run without it."""
    home_helpers.make(tmp_path, '[epochs]\nevery = "1d"\n')
    with pytest.raises(AssertionError, match=re.escape(says)):  # what `load` says of import errors
        load(tmp_path, **bounds)


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo", "utc"])
def test_dates_of_another_zone_make_no_backfill(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    """Airflow reads --from-date 2004-04-15 in its default zone: the first epoch, or the last one, would be missing."""
    from airflow.sdk import timezone
    from airflow.serialization.encoders import coerce_to_core_timetable
    from airflow.timetables.base import TimeRestriction

    home_helpers.make(tmp_path, '[epochs]\nevery = "1d"\n')
    timetable = coerce_to_core_timetable(load(tmp_path)["altneu_epoch"].timetable)
    monkeypatch.setenv("AIRFLOW__CORE__DEFAULT_TIMEZONE", zone)
    name = "UTC" if zone == "utc" else zone

    def first(start: datetime, end: datetime) -> datetime:
        asked = TimeRestriction(timezone.coerce_datetime(start), timezone.coerce_datetime(end), True)
        info = timetable.next_dagrun_info(last_automated_data_interval=None, restriction=asked)
        assert info is not None and info.data_interval is not None
        return info.data_interval.start

    typed = [datetime(2004, 4, day, tzinfo=ZoneInfo(name)) for day in (15, 17)]
    meant = [datetime(2004, 4, day, tzinfo=UTC) for day in (15, 17)]
    assert first(*meant) == meant[0]
    if zone == "utc":
        assert first(*typed) == meant[0]
        return
    for start, end in (typed, (typed[0], meant[1]), (meant[0], typed[1])):
        with pytest.raises(UsageError, match="epochs begin in UTC") as refused:
            first(start, end)
        assert "T00:00Z instead of 2004-04-1" in str(refused.value.next)


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
    seconds = Schedule.from_text(every).seconds
    assert {(each.data_interval.end - each.data_interval.start).total_seconds() for each in found} == {seconds}
    begin = datetime(2010, 1, 1, tzinfo=UTC)
    beyond = list(dag.iter_dagrun_infos_between(begin, begin + timedelta(days=20)))
    schedule = Schedule.from_text(every)
    epochs = [schedule.epoch_of(each.data_interval.start) for each in beyond]
    assert [schedule.start_of(epoch) for epoch in epochs] == [each.data_interval.start for each in beyond]
    assert epochs == list(range(epochs[0], epochs[0] + len(epochs))) and epochs[0] - schedule.epoch_of(begin) in (0, 1)
    manual = dag.timetable.infer_manual_data_interval(run_after=begin + timedelta(hours=3))
    assert schedule.start_of(schedule.epoch_of(manual.start)) == manual.start < manual.end <= begin + timedelta(hours=3)


def test_a_schedule_that_an_older_version_has_serialised_still_loads(load: Load, tmp_path: Path) -> None:
    """Its timetable once was in another module; until the files are parsed again, Airflow's database has that path."""
    from airflow.serialization.serialized_objects import DagSerialization

    (tmp_path / "altneu.toml").write_text('[epochs]\nevery = "1d"\n')
    dag = load(tmp_path, ALTNEU_START="2004-04-15", ALTNEU_END="2004-05-14")["altneu_epoch"]
    text, path = json.dumps(DagSerialization.to_dict(dag)), "altneu.pipeline.scheduling.timetable.Epochs"
    assert path in text
    now = DagSerialization.from_dict(json.loads(text))
    first = now.next_dagrun_info(last_automated_run_info=None)
    module = "pipeline.scheduling.timetable"
    for old in ("dags.timetable.Bounded", "pipeline.scheduling.timetable.Bounded", f"{module}.Epochs"):
        before = DagSerialization.from_dict(json.loads(text.replace(path, old)))
        assert before.timetable.summary == now.timetable.summary
        assert before.next_dagrun_info(last_automated_run_info=None) == first


@pytest.mark.parametrize(
    ("every", "epoch"), [("1d", "2004-04-15"), ("12h", "2004-04-15T12"), ("15m", "2004-04-15T12-15")]
)
@pytest.mark.parametrize("bounds", [{}, {"ALTNEU_START": "2004-04-01", "ALTNEU_END": "2004-05-01"}])
def test_a_run_id_says_the_epoch(load: Load, tmp_path: Path, every: str, epoch: str, bounds: dict[str, str]) -> None:
    """Of the schedule and of backfills; by hand the epoch is a parameter, which its run id does not know."""
    from airflow.sdk.timezone import coerce_datetime
    from airflow.serialization.encoders import coerce_to_core_timetable
    from airflow.timetables.base import DataInterval
    from airflow.utils.types import DagRunType

    (tmp_path / "altneu.toml").write_text(f'[epochs]\nevery = "{every}"\n')
    timetable = coerce_to_core_timetable(load(tmp_path, **bounds)["altneu_epoch"].timetable)
    schedule = Schedule.from_text(every)
    ends = [coerce_datetime(schedule.start_of(schedule.parse_epoch(epoch) + more)) for more in (0, 1)]
    named = {
        kind: timetable.generate_run_id(
            run_type=kind, run_after=ends[1], data_interval=DataInterval(*ends), partition_key=None
        )
        for kind in (DagRunType.SCHEDULED, DagRunType.BACKFILL_JOB, DagRunType.MANUAL)
    }
    assert named[DagRunType.SCHEDULED] == f"scheduled__{epoch}"
    assert named[DagRunType.BACKFILL_JOB] == f"backfill__{epoch}"
    assert named[DagRunType.MANUAL] == f"manual__{ends[1].isoformat()}"
    assert [DagRunType.from_run_id(name) for name in named.values()] == list(named)


@pytest.mark.parametrize(
    ("error", "retried"),
    [
        (ConnectionResetError("the database went away"), True),
        (OSError("disk"), True),
        (Unavailable("no Spark"), True),
        (RevisionConflict("another writer"), True),
        (sqlalchemy.exc.OperationalError("SELECT 1", {}, Exception("server closed the connection")), True),
        (sqlalchemy.exc.ProgrammingError("SELECT 1", {}, Exception("no such table")), False),
        (Py4JNetworkError("the JVM has gone"), True),
        (UsageError("no such epoch"), False),
        (CheckFailed("1 critical check failed"), False),
        (KeyError("a fault of the code"), False),
        ("AirflowException", True),
        ("AirflowTaskTimeout", True),
        (KeyboardInterrupt(), True),
    ],
)
def test_only_what_may_go_away_by_itself_is_retried(
    load: Load, tmp_path: Path, error: BaseException | str, retried: bool
) -> None:
    """`error`: a text is the name of one of Airflow's."""
    from airflow.sdk import exceptions
    from airflow.sdk.definitions.retry_policy import RetryAction

    if isinstance(error, str):
        error = getattr(exceptions, error)("too long, or judged by `translate_errors`")
    for dag in load(tmp_path).values():
        for task in dag.tasks:
            found = task.retry_policy.evaluate(exception=error, try_number=1, max_tries=2, context=None)
            assert found.action is (RetryAction.DEFAULT if retried else RetryAction.FAIL), task


def test_the_landing_is_watched_by_a_setting(load: Load, tmp_path: Path) -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    home_helpers.make(tmp_path, '[epochs]\nevery = "1d"\n')
    for on in ("", "0", "off"):
        assert load(tmp_path, ALTNEU_WATCH=on)["altneu_relanded"].schedule is None
    dag = load(tmp_path, ALTNEU_WATCH="1")["altneu_relanded"]
    (asset,) = dag.schedule
    assert asset.uri.rstrip("/") == "altneu://landing"
    assert [each.trigger.home for each in asset.watchers] == [str(tmp_path)]
    assert "RelandedTrigger" in json.dumps(DagSerialization.to_dict(dag), default=str)


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


# what imports none of them needs none of them
@pytest.mark.parametrize("mode", ["plain", pytest.param("block", marks=pytest.mark.slow)])
def test_parsing_imports_nothing_heavy_and_needs_no_spark(tmp_path: Path, mode: str) -> None:
    environment = os.environ | {"ALTNEU_HOME": str(tmp_path / "none"), "PYTHONPATH": str(REPO)}
    command = [sys.executable, "-c", _PARSE, mode, str(DAGS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "altneu_epoch" in done.stdout
