"""Seconds of a run of `altneu_epoch` in a real Airflow, task by task, in the four ways to reach Spark.

    python -m tests.benchmarks.airflow [--runs 5] [daemon] [process] [connect] [submit]
    python -m tests.benchmarks.airflow --catch-up 28 [daemon] …

CollegeMsg by day, 30-day window: 100 days in one pass, then `--runs` more, one epoch a run, one after the other, in a
local Airflow of its own for each way: runs by hand, since those that catch up take each other along. The first run of
each way is left out: a server that has compiled nothing yet. Prints a table in Markdown; medians with the least and
the greatest.

With `--catch-up` the schedule of a new home catches up with so many landed days, and then a day that has landed again
is run by `airflow backfill create`: seconds from the switch, or the command, to the publication and to the end of all
DAG runs, and CPU seconds of all processes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from altneu.pipeline.home.home import Home
from altneu.pipeline.local.demo import land_messages, with_daily_epochs
from altneu.pipeline.state.ledger import Ledger
from tests import home_helpers
from tests.benchmarks import spread
from tests.dags import real
from tests.dags.real import Airflow
from tests.dags.test_real import college

TASKS = ("landed", "plan", "ingest", "edges", "triangles", "truss", "audit", "publish", "report")
CLUSTER = json.dumps({"conn_type": "spark", "host": "local[*]"})
WAYS: dict[str, tuple[list[str], dict[str, str]]] = {
    "daemon": ([], {}),
    "process": ([], {}),  # with `[spark] daemon = false`
    "connect": (["--connect"], {}),
    "submit": ([], {"ALTNEU_SUBMIT": "cluster", "AIRFLOW_CONN_CLUSTER": CLUSTER}),
}


def measured(folder: Path, way: str, runs: int) -> list[dict[str, float]]:
    """Seconds of every run and its tasks, but of the first."""
    home = with_daily_epochs(home_helpers.make(folder, settings_of(way))[0])
    epochs = land_messages(home).epochs
    home_helpers.run(Ledger(home), epochs[:100])
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


def settings_of(way: str) -> str:
    """The settings of a home for a way."""
    return "[spark]\ndaemon = false\n" if way == "process" else ""


def catch_up(folder: Path, way: str, days: int) -> list[tuple[str, float, float, float]]:
    """What was done, seconds to the publication and to the end of all DAG runs, and CPU seconds."""
    home, ledger, epochs = college(folder, days, settings_of(way))
    first, last = (home.schedule.start_of(epoch) for epoch in (epochs[0], epochs[-1]))
    arguments, environment = WAYS[way]
    bounds = {"ALTNEU_START": first.isoformat(), "ALTNEU_END": last.isoformat()}
    with Airflow(home, *arguments, environment=environment | bounds) as airflow:
        airflow.until(lambda: airflow.call("/api/v2/dags/altneu_epoch"), 120, "the DAG")

        def timed(what: str, start: Callable[[], Any], revision: Callable[[], bool]) -> tuple[str, float, float, float]:
            began, cpu = time.monotonic(), cpu_seconds(airflow)
            start()
            airflow.until(revision, 600, f"{what} is published")
            published = time.monotonic() - began
            airflow.until(lambda: all_ended(airflow, days), 600, "all runs have ended")
            return what, published, time.monotonic() - began, cpu_seconds(airflow) - cpu

        whole = timed(
            f"{days} days by catch-up",
            lambda: airflow.unpause("altneu_epoch"),
            lambda: len(ledger.outputs.published_batches()) == days,
        )
        before, day = ledger.revisions.get().revision, epochs[days // 2]
        home_helpers.put(home, day, [(1, 2, None, "upsert", 0), (2, 3, None, "upsert", 0)])
        again = timed("a corrected day", partial(backfill_day, airflow, home, day), lambda: newest(ledger) > before)
    return [whole, again]


def newest(ledger: Ledger) -> int:
    return ledger.revisions.get().revision


def backfill_day(airflow: Airflow, home: Home, epoch: int) -> None:
    """Run a published day again, as an operator does."""
    day = f"{home.schedule.start_of(epoch):%Y-%m-%d}"
    command = ["backfill", "create", "--dag-id", "altneu_epoch", "--from-date", day, "--to-date", day]
    created = airflow.command(*command, "--reprocess-behavior", "completed")
    said, _ = created.communicate(timeout=300)
    assert created.returncode == 0, said


def all_ended(airflow: Airflow, least: int) -> bool:
    runs = airflow.healthy("altneu_epoch")
    return len(runs) >= least and {run["state"] for run in runs} == {"success"}


def cpu_seconds(airflow: Airflow) -> float:
    """CPU seconds of the parts of Airflow, of Spark, and of the tasks that have ended."""
    root = psutil.Process(airflow.process.pid)
    times = [process.cpu_times() for process in (root, *root.children(recursive=True)) if process.is_running()]
    return sum(each.user + each.system + each.children_user + each.children_system for each in times)


def _ended(airflow: Airflow, run: str | None = None) -> dict[str, Any] | None:
    """This run, or any, when it has ended; AssertionError when one has failed."""
    runs = airflow.healthy("altneu_epoch")
    return next((r for r in runs if r["state"] == "success" and run in (None, r["dag_run_id"])), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", default=list(WAYS))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--catch-up", type=int, metavar="DAYS")
    options = parser.parse_args()
    if options.catch_up:
        real.PROMPT = 0.5
        print("\n| | published after s | all ended after s | CPU s |\n|---|---|---|---|")
        for way in options.ways:
            with tempfile.TemporaryDirectory() as folder:
                for what, *seconds in catch_up(Path(folder) / "home", way, options.catch_up):
                    print(f"| {what}, {way} | " + " | ".join(f"{each:.1f}" for each in seconds) + " |", flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        found = {way: measured(Path(folder) / way, way, options.runs) for way in options.ways}
    print(f"\n| seconds of a run ({options.runs} each) | " + " | ".join(found) + " |")
    print("|---" * (len(found) + 1) + "|")
    for name in ("run", *TASKS):
        print(f"| {name} | " + " | ".join(spread([row[name] for row in rows]) for rows in found.values()) + " |")


if __name__ == "__main__":
    main()
