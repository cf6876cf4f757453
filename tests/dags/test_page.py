"""The page inside Airflow: what it finds, that it escapes, and that it is behind the login."""

from __future__ import annotations

import importlib.util
import json
import re
from html import escape, unescape
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote

import pytest

from altneu.pipeline.home.home import Home
from altneu.pipeline.state import incidents
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.tasks import airflow_page
from tests import home_helpers
from tests.ledger_only import LedgerOnly
from tests.report.seed import DAY, Seed, audit

from .conftest import PLUGINS
from .test_epoch import begun, tiny

__all__ = ["tiny"]


@pytest.fixture(scope="module")
def page() -> ModuleType:
    file = PLUGINS / "altneu_page.py"
    spec = importlib.util.spec_from_file_location("altneu_page", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_the_page_shows(ledger_only: LedgerOnly, page: ModuleType, tiny: tuple[Home, Ledger, int]) -> None:
    home, ledger, first = tiny
    home_helpers.run(ledger, [first])
    run = begun(ledger, first + 1)
    ledger.runs.finish(run["run_id"], "failed", "audit: <b>wrong</b>")
    found = airflow_page.epoch_grid(str(home.path))
    assert [(row["label"], row["state"]) for row in found["epochs"]] == [
        ("2004-04-15", "published"),
        ("2004-04-16", "failed"),
    ]
    assert found["says"] == "revision 1, frontier 2004-04-15, 2 epochs"
    home_helpers.put(home, first, [(7, 8, None, "upsert", 0)])
    again = "; 1 landed again and not published yet: altneu_backfill from 2004-04-15 to 2004-04-15"
    assert airflow_page.epoch_grid(str(home.path))["says"] == found["says"] + again
    run_of: dict[int, airflow_page.AirflowRun] = {
        first: {"run_id": "a run", "waits": False},
        first + 5: {"run_id": "b", "waits": True},
    }
    html = airflow_page.overview_page(str(home.path), run_of)
    assert 'href="reports/epoch=2004-04-15.html"' in html and "landed again and not published yet" in html
    assert "audit: &lt;b&gt;wrong&lt;/b&gt;" in html and "<b>wrong" not in html
    assert 'href="../dags/altneu_epoch/runs/a%20run" target="_top"' in html  # of the first epoch
    assert 'href="../dags/altneu_epoch/runs" target="_top"' in html  # of the second, which Airflow has not run
    assert "Motif " not in html
    assert 'Awaited: <a class="whole" href="../dags/altneu_epoch/runs/b" target="_top">2004-04-20</a>' in html
    assert "data-dag" not in html.partition("<script>")[0]  # no button for who may not trigger DAGs
    home_helpers.put(home, first + 4, [(7, 8, None, "upsert", 0)])
    html = airflow_page.overview_page(str(home.path), run_of, "calls", "../../../", may_run=True, sites=["altneu"])
    assert 'Missing, although later epochs have landed: <span class="whole">2004-04-17</span> to ' in html
    assert 'data-dag="calls_backfill"' in html and 'data-clear="a run"' in html and "<b>wrong" not in html
    assert 'href="../../../altneu/">altneu</a>' in html and "calls_backfill from" in html
    buttons = [json.loads(unescape(conf)) for conf in re.findall(r'data-conf="([^"]*)"', html)]
    assert buttons[0] == {"first": "2004-04-15", "last": "2004-04-19"}
    assert {"first": "2004-04-16", "last": "2004-04-16"} in buttons


def test_what_is_so_now_is_at_the_top(tmp_path: Path) -> None:
    """Incidents with what to do, what is open, held and awaited, before the verdict; what was rejected may be run."""
    seed = Seed(tmp_path / "home")
    seed.good_days(5)
    seed.audit(audit(DAY + 4, "edge totals", remedy="altneu repair <now>"))
    held, rejected = seed.hold(DAY + 5), seed.run({DAY + 7: (3, 0)}, error="rejected by Ada", state="rejected")
    home_helpers.put(seed.home, DAY + 7, [(7, 8, None, "upsert", 0)])
    waits: dict[int, airflow_page.AirflowRun] = {DAY + 9: {"run_id": "b", "waits": True}}
    html = airflow_page.overview_page(str(seed.home.path), waits, may_run=True)
    top = html[: html.index('class="verdict')]
    assert "Next: altneu repair &lt;now&gt;" in top and f"Run <code>{held}</code> is held" in top
    assert "Awaited: " in top and "Missing, although later epochs have landed: " in top
    assert rejected not in top and "1 epoch to run" in top
    row = html[html.index(f'<tr id="e{DAY + 7}">') :].partition("</tr>")[0]
    assert ">rejected<" in row and ">Run</button>" in row


@pytest.mark.parametrize(
    ("epochs", "found"), [([], []), ([3], []), ([1, 2, 3], []), ([1, 3, 7], [(2, 2), (4, 6)]), ([7, 1], [(2, 6)])]
)
def test_ranges_without_epochs(epochs: list[int], found: list[tuple[int, int]]) -> None:
    assert airflow_page.epoch_gaps(epochs) == found


def test_the_page_is_the_index_of_the_reports(tmp_path: Path) -> None:
    """The same templates, pictures and words, and links that lead to the reports from where the page is."""
    seed = Seed(tmp_path / "home")
    seed.good_days(5)
    inside, index = airflow_page.overview_page(str(seed.home.path), {}), report_of(seed.home.path)
    style = index[index.index("<style>") : index.index("</style>")]
    assert style in inside
    pictures = re.findall(r"<svg.*?</svg>", index, re.S)
    assert len(pictures) >= 4 and all(picture in inside for picture in pictures)
    cells = re.findall(r'<a class="c .*?</a>', index)
    assert len(cells) == 5
    assert [cell.replace('href="', 'href="reports/') for cell in cells] == re.findall(r'<a class="c .*?</a>', inside)


def test_motifs_have_pictures(tmp_path: Path) -> None:
    from altneu.pipeline import report

    seed = Seed(tmp_path / "home")
    seed.good_days(2)
    motif = {"name": "square <i>", "labels": ["2004-07-01", "2004-07-02"], "points": [3, 1_234]}
    empty = {name: [] for name in ("epochs", "sites", "held", "awaited", "absent")}
    inside = empty | {"says": "", "motifs": [motif], "open": None, "may_run": False, "prefix": "altneu", "root": "../"}
    html = report.render_index(seed.ledger, inside, "reports/")
    assert "Motif square &lt;i&gt;" in html and "<i>" not in html and "1,234" in html


def report_of(home: Path) -> str:
    text = airflow_page.report_page(str(home), "index.html")
    assert text is not None
    return text


def test_an_empty_home(page: ModuleType, tmp_path: Path) -> None:
    home_helpers.make(tmp_path)
    assert "nothing is published yet" in airflow_page.overview_page(str(tmp_path), {})


def test_a_home_that_cannot_be_read_has_a_page(
    page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALTNEU_HOME", str(tmp_path / "<none>"))
    may_all(page, monkeypatch)
    monkeypatch.setattr(page, "sites", list)
    for answer in (page.page(None), page.report("index.html")):
        text = answer.body.decode()
        assert answer.status_code == 503 and "&lt;none&gt;" in text and "<none>" not in text and "Next: " in text


def test_reports_are_made_on_request(page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the database alone: no file is there, and a failed run has its page."""
    from fastapi import HTTPException

    seed = Seed(tmp_path / "home")
    seed.good_days(3)
    seed.run({DAY + 3: (5, 0)}, error="ingest: no <space>")
    seed.ledger.checks.put(None, 1, audit(DAY + 1, "edge totals"))
    monkeypatch.setenv("ALTNEU_HOME", str(seed.home.path))
    assert not seed.home.reports.exists()
    shown = page.report("epoch=2004-07-04.html").body.decode()
    assert "ingest: no &lt;space&gt;" in shown and 'href="epoch=2004-07-03.html"' in shown
    assert "Do not use this epoch yet" in page.report("epoch=2004-07-02.html").body.decode()
    name = "check=incremental_versus_full.edge-totals-equal.html"
    assert "It has failed since" in page.report(name).body.decode()
    index = page.report("index.html").body.decode()
    assert "2 open incidents" in index and f'href="{name}"' in index
    assert 'href="epoch=2004-07-01.html"' in index and '<button class="c ' not in index
    (tmp_path / "home" / "secret.html").write_text("")
    for name in (
        "check=none.html",
        "check=../secret.html",
        "../secret.html",
        "../altneu.toml",
        "none.html",
        "",
        "epoch=12600.html",
        "epoch=2004-07-01",
    ):
        with pytest.raises(HTTPException):
            page.report(name)
    assert not seed.home.reports.exists()


def test_data_docs_are_served_from_their_folder_alone(
    page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastapi import HTTPException

    home, _ = home_helpers.make(tmp_path)
    docs = home.reports / "data-docs" / "epoch=1"
    docs.mkdir(parents=True)
    (docs / "edges.html").write_text("of edges")
    (home.reports / "secret.html").write_text("")
    monkeypatch.setenv("ALTNEU_HOME", str(tmp_path))
    assert page.data_docs("epoch=1", "edges.html").body.decode() == "of edges"
    for epoch, name in (("..", "secret.html"), ("epoch=1", "../../secret.html"), ("epoch=1", "none.html"), ("", "")):
        with pytest.raises(HTTPException):
            page.data_docs(epoch, name)


def may_all(page: ModuleType, monkeypatch: pytest.MonkeyPatch, run: bool = True) -> None:
    """A user who may read everything, and trigger DAGs or not."""
    monkeypatch.setattr(page, "may", lambda user, prefix, name, method="GET", entity=None: method == "GET" or run)


class Ada:
    def get_name(self) -> str:
        return "Ada"


@pytest.mark.parametrize(
    ("body", "run", "kind", "code"),
    [
        ({"because": "the source sends it again"}, True, "application/json", 200),
        ({"because": "a planned outage", "until": "2999-01-01"}, True, "application/json; charset=utf-8", 200),
        ({"because": "the source sends it again"}, False, "application/json", 403),  # may not trigger DAGs
        ({"because": "from a form"}, True, "text/plain", (415, 422)),
        ({"because": " "}, True, "application/json", 422),
        ({}, True, "application/json", 422),
        ({"because": "late", "until": "1999-01-01"}, True, "application/json", 422),
        ({"because": "late", "until": "soon"}, True, "application/json", 422),
    ],
)
def test_who_may_trigger_says_something_of_an_incident(
    page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: Any, run: bool, kind: str, code: Any
) -> None:
    from fastapi.testclient import TestClient

    seed = Seed(tmp_path / "home")
    seed.good_days(2)
    seed.ledger.checks.put(None, 1, audit(DAY + 1, "edge totals"))
    monkeypatch.setenv("ALTNEU_HOME", str(seed.home.path))
    may_all(page, monkeypatch, run)
    monkeypatch.setitem(page.app.dependency_overrides, page.get_user, Ada)
    one = incidents.list_incidents(seed.ledger)[0]
    client = TestClient(page.app)
    answer = client.post(f"/incidents/{one.identifier}", content=json.dumps(body), headers={"Content-Type": kind})
    assert answer.status_code in (code if isinstance(code, tuple) else (code,)), answer.text
    said = incidents.list_incidents(seed.ledger)[0].notes
    if code != 200:
        assert said == ()
        return
    assert [(note.by, note.because, (note.until or "")[:10]) for note in said] == [
        ("Ada", body["because"], body.get("until", ""))
    ]
    assert client.get(f"/incidents/{one.identifier}").status_code == 405  # it is posted, never got
    assert client.post("/incidents/none", json={"because": "late"}).status_code == 422


def test_the_page_is_behind_the_login(airflow: None, page: ModuleType) -> None:
    from fastapi.testclient import TestClient

    client = TestClient(page.app, raise_server_exceptions=False)
    reports = ("/", "/reports/index.html", "/reports/data-docs/epoch=1/edges.html")
    for path in (*reports, *(f"/homes/calls{path}" for path in reports), "/runs/altneu_epoch/a"):
        assert client.get(path).status_code in (401, 403)
    for path in ("/incidents/1", "/homes/calls/incidents/1"):
        assert client.post(path, json={"because": "late"}).status_code in (401, 403)
    assert page.app.dependency_overrides == {}


def test_a_run_leads_to_the_page_of_its_epoch(
    ledger_only: LedgerOnly,
    airflow: None,
    load: Any,
    page: ModuleType,
    tiny: tuple[Home, Ledger, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from airflow.sdk.configuration import conf
    from fastapi.testclient import TestClient

    home, _, first = tiny
    dags = load(home.path)
    run = dags["altneu_epoch"].test(logical_date=home.schedule.start_of(first))
    for task in dags["altneu_epoch"].tasks:  # each has its link, which Airflow keeps with the task's XComs
        found = run.get_task_instance(task.task_id).xcom_pull(task_ids=task.task_id, key="_link_ReportLink")
        assert found == f"{conf.get('api', 'base_url', fallback='')}/altneu/runs/altneu_epoch/{quote(run.run_id)}", (
            task.task_id
        )
    many = dags["altneu_backfill"].test(logical_date=None)
    may_all(page, monkeypatch)
    monkeypatch.setitem(page.app.dependency_overrides, page.get_user, Ada)
    client = TestClient(page.app)

    def leads(dag: str, run_id: str) -> str:
        answer = client.get(f"/runs/{dag}/{quote(run_id, safe='')}", follow_redirects=False)
        return str(answer.headers.get("location", answer.status_code))

    assert leads("altneu_epoch", run.run_id) == "/reports/epoch=2004-04-15.html"
    assert leads("altneu_backfill", many.run_id) == "/reports/epoch=2004-04-16.html"
    assert leads("altneu_landing", "any") == leads("altneu_epoch", "none") == leads("altneu_relanded", "any") == "/"
    assert leads("others_epoch", "any") == "404"
    assert page.dag_runs(str(home.path), "altneu")[first] == {"run_id": run.run_id, "waits": False}
    assert "altneu" in page.sites() and page.home_of("altneu") == str(home.path)
    text = client.get("/").text
    assert f'data-clear="{escape(run.run_id)}"' in text and 'data-dag="altneu_full_audit"' in text
    assert client.get("/homes/nowhere/").status_code == 404
