"""`altneu diff` as it is typed: text, JSON, rows, page, another home, and what is wrong use."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests import home_helpers
from tests.canonical import History
from tests.e2e.conftest import Altneu
from tests.e2e.test_hold import K4, MORE

pytestmark = pytest.mark.usefixtures("tiny", "unaudited")


def test_what_would_change(tmp_path: Path, altneu: Altneu, held_correction: History) -> None:
    """Without (0, 1) the K4 is two triangles; 9 hangs on 0 and 1, which are not joined any more."""
    _, ledger = held_correction.copy(tmp_path / "home")
    (run,) = ledger.runs.list_held()
    said = altneu("diff")
    assert said.code == 0, said
    for words in (
        f"from revision 1 (up to 0) to run {run.run_id} (up to 1)",
        "0: edges 6 → 5, triangles 4 → 2, max_trussness 4 → 3",
        "1: vertices 4 → 5, edges 6 → 7, triangles 4 → 2, max_trussness 4 → 3",
        "2-truss at 1: 6 → 7 edges, 2 entered, 1 left",
        "4-truss at 1: 6 → 0 edges, 0 entered, 6 left",
        f"next: altneu publish {run.run_id}",
    ):
        assert words in said.out, (words, said.out)
    found = json.loads(altneu("diff", run.run_id, "--format", "json").out)
    assert [each["first"] for each in found["totals"]] == ["0", "1"]
    assert {each["k"]: (each["before"], each["after"], each["left"]) for each in found["trusses"]} == {
        2: (6, 7, 1),
        3: (6, 5, 1),
        4: (6, 0, 6),
    }
    assert (found["edges"]["count"], len(found["edges"]["rows"])) == (8, 8)
    assert found["edges"]["rows"][0] == {
        "src": 0,
        "dst": 1,
        "first": 0,
        "last": 1,
        "trussness_before": 4,
        "trussness": 0,
    }
    rows = list(csv.DictReader(altneu("diff", "--rows", "vertices", "--format", "csv").out.splitlines()))
    assert {"vertex": "9", "first": "1", "last": "1", "degree_before": "0", "degree": "2"}.items() <= next(
        row for row in rows if row["vertex"] == "9"
    ).items()
    written = altneu("diff", "--format", "markdown")
    assert written.code == 0 and "| 0 | 4 | 6 → 5 | 4 → 2 | 4 → 3 |" in written.out, written.out
    assert "**8 spans of edges**" in written.out and "| 0 | 1 | 0 | 1 | 4 | 0 |" in written.out, written.out
    assert altneu("diff", "--rows", "edges", "--format", "markdown").code == 2
    file = tmp_path / "edges.parquet"
    assert altneu("diff", "--rows", "edges", "--output", str(file)).code == 0
    assert pq.read_table(file).num_rows == 8
    page = altneu("diff", "--page")
    text = Path(page.out.strip()).read_text()
    assert page.code == 0 and "6 → 5" in text and text.count("<svg") == 8 and run.run_id in text
    assert "readers would see no difference" in altneu("diff", "1", "1").out


@pytest.mark.slow
def test_what_would_change_has_changed_when_it_is_published(
    tmp_path: Path, altneu: Altneu, held_correction: History
) -> None:
    _, ledger = held_correction.copy(tmp_path / "home")
    (run,) = ledger.runs.list_held()

    def list_edges(*words: str) -> dict[str, Any]:
        return dict(json.loads(altneu("diff", *words, "--format", "json").out)["edges"])

    before = list_edges()
    assert altneu("publish").code == 0
    assert list_edges("1", "2") == list_edges(run.run_id) == before
    assert list_edges("2", "1")["count"] == before["count"] == 8


@pytest.mark.slow
def test_another_home(spark: SparkSession, tmp_path: Path, altneu: Altneu) -> None:
    """Names have other numbers there, and mean the same."""
    toml = '[vertices]\nids = "string"\n'
    home, ledger = home_helpers.make(tmp_path / "home", toml)
    there, theirs = home_helpers.make(tmp_path / "other", toml)
    named = [(f"v{9 - a}", f"v{9 - b}", None, "upsert", 0) for a, b, *_ in K4]
    home_helpers.put(home, 0, named)
    home_helpers.put(there, 0, [*reversed(named), ("v9", "w", None, "upsert", 0)])
    home_helpers.run(ledger, [0])
    home_helpers.run(theirs, [0])
    said = altneu("diff", "--other", str(there.path), "--format", "json")
    assert said.code == 0, said
    found = json.loads(said.out)
    assert [(row["src"], row["dst"], row["trussness"]) for row in found["edges"]["rows"]] == [("v9", "w", 2)]
    assert {row["vertex"]: (row["degree_before"], row["degree"]) for row in found["vertices"]["rows"]} == {
        "v9": (3, 4),
        "w": (0, 1),
    }
    home_helpers.put(home, 1, [("v9", "x", None, "upsert", 0) for _ in MORE])
    home_helpers.run(ledger, [1])
    rows = json.loads(altneu("diff", "1", "2", "--rows", "edges", "--format", "json").out)
    assert [(row["src"], row["dst"], row["first"]) for row in rows] == [("v9", "x", 1)]
