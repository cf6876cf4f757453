"""The replay of a long window without Spark: the proof after each epoch, and beside the maintenance of the next ones.

    python -m tests.benchmarks.side_by_side [--scale 17] [--edge-factor 9] [--epochs 100] [--changes 1000] [--repeat 3]

R-MAT as one epoch, then epochs of which half of the changes are insertions. Each row is a whole replay; the rows of one
call alternate, so that other work on the machine disturbs all of them alike. Wall and CPU seconds, and those of the
thread that maintains: medians with the least and the greatest. Where other work leaves no core free, the greater of
its seconds and the others' is what the wall would be. The proofs of all rows are compared, and have to be equal.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from dataclasses import asdict

import numpy as np

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.algorithms.graph.kernels.replay import prepare_replay, run_replay
from altneu.algorithms.graph.kernels.threads import use_threads
from altneu.algorithms.graph.proof_records import Proof, ProofScope
from tests.benchmarks import spread
from tests.benchmarks.kernels import rmat

Columns = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def long_history(scale: int, factor: int, epochs: int, changes: int) -> Columns:
    """Return the intervals of a graph of which some edges go and others come at each epoch after the first."""
    a, b = rmat(scale, factor)
    chosen = np.random.default_rng(5).permutation(a.size)[: epochs * changes]
    start, until = np.zeros(a.size, np.int64), np.full(a.size, FOREVER)
    for epoch, edges in enumerate(np.split(chosen, epochs), 1):
        start[edges[: changes // 2]] = epoch
        until[edges[changes // 2 :]] = epoch
    return a, b, start, until


def replay(columns: Columns, epochs: int, threads: int, *, proved: bool) -> tuple[list[float], Proof | None]:
    """Return the wall seconds of a replay, the CPU seconds, those of this thread, and the proof."""
    none = np.empty(0, np.int64)
    prepared = prepare_replay(*columns, none, none, none.astype(np.int32), 0, epochs, kept=True)
    clocks = time.perf_counter, time.process_time, time.thread_time
    before = [clock() for clock in clocks]
    with use_threads(threads):
        proof = run_replay(prepared, ask=ProofScope(32, 0) if proved else None).proof
    return [clock() - began for clock, began in zip(clocks, before, strict=True)], proof


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=int, default=17)
    parser.add_argument("--edge-factor", type=int, default=9)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    replay(long_history(9, 9, 4, 100), 4, 2, proved=True)  # compiled, or loaded
    columns = long_history(given.scale, given.edge_factor, given.epochs, given.changes)
    kinds = {"maintained only, 1 thread": (1, False)}
    kinds |= {f"proved, {n} thread{'s' * (n > 1)}": (n, True) for n in given.threads}
    seconds, proofs = defaultdict[str, list[list[float]]](list), []
    for _ in range(given.repeat):
        for name, (threads, proved) in kinds.items():
            spent, proof = replay(columns, given.epochs, threads, proved=proved)
            seconds[name].append(spent)
            proofs += [] if proof is None else [asdict(proof)]
    assert all(proof == proofs[0] for proof in proofs), "the proofs differ"
    print(
        f"{columns[0].size:,} edges, {given.epochs} epochs of {given.changes:,} changes; load {os.getloadavg()[0]:.1f}"
    )
    print("\n| replay | wall s | CPU s | CPU s of the maintaining thread |\n|---|---|---|---|")
    for name, rows in seconds.items():
        print(f"| {name} | {' | '.join(spread(list(column), 1) for column in zip(*rows, strict=True))} |")


if __name__ == "__main__":
    main()
