"""The page inside Airflow's own interface, in a browser: login, its entry in the navigation, grid, a report, a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from altneu.pipeline.state import incidents
from altneu.pipeline.state.ledger import Ledger
from tests import home_helpers
from tests.report.seed import write

from .real import Airflow
from .test_epoch import up

pytestmark = pytest.mark.backend("airflow")
DAYS = ("2004-04-15", "2004-04-16", "2004-04-17")


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    yield context.new_page()
    context.close()


def log_in(page: Any, airflow: Airflow) -> None:
    page.goto(f"http://localhost:{airflow.port}")
    page.fill("input[name=username]", "admin")
    page.fill("input[name=password]", airflow.password)
    page.click("button[type=submit]")
    page.get_by_text("Epochs", exact=True).first.wait_for()


def picture(page: Any, name: str) -> None:
    if "ALTNEU_SCREENSHOTS" in os.environ:
        page.screenshot(path=str(Path(os.environ["ALTNEU_SCREENSHOTS"]) / f"{name}.png"))


def reached(airflow: Airflow, dag: str, run: str, task: str, state: str) -> None:
    airflow.until(lambda: airflow.tasks(dag, run)[task]["state"] == state, 300, f"{task} is {state}")


def test_a_person_approves_one_run_and_rejects_the_next(spark: SparkSession, tmp_path: Path, page: Any) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", '[epochs]\nevery = "1d"\n[publish]\napprove = "always"\n')
    epoch = home.schedule.parse_epoch(DAYS[0])
    dag = "altneu_backfill"
    home_helpers.put(home, epoch, up((1, 2), (2, 3), (1, 3)))
    with Airflow(home, "--connect") as airflow:
        airflow.until(lambda: airflow.call(f"/api/v2/dags/{dag}"), 120, "the DAG")
        airflow.unpause(dag)
        log_in(page, airflow)
        address = f"http://localhost:{airflow.port}"
        for answer, because in (("Approve", "a first load"), ("Reject", "half of it is missing")):
            run = airflow.call(f"/api/v2/dags/{dag}/dagRuns", {"logical_date": None})["dag_run_id"]
            reached(airflow, dag, run, "approve", "awaiting_input")
            page.goto(f"{address}/plugin/altneu-epochs")
            page.frame_locator("iframe").get_by_text("is held: epoch 2004-04-15").wait_for()
            picture(page, f"airflow-held-{answer}")
            page.goto(f"{address}/dags/{dag}/runs/{run}/tasks/approve/required_actions")
            page.get_by_text("Publish epoch 2004-04-15?").first.wait_for()
            page.locator("#element_because").fill(because)
            picture(page, f"airflow-question-{answer}")
            page.get_by_role("button", name=answer, exact=True).click()
            reached(airflow, dag, run, "report", "success")
            home_helpers.put(home, epoch, up((1, 2), (1, 4)))
            picture(page, f"airflow-answered-{answer}")
        page.goto(f"{address}/altneu/reports/epoch=2004-04-15.html")
        page.get_by_text("Its newest run was rejected by admin: half of it is missing.").wait_for()
        picture(page, "airflow-rejected-page")
    said = [(each.verdict, each.person, each.because) for each in ledger.approvals.select().values()]
    assert said == [("approved", "admin", "a first load"), ("rejected", "admin", "half of it is missing")]
    assert ledger.revisions.get().revision == 1


def test_from_an_incident_to_its_end(spark: SparkSession, tmp_path: Path, page: Any) -> None:
    """The way of whoever is on call: incident, word, check, epoch, its rows, the correction, its run, closed."""
    home, ledger = home_helpers.make(tmp_path / "home", '[epochs]\nevery = "1d"\n')
    epoch = home.schedule.parse_epoch(DAYS[0])
    dag, check = "altneu_backfill", "one value per key and seq"
    home_helpers.put(home, epoch, [*up((1, 2), (2, 3), (1, 3), (2, 5)), (2, 5, None, "delete", 0)])
    with Airflow(home, "--connect") as airflow:
        airflow.until(lambda: airflow.call(f"/api/v2/dags/{dag}"), 120, "the DAG")
        airflow.unpause(dag)
        first = airflow.call(f"/api/v2/dags/{dag}/dagRuns", {"logical_date": None})["dag_run_id"]
        reached(airflow, dag, first, "report", "success")
        log_in(page, airflow)
        address = f"http://localhost:{airflow.port}"
        page.goto(f"{address}/plugin/altneu-epochs")
        frame = page.frame_locator("iframe")
        frame.get_by_role("heading", name="1 open incident").wait_for()
        picture(page, "airflow-incident")
        frame.locator("#said input[name=because]").fill("the source sent both")
        frame.get_by_role("button", name="Say it").click()
        frame.get_by_text("admin: the source sent both").first.wait_for()
        picture(page, "airflow-incident-said")
        frame.locator(".incidents").get_by_role("link", name=check).first.click()
        frame.get_by_role("heading", name="When it began, and what changed then").wait_for()
        picture(page, "airflow-incident-check")
        page.goto(f"{address}/plugin/altneu-epochs")
        frame.locator(".incidents").get_by_role("link", name=DAYS[0]).first.click()
        frame.get_by_role("heading", name=DAYS[0]).first.wait_for()
        frame.get_by_text(check).first.wait_for()
        picture(page, "airflow-incident-epoch")
        home_helpers.put(home, epoch, up((1, 2), (2, 3), (1, 3), (2, 5)))
        page.goto(f"{address}/plugin/altneu-epochs")
        frame.get_by_role("button", name="Backfill").first.click()
        frame.get_by_text(f"Started: {dag}").wait_for()
        second = next(run["dag_run_id"] for run in airflow.runs(dag) if run["dag_run_id"] != first)
        reached(airflow, dag, second, "report", "success")
        page.goto(f"{address}/plugin/altneu-epochs")
        frame.get_by_role("heading", name="Incidents that were closed last").wait_for()
        assert frame.locator(".incidents").count() == 0
        picture(page, "airflow-incident-closed")
    (one,) = incidents.list_incidents(ledger)
    assert (one.first.name, one.is_open, one.last.why) == (check, False, "it passes") and one.notes[0].by == "admin"


def test_from_login_to_a_report_and_a_run(spark: SparkSession, tmp_path: Path, page: Any) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", '[epochs]\nevery = "1d"\n[motifs]\npath = "a-b, b-c"\n')
    epochs = [home.schedule.parse_epoch(day) for day in DAYS]
    for number, epoch in enumerate(epochs):
        home_helpers.put(home, epoch, up((1, 2), (2, 3), (1, 3 + number)))
    home_helpers.run(ledger, epochs[:2])
    write(Ledger(home), epochs[:2])
    with Airflow(home, environment={"ALTNEU_START": DAYS[0], "ALTNEU_END": DAYS[1]}) as airflow:
        airflow.unpause("altneu_epoch")  # both days are published: runs that end at once
        airflow.until(
            lambda: [run["state"] for run in airflow.runs("altneu_epoch")] == ["success", "success"], 300, "two runs"
        )
        for dag, tasks in (
            ("altneu_epoch", 14),
            ("altneu_backfill", 15),
            ("altneu_landing", 2),
            ("altneu_full_audit", 1),
            ("altneu_maintenance", 1),
        ):
            graph = airflow.call(f"/ui/structure/structure_data?dag_id={dag}")
            assert len([node for node in graph["nodes"] if node["type"] == "task"]) == tasks, dag
        address = f"http://localhost:{airflow.port}"
        log_in(page, airflow)
        page.get_by_text("Epochs", exact=True).first.click()
        page.wait_for_url("**/plugin/altneu-epochs")
        frame = page.frame_locator("iframe")
        frame.locator(".cells .c").first.wait_for()
        assert frame.locator(".cells .c").count() == 2  # published
        assert frame.locator("#h-airflow ~ table tbody tr").count() == 3  # and one that is only landed
        assert frame.locator("figure svg").count() == 5  # rows, edges, triangles, trussness, the motif
        picture(page, "airflow-page")
        open_day = frame.locator("#h-airflow ~ table tbody tr", has_text=DAYS[2])
        open_day.get_by_role("button", name="Run").click()  # as the person who looks: paused, it stays queued
        frame.get_by_text("Started: altneu_backfill").wait_for()
        started = airflow.runs("altneu_backfill")
        assert [run["conf"] for run in started] == [{"first": DAYS[2], "last": DAYS[2]}]
        assert started[0]["dag_run_id"].startswith(f"manual__{DAYS[2]}__")
        assert started[0]["triggering_user_name"] == "admin"
        if "ALTNEU_SCREENSHOTS" in os.environ:
            place = Path(os.environ["ALTNEU_SCREENSHOTS"])
            frame.locator("#h-airflow").scroll_into_view_if_needed()
            picture(page, "airflow-buttons")
            inside = page.context.new_page()
            for look in ("light", "dark"):
                inside.emulate_media(color_scheme=look)
                for name, width in (("wide", 1300), ("phone", 390)):
                    inside.set_viewport_size({"width": width, "height": 900})
                    inside.goto(f"{address}/altneu/")
                    inside.screenshot(path=str(place / f"airflow-{look}-{name}.png"), full_page=True)
            inside.close()
        row = frame.locator("#h-airflow ~ table tbody tr", has_text=DAYS[1])
        row.get_by_role("link", name="report").click()
        frame.get_by_role("heading", name=DAYS[1]).first.wait_for()
        picture(page, "airflow-report")
        page.goto(f"{address}/plugin/altneu-epochs")
        row.get_by_role("link", name="run", exact=True).click()
        page.wait_for_url("**/dags/altneu_epoch/runs/*")
        page.get_by_text("landed").first.wait_for()
        picture(page, "airflow-run")
        page.get_by_text("Report", exact=True).first.click()
        tab = page.frame_locator("iframe")
        tab.get_by_role("heading", name=DAYS[1]).first.wait_for()
        picture(page, "airflow-tab")
        assert [run["dag_run_id"] for run in airflow.runs("altneu_epoch")] == [f"scheduled__{day}" for day in DAYS[:2]]
