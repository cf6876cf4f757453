"""The page inside Airflow: what it finds, that it escapes, and that it is behind the login."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from pipeline.home.directory import Home
from pipeline.state.ledger import Ledger
from pipeline.tasks import orchestration, web
from tests import homes
from tests.report.seed import DAY, Seed, audit

from .conftest import PLUGINS
from .test_epoch import light, tiny

__all__ = ["light", "tiny"]


@pytest.fixture(scope="module")
def page() -> ModuleType:
    file = PLUGINS / "altneu_page.py"
    spec = importlib.util.spec_from_file_location("altneu_page", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_the_page_shows(light: None, page: ModuleType, tiny: tuple[Home, Ledger, int]) -> None:
    home, ledger, first = tiny
    homes.run(home, ledger, [first])
    run = orchestration.plan(str(home.path), [first + 1])
    assert run
    ledger.finish(run["run_id"], "failed", "audit: <b>wrong</b>")
    found = web.grid(str(home.path))
    assert [(row["label"], row["state"]) for row in found["epochs"]] == [
        ("2004-04-15", "published"),
        ("2004-04-16", "failed"),
    ]
    assert found["says"] == "revision 1, frontier 2004-04-15, 2 epochs"
    homes.put(home, first, [(7, 8, None, "upsert", 0)])
    again = "; 1 landed again and not published so: altneu_backfill from 2004-04-15 to 2004-04-15"
    assert web.grid(str(home.path))["says"] == found["says"] + again
    run_of = {first: "/dags/altneu_epoch/runs/a%20run"}
    html = web.overview_page(str(home.path), run_of)
    assert 'href="reports/epoch=2004-04-15.html"' in html and "landed again and not published so" in html
    assert "audit: &lt;b&gt;wrong&lt;/b&gt;" in html and "<b>wrong" not in html
    assert 'href="/dags/altneu_epoch/runs/a%20run" target="_top"' in html  # of the first epoch
    assert 'href="/dags/altneu_epoch/runs" target="_top"' in html  # of the second, which Airflow has not run
    assert "Motif " not in html


def test_the_page_is_the_index_of_the_reports(tmp_path: Path) -> None:
    """The same templates, pictures and words, and links that lead to the reports from where the page is."""
    seed = Seed(tmp_path / "home")
    seed.good_days(5)
    inside, index = web.overview_page(str(seed.home.path), {}), report_of(seed.home.path)
    style = index[index.index("<style>") : index.index("</style>")]
    assert style in inside
    pictures = re.findall(r"<svg.*?</svg>", index, re.S)
    assert len(pictures) >= 4 and all(picture in inside for picture in pictures)
    cells = re.findall(r'<a class="c .*?</a>', index)
    assert len(cells) == 5
    assert [cell.replace('href="', 'href="reports/') for cell in cells] == re.findall(r'<a class="c .*?</a>', inside)


def test_motifs_have_pictures(tmp_path: Path) -> None:
    from pipeline import report

    seed = Seed(tmp_path / "home")
    seed.good_days(2)
    motif = {"name": "square <i>", "labels": ["2004-07-01", "2004-07-02"], "points": [3, 1_234]}
    html = report.index(seed.home, seed.ledger, {"says": "", "epochs": [], "motifs": [motif]}, "reports/")
    assert "Motif square &lt;i&gt;" in html and "<i>" not in html and "1,234" in html


def report_of(home: Path) -> str:
    text = web.report_page(str(home), "index.html")
    assert text is not None
    return text


def test_an_empty_home(page: ModuleType, tmp_path: Path) -> None:
    homes.make(tmp_path)
    assert "nothing is published yet" in web.overview_page(str(tmp_path), {})


def test_a_home_that_cannot_be_read_has_a_page(
    page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALTNEU_HOME", str(tmp_path / "<none>"))
    for answer in (page.page(), page.report("index.html")):
        text = answer.body.decode()
        assert answer.status_code == 503 and "&lt;none&gt;" in text and "<none>" not in text and "Next: " in text


def test_reports_are_made_on_request(page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the database alone: no file is there, and a failed run has its page."""
    from fastapi import HTTPException

    seed = Seed(tmp_path / "home")
    seed.good_days(3)
    seed.run({DAY + 3: (5, 0)}, error="ingest: no <space>")
    seed.ledger.put_checks(None, 1, audit(DAY + 1, "edge totals"))
    monkeypatch.setenv("ALTNEU_HOME", str(seed.home.path))
    assert not seed.home.reports.exists()
    shown = page.report("epoch=2004-07-04.html").body.decode()
    assert "ingest: no &lt;space&gt;" in shown and 'href="epoch=2004-07-03.html"' in shown
    assert "Do not use this epoch yet" in page.report("epoch=2004-07-02.html").body.decode()
    name = "check=incremental_versus_full.edge-totals-equal.html"
    assert "It fails since" in page.report(name).body.decode()
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

    home, _ = homes.make(tmp_path)
    docs = home.reports / "data-docs" / "epoch=1"
    docs.mkdir(parents=True)
    (docs / "edges.html").write_text("")
    (home.reports / "secret.html").write_text("")
    monkeypatch.setenv("ALTNEU_HOME", str(tmp_path))
    assert Path(page.data_docs("epoch=1", "edges.html").path) == docs / "edges.html"
    for epoch, name in (("..", "secret.html"), ("epoch=1", "../../secret.html"), ("epoch=1", "none.html"), ("", "")):
        with pytest.raises(HTTPException):
            page.data_docs(epoch, name)


def test_the_page_is_behind_the_login(airflow: None, page: ModuleType) -> None:
    from fastapi.testclient import TestClient

    client = TestClient(page.app, raise_server_exceptions=False)
    for path in ("/", "/reports/index.html", "/reports/data-docs/epoch=1/edges.html"):
        assert client.get(path).status_code in (401, 403)
    assert page.app.dependency_overrides == {}
