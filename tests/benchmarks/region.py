"""Beyond a task's memory: a first load in parts, and then epochs by the region that their changes reach.

    python -m tests.benchmarks.region [--edges 130000] [--limit 60000] [--changes 200] [--epochs 3] [--verbose]

Seeded R-MAT, landed as one Parquet file, then epochs, half of whose changes are deletions. `--limit`: `[truss]
limit_edges`, more than which no task may hold. All runs are in one process, so that the second epoch and later ones are
warm. Prints a table in Markdown: seconds of a run, of its truss stage and its audit, the rounds of parts or the hops of
a region, and the edges that a region's task was given. `--verbose`: what the runs say, with seconds since their start.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from altneu.pipeline.run import planning, runner
from altneu.pipeline.state.stage_results import TrussFacts
from tests import home_helpers
from tests.benchmarks import put_changes, put_rows
from tests.benchmarks.triangles import by_rmat


def measure(folder: Path, size: int, limit: int, changes: int, epochs: int, verbose: bool) -> None:
    def say(stage: str, text: str) -> None:
        if verbose:
            print(f"{time.perf_counter() - begin:7.1f} {stage}: {text}", file=sys.stderr, flush=True)

    home, ledger = home_helpers.make(folder, f"[truss]\nlimit_edges = {limit}\n")
    rng, (a, b) = np.random.default_rng(3), by_rmat(size)
    put_rows(home, 0, a, b, ["upsert"] * a.size)
    for epoch in range(epochs + 1):
        if epoch:
            put_changes(home, epoch, rng, a, b, changes)
        begin = time.perf_counter()
        revision = runner.execute_run(ledger, planning.plan_epochs(ledger, [epoch]), say=say)
        seconds = time.perf_counter() - begin
        assert revision is not None
        stages = {row.stage: row.seconds or 0.0 for row in ledger.stages.select(revision.run_id)}
        facts = ledger.stages.get_facts(revision.run_id, TrussFacts)
        what = "first load" if not epoch else f"epoch {epoch}, {changes:,} changes"
        took = f"{seconds:.0f} | {stages['truss']:.0f} | {stages['audit']:.1f}"
        told = f"{facts.rounds or ''} | {'' if facts.region is None else f'{facts.region:,}'}"
        print(f"| {a.size:,} | {what}: {facts.plan} | {took} | {told} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=130_000)
    parser.add_argument("--limit", type=int, default=60_000)
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    print(
        "| edges | run | s | truss, s | audit, s | rounds or hops | edges in the task |\n|---|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), options.edges, options.limit, options.changes, options.epochs, options.verbose)


if __name__ == "__main__":
    main()
