"""Time of one epoch, cold and warm, with the share of each stage; and the demo's backfill.

    python -m tests.benchmarks.epoch [--warm 10] [--cold 3]

The real CollegeMsg messages, daily epochs, an edge lives 30 days: the first 150 days in one pass, then single days,
each one revision. Warm: in one process whose session is up. Cold: one `altneu run` process each, start included.
Prints a table in Markdown; medians, and the least and greatest.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from altneu.pipeline.home.home import Home
from altneu.pipeline.local.demo import land_messages, with_daily_epochs
from altneu.pipeline.run import planning, runner, stages
from altneu.pipeline.state.ledger import Ledger
from tests.benchmarks import spread

STAGES = stages.NAMES


def seconds_of(ledger: Ledger) -> dict[str, float]:
    return {row.stage: row.seconds for row in ledger.stages.select(ledger.revisions.get().run_id)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--warm", type=int, default=10)
    parser.add_argument("--cold", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = with_daily_epochs(Home.open(Path(folder) / "home", create=True))
        ledger = Ledger(home)
        epochs = land_messages(home).epochs

        def run(some: list[int]) -> tuple[float, dict[str, float]]:
            begin = time.perf_counter()
            runner.execute_run(ledger, planning.plan_epochs(ledger, some))
            return time.perf_counter() - begin, seconds_of(ledger)

        bulk, bulk_stages = run(epochs[:150])
        warm = [run([epoch]) for epoch in epochs[150 : 150 + options.warm]]
        cold = []
        for epoch in epochs[150 + options.warm : 150 + options.warm + options.cold]:
            begin = time.perf_counter()
            command = [sys.executable, "-m", "altneu.pipeline.cli", "--home", str(home.path), "run", str(epoch)]
            subprocess.run(command, check=True, capture_output=True)
            cold.append((time.perf_counter() - begin, seconds_of(ledger)))
    print("| seconds | 150 days in one pass, cold | one day, warm | one day, cold process |")
    print("|---|---|---|---|")
    print(f"| whole | {bulk:.1f} | {spread([w for w, _ in warm])} | {spread([c for c, _ in cold])} |")
    for stage in STAGES:
        columns = [[parts[stage] for _, parts in runs] for runs in (warm, cold)]
        print(f"| {stage} | {bulk_stages[stage]:.1f} | {spread(columns[0])} | {spread(columns[1])} |")


if __name__ == "__main__":
    main()
