"""Seconds of a backfill in a real Airflow: as one run of `altneu_backfill`, and as `airflow backfill create` backwards.

    python -m tests.benchmarks.backfill [--days 60] [--active 8] [--way altneu_backfill|altneu_epoch]

CollegeMsg by day, 30-day window, each way on a home and in a local Airflow of its own, through Spark Connect; with the
databases of both on a PostgreSQL of its own, which has to be installed. Counted from the moment at which the first DAG
run is queued to the end of the last one. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.dags.real import Airflow, backfill
from tests.dags.test_real import college
from tests.postgres import database, running
from tests.tools import locate

WAYS = ("altneu_backfill", "altneu_epoch")


def measured(folder: Path, server: str, way: str, days: int, active: int) -> tuple[float, int, int]:
    """Seconds, DAG runs, revisions."""
    home, ledger, epochs = college(folder, days, f'[storage]\ndatabase = "{database(server)}"\n')
    environment = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database(server)}
    with Airflow(home, "--connect", environment=environment) as airflow:
        airflow.until(lambda: airflow.call(f"/api/v2/dags/{way}"), 120, "the DAG")
        if way == "altneu_epoch":
            backfill(airflow, home, epochs, active)
        else:
            airflow.unpause(way)
            airflow.call(f"/api/v2/dags/{way}/dagRuns", {"logical_date": None})

        def done() -> list[dict[str, Any]] | None:
            runs = airflow.healthy(way)
            return runs if runs and {run["state"] for run in runs} == {"success"} else None

        runs: list[dict[str, Any]] = airflow.until(done, 600 * days, "all runs have ended")
    assert sorted(ledger.outputs.published_batches()) == epochs
    queued = min(datetime.fromisoformat(run["queued_at"]) for run in runs)
    ended = max(datetime.fromisoformat(run["end_date"]) for run in runs)
    return (ended - queued).total_seconds(), len(runs), ledger.revisions.get().revision


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--active", type=int, default=8)
    parser.add_argument("--way", choices=WAYS, help="only this one")
    options = parser.parse_args()
    print(f"\n| {options.days} days | DAG runs | revisions | seconds |\n|---|---|---|---|")
    if locate("postgresql") is None:
        parser.error("no PostgreSQL server is installed here (initdb is not found)")
    for way in [options.way] if options.way else WAYS:
        with tempfile.TemporaryDirectory() as folder, running() as server:
            home = Path(folder) / "home"
            seconds, runs, revisions = measured(home, server.uri, way, options.days, options.active)
        name = f"{way}, backwards, {options.active} active" if way == "altneu_epoch" else way
        print(f"| {name} | {runs} | {revisions} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
