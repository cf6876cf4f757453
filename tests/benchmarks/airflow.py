"""Seconds of a run of `altneu_epoch` in a real Airflow, task by task, in the three ways to reach Spark.

    python -m tests.benchmarks.airflow [--runs 5] [process] [connect] [submit]

CollegeMsg by day, 30-day window: 100 days in one pass, then `--runs` more, one epoch a run, one after the other, in a
local Airflow of its own for each way: runs by hand, since those that catch up take each other along. The first run of
each way is left out: a server that has compiled nothing yet. Prints a table in Markdown; medians with the least and
the greatest.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from altneu.pipeline.home.home import Home
from altneu.pipeline.local.demo import land_messages, with_daily_epochs
from altneu.pipeline.state.ledger import Ledger
from tests import home_helpers
from tests.benchmarks import spread
from tests.dags.real import Airflow

TASKS = ("landed", "plan", "ingest", "edges", "triangles", "truss", "audit", "publish", "report")
CLUSTER = json.dumps({"conn_type": "spark", "host": "local[*]"})
WAYS: dict[str, tuple[list[str], dict[str, str]]] = {
    "process": ([], {}),
    "connect": (["--connect"], {}),
    "submit": ([], {"ALTNEU_SUBMIT": "cluster", "AIRFLOW_CONN_CLUSTER": CLUSTER}),
}


def measured(folder: Path, way: str, runs: int) -> list[dict[str, float]]:
    """Seconds of every run and its tasks, but of the first."""
    home = with_daily_epochs(Home.open(folder, create=True))
    epochs = land_messages(home).epochs
    home_helpers.run(home, Ledger(home.database), epochs[:100])
    ahead = [home.schedule.format_label(epoch) for epoch in epochs[100 : 100 + runs + 1]]
    only = home.schedule.start_of(epochs[0]).isoformat()  # one scheduled run, of what is published
    arguments, environment = WAYS[way]
    environment = environment | {"ALTNEU_START": only, "ALTNEU_END": only}
    rows = []
    with Airflow(home, *arguments, environment=environment) as airflow:
        airflow.unpause("altneu_epoch")
        airflow.until(lambda: _ended(airflow), 600, "the scheduled run has ended")
        for label in ahead:
            asked = {"logical_date": None, "conf": {"epoch": label}}
            run = airflow.call("/api/v2/dags/altneu_epoch/dagRuns", asked)["dag_run_id"]
            done = airflow.until(partial(_ended, airflow, run), 600, f"the run of {label} has ended")
            tasks = airflow.tasks("altneu_epoch", run)
            rows.append({"run": done["duration"]} | {name: tasks[name]["duration"] for name in TASKS})
    return rows[1:]


def _ended(airflow: Airflow, run: str | None = None) -> dict[str, Any] | None:
    """This run, or any, when it has ended; AssertionError when one has failed."""
    runs = airflow.healthy("altneu_epoch")
    return next((r for r in runs if r["state"] == "success" and run in (None, r["dag_run_id"])), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", default=list(WAYS))
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {way: measured(Path(folder) / way, way, options.runs) for way in options.ways}
    print(f"\n| seconds of a run ({options.runs} each) | " + " | ".join(found) + " |")
    print("|---" * (len(found) + 1) + "|")
    for name in ("run", *TASKS):
        print(f"| {name} | " + " | ".join(spread([row[name] for row in rows]) for rows in found.values()) + " |")


if __name__ == "__main__":
    main()
