"""Kernels in figures: peel and count rates, and maintenance against the peel for 1 to 10,000 changes.

    python -m tests.benchmarks.kernels [--scale 17 19] [--edge-factor 9] [--repeat 3] [--parts first] > figures.md

Times are CPU seconds of one thread (medians), so that other work on the machine disturbs them less. A row's structure
has labels from a peel; its batch is applied, and undone by a peel that makes fresh labels, `--repeat` times, each time
with other edges; a mixed batch is half insertions, half deletions (1 change: one of each). `first` is the mixed batch
on levels that came without labels, as at the first epoch of a replay. `--parts threads`: in one and in two threads.
Graphs of more than 2M edges are done once.
`networkx` peels the smallest graph only. `igraph` is its C library's trussness, without the making of its graph, where
the library (Debian's libigraph3) is found; the Python package does not offer it. Memory is the peak of a process of
its own, less what it held before.
"""

from __future__ import annotations

import argparse
import ctypes
import ctypes.util
import multiprocessing
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import chain, product
from pathlib import Path

import networkx as nx
import numpy as np

from altneu.algorithms.graph.kernels import triangles, truss
from altneu.algorithms.graph.kernels.graph import compact_ids
from altneu.algorithms.graph.kernels.maintained_graph import MaintainedGraph
from altneu.algorithms.graph.kernels.persistent_graph import PersistentGraph
from altneu.algorithms.graph.kernels.replay import replay_window
from altneu.algorithms.graph.kernels.threads import use_threads
from tests.e2e.graphs import find_graph
from tests.kernels.bucket_peel import bucket_trussness
from tests.kernels.references import read_rows, simple_edges
from tests.kernels.test_replay import message_intervals

NONE = np.empty(0, np.int32)
LARGE = 2_000_000  # edges
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


def igraph_trussness(a: np.ndarray, b: np.ndarray) -> tuple[float, np.ndarray] | None:
    """CPU seconds of igraph's C function, and what it found; None where there is no such library."""
    name = ctypes.util.find_library("igraph")
    if name is None:
        return None
    library, (_, u, v) = ctypes.CDLL(name), compact_ids(a, b)
    ends = np.stack([u, v], axis=1).astype(np.int64)
    graph = ctypes.create_string_buffer(4096)  # more than an igraph_t
    given, found = (ctypes.c_void_p * 3)(), (ctypes.c_void_p * 3)()  # igraph_vector_int_t: begin, end of room, end
    library.igraph_vector_int_view.restype = ctypes.c_void_p
    library.igraph_vector_int_view(given, ctypes.c_void_p(ends.ctypes.data), ctypes.c_int64(ends.size))
    library.igraph_create(graph, given, ctypes.c_int64(0), ctypes.c_bool(False))
    library.igraph_vector_int_init(found, ctypes.c_int64(0))
    seconds = cpu(library.igraph_trussness, graph, found)
    trussness = np.ctypeslib.as_array(ctypes.cast(found[0] or 0, ctypes.POINTER(ctypes.c_int64)), (a.size,)).copy()
    library.igraph_vector_int_destroy(found)
    library.igraph_destroy(graph)
    return seconds, trussness


def held(peak: bool) -> int:
    """Bytes of memory that this process holds, or held at most since the peak was reset."""
    name = "VmHWM:" if peak else "VmRSS:"
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def peak_of_peel(a: np.ndarray, b: np.ndarray) -> int:
    truss.peel(a[:9], b[:9])  # compiled, or loaded
    Path("/proc/self/clear_refs").write_text("5")
    before = held(False)
    truss.peel(a, b)
    return held(True) - before


def peak_of_replay(a: np.ndarray, b: np.ndarray) -> int:
    def grow(a: np.ndarray, b: np.ndarray) -> None:
        none, start = np.empty(0, np.int64), np.zeros(a.size, np.int64)
        replay_window(a, b, start, start + 9, none, none, none, 0, 5)

    grow(a[:9], b[:9])
    Path("/proc/self/clear_refs").write_text("5")
    before = held(False)
    grow(a, b)
    return held(True) - before


def elsewhere(run: Callable[..., int], a: np.ndarray, b: np.ndarray) -> int:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(run, (a, b))


