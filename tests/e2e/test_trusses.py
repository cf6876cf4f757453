"""What people ask of trusses: sizes, communities, who entered or left, newcomers; and the proof in the audit."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from altneu.pipeline.home.settings import Triangles
from altneu.pipeline.reading import triangle_views
from altneu.pipeline.reading.graph import Graph
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.stage_results import TrussFacts
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers, maintained, reference, seeds
from tests.canonical import History
from tests.e2e.conftest import Altneu

pytestmark = pytest.mark.usefixtures("tiny", "unaudited")

Edge = tuple[int, int]


def clique(*vertices: int) -> set[Edge]:
    return set(combinations(sorted(vertices), 2))


def communities(graph: set[Edge], k: int) -> set[frozenset[Edge]]:
    """The slow way: grow from each edge of the k-truss over triangles that lie in it."""
    inside = {edge for edge, t in reference.trussness(graph).items() if t >= k}
    near: dict[Edge, set[Edge]] = defaultdict(set)
    for a, b, c in reference.triangles(inside):
        edges = {(a, b), (a, c), (b, c)}
        for edge in edges:
            near[edge] |= edges
    found, seen = set(), set()
    for edge in inside:
        if edge in seen:
            continue
        group, queue = {edge}, [edge]
        while queue:
            for other in near[queue.pop()] - group:
                group.add(other)
                queue.append(other)
        seen |= group
        found.add(frozenset(group))
    return found


def test_sizes_communities_and_changes(altneu: Altneu, tmp_path: Path, spark: SparkSession) -> None:
    home, ledger = home_helpers.make(tmp_path / "home")
    rng = random.Random(seeds.one(5))
    first = clique(1, 2, 3, 4, 5) | clique(5, 6, 7, 8) | clique(20, 21, 22)
    second = first | clique(8, 9, 10, 11, 12, 13) | {(rng.randrange(1, 9), 30 + i) for i in range(5)}
    home_helpers.put(home, 1, [(a, b, None, "upsert", 0) for a, b in first])
    home_helpers.put(home, 2, [(a, b, None, "upsert", 0) for a, b in second - first] + [(20, 21, None, "delete", 0)])
    second -= {(20, 21)}
    home_helpers.run(ledger, [1, 2])
    sizes = json.loads(altneu("show", "trusses", "--all-epochs", "--format", "json").out)
    for epoch, graph in ((1, first), (2, second)):
        trussness = reference.trussness(graph)
        expected = {
            k: (sum(t >= k for t in trussness.values()), list(trussness.values()).count(k))
            for k in range(max(trussness.values()), 1, -1)
        }
        mine = {row["k"]: (row["edges"], row["exactly"]) for row in sizes if row["epoch"] == epoch}
        assert list(mine.items()) == list(expected.items())
        for k in (3, 4):
            shown = altneu("show", "communities", "--as-of", str(epoch), "--k", str(k), "--format", "json")
            groups: dict[int, set[Edge]] = defaultdict(set)
            for row in json.loads(shown.out):
                groups[row["community"]].add((row["src"], row["dst"]))
            assert {frozenset(group) for group in groups.values()} == communities(graph, k)
            assert [len(groups[i]) for i in sorted(groups)] == sorted(map(len, groups.values()), reverse=True)
        closed = reference.triangles(graph)
        supports = {edge: sum(set(edge) <= set(corners) for corners in closed) for edge in graph}
        shown = altneu("show", "support", "--as-of", str(epoch), "--format", "json")
        assert {(row["src"], row["dst"]): row["support"] for row in json.loads(shown.out)} == supports
        small = replace(home, config=home.config.model_copy(update={"triangles": Triangles(limit_edges=1)}))  # in cells
        in_cells = triangle_views.count_support(Warehouse(spark, small), ledger.revisions.get(), epoch).collect()
        assert {(row.src, row.dst): row.support for row in in_cells} == supports
    densest = altneu("show", "communities", "--format", "json")
    assert {(row["src"], row["dst"]) for row in json.loads(densest.out)} == clique(8, 9, 10, 11, 12, 13)
    assert "6-truss" in densest.err
    moved = json.loads(altneu("show", "changes", "1", "2", "--k", "3", "--format", "json").out)
    inside = [{edge for edge, t in reference.trussness(graph).items() if t >= 3} for graph in (first, second)]
    assert {(r["src"], r["dst"]): r["diff"] for r in moved} == {
        **dict.fromkeys(inside[1] - inside[0], 1),
        **dict.fromkeys(inside[0] - inside[1], -1),
    }
    assert Graph(home.path, spark).communities(6).count() == 15
    facts = ledger.stages.get_facts(ledger.revisions.get().run_id, TrussFacts)
    assert facts.entered_core == {"1": [1, 2, 3, 4, 5], "2": [8, 9, 10, 11, 12, 13]}


def test_the_audit_proves_the_trussness(spark: SparkSession, tmp_path: Path, numbers: History) -> None:
    """One edge too high, one too low, one twice: named by the proof or the comparison, at its epochs alone."""
    home, ledger = numbers.copy(tmp_path / "home")
    assert wrong(home.path, spark, ledger, lambda frame: frame) == {}

    def changed(frame: DataFrame, a: int, b: int, by: int) -> DataFrame:
        here = (F.col("a") == a) & (F.col("b") == b)
        return frame.withColumn("k", F.when(here, F.col("k") + by).otherwise(F.col("k")))

    high = wrong(home.path, spark, ledger, lambda frame: changed(frame, 4, 5, 1))
    assert high["trussness values are not too high"] == {2: ["4-5"], 3: ["4-5"]}
    low = wrong(home.path, spark, ledger, lambda frame: changed(frame, 1, 2, -1))
    assert "1-2" in low["trussness values are not too low"][2]
    assert low["trussness values of edges equal a full recomputation"] == {2: ["1-2"], 3: ["1-2"]}
    late = wrong(home.path, spark, ledger, lambda frame: changed(frame, 1, 7, 1))
    assert late["trussness values are not too high"] == {3: ["1-7"]}
    twice = wrong(home.path, spark, ledger, lambda frame: frame.unionByName(changed(frame.limit(1), 0, 0, 0)))
    assert "trussness values of edges equal a full recomputation" in twice


def wrong(path: Path, spark: SparkSession, ledger: Ledger, fault) -> dict[str, dict[int, list[str]]]:  # type: ignore[no-untyped-def]
    """Failed check → epoch → the keys of its rows, when readers meet a faulty trussness."""
    graph = Graph(path, spark)
    warehouse, row = Warehouse(spark, graph.home), ledger.revisions.get()

    def read(table: str) -> DataFrame:
        frame = warehouse.read_table(table, row)
        return fault(frame) if table == "trussness" else frame

    found: dict[str, dict[int, list[str]]] = defaultdict(dict)
    for check in maintained.check_against_recomputation(warehouse, read, [2, 3]):
        if not check["passed"]:
            found[check["name"]][check["epoch"]] = [row["key"] for row in check["rows"]]
    return dict(found)
