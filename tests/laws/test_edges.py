"""The edges stage of a small home looks at all pairs, others at those that a change touches: they find the same."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import DataFrame, SparkSession

from algorithms import edges
from pipeline.storage import few
from tests import seeds

COLUMNS = {"src": "bigint", "dst": "bigint", "op": "string", "seq": "bigint", "epoch": "bigint", "diff": "bigint"}


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


@pytest.mark.parametrize("live_for", [None, 2])
def test_all_pairs_change_as_the_touched_ones_do(spark: SparkSession, live_for: int | None) -> None:
    rng = random.Random(seeds.one())
    stored, new = upserts(rng, 90), upserts(rng, 12)
    taken_back = [(*row[:5], -1) for row in rng.sample(stored, 12)]
    base, delta = (few.frame(spark, COLUMNS, rows) for rows in (stored, [*new, *taken_back]))
    touched = edges.edge_changes(base, delta, edges.touched_pairs(delta, []), [], live_for)
    assert listed(touched) == listed(edges.edge_changes(base, delta, None, [], live_for)) != []
    before = edges.degree_changes(edges.edge_changes(None, base, None, [], live_for))
    changed = edges.degree_changes(touched)
    totals = listed(edges.degree_total_changes(before, changed))
    assert totals == listed(edges.degree_total_changes(before, changed, whole=True)) != []
