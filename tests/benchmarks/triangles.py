"""What a change of the triangles costs: the delta query and the enumeration of all, by sizes of graph and change.

    python -m tests.benchmarks.triangles [--edges 100000 1000000] [--changes 10 1000 100000] [--repeat 3]
                                        [--graph rmat] [--peer]

Seeded R-MAT graphs (`--graph er`: Erdős–Rényi) stand in Parquet files, with their triangle counts; every change takes
half of its edges out of the graph and puts as many new ones in. Both plans compute the diff triples of the counts in
one warm session, and must give the same. `peer`: the full count of GraphX (GraphFrames where its JVM half is), and on
arrays in memory those of the kernel, igraph and networkit (`pip install igraph networkit`: they are no dependencies).
Prints tables in Markdown: medians, and what the planner chooses and expects; and a chart for each graph.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.algorithms.graph import graphframes_oracle, triangles
from altneu.algorithms.graph.cost_model import TrianglePlanChoice
from altneu.algorithms.graph.kernels import triangles as kernel
from altneu.algorithms.graph.kernels.triangle_history import vertex_changes
from altneu.pipeline.storage.session import start_session
from tests.benchmarks.kernels import rmat

LIMIT = 20_000_000


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    found = work()
    return time.perf_counter() - begin, found


def stored(folder: Path, name: str, a: np.ndarray, b: np.ndarray, diff: np.ndarray, epoch: int) -> str:
    """Edge intervals as Parquet, in four files as a run leaves them."""
    path = folder / name
    path.mkdir()
    for i in range(4):
        part = slice(i, None, 4)
        size = a[part].size
        columns = {"a": a[part], "b": b[part], "epoch": np.full(size, epoch), "until": np.full(size, FOREVER)}
        pq.write_table(pa.table(columns | {"diff": diff[part]}), path / f"{i}.parquet", compression="zstd")
    return str(path)


def change(rng: np.random.Generator, a: np.ndarray, b: np.ndarray, size: int) -> tuple[np.ndarray, ...]:
    """Half of the change takes edges out, the other half puts new ones in between the ends of old ones."""
    out = rng.choice(a.size, size // 2, replace=False)
    x, y = rng.choice(a, 4 * size), rng.choice(b, 4 * size)
    lo, hi = np.minimum(x, y), np.maximum(x, y)
    fresh = (lo < hi) & ~np.isin(lo << 32 | hi, a << 32 | b)
    new = np.unique(np.stack([lo[fresh], hi[fresh]], axis=1), axis=0)
    new = new[rng.permutation(len(new))[: size - size // 2]]
    return (
        np.concatenate([a[out], new[:, 0]]),
        np.concatenate([b[out], new[:, 1]]),
        np.concatenate([np.full(out.size, -1), np.ones(len(new), np.int64)]),
    )


def by_delta(index: DataFrame, delta: DataFrame, few: bool) -> tuple[int, list[tuple[int, ...]]]:
    counted = triangles.count(index, delta, broadcast=few).persist()
    try:
        proposals = int(counted.agg(F.sum("proposals")).first()[0] or 0)  # type: ignore[index]
        candidates = triangles.propose(index, delta, counted, broadcast=few)
        found = triangles.validate(index, delta, candidates, broadcast=proposals <= 1_000_000)
        return proposals, rows(triangles.vertex_triangle_changes(found))
    finally:
        counted.unpersist()


def rows(frame: DataFrame) -> list[tuple[int, ...]]:
    table = frame.select("vertex", "epoch", "diff").toArrow()
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def by_rmat(size: int, scale: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """About as many edges, after doubles are gone; among 2**scale vertices, by default about an eighth as many."""
    if scale is not None:
        a, b = rmat(scale, -(-size * 5 // 4 >> scale))
    else:
        a, b = rmat(max(10, int(np.log2(size / 8))), 12 if size < 3_000_000 else 10 if size < 20_000_000 else 13)
    keep = np.random.default_rng(1).permutation(a.size)[:size]
    return a[keep], b[keep]


def erdos_renyi(size: int) -> tuple[np.ndarray, np.ndarray]:
    """As many edges as are asked for among an eighth as many vertices, all pairs alike."""
    rng, n = np.random.default_rng(1), max(16, size // 8)
    pairs = np.sort(rng.integers(0, n, (size + size // 4, 2)), axis=1)
    pairs = np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0)
    pairs = pairs[rng.permutation(len(pairs))[:size]]
    return pairs[:, 0], pairs[:, 1]


GRAPHS = {"rmat": by_rmat, "er": erdos_renyi}


def plans(spark: SparkSession, folder: Path, graph: str, edges: list[int], changes: list[int], repeat: int) -> None:
    print("\n| edges | changed | proposals | delta query, s | enumeration, s | expected | chosen | to the better |")
    print("|---|---|---|---|---|---|---|---|")
    plots: dict[int, dict[int, dict[str, float]]] = {}  # edges -> changed -> plan -> seconds
    for size in edges:
        a, b = GRAPHS[graph](size)
        index = spark.read.parquet(stored(folder, f"index-{size}", a, b, np.ones(a.size, np.int64), 0))
        path = str(folder / f"counts-{size}")
        first, _ = timed(
            lambda index=index, path=path, n=a.size: triangles.recounted_vertex_changes(  # type: ignore[misc]
                index, None, n, LIMIT
            ).write.parquet(path)
        )
        order = np.lexsort((b, a))
        zero, ever = np.zeros(a.size, np.int64), np.full(a.size, FOREVER)
        alone, _ = timed(lambda a=a[order], b=b[order], z=zero, e=ever: vertex_changes(a, b, z, e))  # type: ignore[misc]
        counts = spark.read.parquet(path)
        for changed in changes:
            if changed > a.size // 2:
                continue
            taken: dict[str, list[float]] = {"delta": [], "bulk": []}
            for i in range(repeat):
                rng = np.random.default_rng(i)
                delta = spark.read.parquet(
                    stored(folder, f"delta-{size}-{changed}-{i}", *change(rng, a, b, changed), epoch=1)
                )
                both = index.unionByName(delta)
                seconds, (proposals, maintained) = timed(lambda d=delta, x=index: by_delta(x, d, True))  # type: ignore[misc]
                taken["delta"].append(seconds)
                seconds, recounted = timed(
                    lambda x=both, c=counts, n=a.size + changed: rows(  # type: ignore[misc]
                        triangles.recounted_vertex_changes(x, c, n, LIMIT)
                    )
                )
                taken["bulk"].append(seconds)
                assert maintained == recounted, (size, changed, i)
            choice = TrianglePlanChoice("auto", a.size, changed, proposals)
            found = {name: statistics.median(values) for name, values in taken.items()}
            expected = ", ".join(f"{name} {value:.1f}" for name, value in choice.estimated_seconds().items())
            plots.setdefault(a.size, {})[changed] = found
            shown = [f"{found[name]:.2f} ({min(taken[name]):.2f} – {max(taken[name]):.2f})" for name in found]
            print(
                f"| {a.size:,} | {changed:,} | {proposals:,} | {shown[0]} | {shown[1]} | {expected} | {choice.plan} | "
                f"{found[choice.plan] / min(found.values()):.2f} × |",
                flush=True,
            )
        print(
            f"| {a.size:,} | all: a first load | – | – | {first:.2f}, written | the kernel alone: {alone:.2f} | bulk | "
            f"{first / alone:.1f} × the kernel |",
            flush=True,
        )

    for size, by_change in plots.items():
        print(plot(size, by_change))


def plot(size: int, by_change: dict[int, dict[str, float]]) -> str:
    """Seconds of both plans by the size of the change, as a Mermaid chart."""
    most = max(seconds for found in by_change.values() for seconds in found.values())
    lines = [
        "```mermaid",
        "xychart-beta",
        f'    title "{size:,} edges: seconds of the delta query (first line) and the enumeration"',
        f'    x-axis "changed edges" [{", ".join(f"{chr(34)}{changed:,}{chr(34)}" for changed in by_change)}]',
        f'    y-axis "seconds" 0 --> {most + 1:.0f}',
        *(
            f"    line [{', '.join(f'{found[name]:.2f}' for found in by_change.values())}]"
            for name in ("delta", "bulk")
        ),
        "```",
    ]
    return "\n" + "\n".join(lines)


def peer(spark: SparkSession, folder: Path, edges: list[int]) -> None:
    """Full counts by others: GraphX from the files, the libraries from arrays, with the building of their graphs."""
    print("\n| edges | full count by | seconds |\n|---|---|---|")
    for size in edges:
        frame = spark.read.parquet(str(folder / f"index-{size}"))
        seconds, _ = timed(
            lambda frame=frame: graphframes_oracle.triangle_counts(frame.select("a", "b"), str(folder)).count()
        )  # type: ignore[misc]
        print(f"| {size:,} | {graphframes_oracle.reference_name(spark)} | {seconds:.1f} |", flush=True)
        table = frame.select("a", "b").toArrow()
        vertices, index = np.unique(np.concatenate([table["a"].to_numpy(), table["b"].to_numpy()]), return_inverse=True)
        a, b = index[: table.num_rows], index[table.num_rows :]
        found = {}
        for name, count in LIBRARIES.items():
            try:
                seconds, found[name] = timed(partial(count, vertices.size, a, b))
            except ImportError:
                print(f"| {size:,} | {name} is not installed | – |")
                continue
            print(f"| {size:,} | {name} | {seconds:.2f} |", flush=True)
        assert len(set(found.values())) == 1, found


def by_kernel(n: int, a: np.ndarray, b: np.ndarray) -> int:
    return kernel.count_triangles(np.minimum(a, b), np.maximum(a, b)).total


def by_igraph(n: int, a: np.ndarray, b: np.ndarray) -> int:
    import igraph

    return len(igraph.Graph(n, np.stack([a, b], axis=1)).list_triangles())


def by_networkit(n: int, a: np.ndarray, b: np.ndarray) -> int:
    import networkit

    graph = networkit.GraphFromCoo((a.astype(np.uint64), b.astype(np.uint64)), n=n)
    graph.indexEdges()
    scores = networkit.sparsification.TriangleEdgeScore(graph)
    scores.run()
    return int(sum(scores.scores())) // 3


LIBRARIES = {"the kernel, on arrays": by_kernel, "igraph": by_igraph, "networkit": by_networkit}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--changes", type=int, nargs="+", default=[10, 100, 1_000, 10_000, 100_000])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--graph", choices=list(GRAPHS), default="rmat")
    parser.add_argument("--peer", action="store_true")
    options = parser.parse_args()
    spark = start_session()
    with tempfile.TemporaryDirectory() as name:
        plans(spark, Path(name), options.graph, options.edges, options.changes, options.repeat)
        if options.peer:
            peer(spark, Path(name), options.edges)


if __name__ == "__main__":
    main()
