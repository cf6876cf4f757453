"""Approving and rejecting in a real Airflow, over its API, as its page does; and the events that others schedule on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from altneu.pipeline.reading import views
from altneu.pipeline.state.records import RunState
from tests import home_helpers

from .real import Airflow
from .test_epoch import up

TOML = '[epochs]\nevery = "1d"\n[publish]\napprove = "always"\n'


@pytest.mark.backend("airflow")
@pytest.mark.usefixtures("tiny")
def test_a_person_approves_and_rejects(tmp_path: Path) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", TOML)
    first = home.schedule.parse_epoch("2004-04-15")
    home_helpers.put(home, first, up((1, 2), (2, 3), (1, 3)))
    home_helpers.put(home, first + 1, up((3, 4), (2, 4)))
    with Airflow(home) as airflow:
        dag = "altneu_backfill"

        def asked(run: str) -> dict[str, Any]:
            """What the page shows of the question, once `approve` waits for an answer."""
            airflow.until(lambda: airflow.tasks(dag, run)["approve"]["state"] == "awaiting_input", 300, f"{run}: asked")
            found: dict[str, Any] = airflow.call(
                f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/approve/-1/hitlDetails"
            )
            return found

        def answer(run: str, option: str, because: str) -> None:
            said = {"chosen_options": [option], "params_input": {"because": because}}
            airflow.call(f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/approve/-1/hitlDetails", said, "PATCH")
            airflow.until(lambda: airflow.tasks(dag, run)["report"]["state"] == "success", 300, f"{run}: reported")

        airflow.until(lambda: airflow.call(f"/api/v2/dags/{dag}"), 120, "the DAG")
        airflow.unpause(dag)
        run = airflow.call(f"/api/v2/dags/{dag}/dagRuns", {"logical_date": None})["dag_run_id"]
        question = asked(run)
        assert "edges 0 → 5" in question["body"] and "/altneu/reports/" in question["body"], question
        assert ledger.revisions.get().frontier is None and [each.state for each in ledger.runs.list_held()] == [
            RunState.HELD
        ]
        answer(run, "Approve", "a first load")
        assert views.select_totals(ledger)[0]["triangles"] == 2
        (mine,) = ledger.approvals.select().values()
        assert (mine.verdict, mine.person, mine.because) == ("approved", "admin", "a first load")
        events = airflow.call("/api/v2/assets/events?limit=100")["asset_events"]
        kinds = {each["partition_key"]: each["extra"]["epochs"] for each in events if each["partition_key"]}
        assert {label: changes[label]["kind"] for label, changes in kinds.items()} == {
            "2004-04-15": "new",
            "2004-04-16": "new",
        }

        home_helpers.put(home, first, up((1, 2)))  # a correction that somebody does not want
        run = airflow.call(f"/api/v2/dags/{dag}/dagRuns", {"logical_date": None})["dag_run_id"]
        question = asked(run)
        assert "triangles 1 → 0" in question["body"], question
        answer(run, "Reject", "half of the file is missing")
        assert airflow.tasks(dag, run)["publish"]["state"] == "skipped"
        assert ledger.revisions.get().revision == 1 and views.select_totals(ledger)[0]["triangles"] == 2
        assert [each.because for each in ledger.approvals.select().values()] == [
            "a first load",
            "half of the file is missing",
        ]
        assert len(airflow.call("/api/v2/assets/events?limit=100")["asset_events"]) == len(events)
