"""Laws 5 and 8 of the delta query itself: full diff lists, on signed intervals, many random graphs in one job."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations

import pytest
from pyspark.sql import DataFrame, SparkSession

from altneu.algorithms.graph import triangles
from tests import seeds
from tests.reference import neighbours

GRAPHS, EPOCHS, FOREVER = 60, 7, 2**63 - 1
Intervals = dict[tuple[int, int], list[tuple[int, int]]]
SCHEMA = "a bigint, b bigint, epoch bigint, until bigint, diff bigint"


def random_intervals(rng: random.Random) -> Intervals:
    """Edge → disjoint validity intervals within 0..EPOCHS (the last may be open)."""
    out: Intervals = {}
    for graph in range(GRAPHS):
        n = rng.randrange(3, 8)
        for a, b in combinations(range(graph * 100, graph * 100 + n), 2):
            if rng.random() < 0.6:
                cuts = sorted(rng.sample(range(EPOCHS), rng.choice([2, 2, 4])))
                spans = [(cuts[i], cuts[i + 1]) for i in range(0, len(cuts), 2)]
                if rng.random() < 0.3:
                    spans[-1] = (spans[-1][0], FOREVER)
                out[(a, b)] = spans
    return out


def presence(intervals: Intervals, epoch: int) -> set[tuple[int, int]]:
    return {edge for edge, spans in intervals.items() if any(s <= epoch < u for s, u in spans)}


def signed_difference(new: Intervals, old: Intervals) -> list[tuple[int, int, int, int, int]]:
    """New minus old, one row per epoch and edge: the most broken-up form that means the same."""
    rows = []
    for edge in sorted(set(new) | set(old)):
        for epoch in [*range(EPOCHS), EPOCHS]:
            until = epoch + 1 if epoch < EPOCHS else FOREVER
            diff = sum(s <= epoch < u for s, u in new.get(edge, [])) - sum(s <= epoch < u for s, u in old.get(edge, []))
            if diff:
                rows.append((*edge, epoch, until, diff))
    return rows


def mutate(rng: random.Random, old: Intervals) -> Intervals:
    new = {edge: spans for edge, spans in old.items() if rng.random() < 0.7}
    fresh = random_intervals(rng)
    return new | {edge: spans for edge, spans in fresh.items() if rng.random() < 0.3}


def found_triangles(graph: set[tuple[int, int]]) -> set[tuple[int, int, int]]:
    near = neighbours(graph)
    return {(a, b, c) for a, b in graph for c in near[a] & near[b] if b < c}


@pytest.mark.law(5)
def test_each_triangle_is_claimed_once(spark: SparkSession) -> None:
    seed = seeds.one()
    rng = random.Random(seed)
    first = random_intervals(rng)
    second = mutate(rng, first)
    # the index holds an older version and its correction, so that retractions meet insertions inside it
    rows = signed_difference(first, {}) + signed_difference(second, first)
    index = spark.createDataFrame(rows, SCHEMA)
    third = mutate(rng, second)
    delta_rows = signed_difference(third, second)
    delta = spark.createDataFrame(delta_rows, SCHEMA)
    changes = triangles.triangle_changes(index, delta).collect()
    for epoch in range(EPOCHS + 1):
        got: Counter[tuple[int, int, int]] = Counter()
        for r in changes:
            if r.epoch <= epoch < r.until:
                got[(r.a, r.b, r.c)] += r.diff
        after, before = found_triangles(presence(third, epoch)), found_triangles(presence(second, epoch))
        expected = {t: 1 for t in after - before} | {t: -1 for t in before - after}
        assert {t: n for t, n in got.items() if n} == expected, (seed, epoch)


def test_the_enumeration_of_all_gives_the_same_diff_triples(spark: SparkSession) -> None:
    """The bulk plan against the delta query, in one task and in cells: full lists, for insertions and retractions."""
    seed = seeds.one()
    rng = random.Random(seed)
    first = random_intervals(rng)
    second = mutate(rng, first)
    index = spark.createDataFrame(signed_difference(first, {}), SCHEMA)
    delta = spark.createDataFrame(signed_difference(second, first), SCHEMA)
    both = index.unionByName(delta)
    n = both.count()

    def bag(frame: DataFrame) -> list[tuple[int, ...]]:
        return sorted(tuple(row) for row in frame.select("vertex", "epoch", "diff").collect())

    stored = triangles.recounted_vertex_changes(index, None, n, n)
    nothing = index.limit(0)
    assert bag(stored) == bag(triangles.vertex_triangle_changes(triangles.triangle_changes(nothing, index))), seed
    expected = bag(triangles.vertex_triangle_changes(triangles.triangle_changes(index, delta)))
    assert expected
    for limit in (n, n // 2, n // 20):
        assert bag(triangles.recounted_vertex_changes(both, stored, n, limit)) == expected, (seed, limit)
    assert bag(triangles.recounted_vertex_changes(index, None, n, n // 3)) == bag(stored), seed
    assert bag(triangles.recounted_vertex_changes(nothing, stored, 0, n)) == sorted(
        (v, e, -d) for v, e, d in bag(stored)
    ), "an emptied graph takes all back"


@pytest.mark.law(5)
def test_the_shift_between_alt_and_neu_matters(spark: SparkSession, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """A test of the test: three new edges at once make one triangle; without the alt/neu order, three or none."""
    from pyspark.sql import functions as F

    empty = spark.createDataFrame([], SCHEMA)
    delta = spark.createDataFrame([(1, 2, 0, FOREVER, 1), (1, 3, 0, FOREVER, 1), (2, 3, 0, FOREVER, 1)], SCHEMA)
    assert [tuple(r)[:3] for r in triangles.triangle_changes(empty, delta).collect()] == [(1, 2, 3)]
    monkeypatch.setattr(triangles, "_is_visible", lambda end: F.lit(True))
    assert triangles.triangle_changes(empty, delta).count() == 3
    monkeypatch.setattr(triangles, "_is_visible", lambda end: ~F.col("neu"))
    assert triangles.triangle_changes(empty, delta).count() == 0


def test_pairs_of_one_hash_are_told_apart(spark: SparkSession, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """The third edge is found by a hash of its ends; here all pairs have the same."""
    from pyspark.sql import functions as F

    index = spark.createDataFrame([(1, 2, 0, FOREVER, 1), (2, 3, 0, FOREVER, 1), (4, 5, 0, FOREVER, 1)], SCHEMA)
    delta = spark.createDataFrame([(1, 3, 1, FOREVER, 1), (1, 4, 1, FOREVER, 1)], SCHEMA)
    monkeypatch.setattr(triangles.F, "xxhash64", lambda *pair: F.lit(7).cast("bigint"))
    assert [tuple(r)[:3] for r in triangles.triangle_changes(index, delta).collect()] == [(1, 2, 3)]


@pytest.mark.law(8)
def test_a_hub_costs_the_smaller_side(spark: SparkSession) -> None:
    """Law 8: an edge at a vertex of degree 5,000 proposes as many as its other end has neighbours."""
    hub = [(0, v, 0, FOREVER, 1) for v in range(2, 5002)]
    index = spark.createDataFrame([*hub, (1, 2, 0, FOREVER, 1)], SCHEMA)
    delta = spark.createDataFrame([(0, 1, 1, FOREVER, 1), (2, 3, 1, FOREVER, 1)], SCHEMA)
    counted = triangles.count(index, delta)
    assert {(r.a, r.b): r.proposals for r in counted.collect()} == {(0, 1): 2, (2, 3): 2}
    assert triangles.propose(index, delta, counted).count() <= 4
    found = triangles.triangle_changes(index, delta).collect()
    assert {(r.a, r.b, r.c) for r in found} == {(0, 1, 2), (0, 2, 3)}
