"""The distributed rounds against the replay in one task and against the definition, at every epoch."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

from algorithms import truss, truss_rounds
from tests import seeds
from tests.kernels.references import Edge, clique, slow_trussness, torus
from tests.kernels.test_replay import intervals, random_history

pytestmark = pytest.mark.usefixtures("tiny")

History = dict[int, set[Edge]]
Triple = tuple[int, int, int, int, int]


def packed(seeds: range, epochs: int) -> History:
    """Random histories side by side, as one graph of separate parts, over epochs 0 .. epochs - 1."""
    whole: History = {epoch: set() for epoch in range(epochs)}
    for seed in seeds:
        history = random_history(np.random.default_rng(seed), epochs)
        names = sorted({v for edges in history.values() for edge in edges for v in edge})
        place = {v: 1000 * seed + i for i, v in enumerate(names)}
        for epoch, at in enumerate(sorted(history)):
            whole[epoch] |= {(place[u], place[v]) for u, v in history[at]}
    return whole


def changes(history: History) -> list[Triple]:
    """The diff triples of the trussness of a whole history, by the definition."""
    rows, before = [], {}
    for epoch in sorted(history):
        after = slow_trussness(history[epoch])
        rows += [(*edge, k, epoch, -1) for edge, k in before.items() if after.get(edge) != k]
        rows += [(*edge, k, epoch, 1) for edge, k in after.items() if before.get(edge) != k]
        before = after
    return rows


def frames(spark: SparkSession, history: History, stored: list[Triple]) -> tuple[DataFrame, DataFrame]:
    rows = [(*row, 1) for row in intervals(history, max(history))]
    edges = spark.createDataFrame(rows, "a long, b long, epoch long, until long, diff long")
    return edges, spark.createDataFrame(stored, "a long, b long, k long, epoch long, diff long")


def check(spark: SparkSession, history: History, first: int, stored: list[Triple]) -> list[dict[str, Any]]:
    """With a tiny limit: the definition's triples at every epoch, and those of one task; the notes."""
    window = frames(spark, history, stored)
    said: list[tuple[int, str]] = []
    last = max(history)
    found = truss.trussness_changes(*window, first, last, 1, lambda *what: said.append(what)).collect()
    got = Counter({row[:4]: row.diff for row in found if row.diff})
    assert len(got) == sum(row.diff != 0 for row in found)
    total = Counter({row[:4]: row[4] for row in stored})
    total.update(got)
    wrong = {key: diff for key, diff in total.items() if diff}
    expected = {row[:4]: row[4] for row in changes(history)}
    differing = sorted(wrong.items() ^ expected.items(), key=lambda item: (item[0][3], item))
    assert not differing, f"first at epoch {differing[0][0][3]}: {differing[:5]}"
    one = truss.trussness_changes(*window, first, last).where("diff <> 0").collect()
    assert got == {row[:4]: row.diff for row in one}
    notes = [json.loads(row.note) for row in found if row.note]
    assert {note["method"] for note in notes} <= {"rounds"}
    assert len(said) == sum(1 + note["rounds"] for note in notes)
    return notes


TORUS = {(100 + a, 100 + b) for a, b in torus(5)}


def grown_and_cut() -> History:
    """A clique that gains and loses edges, and a torus that one edge moves as a whole; then nothing, and all again."""
    whole, one = clique(6) | TORUS, min(TORUS)
    steps = [whole - {(0, 1), (2, 3), one}, whole, whole - {one, (4, 5)}, set(), whole]
    return dict(enumerate(steps))


def late(history: History, at: int, seed: int) -> History:
    """The same history, the batch of one epoch replaced: some edges are there for that epoch only, some are not.

    Not of the torus, so that one edge is all that moves it.
    """
    rng = np.random.default_rng(seed)
    pool = sorted(set().union(*history.values()) - TORUS)
    flipped = {edge for edge in pool if rng.random() < 0.1}
    return history | {at: history[at] ^ flipped}


@pytest.mark.slow
def test_rounds_equal_the_replay_and_the_definition(spark: SparkSession) -> None:
    """From the middle of a history on, one epoch of which is not what was stored."""
    history = packed(range(1, 6), 4)
    for epoch, edges in grown_and_cut().items():
        history[min(epoch, 3)] |= edges
    now = late(history, 2, 7)
    for epoch in (2, 3):
        assert {row[:2] for row in changes(now) if row[3] == epoch} >= TORUS, "one edge moves all"
    notes = check(spark, now, 2, changes(history))
    summary = truss.summary(json.dumps(note) for note in notes)
    assert summary.methods == {"rounds": 2}
    assert summary.looked_at > 0 and summary.rounds > 4


def test_what_contradicts_itself_is_named(spark: SparkSession) -> None:
    columns = "a long, b long, epoch long, until long, diff long"
    edges = spark.createDataFrame([(1, 2, 0, 9, 1), (2, 3, 3, 9, 1), (2, 3, 4, 9, 1)], columns)
    stored = spark.createDataFrame([(1, 2, 2, 0, 1)], "a long, b long, k long, epoch long, diff long")
    with pytest.raises(ValueError, match=r"edge \(2, 3\) is there 2 times at epoch 4"):
        truss.trussness_changes(edges, stored, 1, 5, 0)
    with pytest.raises(ValueError, match=r"edge \(1, 2\) is there 1 times just before epoch 1, with 0 trussness"):
        truss.trussness_changes(edges, stored.where("a > 1"), 1, 3, 0)


def test_a_round_is_a_bounded_number_of_jobs(spark: SparkSession) -> None:
    """As the README has it, planned as in a run (`tiny` plans otherwise): an edge of a clique goes and comes again."""
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    whole = clique(4)
    window = frames(spark, {0: whole, 1: whole - {(0, 1)}, 2: whole}, changes({0: whole}))
    tracker, group = spark.sparkContext.statusTracker(), f"rounds {id(window)}"
    counts: list[int] = []
    spark.sparkContext.setJobGroup(group, "the rounds of one call")
    try:
        truss.trussness_changes(*window, 1, 2, 1, lambda *_: counts.append(len(tracker.getJobIdsForGroup(group))))
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    jobs = [after - before for before, after in pairwise(counts) if after > before]
    assert len(jobs) > 3, counts
    assert max(jobs) <= 25, jobs


@pytest.mark.slow
def test_rounds_from_nothing_emptied_and_refilled(spark: SparkSession) -> None:
    check(spark, grown_and_cut(), 0, [])


@pytest.mark.slow
@pytest.mark.parametrize("few", [0, truss_rounds.FEW])
@pytest.mark.parametrize("seed", seeds.several(range(3)))
def test_rounds_on_many_histories(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int, few: int) -> None:
    """Late epochs in the middle, with later diffs stored; small sides sent to every task, and all shuffled."""
    monkeypatch.setattr(truss_rounds, "FEW", few)
    history = packed(range(30 * seed + 10, 30 * seed + 40), 5)
    check(spark, late(history, 1, seed), 1, changes(history))
