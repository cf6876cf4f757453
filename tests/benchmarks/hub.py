"""One vertex with a million neighbours: what changes at it and among its neighbours cost, against a flat graph.

    python -m tests.benchmarks.hub [--neighbours 1000000]

Two homes with as many edges: in one a hub is joined to every vertex and as many edges lie among its neighbours; in the
other all edges join random vertices. An epoch adds 1,000 edges among the vertices and 1,000 at the hub (elsewhere in
the flat graph), the next one takes them away again. Delta plan; a process for each graph, so that peaks are its own.
Prints a table in Markdown: seconds of the triangle stage and of the whole run, proposals and the sum of the least
degrees that bounds them (law 8; rows of the index count as degrees do, so every time that an edge came or went adds
one, until a compaction), and the greatest memory of the processes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from altneu.pipeline.home.home import Home
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.stage_results import Cost, TrianglesFacts
from tests import home_helpers
from tests.benchmarks import put_rows

CHANGES = 1_000


def put(home: Home, epoch: int, pairs: np.ndarray, op: str) -> None:
    put_rows(home, epoch, pairs[:, 0], pairs[:, 1], [op] * len(pairs))


def distinct(pairs: np.ndarray, size: int) -> np.ndarray:
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    pairs = np.unique(pairs, axis=0)
    return pairs[np.random.default_rng(0).permutation(len(pairs))[:size]]


def graph(kind: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The edges, 2n of them, and those that come and go."""
    rng = np.random.default_rng(1)
    among = distinct(rng.integers(1, n + 1, (n + n // 10, 2)), n)
    new = distinct(rng.integers(1, n + 1, (2 * CHANGES, 2)), CHANGES)
    if kind == "hub":
        spokes = np.stack([np.zeros(n, np.int64), np.arange(1, n + 1)], axis=1)
        at_hub = np.stack([np.zeros(CHANGES, np.int64), np.arange(n + 1, n + 1 + CHANGES)], axis=1)
        return np.concatenate([spokes, among]), np.concatenate([new, at_hub])
    more = distinct(rng.integers(1, n + 1, (2 * n + n // 5, 2)), 2 * n)
    return more, np.concatenate([new, distinct(rng.integers(1, n + 1, (2 * CHANGES, 2)), CHANGES)])


def sum_of_least_degrees(edges: np.ndarray, changes: np.ndarray) -> int:
    """Over the changed edges, the lesser degree of the two ends while they are there."""
    degrees = np.bincount(np.concatenate([edges, changes]).ravel())
    return int(np.minimum(degrees[changes[:, 0]], degrees[changes[:, 1]]).sum())


def one(kind: str, n: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home, ledger = home_helpers.make(Path(folder) / "home", '[triangles]\nplan = "delta"\n')
        edges, changes = graph(kind, n)
        least = sum_of_least_degrees(edges, changes)
        put(home, 0, edges, "upsert")
        for epoch in range(1, 5):
            put(home, epoch, changes, "upsert" if epoch % 2 else "delete")
        for epoch, what in enumerate(("load", "added", "taken away", "added again", "taken away again")):
            begin = time.perf_counter()
            home_helpers.run(ledger, [epoch])
            whole = time.perf_counter() - begin
            print(row(ledger, kind, what, len(edges), whole, least if epoch else None), flush=True)


def row(ledger: Ledger, kind: str, what: str, edges: int, whole: float, least: int | None) -> str:
    stages = {stage.stage: stage for stage in ledger.stages.select(ledger.revisions.get().run_id)}
    triangles = ledger.stages.get_facts(ledger.revisions.get().run_id, TrianglesFacts)
    costs = [row.facts.cost or Cost() for row in stages.values()]
    proposals, mine = triangles.proposals, triangles.cost or Cost()
    bound = f"{least:,}" if least else "–"
    found = f"{proposals:,}" if proposals else "–"
    most = [max(cost.jvm or 0 for cost in costs), max(cost.workers or 0 for cost in costs)]
    memory = " / ".join(f"{peak / 2**30:.1f}" for peak in (mine.jvm or 0, mine.workers or 0, *most))
    seconds = stages["triangles"].seconds
    return f"| {kind} | {what} | {edges:,} | {whole:.1f} | {seconds:.1f} | {found} | {bound} | {memory} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neighbours", type=int, default=1_000_000)
    parser.add_argument("--one", choices=["hub", "flat"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one, options.neighbours)
        return
    print("\n| graph | epoch | edges | run, s | triangles, s | proposals | Σ least degree | GiB, triangles and run |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for kind in ("hub", "flat"):
        command = [sys.executable, "-m", "tests.benchmarks.hub", "--one", kind, "--neighbours", str(options.neighbours)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
