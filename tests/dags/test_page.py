"""The page inside Airflow: what it finds, that it escapes, and that it is behind the login."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from pipeline import orchestration
from pipeline.config import Home
from pipeline.ledger import Ledger
from tests import homes

from .conftest import REPO
from .test_epoch import light, tiny

__all__ = ["light", "tiny"]


@pytest.fixture(scope="module")
def page() -> ModuleType:
    file = REPO / "infra" / "airflow" / "plugins" / "altneu_page.py"
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
    home.reports.mkdir(exist_ok=True)
    (home.reports / "epoch=2004-04-15.html").write_text("<p>report</p>")

    found = orchestration.grid(str(home.path))
    assert [(row["label"], row["state"]) for row in found["epochs"]] == [
        ("2004-04-15", "published"),
        ("2004-04-16", "failed"),
    ]
    assert found["says"] == "revision 1, frontier 2004-04-15, 2 epochs"
    homes.put(home, first, [(7, 8, None, "upsert", 0)])
    again = "; 1 landed again and not published so: altneu_backfill from 2004-04-15 to 2004-04-15"
    assert orchestration.grid(str(home.path))["says"] == found["says"] + again
    html = page.document(found)
    assert 'href="reports/epoch=2004-04-15.html"' in html
    assert "audit: &lt;b&gt;wrong&lt;/b&gt;" in html and "<b>wrong" not in html
    assert "edges: <b>" in html and "motif " not in html
    found["epochs"][0]["motifs"] = {"square <i>": 1_234}
    assert "motif square &lt;i&gt;: <b>1,234</b>" in page.document(found)


def test_an_empty_home(page: ModuleType, tmp_path: Path) -> None:
    homes.make(tmp_path)
    assert "nothing is published yet" in page.document(orchestration.grid(str(tmp_path)))


def test_reports_are_served_from_their_folder_alone(
    page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastapi import HTTPException

    home, _ = homes.make(tmp_path)
    home.reports.mkdir()
    (home.reports / "index.html").write_text("")
    (tmp_path / "secret.html").write_text("")
    monkeypatch.setenv("ALTNEU_HOME", str(tmp_path))
    assert Path(page.report("index.html").path) == home.reports / "index.html"
    for name in ("../secret.html", "../altneu.toml", "none.html", ""):
        with pytest.raises(HTTPException):
            page.report(name)


def test_the_page_is_behind_the_login(airflow: None, page: ModuleType) -> None:
    from fastapi.testclient import TestClient

    client = TestClient(page.app, raise_server_exceptions=False)
    for path in ("/", "/reports/index.html"):
        assert client.get(path).status_code in (401, 403)
    assert page.app.dependency_overrides == {}
