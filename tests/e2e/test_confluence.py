"""Law 3 on real messages: delivered out of order, in groups, doubled, wrong and then corrected, rerun: the same state.

One home takes all epochs in one ordered pass; the other takes them as they come. In the end every total at every epoch,
and every vertex and edge at some, are the same. Wide: `infra/test --all`.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from altneu.pipeline import landing
from altneu.pipeline.home.home import Home
from altneu.pipeline.reading import views
from altneu.pipeline.state.ledger import Ledger
from tests import home_helpers, seeds
from tests.e2e.graphs import find_graph
from tests.e2e.test_crash import state, totals

CASES: dict[str, tuple[str, list[str], dict[str, Any], str]] = {
    "CollegeMsg": ("CollegeMsg.txt.gz", ["src", "dst", "ts"], {"separator": " "}, "7d"),
    "bitcoinotc": ("soc-sign-bitcoinotc.csv.gz", ["src", "dst", "rating", "ts"], {"header": True}, "30d"),
}


@pytest.mark.slow
@pytest.mark.needs("graphs")
@pytest.mark.parametrize("name", CASES)
def test_as_it_comes_equals_in_order(spark: SparkSession, tmp_path: Path, name: str) -> None:
    file, columns, form, every = CASES[name]
    seed = seeds.one()
    rng = random.Random(seed)
    made: list[tuple[Home, Ledger]] = []
    for folder in ("ordered", "comes"):
        home = Home.open(tmp_path / folder, create=True).declare_settings(
            epochs={"every": every}, edges={"live_for": 6}
        )
        if "rating" in columns:
            home = home.declare_settings(values={"rating": "long"}, edges={"where": "rating > 0"})
        epochs = landing.land(
            home, [find_graph(file)], landing.LandOptions(tuple(columns), time_column="ts", **form)
        ).epochs
        made.append((home, Ledger(home)))
    (_, ordered_ledger), (home, ledger) = made
    home_helpers.run(ordered_ledger, epochs)

    def folder_of(epoch: int) -> Path:
        return home.landing / f"epoch={home.schedule.format_label(epoch)}"

    wrong = set(rng.sample(epochs, len(epochs) // 4))
    for epoch in wrong:  # half of it first, with some of its rows twice
        folder = folder_of(epoch)
        shutil.copytree(folder, home.path / "right" / folder.name)
        head, *rows = next(folder.glob("*.csv")).read_text().splitlines()
        some = rng.sample(rows, max(1, len(rows) // 2))
        next(folder.glob("*.csv")).write_text("\n".join([head, *some, *some[:3]]) + "\n")
    waiting = rng.sample(epochs, len(epochs))
    while waiting:
        n = rng.randrange(1, 9)
        group, waiting = waiting[:n], waiting[n:]
        home_helpers.run(ledger, group)
        if rng.random() < 0.3:
            assert home_helpers.run(ledger, group) is None  # again: nothing
    for epoch in wrong:
        folder = folder_of(epoch)
        shutil.rmtree(folder)
        shutil.move(home.path / "right" / folder.name, folder)
        if rng.random() < 0.5:  # the same content in two files, and the first rows doubled
            (file_,) = folder.glob("*.csv")
            head, *rows = file_.read_text().splitlines()
            (folder / "again.csv").write_text("\n".join([head, *rows[:5]]) + "\n")
    corrections = rng.sample(sorted(wrong), len(wrong))
    home_helpers.run(ledger, corrections[: len(corrections) // 2])
    home_helpers.run(ledger, corrections[len(corrections) // 2 :])
    assert totals(ledger) == totals(ordered_ledger), seed
    looked = rng.sample(epochs, 4)
    assert state(spark, ledger, looked) == state(spark, ordered_ledger, looked), seed
    assert len(views.select_totals(ledger, all_epochs=True)) >= len(epochs)
