"""The vertices that enter a k-truss, by Spark and by DuckDB, are those that a reading of the diff triples finds."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from altneu.pipeline.run.stages import truss
from altneu.pipeline.storage.duckdb_tables import DuckTables, Query
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers, seeds

Triple = tuple[int, int, int, int, int]  # a, b, k, epoch, diff
EPOCHS = range(6)


def draw_history(rng: random.Random) -> list[Triple]:
    """Draw the changes of the trussness of some edges, which come, change and go."""
    triples: list[Triple] = []
    for a, b in combinations(range(7), 2):
        now: int | None = None
        for epoch in EPOCHS:
            new = rng.choice([now, now, None, 2, 3, 4])
            if new != now:
                triples += [(a, b, now, epoch, -1)] if now else []
                triples += [(a, b, new, epoch, 1)] if new else []
            now = new
    rng.shuffle(triples)
    return triples


def vertices_inside(triples: list[Triple], k: int, epoch: int) -> set[int]:
    edges = Counter[tuple[int, int, int]]()
    for a, b, core, at, diff in triples:
        edges[a, b, core] += diff * (at <= epoch)
    return {vertex for (a, b, core), copies in edges.items() if copies and core >= k for vertex in (a, b)}


@pytest.mark.parametrize("most", [2, 50])
def test_entering_vertices(tiny: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(truss, "ENTERED", most)
    rng = random.Random(seeds.one(most))
    triples, cores = draw_history(rng), [(epoch, rng.choice([3, 4])) for epoch in EPOCHS]
    expected = [
        (epoch, vertex)
        for epoch, k in cores
        for vertex in sorted(vertices_inside(triples, k, epoch) - vertices_inside(triples, k, epoch - 1))[:most]
    ]
    assert expected
    home, _ = home_helpers.make(tmp_path / "home")
    table = pa.table(dict(zip(("a", "b", "k", "epoch", "diff"), zip(*triples, strict=True), strict=True)))
    duck, spark = DuckTables(home), Warehouse(tiny, home)
    by_duckdb = duck.collect_rows(truss.select_entering(duck, Query("SELECT * FROM held", {"held": table}), cores))
    by_spark = spark.collect_rows(truss.select_entering(spark, tiny.createDataFrame(table), cores))
    for rows in (by_duckdb, by_spark):
        assert sorted((row["moment"], row["vertex"]) for row in rows) == expected
