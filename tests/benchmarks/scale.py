"""From landed rows to triangle counts, against one scan of the edge index: a first load, then epochs of 1,000 changes.

    python -m tests.benchmarks.scale [--edges 1000000 10000000] [--epochs 3] [--peer]

Seeded R-MAT, landed as one Parquet file; then epochs of 500 deletions and 500 insertions. A run's own stages ingest,
edges and triangles in one warm session, published without truss and audit, which have figures of their own. Beside them
in the same session one full scan of the edge index (every column of every row), the counts again in at
least eight cells, which must change nothing, and with `--peer` the full count of GraphFrames (GraphX where its JVM half
is not there). Prints tables in Markdown; medians with the least and the greatest.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from altneu.algorithms.graph import graphframes_oracle, triangles
from altneu.algorithms.graph.kernels.triangle_history import colours_for
from altneu.pipeline.home.home import Home
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.stage_results import TrianglesFacts
from altneu.pipeline.storage.session import start_session
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers
from tests.benchmarks import put_changes, put_rows, spread
from tests.benchmarks.triangles import by_rmat, timed

STAGES = ("ingest", "edges", "triangles")
CHANGES = 1_000
REPEAT = 3


def epoch_of(ledger: Ledger, epoch: int) -> dict[str, float]:
    """Publish one epoch without truss and audit; seconds of the stages before them, each and all."""
    found = home_helpers.run_without(ledger, epoch, ("truss", "audit", "report"))
    found["all"] = sum(found[name] for name in STAGES)
    return found


def scan(index: DataFrame) -> None:
    index.agg(*[F.bit_xor(column) for column in index.columns]).collect()


def recount(warehouse: Warehouse, ledger: Ledger) -> tuple[int, int]:
    """How many cells counted all edges again, and how many diff triples of the stored counts they would change."""
    row = ledger.revisions.get()
    rows = warehouse.snapshot_size("edges", row.snapshots["edges"]).rows
    limit = rows
    while (colours := colours_for(rows, limit)) ** 3 < 8:
        limit -= rows // 100
    stored = warehouse.read_table("triangle_counts", row)
    return colours**3, triangles.recounted_vertex_changes(
        warehouse.read_table("edges", row), stored, rows, limit
    ).count()


def measure(folder: Path, size: int, epochs: int, peer: bool) -> None:
    home = Home.open(folder / str(size), create=True)
    rng = np.random.default_rng(3)
    a, b = by_rmat(size)
    put_rows(home, 0, a, b, ["upsert"] * a.size)
    ledger, spark = Ledger(home), start_session()
    load = epoch_of(ledger, 0)
    runs: list[dict[str, float]] = []
    for epoch in range(1, epochs + 2):
        put_changes(home, epoch, rng, a, b, CHANGES)
        runs.append(epoch_of(ledger, epoch))
    warehouse = Warehouse(spark, home)
    index = warehouse.read_table("edges", ledger.revisions.get())
    scans = [timed(lambda: scan(index))[0] for _ in range(REPEAT + 1)][1:]
    facts = ledger.stages.get_facts(ledger.revisions.get().run_id, TrianglesFacts)
    print(f"\n| {a.size:,} edges | first load, s | an epoch of {CHANGES:,} changes, s |\n|---|---|---|")
    for name in (*STAGES, "all"):
        print(f"| {name} | {load[name]:.1f} | {spread([run[name] for run in runs[1:]], 2)} |")
    one, whole = statistics.median(scans), statistics.median([run["all"] for run in runs[1:]])
    print(f"| one scan of the index | | {spread(scans, 2)} |")
    bound = 6 * one + 3
    print(f"| six scans and 3 s | | {bound:.1f}: the epoch takes {whole / bound:.2f} × that |", flush=True)
    seconds, (cells, changed) = timed(lambda: recount(warehouse, ledger))
    assert changed == 0, f"{changed} diff triples differ"
    print(f"| all counted again in {cells} cells: no difference | {seconds:.1f} | |", flush=True)
    if peer:
        edges = index.groupBy("a", "b").agg(F.sum(F.when(F.col("until") > epochs + 1, F.col("diff"))).alias("n"))
        there = edges.where("n > 0").select("a", "b")
        seconds, _ = timed(lambda: graphframes_oracle.triangle_counts(there, str(folder)).count())
        name = graphframes_oracle.reference_name(spark)
        print(f"| full count by {name} | {seconds:.1f} | {seconds / whole:.1f} × the epoch |", flush=True)
    print(f"\n{facts.chosen}; {facts.proposals or 0:,} proposals")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--peer", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for size in options.edges:
            measure(Path(folder), size, options.epochs, options.peer)


if __name__ == "__main__":
    main()