def peels(graphs: dict[str, Edges], repeat: int) -> Iterator[str]:
    yield (
        "| graph | edges | triangles | k | count s | peel s | M edges/s | bucket peel s | igraph s | networkx s "
        "| peel bytes/edge | replay bytes/edge |"
    )
    yield "|---" * 12 + "|"
    smallest = min(graphs, key=lambda name: graphs[name][0].size)
    for name, (a, b) in graphs.items():
        m = a.size
        times = repeat if m < LARGE else 1
        counting, peel = median(triangles.count_triangles, times, a, b), median(truss.peel, times, a, b)
        bucket = f"{cpu(bucket_trussness, a, b):.3f}" if m < LARGE else "–"
        other = igraph_trussness(a, b)
        assert other is None or (other[1] == truss.peel(a, b)).all(), "igraph differs"
        peer = "–" if other is None else f"{other[0]:.3f}"
        slow = f"{cpu(every_truss, a, b):.1f}" if name == smallest else "–"
        memory = [f"{elsewhere(run, a, b) / m:.0f}" for run in (peak_of_peel, peak_of_replay)]
        yield (
            f"| {name} | {m:,} | {triangles.count_triangles(a, b).total:,} | {truss.peel(a, b).max()} | "
            f"{counting:.3f} | "
            f"{peel:.3f} | {m / peel / 1e6:.2f} | {bucket} | {peer} | {slow} | {memory[0]} | {memory[1]} |"
        )


def in_threads(graphs: dict[str, Edges], repeat: int) -> Iterator[str]:
    """Yield wall and CPU seconds of what works in threads, and the CPU seconds of the thread that calls it."""
    yield "| graph | kernel | threads | wall s | CPU s | CPU s of the calling thread |"
    yield "|---" * 6 + "|"
    kernels: dict[str, Callable[[np.ndarray, np.ndarray], object]] = {
        "support": triangles.count_triangles,
        "peel": truss.peel,
    }
    clocks = time.perf_counter, time.process_time, time.thread_time
    for (name, (a, b)), (kernel, run) in product(graphs.items(), kernels.items()):
        rows = defaultdict[int, list[list[float]]](list)
        for number in [1, 2] * (repeat if a.size < LARGE else 1):
            began = [clock() for clock in clocks]
            with use_threads(number):
                run(a, b)
            rows[number].append([clock() - before for clock, before in zip(clocks, began, strict=True)])
        for number, seconds in rows.items():
            values = " | ".join(f"{statistics.median(column):.2f}" for column in zip(*seconds, strict=True))
            yield f"| {name} | {kernel} | {number} | {values} |"


def every_truss(a: np.ndarray, b: np.ndarray) -> None:
    graph, k = nx.Graph(zip(a.tolist(), b.tolist(), strict=True)), 3
    while graph.number_of_edges():
        graph, k = nx.k_truss(graph, k), k + 1


def maintenance(graphs: dict[str, Edges], repeat: int, batches: list[int]) -> Iterator[str]:
    yield (
        "| graph | changes | insert s | delete s | mixed s | peel s | peel / mixed | auto | auto s | auto / better "
        "| first | first s |"
    )
    yield "|---" * 12 + "|"
    for name, (a, b) in graphs.items():
        vertices, u, v = compact_ids(a, b)
        bare = cpu(truss.peel, a, b)
        for changes in batches:
            if 4 * changes < a.size:
                yield row(name, vertices.size, u, v, changes, repeat if a.size < LARGE else 1, bare)


def _maintained(n: int, tail: np.ndarray, head: np.ndarray, level: np.ndarray) -> MaintainedGraph:
    return PersistentGraph.from_edges(np.arange(n), tail, head, level, spare=False).kept


