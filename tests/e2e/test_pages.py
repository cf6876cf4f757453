"""Pages after real runs: a correction of the first epoch rewrites those of the later ones, with the numbers that a
reader of the tables gets, and none says `equal` of what was not compared since; a run that fails leaves its page."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.errors import CheckFailed, RunFailed
from pipeline.reading import views
from pipeline.report import document
from tests import homes
from tests.report.seed import DAILY
from tests.report.test_statements import history

TRIANGLE = [(1, 2), (2, 3), (1, 3)]


def land(home: homes.Home, epoch: int, edges: list[tuple[int, int]]) -> None:
    homes.put(home, epoch, [(a, b, None, "upsert", 0) for a, b in edges])


def test_pages_of_later_epochs_follow_a_correction(spark: SparkSession, tmp_path: Path) -> None:
    home, ledger = homes.make(tmp_path / "home")
    for epoch, edges in ((1, TRIANGLE), (2, [(3, 4)]), (3, [(2, 4)])):
        land(home, epoch, edges)
    homes.run(home, ledger, [1, 2, 3])
    assert "Equal to a full recomputation" in (home.reports / "epoch=3.html").read_text()
    land(home, 1, TRIANGLE[:2])
    homes.run(home, ledger, [1])
    for row in views.totals(home, ledger, all_epochs=True):
        found, text = document(home, ledger, row["epoch"]), (home.reports / f"epoch={row['label']}.html").read_text()
        for name in ("vertices", "edges", "triangles", "max_trussness"):
            assert found["graph"]["measures"][name]["value"] == row[name]
        assert ("Equal to a full recomputation" in text) == (found["audit"]["says"] == "equal")
        assert "at revision 2, from the database" in text
    assert document(home, ledger, 2)["audit"]["says"] != "equal"  # the run has compared its own epoch and the frontier
    assert "Corrected: 3 rows became 2." in (home.reports / "epoch=1.html").read_text()
    (home.landing / "epoch=4").mkdir()
    (home.landing / "epoch=4" / "rows.csv").write_text("src,dst\n" + "x,y\n" * 50)
    with pytest.raises((CheckFailed, RunFailed)):
        homes.run(home, ledger, [4])
    failed = (home.reports / "epoch=4.html").read_text()
    assert "Not loaded. The run stopped" in failed and 'href="epoch=3.html"' in failed


def test_every_statement_has_a_source_on_postgresql(postgres: str, tmp_path: Path) -> None:
    history(tmp_path, 7, 6, DAILY + f'[storage]\ndatabase = "{postgres}"\n')
