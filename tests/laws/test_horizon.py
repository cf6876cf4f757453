"""What a run reads of the past gives what the whole past gives, from its first epoch on: full lists, random graphs."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from altneu.algorithms.algebra import horizon
from altneu.algorithms.graph import edge_derivation, motif_patterns, motifs, triangles
from altneu.pipeline.storage import local_frame
from tests import seeds
from tests.laws.test_edges import COLUMNS, listed, upserts
from tests.laws.test_triangle_rules import SCHEMA, Intervals, mutate, random_intervals, signed_difference

FIRST = 3


def change_from(first: int, rng: random.Random, old: Intervals) -> Intervals:
    """Another state, which is the old one at all epochs before the first."""
    new = mutate(rng, old)
    before = {edge: [(s, min(u, first)) for s, u in spans if s < first] for edge, spans in old.items()}
    after = {edge: [(max(s, first), u) for s, u in spans if u > first] for edge, spans in new.items()}
    return {edge: before.get(edge, []) + after.get(edge, []) for edge in before.keys() | after.keys()}


def whole_rows(rows: list[tuple[int, int, int, int, int]]) -> list[tuple[int, int, int, int, int]]:
    """Join the rows of one edge and diff that meet, so that intervals cross the horizon."""
    joined: list[tuple[int, int, int, int, int]] = []
    for a, b, epoch, until, diff in rows:
        if joined and joined[-1][:2] == (a, b) and joined[-1][3:] == (epoch, diff):
            joined[-1] = (a, b, joined[-1][2], until, diff)
        else:
            joined.append((a, b, epoch, until, diff))
    return joined


def from_first(frame: DataFrame) -> list[tuple[object, ...]]:
    return listed(frame.where(f"epoch >= {FIRST}"))


@pytest.mark.law(4)
def test_a_change_of_edges_needs_the_state_before_its_first_epoch_and_what_follows(spark: SparkSession) -> None:
    rng = random.Random(seeds.one())
    versions = [random_intervals(rng)]
    versions += [mutate(rng, versions[-1])]
    rows = whole_rows(signed_difference(versions[0], {})) + whole_rows(signed_difference(versions[1], versions[0]))
    changed = whole_rows(signed_difference(change_from(FIRST, rng, versions[1]), versions[1]))
    assert changed and min(row[2] for row in changed) >= FIRST
    index, delta = spark.createDataFrame(rows, SCHEMA), spark.createDataFrame(changed, SCHEMA)
    cut = horizon.intervals_since(index, FIRST)
    assert 0 < cut.count() < len(rows)

    counts = triangles.vertex_triangle_changes(triangles.triangle_changes(index, delta))
    expected = listed(counts)
    assert expected == listed(triangles.vertex_triangle_changes(triangles.triangle_changes(cut, delta))) != []
    stored = triangles.recounted_vertex_changes(index, None, len(rows), len(rows))
    for limit in (10 * len(rows), len(rows) // 4):
        n = len(rows) + len(changed)
        assert expected == listed(
            triangles.recounted_vertex_changes(cut.unionByName(delta), stored, n, limit, first=FIRST)
        )

    degrees, change = edge_derivation.degree_changes(index), edge_derivation.degree_changes(delta)
    totals = listed(edge_derivation.degree_total_changes(degrees, change))
    for before in (horizon.sum_triples_since(degrees, ["vertex"], FIRST), edge_derivation.degree_changes(cut)):
        assert totals == listed(edge_derivation.degree_total_changes(before, change)) != []

    wanted = {"wedge": motif_patterns.parse_motif("a-b, b-c")}
    named, named_cut, named_delta = (frame.selectExpr("'-' AS relation", "*") for frame in (index, cut, delta))
    motif = listed(motifs.motif_changes(wanted, named, named_delta))
    assert motif == listed(motifs.motif_changes(wanted, named_cut, named_delta)) != []
    assert from_first(motifs.motif_counts(wanted, named_cut)) == from_first(motifs.motif_counts(wanted, named))


def last_before_and_after(rows: list[tuple[Any, ...]], first: int) -> list[tuple[Any, ...]]:
    """The upserts of each key at its last epoch before the first that still has one, and all from the first on."""
    there = Counter[tuple[Any, ...]]()
    for row in rows:
        there[row[:-1]] += row[-1]
    last: dict[tuple[Any, ...], int] = {}
    for src, dst, _, _, epoch in (row for row, copies in there.items() if copies > 0 and row[4] < first):
        last[src, dst] = max(epoch, last.get((src, dst), epoch))
    return [row for row in rows if row[4] >= first or row[4] == last.get(row[:2])]


@pytest.mark.law(4)
@pytest.mark.parametrize("live_for", [2, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, None))])
def test_an_upsert_that_has_ended_before_decides_on_nothing(spark: SparkSession, live_for: int | None) -> None:
    rng = random.Random(seeds.one())
    stored = upserts(rng, 90)
    late = [row for row in stored if row[4] >= FIRST]
    delta = [row for row in upserts(rng, 30) if row[4] >= FIRST] + [(*row[:5], -1) for row in rng.sample(late, 6)]
    base, changed = (local_frame.local_frame(spark, COLUMNS, rows) for rows in (stored, delta))
    if live_for is None:  # no column says which these are: a run reads all upserts of the touched pairs
        enough = last_before_and_after(stored, FIRST)
        assert len(enough) < len(stored)
        cut = local_frame.local_frame(spark, COLUMNS, enough)
        assert horizon.upserts_since(base, FIRST, live_for) is base
    else:
        cut = horizon.upserts_since(base, FIRST, live_for)
        assert cut.count() < len(stored)
    for pairs in (None, edge_derivation.touched_pairs(changed, [])):
        whole = listed(edge_derivation.edge_changes(base, changed, pairs, [], live_for))
        assert whole == listed(edge_derivation.edge_changes(cut, changed, pairs, [], live_for)) != []
