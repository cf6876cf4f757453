"""The task of the truss stage by itself, without Spark: what a first load and an epoch of 1,000 changes spend where.

    python -m tests.benchmarks.task [--edges 1000000 10000000] [--epochs 3] [--parts 32]

Seeded R-MAT, replayed as a first load, proved and kept in files; then epochs of 500 deletions and 500 insertions, each
from the files that the one before has left, as `truss.resumed_changes` does. Prints a table in Markdown: CPU seconds by
phase, which may lie within each other; medians with the least and the greatest; and the megabytes that an epoch writes.
With `--beginnings` the whole task of an epoch in which 1,000 edges go instead, rows in and out included: from the
tables, and from the state that the task before has left in a table.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.algorithms.graph import truss
from altneu.algorithms.graph.graph_cache_task import CachedGraph, GraphCacheLocation
from altneu.algorithms.graph.kernels import array_store, maintained_graph, replay
from altneu.algorithms.graph.kernels.incremental_prover import IncrementalProver
from altneu.algorithms.graph.kernels.persistent_graph import PersistentGraph
from altneu.algorithms.graph.kernels.replay import resume_replay
from altneu.algorithms.graph.proof_records import Proof, ProofScope, ProvedState
from altneu.algorithms.graph.tagged_rows import RowKind, Task, input_columns
from altneu.algorithms.graph.truss_plan import ReplayRequest
from tests import memory_peak
from tests.benchmarks import spread
from tests.benchmarks.triangles import by_rmat

PHASES: list[tuple[Any, str]] = [
    *((PersistentGraph, name) for name in ("from_edges", "open_graph", "apply_batch", "save_graph")),
    (maintained_graph.MaintainedGraph, "_peel_all"),
    *(
        (IncrementalProver, name)
        for name in (
            "__init__",
            "_recount",
            "before_batch",
            "after_batch",
            "_follow_edges",
            "_check_lists",
            "share_fingerprints",
        )
    ),
]
found: dict[str, float] = defaultdict(float)


def timed(owner: Any, name: str) -> None:
    what = f"{owner.__name__}.{name}"
    wrapped = owner.__dict__[name]
    call: Callable[..., Any] = getattr(wrapped, "__func__", wrapped)

    def inner(*args: Any, **more: Any) -> Any:
        begin = time.process_time()
        try:
            return call(*args, **more)
        finally:
            found[what] += time.process_time() - begin

    setattr(owner, name, classmethod(inner) if isinstance(wrapped, classmethod) else inner)


def written(folder: Path, before: float) -> float:
    """Megabytes of the blocks of files that are newer than that."""
    files = [file.stat() for file in folder.rglob("*") if file.is_file()]
    return sum(file.st_size for file in files if file.st_mtime >= before) / 1e6


def measure(folder: Path, size: int, epochs: int, parts: int) -> None:
    rng = np.random.default_rng(3)
    a, b = by_rmat(size)
    none = np.empty(0, np.int64)
    zero, open_end = np.zeros(a.size, np.int64), np.full(a.size, FOREVER)
    rows: list[dict[str, float]] = []
    alive = set[int]()
    for epoch in range(epochs + 2):
        found.clear()
        begin, wall = time.process_time(), time.time()
        if epoch == 0:
            ask = ProofScope(parts, 0)
            result = replay.replay_window(
                a, b, zero, open_end, none, none, none.astype(np.int32), 0, 0, kept=True, ask=ask
            )
        else:
            graph = PersistentGraph.open_graph(folder, f"e{epoch - 1}")
            assert graph is not None
            gone = rng.choice(a.size, 500, replace=False)
            gone = np.array([e for e in gone if e not in alive])
            alive.update(gone.tolist())
            ends = np.unique(np.sort(np.stack([rng.choice(a, 500), rng.choice(b, 500)], axis=1), axis=1), axis=0)
            ends = ends[ends[:, 0] < ends[:, 1]]
            numbers = graph.number_edges(ends[:, 0].copy(), ends[:, 1].copy())
            ends = ends[graph.levels.level[numbers] < 0]
            until, start = np.full(gone.size, epoch), np.full(len(ends), epoch)
            both = (
                np.concatenate([a[gone], ends[:, 0]]),
                np.concatenate([b[gone], ends[:, 1]]),
                np.concatenate([np.zeros(gone.size, np.int64), start]),
                np.concatenate([until, np.full(len(ends), FOREVER)]),
                np.ones(gone.size + len(ends), np.int64),
            )
            # an interval that ended is two rows: it began without an end
            open_rows = (
                a[gone],
                b[gone],
                np.zeros(gone.size, np.int64),
                np.full(gone.size, FOREVER),
                -np.ones(gone.size, np.int64),
            )
            both = tuple(np.concatenate(pair) for pair in zip(both, open_rows, strict=True))
            result = resume_replay(
                graph, epoch - 1, both, np.zeros(both[0].size, np.bool_), epoch, epoch, ProofScope(parts, epoch % parts)
            )
        result.graph.save_graph(folder, f"e{epoch}", at=epoch)
        array_store.sweep_folder(folder, [f"e{epoch}", f"e{epoch - 1}"])
        seconds = time.process_time() - begin
        assert result.proof is not None and not result.proof.wrong, result.proof
        row = {
            "whole": seconds,
            **found,
            "MB written": written(folder / f"e{epoch}", wall),
            "edges moved": len(result.changes.a),
        }
        if epoch == 0:
            show(a.size, "load", [row])
        elif epoch > 1:  # the first warms up
            rows.append(row)
    show(a.size, "epoch", rows)


def beginnings(folder: Path, size: int) -> None:
    """One epoch from the tables, and from a state in a table; `Files` that nobody sees."""
    a, b = by_rmat(size)
    cache = CachedGraph(GraphCacheLocation(folder, "elsewhere"), "key", 0)

    def request(epoch: int) -> ReplayRequest:
        return ReplayRequest(
            first_epoch=epoch, last_epoch=epoch, scope=ProofScope(32, epoch), cache=cache, checkpoint_edges=1
        )

    def run(task: Task, columns: list[np.ndarray], names: list[str]) -> tuple[float, pa.Table]:
        with memory_peak.sent(folder, columns, names) as rows:
            begin = time.process_time()
            made = list(task(rows))
            return time.process_time() - begin, pa.Table.from_batches(made)

    def select(made: pa.Table, kind: RowKind) -> pa.Table:
        return made.filter(pc.equal(made["kind"], int(kind)))

    seconds, made = run(truss._replay_task(request(0)), memory_peak.first_load(a, b), memory_peak.NAMES)
    show(a.size, "first load, which leaves a state", [{"whole": seconds}])
    proof = Proof.from_json(select(made, RowKind.PROOF)["note"][0].as_py())
    front, back, _ = json.loads(select(made, RowKind.CHECKPOINT)["note"][0].as_py())
    counted = ProvedState(proof.steps[0].prints, proof.steps[0].counts)
    left = select(made, RowKind.CERTIFICATE)
    seconds, _ = run(truss._replay_task(request(1)), memory_peak.later(a, b, a.size // 1000), memory_peak.NAMES)
    show(a.size, "an epoch from the tables", [{"whole": seconds}])
    gone = np.arange(0, a.size, a.size // 1000)
    zero, one, many = np.zeros(gone.size, np.int64), np.ones(gone.size, np.int64), np.ones(a.size, np.int64)
    # an interval that ended is two rows, both fresh: it began without an end
    ends = [(zero + FOREVER, -one), (one, one)]
    rows = ([zero + RowKind.INTERVAL, a[gone], b[gone], zero, until, diff, one, zero] for until, diff in ends)
    moved = [np.stack(each) for each in rows]
    state = [RowKind.CERTIFICATE * many, *(left[name].to_numpy() for name in ("a", "b")), left["k"].to_numpy() - 2]
    state += [*(left[name].to_numpy() for name in truss.CERTIFICATE), many]
    columns = [*np.concatenate([*moved, np.stack(state)], axis=1)]
    seconds, made = run(
        truss._restore_task(0, (front, back), counted, request(1)), columns, input_columns(truss.RESTORE)
    )
    assert select(made, RowKind.PROOF).num_rows == 1, made["note"]
    show(a.size, "an epoch from a state in a table", [{"whole": seconds}])


def show(size: int, run: str, rows: list[dict[str, float]]) -> None:
    for name in rows[0]:
        print(f"| {size:,} | {run} | {name} | {spread([row.get(name, 0.0) for row in rows], 2)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--parts", type=int, default=32)
    parser.add_argument("--beginnings", action="store_true")
    options = parser.parse_args()
    for owner, name in PHASES:
        timed(owner, name)
    print("| edges | run | phase | CPU seconds |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for size in options.edges:
            if options.beginnings:
                beginnings(Path(folder), size)
            else:
                measure(Path(folder), size, options.epochs, options.parts)


if __name__ == "__main__":
    main()
