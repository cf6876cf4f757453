"""The example of a consumer: its copy is what is published, whatever is repeated, killed, corrected or taken back."""

from __future__ import annotations

import importlib.util
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from altneu.pipeline.home.home import Home
from altneu.pipeline.maintenance import rollback
from altneu.pipeline.reading.graph import Graph
from tests import home_helpers
from tests.ledger_only import LedgerOnly

from .conftest import DAGS, REPO
from .real import Airflow
from .test_epoch import up

EXAMPLE = REPO / "infra" / "airflow" / "examples" / "follow_edges.py"


def example() -> Any:
    spec = importlib.util.spec_from_file_location("follow_edges", EXAMPLE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def published(home: Home) -> list[tuple[Any, ...]]:
    graph = Graph(home.path)
    if graph.ledger.revisions.get().frontier is None:  # taken back to nothing
        return []
    rows = graph.arrow.edges().to_pylist()
    return sorted((row["src"], row["dst"], row["trussness"]) for row in rows)


def copied(copy: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(copy)) as base:
        return sorted(base.execute("SELECT src, dst, trussness FROM edges"))


class Killed(BaseException):
    """Between what was applied and its commit."""


def test_the_copy_is_what_is_published(
    ledger_only: LedgerOnly, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, ledger = home_helpers.make(tmp_path / "home")
    copy, follow = tmp_path / "copy.db", example().follow

    def step(old: int, new: int) -> None:
        """It goes from one revision to the next, is killed before its commit at the first try, and may be repeated."""
        before = copied(copy) if copy.exists() else []

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
                if sql == "COMMIT":
                    raise Killed
                return super().execute(sql, *values)

        with monkeypatch.context() as patch:
            connect = sqlite3.connect
            patch.setattr(sqlite3, "connect", lambda *args, **how: connect(*args, **how, factory=Connection))
            with pytest.raises(Killed):
                follow(str(home.path), str(copy))
        assert copied(copy) == before, "a run that was killed has applied nothing"
        assert follow(str(home.path), str(copy)) == (old, new)
        assert follow(str(home.path), str(copy)) == (new, new)
        assert copied(copy) == published(home)

    home_helpers.put(home, 1, up((1, 2), (2, 3), (1, 3)))
    home_helpers.put(home, 2, up((3, 4), (2, 4)))
    home_helpers.run(ledger, [1, 2])
    step(0, 1)
    home_helpers.put(home, 1, up((1, 2), (2, 3)))  # a correction of an older epoch
    home_helpers.run(ledger, [1])
    home_helpers.put(home, 3, up((1, 4)))
    home_helpers.run(ledger, [3])
    step(1, 3)  # two publications at once
    rollback.roll_back(ledger, 1)
    step(3, 4)
    rollback.roll_back(ledger, 0)
    step(4, 5)
    assert copied(copy) == []


@pytest.mark.backend("airflow")
def test_a_correction_wakes_the_consumer_for_the_epochs_that_changed(tmp_path: Path) -> None:
    """In a real Airflow: the example beside the DAG that publishes."""
    home, ledger = home_helpers.make(tmp_path / "home", '[epochs]\nevery = "1d"\n[audit]\nmode = "local"\n')
    first = home.schedule.parse_epoch("2004-04-15")
    home_helpers.put(home, first, up((1, 2), (2, 3), (1, 3)))
    home_helpers.put(home, first + 1, up((3, 4), (2, 4)))
    home_helpers.put(home, first + 2, up((8, 9)))
    dags, copy = tmp_path / "dags", tmp_path / "copy.db"
    dags.mkdir()
    for file in (DAGS / "altneu_backfill.py", EXAMPLE):
        shutil.copy(file, dags)
    environment = {"AIRFLOW__CORE__DAGS_FOLDER": str(dags), "EDGES_COPY": str(copy)}
    with Airflow(home, "--connect", environment=environment) as airflow:
        airflow.until(lambda: airflow.call("/api/v2/dags/follow_edges"), 120, "the consumer")
        for dag in ("altneu_backfill", "follow_edges"):
            airflow.unpause(dag)

        def publish(revision: int, epochs: list[str]) -> None:
            """A backfill; then the consumer has run for just these epochs, and has all of it."""
            before = {run["dag_run_id"] for run in airflow.runs("follow_edges")}
            airflow.call("/api/v2/dags/altneu_backfill/dagRuns", {"logical_date": None})
            airflow.until(lambda: ledger.revisions.get().revision == revision, 600, f"revision {revision}")

            def woken() -> list[dict[str, Any]]:
                return [run for run in airflow.runs("follow_edges") if run["dag_run_id"] not in before]

            def done() -> bool:
                return len(woken()) >= len(epochs) and {run["state"] for run in woken()} == {"success"}

            airflow.until(done, 300, f"the consumer has run for {epochs}")
            assert sorted(run["partition_key"] for run in woken()) == epochs
            assert copied(copy) == published(home)

        publish(1, ["2004-04-15", "2004-04-16", "2004-04-17"])
        home_helpers.put(home, first + 1, up((3, 4)))  # a correction: it and the day after are other ones
        publish(2, ["2004-04-16", "2004-04-17"])


def test_no_table_is_told_of_when_nothing_was_published() -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    from altneu.pipeline.scheduling import dag_builder
    from altneu.pipeline.tasks.base import PublishedRun

    nothing = PublishedRun(run_id="r", revision=None, epochs=[], labels=[], reruns=0)
    events: dict[Any, Any] = {}  # whoever sends an event looks it up here
    with pytest.raises(AirflowSkipException):
        dag_builder.assets.function(nothing, outlet_events=events)
    assert events == {}
