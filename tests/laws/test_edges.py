"""The edges stage of a small home looks at all pairs, others at those that a change touches: they find the same."""

from __future__ import annotations

import itertools
import random

import pytest
from pyspark.sql import DataFrame, SparkSession

from altneu.algorithms.graph import edge_derivation
from altneu.pipeline.storage import local_frame
from tests import seeds

COLUMNS = {"src": "bigint", "dst": "bigint", "op": "string", "seq": "bigint", "epoch": "bigint", "diff": "bigint"}
QUICK = ((0, None, None), (90, None, None), (90, "w > 1", 2))  # rows, condition and window of a first load


def upserts(rng: random.Random, n: int) -> list[tuple[int, int, str, int, int, int]]:
    """Landed rows: self-loops, both directions, deletions and ties among them."""

    def row() -> tuple[int, int, str, int, int, int]:
        return (
            rng.randrange(9),
            rng.randrange(9),
            rng.choice(["upsert", "delete"]),
            rng.randrange(2),
            rng.randrange(6),
            1,
        )

    return [row() for _ in range(n)]


def listed(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in frame.select(*sorted(frame.columns)).collect())


@pytest.mark.law(4)
@pytest.mark.parametrize("live_for", [pytest.param(None, marks=pytest.mark.slow), 2])
def test_all_pairs_change_as_the_touched_ones_do(spark: SparkSession, live_for: int | None) -> None:
    rng = random.Random(seeds.one())
    stored, new = upserts(rng, 90), upserts(rng, 12)
    taken_back = [(*row[:5], -1) for row in rng.sample(stored, 12)]
    base, delta = (local_frame.local_frame(spark, COLUMNS, rows) for rows in (stored, [*new, *taken_back]))
    touched = edge_derivation.edge_changes(base, delta, edge_derivation.touched_pairs(delta, []), [], live_for)
    assert listed(touched) == listed(edge_derivation.edge_changes(base, delta, None, [], live_for)) != []
    before = edge_derivation.degree_changes(edge_derivation.edge_changes(None, base, None, [], live_for))
    changed = edge_derivation.degree_changes(touched)
    totals = listed(edge_derivation.degree_total_changes(before, changed))
    assert totals == listed(edge_derivation.degree_total_changes(before, changed, whole=True)) != []


@pytest.mark.parametrize(
    ("n", "where", "live_for"),
    [
        pytest.param(*case, marks=[] if case in QUICK else pytest.mark.slow)
        for case in itertools.product((0, 25, 90), (None, "w > 1"), (None, 2))
    ],
)
def test_a_first_load_finds_the_edges_of_all_pairs(
    spark: SparkSession, n: int, where: str | None, live_for: int | None
) -> None:
    """Pairs of which one row alone speaks, of which several do, and rows that were taken back or stand there twice."""
    rng = random.Random(seeds.one())
    rows = [(*row, rng.choice([None, 1, 2, 3])) for row in upserts(rng, n)]
    rows += [
        (*row[:5], diff, row[6]) for row in rng.sample(rows, n // 5) for diff in rng.choice([(-1,), (-1, 1), (1,)])
    ]
    landed = local_frame.local_frame(spark, COLUMNS | {"w": "bigint"}, rows)
    found = listed(edge_derivation.first_edges(landed, ["w"], live_for, where))
    assert found == listed(edge_derivation.edge_changes(None, landed, None, ["w"], live_for, where))
    assert bool(found) == bool(n)
