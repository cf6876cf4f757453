"""Few false alarms: every epoch of real graphs passes every check, but for one volume and one growth in each that the
learned bounds may find strange (`tests.benchmarks.bands` counts these over longer histories).

All epochs as one run with every one of them audited; then, epoch by epoch, the checks that depend on what came before
(the ledger's totals, volumes, growth), as a run of that epoch alone would ask them. Wide: `infra/test --all`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from altneu.expectations.suite import check_tables
from altneu.expectations.volumes import GROWTH, ROWS, season_length
from altneu.pipeline import landing
from altneu.pipeline.home.home import Home
from altneu.pipeline.local.demo import land_messages
from altneu.pipeline.reading import views
from altneu.pipeline.state.ledger import Ledger
from tests import home_helpers
from tests.e2e.graphs import find_graph

RATED = ["src", "dst", "rating", "ts"]
FILES = {"bitcoinotc": "soc-sign-bitcoinotc.csv.gz", "bitcoinalpha": "soc-sign-bitcoinalpha.csv.gz"}
TOTALS = ("vertices", "edges", "triangles", "max_trussness", "wedges")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CollegeMsg", *FILES])
@pytest.mark.parametrize("live_for", [30, None])
def test_a_clean_history_raises_no_alarm(spark: SparkSession, tmp_path: Path, name: str, live_for: int | None) -> None:
    home = Home.open(tmp_path / "home", create=True)
    every = "1d" if name == "CollegeMsg" else "7d"
    home = home.declare_settings(epochs={"every": every}, edges={} if live_for is None else {"live_for": live_for})
    toml = home.path / "altneu.toml"
    toml.write_text(toml.read_text().replace("[audit]\n", '[audit]\nepochs = "all"\n', 1))
    if name == "CollegeMsg":
        epochs = land_messages(home).epochs
    else:
        home = home.declare_settings(values={"rating": "long"})
        options = landing.LandOptions(tuple(RATED), time_column="ts", header=True)
        epochs = landing.land(home, [find_graph(FILES[name])], options).epochs
    ledger = Ledger(Home.open(home.path))
    assert home_helpers.run(ledger, epochs) is not None
    checks = ledger.checks.select()
    assert {check.epoch for check in checks if check.suite == "incremental_versus_full"} == set(epochs)
    strange = [(check.name, check.epoch, check.observed) for check in checks if not check.passed]
    assert {name for name, *_ in strange} <= {ROWS} and len(strange) <= 1, strange

    points = {point["epoch"]: point for point in views.select_totals(ledger, all_epochs=True)}
    history: list[dict[str, Any]] = []
    alarms = []
    for epoch, batch in sorted(ledger.outputs.published_batches().items()):
        counts = {"epoch": epoch, "rows": batch.rows, "bad_rows": batch.bad_rows}
        frames = {"totals": [{"epoch": epoch, **{m: points[epoch][m] for m in TOTALS}}], "volumes": [counts]}
        context = {
            "epoch": epoch,
            "value_types": {},
            "history": history,
            "seasons": season_length(home.schedule.seconds),
        }
        found = check_tables(frames, context)  # type: ignore[arg-type]
        alarms += [(check["name"], epoch, check["observed"]) for check in found if not check["passed"]]
        history.append(counts | {m: points[epoch][m] for m in ("edges", "triangles")})
    assert len(found) >= 8
    print(f"{name}: {len(history)} epochs, {len(alarms)} alarms")
    names = [name for name, *_ in alarms]
    assert names.count(ROWS) <= 1 and len(names) <= 2 and {*names} <= {ROWS, *GROWTH.values()}, alarms
