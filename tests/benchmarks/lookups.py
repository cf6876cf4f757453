"""The neighbours of few vertices: the stored edges scanned, against a copy that is laid out for look-ups.

    python -m tests.benchmarks.lookups [--edges 10000000] [--changes 1000] [--repeat 5]

Seeded R-MAT in three Iceberg tables: `scan`, an edge once, by both ends' ids, as a home stores it; `both`, each edge
from both ends, by vertex; and `small`, the same in row groups of a megabyte and pages of 64 KB, whose bounds let a
reader leave most of them out. Asked for are all edges at the ends of so many changed edges, half of them drawn from the
edges (so that hubs are among the ends), half at random: by a join with the ends, which are sent to all tasks; and, of
the copies, by `IN` with 200 ends at a time, the most that Iceberg's reader prunes by. Prints a table in Markdown:
seconds, median with the least and the greatest; rows that were read; megabytes on disk.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import reduce
from pathlib import Path

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from altneu.pipeline.storage.session import start_session
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers
from tests.benchmarks import spread
from tests.benchmarks.triangles import by_rmat, timed

SMALL = {"write.parquet.row-group-size-bytes": str(1 << 20), "write.parquet.page-size-bytes": str(1 << 16)}
MOST = 200  # values of an IN that Iceberg prunes by


def read_rows(spark: SparkSession) -> int:
    """Rows that all tasks so far have read from files."""
    context = spark.sparkContext
    nothing = context._gateway.new_array(context._jvm.double, 0), context._jvm.java.util.ArrayList()
    stages = context._jsc.sc().statusStore().stageList(None, False, False, *nothing)
    return sum(stages.apply(i).inputRecords() for i in range(stages.size()))


def written(spark: SparkSession, name: str, rows: DataFrame, properties: dict[str, str]) -> float:
    """Make a table of rows that are in order; its size in megabytes."""
    writer = rows.writeTo(name).using("iceberg")
    for key, value in properties.items():
        writer = writer.tableProperty(key, value)
    writer.create()
    return spark.table(f"{name}.files").agg(F.sum("file_size_in_bytes")).first()[0] / 1e6


def measure(folder: Path, size: int, changes: int, repeat: int) -> None:
    home, _ = home_helpers.make(folder)
    spark = start_session()
    warehouse = Warehouse(spark, home)
    a, b = by_rmat(size)
    edges = spark.createDataFrame(pd.DataFrame({"a": a, "b": b})).persist()
    both = edges.select(F.col("a").alias("v"), F.col("b").alias("w")).union(edges.select("b", "a"))
    tables = {
        "scan": (edges.repartitionByRange(4, "a").sortWithinPartitions("a", "b"), {}),
        "both": (both.repartitionByRange(4, "v").sortWithinPartitions("v", "w"), {}),
        "small": (both.repartitionByRange(4, "v").sortWithinPartitions("v", "w"), SMALL),
    }
    sizes = {name: written(spark, warehouse.table_name(name), *made) for name, made in tables.items()}
    edges.unpersist()
    rng = np.random.default_rng(3)
    half = rng.choice(a.size, changes // 2)
    ends = np.unique(np.concatenate([a[half], b[half], rng.choice(np.append(a, b), changes)]))
    ends = np.unique(np.append(ends, rng.integers(0, int(b.max()), changes // 2)))
    keys = F.broadcast(spark.createDataFrame(pd.DataFrame({"key": ends})))

    def scan() -> DataFrame:
        table = spark.table(warehouse.table_name("scan"))
        way = [
            table.join(keys, F.col(x) == F.col("key")).select(F.col(x).alias("v"), F.col(w).alias("w"))
            for x, w in ("ab", "ba")
        ]
        return way[0].union(way[1])

    def joined(name: str) -> DataFrame:
        return spark.table(warehouse.table_name(name)).join(keys, F.col("v") == F.col("key")).select("v", "w")

    def listed(name: str) -> DataFrame:
        table, some = spark.table(warehouse.table_name(name)), np.array_split(ends, -(-ends.size // MOST))
        return reduce(DataFrame.union, [table.where(F.col("v").isin(part.tolist())) for part in some])

    ways: dict[str, tuple[str, Callable[[], DataFrame]]] = {
        "scan, joined": ("scan", scan),
        "both, joined": ("both", lambda: joined("both")),
        "both, IN": ("both", lambda: listed("both")),
        "small, joined": ("small", lambda: joined("small")),
        "small, IN": ("small", lambda: listed("small")),
    }
    found = set()
    for name, (table, way) in ways.items():
        seconds = []
        for _ in range(repeat + 1):
            before = read_rows(spark)
            took, sums = timed(lambda way=way: tuple(way().agg(F.count("*"), F.bit_xor(F.hash("v", "w"))).first()))
            seconds.append(took)
            found.add(sums)
        read = read_rows(spark) - before
        print(
            f"| {a.size:,} | {ends.size:,} | {name} | {spread(seconds[1:], 2)} | {read:,} | {sizes[table]:.0f} |",
            flush=True,
        )
    assert len(found) == 1, f"the ways differ: {found}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--changes", type=int, default=1_000)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    print("| edges | vertices | way | s | rows read | MB |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), options.edges, options.changes, options.repeat)


if __name__ == "__main__":
    main()
