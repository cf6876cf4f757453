"""What an epoch costs as the graph grows: whole runs with all stages, checks and proofs, in one warm session.

    python -m tests.benchmarks.change [--edges 125000 1100000 10000000] [--epochs 3] [--mode auto] [--serving]
        [--homes FOLDER] [--heap 6g] [--tasks here]

Seeded R-MAT, landed as one Parquet file and loaded; then epochs of 500 deletions and 500 upserts, a run each.
`--mode`: `[audit] mode`. `--serving`: beside it, in turns, the same with all serving tables (`[publish] tables`).
`--homes`: where the homes are kept. `--heap`: of Spark's driver; the rest is for Python's tasks. `--tasks`: as if they
did not see the home's folder (`elsewhere`), and left nothing in a table either (`forgetful`). Prints tables in
Markdown: seconds of the first load by stage, and of an epoch (the median with the least and the greatest; the first
epoch, which warms up, is left out), with the greatest memory of the Python workers; and the bytes of each table's
files.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from altneu.algorithms.graph.graph_cache_task import GraphCacheLocation
from altneu.pipeline.home.home import Home
from altneu.pipeline.run import planning, runner, serving_tables, stages
from altneu.pipeline.run.stages import truss
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.stage_results import AuditFacts
from altneu.pipeline.storage import graph_cache
from altneu.pipeline.storage.session import start_session
from tests import home_helpers
from tests.benchmarks import put_changes, put_rows, spread
from tests.benchmarks.triangles import by_rmat


def ran(ledger: Ledger, epoch: int) -> tuple[list[float], float, str]:
    """Run one epoch: seconds of it and of each stage; gigabytes of the Python workers; how it was audited."""
    begin = time.perf_counter()
    revision = runner.execute_run(ledger, planning.plan_epochs(ledger, [epoch]))
    seconds = time.perf_counter() - begin
    assert revision is not None
    rows = {row.stage: row for row in ledger.stages.select(revision.run_id)}
    workers = max((row.facts.cost.workers or 0 for row in rows.values() if row.facts.cost), default=0)
    mode = ledger.stages.get_facts(revision.run_id, AuditFacts).mode or ""
    return [seconds, *(rows[name].seconds if name in rows else 0.0 for name in stages.NAMES)], workers / 1e9, mode


@dataclass
class Kind:
    """A home that is measured, and what its epochs took."""

    name: str
    home: Home
    ledger: Ledger
    found: list[list[float]] = field(default_factory=list)
    memory: float = 0.0
    audited: str = ""


def make_kind(path: Path, name: str, settings: str, serves: bool) -> Kind:
    """Make a home that is measured; `serves`: with all serving tables."""
    tables = f"[publish]\ntables = {json.dumps([*serving_tables.KEYS])}\n" if serves else ""
    return Kind(name, *home_helpers.make(path, settings + tables))


def measure(folder: Path, size: int, epochs: int, settings: str, serves: bool) -> None:
    kinds = [make_kind(folder / str(size), "as it is", settings, False)]
    if serves:
        kinds.append(make_kind(folder / f"{size}-serving", "with serving tables", settings, True))
    a, b = by_rmat(size)
    for kind in kinds:
        put_rows(kind.home, 0, a, b, ["upsert"] * a.size)
        seconds, memory, how = ran(kind.ledger, 0)
        _row(f"| {a.size:,} | load, {kind.name} | {how} | ", [f"{s:.1f}" for s in seconds], memory)
    draws = [np.random.default_rng(3) for _ in kinds]
    for epoch in range(1, epochs + 2):
        for kind, rng in zip(kinds, draws, strict=True):
            put_changes(kind.home, epoch, rng, a, b, 1000)
            seconds, memory, kind.audited = ran(kind.ledger, epoch)
            if epoch > 1:
                kind.found.append(seconds)
                kind.memory = max(kind.memory, memory)
    for kind in kinds:
        cells = [spread(list(column)) for column in zip(*kind.found, strict=True)]
        _row(f"| {a.size:,} | epoch, {kind.name} | {kind.audited} | ", cells, kind.memory)
    if serves:
        held = {}
        for table in sorted(kinds[-1].ledger.revisions.get().snapshots):
            files = (kinds[-1].home.path / "warehouse" / "graph" / table / "data").rglob("*.parquet")
            held[table] = sum(file.stat().st_size for file in files)
        print(
            "\nOn disk, of all revisions: " + ", ".join(f"{table} {size / 1e6:.1f} MB" for table, size in held.items())
        )


def _row(begin: str, cells: list[str], memory: float) -> None:
    print(begin + " | ".join(cells) + f" | {memory:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, nargs="+", default=[125_000, 1_100_000])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--mode", default="auto")
    parser.add_argument("--serving", action="store_true")
    parser.add_argument("--homes", type=Path)
    parser.add_argument("--heap")
    parser.add_argument("--tasks", choices=("here", "elsewhere", "forgetful"), default="here")
    options = parser.parse_args()
    if options.tasks != "here":
        graph_cache.cache_location = lambda home: GraphCacheLocation(home.path / "nowhere", "elsewhere")
    if options.tasks == "forgetful":
        truss.CERTIFIED = None
    conf = {"spark.driver.memory": options.heap} if options.heap else {}
    start_session(conf=conf)
    settings = f'[audit]\nmode = "{options.mode}"\n'
    if conf:
        settings += f'[spark]\nconf = {{ "spark.driver.memory" = "{options.heap}" }}\n'
    print("| edges | run | audit | whole, s | " + " | ".join(stages.NAMES) + " | workers, GB |")
    print("|---" * (5 + len(stages.NAMES)) + "|")
    with tempfile.TemporaryDirectory() as folder:
        for size in options.edges:
            measure(options.homes or Path(folder), size, options.epochs, settings, options.serving)


if __name__ == "__main__":
    main()
