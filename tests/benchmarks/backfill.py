"""Seconds of a backfill in a real Airflow: as one run of `altneu_backfill`, and as `airflow backfill create` backwards.

    python -m tests.benchmarks.backfill [--days 60] [--active 8]

CollegeMsg by day, 30-day window, each way on a home and in a local Airflow of its own, through Spark Connect. Counted
from the moment at which the first DAG run is queued to the end of the last one. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline.home.directory import Home
from pipeline.local.demo import daily, land_messages
from pipeline.state.ledger import Ledger
from tests.dags.real import Airflow, backfill

WAYS = ("altneu_backfill", "altneu_epoch")


def measured(folder: Path, way: str, days: int, active: int) -> tuple[float, int, int]:
    """Seconds, DAG runs, revisions."""
    home = daily(Home.open(folder, create=True))
    epochs = land_messages(home).epochs
    for epoch in epochs[days:]:
        shutil.rmtree(home.landing / f"epoch={home.schedule.label(epoch)}")
    ledger = Ledger(home.database)
    with Airflow(home, "--connect") as airflow:
        airflow.until(lambda: airflow.call(f"/api/v2/dags/{way}"), 120, "the DAG")
        if way == "altneu_epoch":
            backfill(airflow, home, epochs[:days], active)
        else:
            airflow.unpause(way)
            airflow.call(f"/api/v2/dags/{way}/dagRuns", {"logical_date": None})

        def done() -> list[dict[str, Any]] | None:
            runs = airflow.healthy(way)
            return runs if runs and {run["state"] for run in runs} == {"success"} else None

        runs: list[dict[str, Any]] = airflow.until(done, 600 * days, "all runs have ended")
    assert sorted(ledger.batches()) == epochs[:days]
    queued = min(datetime.fromisoformat(run["queued_at"]) for run in runs)
    ended = max(datetime.fromisoformat(run["end_date"]) for run in runs)
    return (ended - queued).total_seconds(), len(runs), ledger.at().revision


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--active", type=int, default=8)
    options = parser.parse_args()
    print(f"\n| {options.days} days | DAG runs | revisions | seconds |\n|---|---|---|---|")
    for way in WAYS:
        with tempfile.TemporaryDirectory() as folder:
            seconds, runs, revisions = measured(Path(folder) / "home", way, options.days, options.active)
        name = f"{way}, backwards, {options.active} active" if way == "altneu_epoch" else way
        print(f"| {name} | {runs} | {revisions} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
