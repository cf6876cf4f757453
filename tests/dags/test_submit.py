"""The stages as `spark-submit`: what is handed over, a real day, and the words of one that fails."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession

from altneu.pipeline.home.home import Home
from altneu.pipeline.reading import views
from altneu.pipeline.run.run_context import RunContext
from altneu.pipeline.run.stages import edges as edges_stage
from altneu.pipeline.run.stages import ingest as ingest_stage
from altneu.pipeline.state import process_identity
from altneu.pipeline.state.epoch_status import list_epoch_statuses
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import StagedBatch
from altneu.pipeline.state.stage_results import EdgesFacts, IngestFacts
from altneu.pipeline.tasks import run_tasks
from tests import home_helpers
from tests.ledger_only import LedgerOnly

from .test_epoch import begun

Load = Callable[..., dict[str, Any]]
DAY = datetime(2004, 4, 15, tzinfo=UTC)
SUBMITTED = ["ingest", "edges", "triangles", "truss", "queries", "audit", "publish"]


@pytest.fixture
def day(tmp_path: Path) -> tuple[Home, Ledger, int]:
    home, ledger = home_helpers.make(
        tmp_path / "home", '[epochs]\nevery = "1d"\n[spark]\nconf = {"spark.driver.memory" = "1g"}\n'
    )
    first = home.schedule.epoch_of(DAY)
    home_helpers.put(home, first, [(1, 2, None, "upsert", 0), (2, 3, None, "upsert", 0), (1, 3, None, "upsert", 0)])
    return home, ledger, first


def test_each_stage_is_a_submission_with_its_settings(load: Load, tmp_path: Path) -> None:
    home_helpers.make(tmp_path, '[epochs]\nevery = "1d"\n')
    plain, dags = load(tmp_path), load(tmp_path, ALTNEU_SUBMIT="cluster")
    for name in ("altneu_epoch", "altneu_backfill"):
        for task in SUBMITTED:
            found = dags[name].get_task(task)
            assert type(found).__name__ == "SubmittedStage" and found._conn_id == "cluster"
            was = plain[name].get_task(task)
            for setting in ("pool", "trigger_rule", "execution_timeout", "doc_md", "upstream_task_ids"):
                assert getattr(found, setting) == getattr(was, setting), (task, setting)


def test_a_submission_answers_with_what_it_did_or_its_error(
    ledger_only: LedgerOnly, day: tuple[Home, Ledger, int], tmp_path: Path
) -> None:
    home, ledger, first = day
    path = str(home.path)
    planned = begun(ledger, first)
    answer = tmp_path / "answer.json"

    def submit(task: str, run: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        answer.unlink(missing_ok=True)
        code = run_tasks.run_submitted(path, task, json.dumps(run), str(answer))
        return code, json.loads(answer.read_text())

    for task in SUBMITTED[:-1]:
        code, told = submit(task, planned)
        assert code == 0 and "superseded" not in told["done"]
    home_helpers.run(ledger, [first])  # another publishes the same meanwhile
    code, told = submit("audit", planned)
    assert code == 0 and "revision 1 was published since" in told["done"]["superseded"]
    code, told = submit("publish", planned)
    assert (code, told["done"]["revision"], told["done"]["labels"]) == (0, None, [])
    # overtaken and published under another run: it is told as what this submission has published
    home_helpers.put(home, first, [(1, 2, None, "upsert", 0)])
    code, told = submit("publish", planned)
    assert (told["done"]["revision"], told["done"]["labels"]) == (2, ["2004-04-15"])
    code, told = submit("edges", {**planned, "run_id": "none"})
    assert (code, told) == (1, {"error": {"says": "there is no run 'none'.\nnext: altneu status", "retry": False}})


def test_thousands_of_epochs_are_handed_over_by_their_run(
    ledger_only: LedgerOnly, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An argument holds 128 KiB: what is handed over does not grow with the epochs, and the stages find all of them."""

    def ingest(run: RunContext) -> IngestFacts:  # their files are not read
        run.ledger.outputs.put_batches(run.run_id, [StagedBatch(epoch, "", 1, 1, 0) for epoch in run.epochs])
        return IngestFacts(rows=len(run.epochs), quarantined=0, changed_rows=0, replaced_epochs=0, quarantine_sample=())

    monkeypatch.setattr(ingest_stage, "ingest", ingest)
    monkeypatch.setattr(edges_stage, "derive_edges", lambda run: EdgesFacts(rows=0, broadcast=None))
    home, ledger = home_helpers.make(tmp_path / "home", '[epochs]\nevery = "1d"\n')
    first = home.schedule.epoch_of(DAY)
    for epoch in range(first, first + 3_000):
        home_helpers.put(home, epoch, [(1, 2, None, "upsert", 0)])
    path, answer = str(home.path), tmp_path / "answer.json"
    planned = run_tasks.plan_range(path, None, None)
    assert planned is not None and len(json.dumps(planned)) < 300
    for task in ("ingest", "edges"):
        assert run_tasks.run_submitted(path, task, json.dumps(planned), str(answer)) == 0
    assert len(ledger.runs.get(planned["run_id"]).epochs) == 3_000
    assert len(ledger.outputs.staged_batches(planned["run_id"])) == 3_000


