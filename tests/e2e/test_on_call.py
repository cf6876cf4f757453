"""The way of whoever is on call, whole: a run warns, the incident, the page, its rows, why they are so, the correction,
the run again, and the incident is closed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import Altneu
from tests.e2e.test_commands import K4, land

pytestmark = pytest.mark.usefixtures("tiny")
CHECK = "one value per key and seq"


def test_from_the_alert_to_the_closed_incident(altneu: Altneu, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "altneu.toml").write_text("")
    land(home, "1", K4)
    assert altneu("run", "1").code == 0
    assert altneu("incidents").out == "no open incident\n"

    land(home, "2", "src,dst,op,seq\n1,5,upsert,0\n2,5,upsert,0\n2,5,delete,0\n")
    alert = altneu("run", "2")
    assert alert.code == 0 and "warning" in alert.out + alert.err

    (one,) = json.loads(altneu("incidents", "--format", "json").out)
    assert (one["check"], one["state"], one["epochs"], one["revision"]) == (CHECK, "open", ["2"], 2)
    assert altneu("incidents", "ack", one["incident"], "--by", "Ada", "--because", "the source sent both").code == 0
    index = (home / "reports" / "index.html").read_text()
    assert index.index("open incident") < index.index("epochs published") and CHECK in index

    assert altneu("report", "2").code == 0  # the acknowledgement is on the pages
    assert "Ada: the source sent both" in (home / "reports" / "index.html").read_text()
    page = (home / "reports" / one["report"]).read_text()
    assert CHECK in page and f'href="{one["page"]}"' in page
    history = (home / "reports" / one["page"]).read_text()
    assert "When it began, and what changed then" in history and "It last passed" in history

    found = json.loads(altneu("report", "2", "--json").out)
    (failed,) = [check for check in found["checks"] if not check["passed"] and check["severity"] == "warning"]
    ends = {(row["src"], row["dst"]) for row in failed["rows"]}
    assert failed["name"] == CHECK and ends == {(2, 5)}
    why = json.loads(altneu("explain", "edge", "2", "5", "--as-of", "2", "--format", "json").out)
    assert sorted(row["line"] for row in why["rows"]) == [3, 4] and why["there"]

    land(home, "2", "src,dst,op,seq\n1,5,upsert,0\n2,5,upsert,0\n")
    assert altneu("run", "2").code == 0
    assert altneu("incidents").out == "no open incident\n"
    (closed,) = json.loads(altneu("incidents", "--all", "--format", "json").out)
    assert (closed["incident"], closed["state"], closed["closed_by"]) == (one["incident"], "closed", "it passes")
    assert closed["acknowledged"]["by"] == "Ada"
    index = (home / "reports" / "index.html").read_text()
    assert "open incident" not in index and "Incidents that were closed last" in index
