"""Seconds of a run of `altneu_epoch` in a real Airflow, task by task, in the three ways to reach Spark.

    python -m tests.benchmarks.airflow [--runs 5] [process] [connect] [submit]

CollegeMsg by day, 30-day window: 100 days in one pass, then the schedule catches up `--runs` more, one epoch a run, in
a local Airflow of its own for each way. The first run of each way is left out: a server that has compiled nothing yet.
Prints a table in Markdown; medians with the least and the greatest.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

from pipeline.home.directory import Home
from pipeline.local.demo import daily, land_messages
from pipeline.state.ledger import Ledger
from tests import homes
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
    home = daily(Home.open(folder, create=True))
    epochs = land_messages(home).epochs
    homes.run(home, Ledger(home.database), epochs[:100])
    ahead = epochs[100 : 100 + runs + 1]
    for epoch in epochs[100 + runs + 1 :]:
        shutil.rmtree(home.landing / f"epoch={home.schedule.label(epoch)}")
    bounds = (home.schedule.start(epoch).isoformat() for epoch in (ahead[0], ahead[-1]))
    arguments, environment = WAYS[way]
    environment = environment | dict(zip(("ALTNEU_START", "ALTNEU_END"), bounds, strict=True))
    with Airflow(home, *arguments, environment=environment) as airflow:
        airflow.unpause("altneu_epoch")

        def done() -> list[dict[str, float]] | None:
            found = [run for run in airflow.runs("altneu_epoch") if run["state"] != "running"]
            assert "failed" not in {run["state"] for run in found}
            rows = []
            for run in found:
                tasks = airflow.tasks("altneu_epoch", run["dag_run_id"])
                if tasks["report"]["state"] == "success":  # not a gap of the history
                    rows.append({"run": run["duration"]} | {name: tasks[name]["duration"] for name in TASKS})
            return rows if len(rows) == len(ahead) else None

        rows: list[dict[str, float]] = airflow.until(done, 600 * len(ahead), "all runs have ended")
    return rows[1:]


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