def row(name: str, n: int, u: np.ndarray, v: np.ndarray, changes: int, repeat: int, bare: float) -> str:
    """`bare`: seconds of a peel of the whole graph from arrays, without labels: what the gain is measured against."""
    rng = np.random.default_rng(changes)
    times: dict[str, list[float]] = {key: [] for key in ("insert", "delete", "mixed", "auto", "peel", "first")}
    chosen: dict[str, set[str]] = {"auto": set(), "first": set()}
    come = rng.choice(u.size, changes, replace=False).astype(np.int32)
    kept = _maintained(n, u, v, np.full(u.size, -1, np.int32))
    kept.apply_batch(NONE, np.setdiff1d(np.arange(u.size, dtype=np.int32), come), "peel")

    def timed(key: str, structure: MaintainedGraph, gone: np.ndarray, new: np.ndarray, method: str) -> None:
        began = time.process_time()
        done = structure.apply_batch(gone, new, method)
        times[key].append(time.process_time() - began)
        if key in chosen:
            chosen[key].add(done.effort[0])

    half = come[: max(1, changes // 2)]
    for _ in range(repeat):
        present = np.flatnonzero(kept.graph.level >= 0)
        gone = rng.choice(present, half.size, replace=False).astype(np.int32)
        timed("first", _maintained(n, u, v, kept.graph.level.copy()), gone, half, "auto")
        timed("mixed", kept, gone, half, "incremental")
        timed("peel", kept, half, gone, "peel")  # undo, and fresh labels: an edge just put back would be cheaper
        timed("auto", kept, gone, half, "auto")
        timed("peel", kept, half, gone, "peel")
        timed("insert", kept, NONE, come, "incremental")
        timed("delete", kept, come, NONE, "incremental")
    t = {key: statistics.median(values) for key, values in times.items()}
    names = {key: ", ".join(sorted(methods)) for key, methods in chosen.items()}
    return (
        f"| {name} | {changes:,} | {t['insert']:.5f} | {t['delete']:.5f} | {t['mixed']:.5f} | {bare:.3f} | "
        f"{bare / t['mixed']:,.1f} × | {names['auto']} | {t['auto']:.5f} | "
        f"{t['auto'] / min(t['mixed'], t['peel']):.2f} | {names['first']} | {t['first']:.5f} |"
    )


def first(graphs: dict[str, Edges], batches: list[int]) -> Iterator[str]:
    """A single batch on levels that came without labels, once each way: what a run of one epoch has."""
    yield "| graph | changes | of them | maintained s | peel s | maintained / peel | estimate / peel | auto | auto s |"
    yield "|---" * 9 + "|"
    for name, (a, b) in graphs.items():
        vertices, u, v = compact_ids(a, b)
        for changes in (size for size in batches if 4 * size < a.size):
            rng = np.random.default_rng(changes)
            come = rng.choice(u.size, changes, replace=False).astype(np.int32)
            level = np.full(u.size, -1, np.int32)
            there = np.setdiff1d(np.arange(u.size), come)
            level[there] = truss.peel(a[there], b[there]) - 2
            gone = rng.choice(there, changes, replace=False).astype(np.int32)
            half = changes // 2
            kinds = {"insertions": (NONE, come), "half": (gone[:half], come[:half]), "deletions": (gone, NONE)}
            for kind, batch in kinds.items():
                seconds, done = {}, {}
                for method in ("incremental", "peel", "auto"):
                    kept = _maintained(vertices.size, u, v, level.copy())
                    began = time.process_time()
                    done[method] = kept.apply_batch(*batch, method, last=True)
                    seconds[method] = time.process_time() - began
                effort = done["incremental"].effort
                yield (
                    f"| {name} | {changes:,} | {kind} | {seconds['incremental']:.4f} | {seconds['peel']:.4f} | "
                    f"{seconds['incremental'] / seconds['peel']:.2f} | {effort[3] / effort[4]:.2f} | "
                    f"{done['auto'].effort[0]} | {seconds['auto']:.4f} |"
                )


def messages() -> Iterator[str]:
    a, b, start, until = message_intervals("CollegeMsg.txt.gz", 2, 30, 86400.0)
    none = np.empty(0, np.int64)
    yield "| replay of all days (30-day window) | epochs | changes | CPU s | methods |"
    yield "|---|---|---|---|---|"
    for method in ("auto", "incremental", "peel"):
        began = time.process_time()
        changes, steps, *_ = replay_window(
            a, b, start, until, none, none, none, int(start.min()), int(until.max()), method
        )
        used = {m: sum(step.method == m for step in steps) for m in sorted({step.method for step in steps})}
        yield f"| {method} | {len(steps)} | {changes.a.size:,} | {time.process_time() - began:.2f} | {used} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=int, nargs="+", default=[17, 19])
    parser.add_argument("--edge-factor", type=int, default=9)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 10, 100, 1000, 10000])
    parser.add_argument("--parts", nargs="+", default=["messages", "peel", "maintenance", "first"])
    given = parser.parse_args()
    graphs = {}
    for name in ("as-caida20071105.txt.gz", "facebook_combined.txt.gz"):
        find_graph(name)
        graphs[name.split(".")[0]] = simple_edges(read_rows(name))
    for scale in given.scale:
        graphs[f"R-MAT {scale}"] = rmat(scale, given.edge_factor)
    small = np.arange(2, dtype=np.int64)
    for kernel in (truss.peel, triangles.count_triangles, bucket_trussness):  # compile before the clock runs
        kernel(small[:1], small[1:])
    row("warm", 3, np.array([0, 0, 1], np.int32), np.array([1, 2, 2], np.int32), 1, 2, 1.0)
    print(f"Load of the machine at the start: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.")
    for title, lines in (
        ("Messages", messages()),
        ("Peel", peels(graphs, given.repeat)),
        ("Maintenance", maintenance(graphs, given.repeat, given.batches)),
        ("First", first(graphs, given.batches)),
        ("Threads", in_threads(graphs, given.repeat)),
    ):
        if title.lower() in given.parts:
            for line in chain([f"\n## {title}\n"], lines):
                print(line, flush=True)


if __name__ == "__main__":
    main()
