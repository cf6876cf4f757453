"""The trussness in parts against one task: a first load, and then one epoch of mixed changes.

    python -m tests.benchmarks.parts [--edges 61000 1000000] [--changes 100] [--parts 8]
    python -m tests.benchmarks.parts --orders 100000

Seeded R-MAT graphs stand in Parquet files; rounds are kept in tables of a home, as in a run. `--parts`: about so many.
Both must give the same triples. Memory: the greatest resident set of a Python worker, looked at every 50 ms; numba and
the libraries are some 250 MB of it. Prints a table in Markdown.

`--orders`: instead, in arrays, what 16 parts of an R-MAT graph and of real ones have to say to each other when they are
ranges of one order of the vertices or another, or owners are drawn at random.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
from pyspark.sql import DataFrame, SparkSession

from altneu.algorithms.graph import truss, truss_bsp
from altneu.algorithms.graph.bsp import EDGE_WEIGHT, count_partitions
from altneu.algorithms.graph.kernels import partition_kernels as kernel
from altneu.algorithms.graph.kernels.truss import peel
from altneu.algorithms.graph.truss_plan import ReplayRequest
from altneu.pipeline.storage import bsp_round_tables
from altneu.pipeline.storage.session import size_plans, start_session
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers
from tests.benchmarks.triangles import by_rmat, change, stored
from tests.kernels.references import read_rows, simple_edges
from tests.memory_peak import ranges
from tests.truss.test_parts import Parts


@contextmanager
def watched() -> Iterator[list[int]]:
    """The greatest resident set of a Python worker inside, in the list at the end; bytes."""
    peak, stop = [0], threading.Event()

    def look() -> None:
        while not stop.wait(0.05):
            for child in psutil.Process().children(recursive=True):
                try:
                    if "python" in child.name():
                        peak[0] = max(peak[0], child.memory_info().rss)
                except psutil.Error:
                    continue

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()


def measure(spark: SparkSession, folder: Path, size: int, changes: int, parts: int) -> None:
    home, ledger = home_helpers.make(folder / f"home{size}")
    warehouse = Warehouse(spark, home)
    warehouse.ensure_tables()
    a, b = by_rmat(size)
    edges = spark.read.parquet(stored(folder, f"edges{size}", a, b, np.ones(a.size, np.int64), 0))
    move = spark.read.parquet(stored(folder, f"move{size}", *change(np.random.default_rng(5), a, b, changes), 1))
    nothing = spark.createDataFrame([], "a long, b long, k long, epoch long, diff long")
    weight = a.size * (EDGE_WEIGHT + 3 * 12)  # triangles of such a graph
    limit = next(
        size for size in range(a.size // 64, a.size, a.size // 64) if count_partitions(a.size, weight, size, 1) <= parts
    )

    before, now = nothing, edges
    for at, name in ((0, "first load"), (1, f"{changes} changes")):
        results: list[DataFrame] = []
        for how in ("one task", "parts"):
            path = str(folder / f"{size}{at}{how}")
            with (
                bsp_round_tables.round_tables(warehouse, ledger, "measured") as place,
                watched() as peak,
                size_plans(spark, 3 * a.size),
            ):
                request = ReplayRequest(first_epoch=at, last_epoch=at)
                begin = time.perf_counter()
                if how == "parts":
                    alive = truss.alive_intervals(now, request)
                    new = truss_bsp.trussness_changes(alive, before, request, size=limit, rounds=place)
                else:
                    new = truss.replayed_changes(now, before, request)
                new.write.parquet(path)
                seconds = time.perf_counter() - begin
            found = spark.read.parquet(path)
            results.append(found.where("diff <> 0").select("a", "b", "k", "epoch", "diff"))
            note = json.loads(found.where("note IS NOT NULL").select("note").collect()[0][0])
            said = note["method"]
            if how == "parts":
                said = (
                    f"{note['rounds']} rounds, {note['messages'] / a.size:.2f} messages an edge, {note['parts']} parts"
                )
            print(f"| {a.size:,} | {name} | {how} | {seconds:.1f} | {peak[0] / 2**20:,.0f} | {said} |", flush=True)
        assert results[0].exceptAll(results[1]).isEmpty() and results[1].exceptAll(results[0]).isEmpty()
        before, now = results[0].localCheckpoint(), edges.unionByName(move)


def orders(a: np.ndarray, b: np.ndarray) -> Iterator[tuple[str, np.ndarray | None]]:
    """Name → a key of each vertex, ties by degree; None: owners are drawn."""
    yield "at random", None
    vertices, place = np.unique(np.concatenate([a, b]), return_inverse=True)
    ends, others = place, np.roll(place, a.size)
    c = degree = np.bincount(ends, minlength=vertices.size)
    for rounds_ in range(1000):
        name = ("degree", "one h-index", "two h-indices")[rounds_] if rounds_ < 3 else None
        by = np.lexsort((-c[others], ends))
        rank = np.arange(by.size) - np.repeat(np.cumsum(degree) - degree, degree) + 1
        h = np.maximum.reduceat(np.minimum(c[others][by], rank), np.cumsum(degree) - degree)
        if (h == c).all():
            yield "core number", c
            return
        if name is not None:
            yield name, c
        c = h


def compare_orders(name: str, a: np.ndarray, b: np.ndarray, parts: int = 16) -> None:
    support = kernel.count_cell_support(kernel.build_cell(a, b, None))
    vertices, place = np.unique(np.concatenate([a, b]), return_inverse=True)
    degree = np.bincount(place)
    for kind, key in orders(a, b):
        owner = np.random.default_rng(1).integers(0, parts, a.size).astype(np.int32)
        if key is not None:
            rank = np.empty(vertices.size, np.int64)
            rank[np.lexsort((degree, key))] = np.arange(vertices.size)
            owner = ranges(np.minimum(rank[place[: a.size]], rank[place[a.size :]]), support, parts)
        made = Parts(a, b, owner)
        found = made.settled(support.astype(np.int32), np.random.default_rng(1))
        assert (found == peel(a, b) - 2).all()
        most = max(at.size for at in made.places.values()) / a.size
        line = f"{made.rounds} | {made.messages / a.size:.1f} | {most:.2f}"
        print(f"| {name} | {a.size:,} | {kind} | {line} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, nargs="+", default=[61_000, 1_000_000])
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--orders", type=int)
    options = parser.parse_args()
    if options.orders:
        print("| graph | edges | owners by | rounds | messages an edge | edges that the largest part holds, of all |")
        print("|---|---|---|---|---|---|")
        for name in ("as-caida20071105.txt.gz", "facebook_combined.txt.gz"):
            compare_orders(name.partition(".")[0].partition("_")[0], *simple_edges(read_rows(name)))
        compare_orders("R-MAT", *by_rmat(options.orders))
        return
    print("| edges | what | how | s | largest worker, MiB | |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        spark = start_session()
        for size in options.edges:
            measure(spark, Path(folder), size, options.changes, options.parts)


if __name__ == "__main__":
    main()
