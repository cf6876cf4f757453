"""The way of whoever is on call, whole: a run warns, the incident, the page, its rows, why they are so, the correction,
the run again, and the incident is closed. In the default tier the runs are without Spark, and the check says what
that of `tests/expectations` finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from altneu.pipeline.run.run_context import RunContext
from tests.e2e.conftest import Altneu
from tests.e2e.test_commands import K4, land
from tests.ledger_only import LedgerOnly
from tests.report.seed import check

CHECK = "one value per key and seq"
BOTH = "src,dst,op,seq\n1,5,upsert,0\n2,5,upsert,0\n2,5,delete,0\n"  # of one edge at once
ONE = "src,dst,op,seq\n1,5,upsert,0\n2,5,upsert,0\n"


def judge_ties(run: RunContext) -> list[dict[str, Any]]:
    """Say what the suite says of the first batch and of the two others."""
    ties = [{"src": 2, "dst": 5, "seq": 0, "line": line} for line in (3, 4)]
    found = ties if 2 in run.epochs and (run.home.landing / "epoch=2" / "rows.csv").read_text() == BOTH else []
    return [check(epoch, CHECK, not found, severity="warning", rows=found, suite="upserts") for epoch in run.epochs]


@pytest.mark.usefixtures("pages")
def test_from_the_alert_to_the_closed_incident(ledger_only: LedgerOnly, typed: Altneu, tmp_path: Path) -> None:
    ledger_only.checks = judge_ties
    correct_what_an_alert_tells(typed, tmp_path / "home")


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
def test_from_the_alert_of_a_real_run_to_the_closed_incident(altneu: Altneu, tmp_path: Path) -> None:
    correct_what_an_alert_tells(altneu, tmp_path / "home")


def correct_what_an_alert_tells(altneu: Altneu, home: Path) -> None:
    home.mkdir()
    (home / "altneu.toml").write_text("")
    land(home, "1", K4)
    assert altneu("run", "1").code == 0
    assert altneu("incidents").out == "no open incident\n"

    land(home, "2", BOTH)
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

    land(home, "2", ONE)
    assert altneu("run", "2").code == 0
    assert altneu("incidents").out == "no open incident\n"
    (closed,) = json.loads(altneu("incidents", "--all", "--format", "json").out)
    assert (closed["incident"], closed["state"], closed["closed_by"]) == (one["incident"], "closed", "it passes")
    assert closed["acknowledged"]["by"] == "Ada"
    index = (home / "reports" / "index.html").read_text()
    assert "open incident" not in index and "Incidents that were closed last" in index


@pytest.mark.usefixtures("pages")
def test_the_page_of_an_epoch_says_which_stage_has_failed(
    ledger_only: LedgerOnly, typed: Altneu, tmp_path: Path
) -> None:
    """Nobody types anything after the failure: the failed run has written the page itself."""

    def fill_disk(run: RunContext) -> list[dict[str, Any]]:
        raise OSError(28, "No space left on device")

    home = tmp_path / "home"
    home.mkdir()
    (home / "altneu.toml").write_text("")
    land(home, "1", K4)
    ledger_only.checks = fill_disk
    assert typed("run", "1").code == 1
    page = (home / "reports" / "epoch=1.html").read_text()
    assert "No space left on device" in page and "audit" in page
