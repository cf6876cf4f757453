"""The kernels in figures: the peel, and maintenance against it for 1 to 10,000 changes. Writes RESULTS-kernels.md.

    python -m tests.benchmarks.kernels [--scale 17] [--edge-factor 9] [--repeat 3]

Times are CPU seconds of one thread (medians), so that other work on the machine disturbs them less. The structure is
built once and has labels from a peel; a row's batch is applied to it, and undone after, `--repeat` times, each time
with other edges; a mixed batch is half insertions, half deletions (1 change: one of each). `networkx` peels the
smallest graph only.
"""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import networkx as nx
import numpy as np

from algorithms.kernels import triangles, truss
from algorithms.kernels.bucket import bucket_trussness
from algorithms.kernels.graph import compact
from algorithms.kernels.maintained import Maintained
from algorithms.kernels.replay import replay
from tests.kernels.references import data_file, read_rows, simple_edges
from tests.kernels.test_replay import message_intervals

OUT = Path(__file__).with_name("RESULTS-kernels.md")
NONE = np.empty(0, np.int32)
Edges = tuple[np.ndarray, np.ndarray]


def rmat(scale: int, edge_factor: int, seed: int = 1) -> Edges:
    """R-MAT (0.57, 0.19, 0.19, 0.05), simple and undirected."""
    rng = np.random.default_rng(seed)
    source, target = np.zeros((2, edge_factor << scale), np.int64)
    for _ in range(scale):
        draw = rng.random(source.size)
        source = source << 1 | (draw > 0.76)
        target = target << 1 | (((draw > 0.57) & (draw <= 0.76)) | (draw > 0.95))
    names = rng.permutation(1 << scale)
    return simple_edges(np.stack([names[source], names[target]], axis=1))


def cpu(run: Callable[..., object], *given: object) -> float:
    began = time.process_time()
    run(*given)
    return time.process_time() - began


def median(run: Callable[..., object], repeat: int, *given: object) -> float:
    return statistics.median(cpu(run, *given) for _ in range(repeat))


def peels(graphs: dict[str, Edges], repeat: int) -> Iterator[str]:
    yield "| graph | edges | triangles | k | count s | peel s | M edges/s | bucket peel s | networkx s | bytes/edge |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    smallest = min(graphs, key=lambda name: graphs[name][0].size)
    for name, (a, b) in graphs.items():
        m = a.size
        counting, peel = median(triangles.count, repeat, a, b), median(truss.peel, repeat, a, b)
        bucket, slow = median(bucket_trussness, 1, a, b), "–"
        if name == smallest:
            slow = f"{cpu(every_truss, a, b):.1f}"
        tracemalloc.start()
        greatest = truss.peel(a, b).max()
        peak = tracemalloc.get_traced_memory()[1] / m
        tracemalloc.stop()
        yield (
            f"| {name} | {m:,} | {triangles.count(a, b).total:,} | {greatest} | {counting:.3f} | {peel:.3f} | "
            f"{m / peel / 1e6:.2f} | {bucket:.3f} | {slow} | {peak:.0f} + kernel scratch |"
        )


def every_truss(a: np.ndarray, b: np.ndarray) -> None:
    graph, k = nx.Graph(zip(a.tolist(), b.tolist(), strict=True)), 3
    while graph.number_of_edges():
        graph, k = nx.k_truss(graph, k), k + 1


def maintenance(graphs: dict[str, Edges], repeat: int, batches: list[int]) -> Iterator[str]:
    yield "| graph | changes | insert s | delete s | mixed s | peel s | peel / mixed | auto | auto s | auto / better |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name, (a, b) in graphs.items():
        vertices, u, v = compact(a, b)
        for changes in batches:
            if 4 * changes < a.size:
                yield row(name, vertices.size, u, v, changes, repeat)


def row(name: str, n: int, u: np.ndarray, v: np.ndarray, changes: int, repeat: int) -> str:
    rng = np.random.default_rng(changes)
    times: dict[str, list[float]] = {key: [] for key in ("insert", "delete", "mixed", "auto", "peel")}
    come = rng.choice(u.size, changes, replace=False).astype(np.int32)
    kept = Maintained(n, u, v, np.full(u.size, -1, np.int32))
    kept.apply(NONE, np.setdiff1d(np.arange(u.size, dtype=np.int32), come), "peel")
    half, chosen = come[: max(1, changes // 2)], set()
    for _ in range(repeat):
        gone = rng.choice(np.flatnonzero(kept.graph.level >= 0), half.size, replace=False).astype(np.int32)
        for method, key in (("peel", "peel"), ("incremental", "mixed"), ("auto", "auto")):
            began = time.process_time()
            done = kept.apply(gone, half, method)
            times[key].append(time.process_time() - began)
            if method == "auto":
                chosen.add(done.effort[0])
            kept.apply(half, gone, "peel")  # undo, and fresh labels: an edge just put back would be cheaper than new
        times["insert"].append(cpu(kept.apply, NONE, come, "incremental"))
        times["delete"].append(cpu(kept.apply, come, NONE, "incremental"))
    t = {key: statistics.median(values) for key, values in times.items()}
    return (
        f"| {name} | {changes:,} | {t['insert']:.5f} | {t['delete']:.5f} | {t['mixed']:.5f} | {t['peel']:.3f} | "
        f"{t['peel'] / t['mixed']:,.1f} × | {', '.join(sorted(chosen))} | {t['auto']:.5f} | "
        f"{t['auto'] / min(t['mixed'], t['peel']):.2f} |"
    )


def messages() -> Iterator[str]:
    a, b, start, until = message_intervals("CollegeMsg.txt.gz", 2, 30, 86400.0)
    none = np.empty(0, np.int64)
    yield "| replay of all days (30-day window) | epochs | changes | CPU s | methods |"
    yield "|---|---|---|---|---|"
    for method in ("auto", "incremental", "peel"):
        began = time.process_time()
        changes, steps = replay(a, b, start, until, none, none, none, int(start.min()), int(until.max()), method)
        used = {m: sum(step.method == m for step in steps) for m in sorted({step.method for step in steps})}
        yield f"| {method} | {len(steps)} | {changes.a.size:,} | {time.process_time() - began:.2f} | {used} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=int, default=17)
    parser.add_argument("--edge-factor", type=int, default=9)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 10, 100, 1000, 10000])
    given = parser.parse_args()
    graphs = {}
    for name in ("as-caida20071105.txt.gz", "facebook_combined.txt.gz"):
        data_file(name)
        graphs[name.split(".")[0]] = simple_edges(read_rows(name))
    graphs[f"R-MAT {given.scale}"] = rmat(given.scale, given.edge_factor)
    small = np.arange(2, dtype=np.int64)
    for kernel in (truss.peel, triangles.count, bucket_trussness):  # compile before the clock runs
        kernel(small[:1], small[1:])
    row("warm", 3, np.array([0, 0, 1], np.int32), np.array([1, 2, 2], np.int32), 1, 2)
    with OUT.open("w") as out:
        for title, lines in (
            ("Peel", peels(graphs, given.repeat)),
            ("Messages", messages()),
            ("Maintenance", maintenance(graphs, given.repeat, given.batches)),
        ):
            for line in chain([f"\n## {title}\n"], lines):
                print(line, flush=True)
                out.write(line + "\n")
                out.flush()


if __name__ == "__main__":
    main()
