"""The truss stage with and without the graph that the last run kept: epochs of 1,000 changes on a large home.

    python -m tests.benchmarks.kept [--edges 1000000 10000000] [--epochs 3]

Seeded R-MAT, landed as one Parquet file; then epochs of 500 deletions and 500 insertions, in turns in one warm session:
with `warm/` as the last run left it, and without it. A run's own stages ingest, edges and truss. Prints a table in
Markdown: seconds of the truss stage, of its kernels alone; the greatest memory of the Python workers; medians with the
least and the greatest.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import numpy as np

from altneu.pipeline.home.home import Home
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.stage_results import TrussFacts
from altneu.pipeline.storage import graph_cache
from altneu.pipeline.storage.session import start_session
from tests import home_helpers
from tests.benchmarks import put_changes, put_rows, spread
from tests.benchmarks.triangles import by_rmat

SKIPPED = ("triangles", "audit", "report")


def measure(folder: Path, size: int, epochs: int) -> None:
    home = Home.open(folder / str(size), create=True)
    rng = np.random.default_rng(3)
    a, b = by_rmat(size)
    put_rows(home, 0, a, b, ["upsert"] * a.size)
    ledger = Ledger(home)
    load = home_helpers.run_without(ledger, 0, SKIPPED)["truss"]
    disk = sum(file.stat().st_size for file in graph_cache.cache_folder(home).rglob("*.npy")) / a.size
    found: dict[str, list[tuple[float, float, float]]] = {"resume": [], "replay": []}
    for epoch in range(1, 2 * epochs + 3):
        put_changes(home, epoch, rng, a, b, 1000)
        if epoch % 2 == 0:
            shutil.rmtree(graph_cache.cache_folder(home))
        seconds = home_helpers.run_without(ledger, epoch, SKIPPED)["truss"]
        facts = ledger.stages.get_facts(ledger.revisions.get().run_id, TrussFacts)
        assert facts.plan == ("replay" if epoch % 2 == 0 else "resume")
        workers = (facts.cost and facts.cost.workers) or 0
        found[facts.plan].append((seconds, facts.seconds or 0.0, workers / 1e9))
    for plan, rows in found.items():
        cells = [spread(list(column), 2) for column in zip(*rows[1:], strict=True)]
        print(f"| {a.size:,} | {load:.1f} | {disk:.0f} | {plan} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    start_session()
    print("| edges | first load, s | bytes an edge in files | plan | truss stage, s | kernels, s | workers, GB |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for size in options.edges:
            measure(Path(folder), size, options.epochs)


if __name__ == "__main__":
    main()