class Store(dict[str, Any]):
    """What Airflow keeps of a task from try to try."""

    set, delete = dict.__setitem__, dict.pop


DRIVER = """
import json, sys, time
from pathlib import Path
folder, (home, stage, planned, answer) = Path(sys.argv[1]), sys.argv[2:]
number = len(list(folder.glob("driver*")))
(folder / f"driver{number}").touch()
print("at work", flush=True)
while not (folder / "go").exists():
    time.sleep(0.02)
said = json.loads((folder / "says").read_text())
Path(answer).write_text(json.dumps({"done": {"driver": number}, **said}))
"""
MEANWHILE = {  # what has become of the driver of a task that was killed → the driver whose answer the next try has
    "it is at work": 0,
    "it has answered": 0,
    "it has failed": 1,
    "it was killed": 1,
    "it is at work on another machine": 0,
    "it was lost with another machine": 1,
}


@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_the_next_try_finds_the_driver(
    meanwhile: str, airflow: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was answered is taken once: a task that is cleared runs again."""
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    from altneu.pipeline.scheduling import spark_submit_operator

    home, _ = home_helpers.make(tmp_path / "home")
    home_helpers.put(home, 0, [(1, 2, None, "upsert", 0)])
    planned = run_tasks.plan_range(str(home.path), None, None)
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps({"conn_type": "spark", "host": "spark://head", "port": 7077}))
    monkeypatch.setattr(run_tasks, "submit_settings", lambda *_, **__: ({}, {}))
    command = [sys.executable, "-c", DRIVER, str(tmp_path)]
    monkeypatch.setattr(
        SparkSubmitHook, "_build_spark_submit_command", lambda hook, _: [*command, *hook._application_args]
    )
    says, go = tmp_path / "says", tmp_path / "go"
    says.write_text("{}")
    context: Any = {"task_state_store": Store()}

    def task() -> spark_submit_operator.SubmittedStage:
        handed = {"home": str(home.path), "stage": "edges", "planned": json.dumps(planned)}
        stage = spark_submit_operator.SubmittedStage(task_id="edges", conn_id="cluster", **handed)
        stage._status_poll_interval = 0.05
        return stage

    first = task().submit_job(context)  # the task was killed after that
    context["task_state_store"][spark_submit_operator.SubmittedStage.external_id_key] = first
    pid = int(first["process"].split("/")[1])
    answer = Path(first["folder"]) / "answer.json"
    until(lambda: (tmp_path / "driver0").exists())
    if meanwhile == "it was killed":
        os.killpg(pid, signal.SIGKILL)
        until(lambda: process_identity.has_ended(first["process"]))
        go.touch()
    elif "another machine" in meanwhile:
        first["process"] = "another/1/1.00"
        first["at"] -= spark_submit_operator.BEGINS
        if "lost" in meanwhile:
            os.killpg(pid, signal.SIGKILL)
            with sa.create_engine(home.database).begin() as connection:  # its last heartbeat was long ago
                connection.execute(sa.text("UPDATE runs SET beat_at = '2004-04-15T00:00:00+00:00'"))
            go.touch()
        else:
            threading.Timer(0.5, go.touch).start()
    elif meanwhile != "it is at work":
        says.write_text('{"error": {"says": "it fails", "retry": true}}' if meanwhile == "it has failed" else "{}")
        go.touch()
        until(answer.exists)
        says.write_text("{}")
    else:
        threading.Timer(0.5, go.touch).start()
    assert task().execute(context) == {"driver": MEANWHILE[meanwhile]}
    assert context["task_state_store"] == {} and not Path(first["folder"]).exists()
    assert task().execute(context) == {"driver": MEANWHILE[meanwhile] + 1}
    assert list((home.path / "submitted").iterdir()) == []


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_a_real_day(
    spark: SparkSession,
    airflow: None,
    load: Load,
    day: tuple[Home, Ledger, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home, ledger, first = day
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    for name in [name for name in os.environ if name.startswith("PYSPARK_GATEWAY")]:
        monkeypatch.delenv(name)
    run = load(home.path, ALTNEU_SUBMIT="cluster")["altneu_epoch"].test(logical_date=DAY)
    assert {ti.task_id: str(ti.state) for ti in run.get_task_instances()}.items() >= dict.fromkeys(
        SUBMITTED, "success"
    ).items()
    assert [row["triangles"] for row in views.select_totals(ledger, all_epochs=True)] == [1]
    audit = list_epoch_statuses(ledger, ledger.revisions.get()).status_of(first).audit
    assert audit and (audit.verdict, audit.revision) == ("equal", 1)
