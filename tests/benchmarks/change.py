"""What an epoch costs as the graph grows: whole runs with all stages, checks and proofs, in one warm session.

    python -m tests.benchmarks.change [--edges 125000 1100000 10000000] [--epochs 3] [--mode auto]

Seeded R-MAT, landed as one Parquet file and loaded; then epochs of 500 deletions and 500 upserts, a run each. `--mode`:
`[audit] mode`. Prints two tables in Markdown: seconds of the first load by stage, and of an epoch (the median with the
least and the greatest; the first epoch, which warms up, is left out), with the greatest memory of the Python workers.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from pipeline.home.directory import Home
from pipeline.run import planning, runner, stages
from pipeline.state.facts import AuditFacts
from pipeline.state.ledger import Ledger
from pipeline.storage.session import session
from tests.benchmarks import put_changes, put_rows, spread
from tests.benchmarks.triangles import by_rmat


def ran(home: Home, ledger: Ledger, epoch: int) -> tuple[list[float], float, str]:
    """Run one epoch: seconds of it and of each stage; gigabytes of the Python workers; how it was audited."""
    begin = time.perf_counter()
    revision = runner.run(home, ledger, planning.plan_epochs(home, ledger, [epoch]))
    seconds = time.perf_counter() - begin
    assert revision is not None
    rows = {row.stage: row for row in ledger.stages(revision.run_id)}
    workers = max((row.facts.cost.workers or 0 for row in rows.values() if row.facts.cost), default=0)
    mode = ledger.facts(revision.run_id, AuditFacts).mode or ""
    return [seconds, *(rows[name].seconds for name in stages.NAMES)], workers / 1e9, mode


def measure(folder: Path, size: int, epochs: int, mode: str) -> None:
    home = Home.open(folder / str(size), create=True)
    text = (home.path / "altneu.toml").read_text()
    if mode != "auto":
        (home.path / "altneu.toml").write_text(text.replace("[audit]\n", f'[audit]\nmode = "{mode}"\n', 1))
        home = Home.open(home.path)
    rng = np.random.default_rng(3)
    a, b = by_rmat(size)
    put_rows(home, 0, a, b, ["upsert"] * a.size)
    ledger = Ledger(home.database)
    seconds, memory, how = ran(home, ledger, 0)
    print(
        f"| {a.size:,} | load | {how} | " + " | ".join(f"{s:.1f}" for s in seconds) + f" | {memory:.1f} |", flush=True
    )
    found, most = [], 0.0
    for epoch in range(1, epochs + 2):
        put_changes(home, epoch, rng, a, b, 1000)
        seconds, memory, how = ran(home, ledger, epoch)
        if epoch > 1:
            found.append(seconds)
            most = max(most, memory)
    cells = [spread(list(column)) for column in zip(*found, strict=True)]
    print(f"| {a.size:,} | epoch | {how} | " + " | ".join(cells) + f" | {most:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, nargs="+", default=[125_000, 1_100_000])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--mode", default="auto")
    options = parser.parse_args()
    session()
    print("| edges | run | audit | whole, s | " + " | ".join(stages.NAMES) + " | workers, GB |")
    print("|---" * (5 + len(stages.NAMES)) + "|")
    with tempfile.TemporaryDirectory() as folder:
        for size in options.edges:
            measure(Path(folder), size, options.epochs, options.mode)


if __name__ == "__main__":
    main()
