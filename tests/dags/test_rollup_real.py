"""A real Airflow: three corrected days of two weeks reach a weekly report and three consumers, each once.

The weekly report runs once for each week, and the consumers with their policies once for the correction, although the
scheduler is killed meanwhile, and whatever is cleared afterwards.
"""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest

from altneu.pipeline.reading.graph import Graph
from tests import home_helpers

from .conftest import DAGS, REPO
from .real import Airflow
from .test_epoch import up

EXAMPLES = REPO / "infra" / "airflow" / "examples"
FAN_OUT = {"features": "success", "sent_figures": "awaiting_input", "old_dashboard": "skipped"}
WEEKS = ["2004-04-12", "2004-04-19"]


class Scene:
    """A home with two weeks of days, and the examples beside the DAG that publishes."""

    def __init__(self, path: Path) -> None:
        self.home, self.ledger = home_helpers.make(
            path / "home", '[epochs]\nevery = "1d"\n[edges]\nlive_for = 1\n[audit]\nmode = "local"\n'
        )
        self.monday = self.home.schedule.parse_epoch(WEEKS[0])
        for day in range(15):
            self.land(day, 3 + day)
        self.dags, self.reports, self.lines = path / "dags", path / "reports", path / "fan_out.txt"
        self.dags.mkdir()
        for file in (DAGS / "altneu_backfill.py", EXAMPLES / "weekly_report.py", EXAMPLES / "fan_out.py"):
            shutil.copy(file, self.dags)
        self.environment = {
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "ALTNEU_PERIODS": "weeks",
            "WEEKLY_REPORTS": str(self.reports),
            "FAN_OUT": str(self.lines),
        }

    def land(self, day: int, edges: int) -> None:
        home_helpers.put(self.home, self.monday + day, up(*((0, other + 1) for other in range(edges))))

    def require_right_reports(self) -> None:
        """Raise if a report is not what is published."""
        rows = Graph(self.home.path).arrow.totals(all_epochs=True).to_pylist()
        published = {row["label"]: row["edges"] for row in rows}
        for week in WEEKS:
            with (self.reports / f"week-{week}.csv").open() as file:
                assert {row["day"]: int(row["edges"]) for row in csv.DictReader(file)}.items() <= published.items()


def clear(airflow: Airflow, dag: str, run: str) -> None:
    airflow.call(f"/api/v2/dags/{dag}/dagRuns/{run}/clear", {"dry_run": False})


@pytest.mark.backend("airflow")
def test_a_correction_reaches_each_consumer_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    dags = ["altneu_backfill", "weekly_report", *FAN_OUT]
    with Airflow(scene.home, "--connect", environment=scene.environment) as airflow:
        for dag in dags:
            airflow.until(lambda dag=dag: airflow.call(f"/api/v2/dags/{dag}"), 180, dag)
            airflow.unpause(dag)

        def publish(revision: int) -> None:
            airflow.call("/api/v2/dags/altneu_backfill/dagRuns", {"logical_date": None})
            airflow.until(lambda: scene.ledger.revisions.get().revision == revision, 600, f"revision {revision}")

        def runs(dag: str, number: int, states: set[str]) -> list[dict[str, Any]]:
            def settled() -> list[dict[str, Any]]:
                rows = airflow.healthy(dag)
                return rows if len(rows) >= number and {row["state"] for row in rows} <= states else []

            rows: list[dict[str, Any]] = airflow.until(settled, 400, f"{number} runs of {dag}")
            assert len(rows) == number
            return rows

        publish(1)
        assert sorted(run["partition_key"] for run in runs("weekly_report", 2, {"success"})) == WEEKS
        for dag in FAN_OUT:
            runs(dag, 1, {"success"})
        scene.require_right_reports()
        for day in (1, 3, 9):  # Tuesday and Thursday of the one week, Wednesday of the other
            scene.land(day, 20)
        publish(2)
        for process in airflow.scheduler():
            process.kill()
        assert sorted(run["partition_key"] for run in runs("weekly_report", 4, {"success"})) == sorted(2 * WEEKS)
        scene.require_right_reports()
        _require_policies(airflow, scene)
        _require_nothing_again(airflow, scene)


def _require_policies(airflow: Airflow, scene: Scene) -> None:
    """Each consumer has one run for the correction, and has done with it what its policy says."""
    corrected = "revision 2 corrected: 2004-04-13, 2004-04-15, 2004-04-21"

    def newest(dag: str) -> str:
        (run,) = airflow.runs(dag)[1:]
        return str(run["dag_run_id"])

    def state(dag: str, task: str) -> Any:
        return len(airflow.runs(dag)) == 2 and airflow.tasks(dag, newest(dag))[task]["state"]

    for dag, task, expected in (
        ("features", "process", "success"),
        ("old_dashboard", "changes", "skipped"),
        ("sent_figures", "approve", "awaiting_input"),
    ):
        airflow.until(lambda dag=dag, task=task, to=expected: state(dag, task) == to, 300, f"{dag}: {expected}")
    assert f"features {corrected}" in scene.lines.read_text() and "dashboard revision 2" not in scene.lines.read_text()
    stores = airflow.call("/api/v2/assets?limit=100")["assets"]
    ident = {asset["name"]: asset["id"] for asset in stores}
    stale = airflow.call(f"/api/v2/assets/{ident['old_dashboard']}/state-store")["asset_state_store"]
    assert [row["key"] for row in stale] == ["stale graph"]
    newest_told = airflow.call(f"/api/v2/assets/{ident['altneu_weeks']}/state-store")["asset_state_store"]
    assert {row["key"]: str(row["value"]) for row in newest_told} == {"frontier": "2004-04-26", "revision": "2"}
    where = f"/api/v2/dags/sent_figures/dagRuns/{newest('sent_figures')}/taskInstances/approve/-1/hitlDetails"
    assert "2004-04-15" in airflow.call(where)["body"]
    airflow.call(where, {"chosen_options": ["Approve"], "params_input": {}}, "PATCH")
    airflow.until(lambda: state("sent_figures", "process") == "success", 300, "the approved correction")
    assert f"sent_figures {corrected}" in scene.lines.read_text()


def _require_nothing_again(airflow: Airflow, scene: Scene) -> None:
    """Whatever is cleared, nothing is processed again."""
    before, lines = {each: each.stat().st_mtime_ns for each in scene.reports.iterdir()}, scene.lines.read_text()
    for dag in ("weekly_report", "features", "sent_figures"):
        for run in airflow.runs(dag):
            clear(airflow, dag, run["dag_run_id"])
        airflow.until(lambda dag=dag: {r["state"] for r in airflow.healthy(dag)} == {"success"}, 400, f"{dag} again")
    assert {each: each.stat().st_mtime_ns for each in scene.reports.iterdir()} == before
    assert scene.lines.read_text() == lines
