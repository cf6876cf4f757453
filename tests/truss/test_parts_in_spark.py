"""The trussness in parts against the replay in one task and against the definition, at every epoch."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from altneu.algorithms.graph import bsp, partition_cache, truss, truss_bsp
from altneu.algorithms.graph.bsp import ExecutorRoundStore
from altneu.algorithms.graph.kernels.truss import peel
from altneu.algorithms.graph.truss_plan import ReplayRequest, summarize_notes
from tests import seeds
from tests.kernels.references import Edge, arrays, clique, slow_trussness, torus
from tests.kernels.test_replay import intervals, random_history
from tests.plans.executed import executed
from tests.truss.test_parts import after

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


def in_parts(
    edges: DataFrame,
    stored: DataFrame,
    request: ReplayRequest,
    size: int,
    say: truss_bsp.Say = lambda epoch, text: None,
    rounds: ExecutorRoundStore | None = None,
) -> DataFrame:
    alive = truss.alive_intervals(edges, request)
    return truss_bsp.trussness_changes(alive, stored, request, size=size, say=say, rounds=rounds)


def check(
    spark: SparkSession,
    history: History,
    first: int,
    stored: list[Triple],
    size: int = 10,
    rounds: ExecutorRoundStore | None = None,
) -> list[dict[str, Any]]:
    """With a tiny limit: the definition's triples at every epoch, and those of one task; the notes."""
    window = frames(spark, history, stored)
    said: list[tuple[int, str]] = []
    last = max(history)
    request = ReplayRequest(first_epoch=first, last_epoch=last)
    changed = in_parts(*window, request, size, lambda *what: said.append(what), rounds)
    found = changed.collect()
    got = Counter({(row.a, row.b, row.k, row.epoch): row.diff for row in found if row.diff})
    assert len(got) == sum(bool(row.diff) for row in found)
    total = Counter({row[:4]: row[4] for row in stored})
    total.update(got)
    wrong = {key: diff for key, diff in total.items() if diff}
    expected = {row[:4]: row[4] for row in changes(history)}
    differing = sorted(wrong.items() ^ expected.items(), key=lambda item: (item[0][3], item))
    assert not differing, f"first at epoch {differing[0][0][3]}: {differing[:5]}"
    one = truss.replayed_changes(*window, request).where("diff <> 0").collect()
    assert got == {(row.a, row.b, row.k, row.epoch): row.diff for row in one}
    notes = [json.loads(row.note) for row in found if row.note]
    assert {note["method"] for note in notes} <= {"parts"}
    assert len(said) == bool(notes) + sum(1 + note["rounds"] for note in notes)
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
def test_parts_equal_the_replay_and_the_definition(spark: SparkSession) -> None:
    """From the middle of a history on, one epoch of which is not what was stored."""
    history = packed(range(1, 6), 4)
    for epoch, edges in grown_and_cut().items():
        history[min(epoch, 3)] |= edges
    now = late(history, 2, 7)
    for epoch in (2, 3):
        assert {row[:2] for row in changes(now) if row[3] == epoch} >= TORUS, "one edge moves all"
    notes = check(spark, now, 2, changes(history))
    summary = summarize_notes(json.dumps(note) for note in notes)
    assert summary.methods == {"parts": 2}
    assert summary.looked_at > 0 and summary.rounds > 4


def test_what_contradicts_itself_is_named(spark: SparkSession) -> None:
    columns = "a long, b long, epoch long, until long, diff long"
    edges = spark.createDataFrame([(1, 2, 0, 9, 1), (2, 3, 3, 9, 1), (2, 3, 4, 9, 1)], columns)
    stored = spark.createDataFrame([(1, 2, 2, 0, 1)], "a long, b long, k long, epoch long, diff long")
    with pytest.raises(ValueError, match=r"edge \(2, 3\) exists 2 times at epoch 4"):
        in_parts(edges, stored, ReplayRequest(first_epoch=1, last_epoch=5), 0)
    with pytest.raises(ValueError, match=r"edge \(1, 2\) exists 1 times just before epoch 1, with 0 trussness"):
        in_parts(edges, stored.where("a > 1"), ReplayRequest(first_epoch=1, last_epoch=3), 0)


def test_a_round_is_two_jobs_and_moves_no_edge(spark: SparkSession) -> None:
    """Planned as in a run (`tiny` plans otherwise): an edge that moves all others goes and comes again."""
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    whole = TORUS
    window = frames(spark, {0: whole, 1: whole - {min(TORUS)}, 2: whole}, changes({0: whole}))
    tracker, group = spark.sparkContext.statusTracker(), f"rounds {id(window)}"
    counts: list[int] = []

    def say(_: int, text: str) -> None:
        if text.startswith("round"):
            counts.append(len(tracker.getJobIdsForGroup(group)))

    spark.sparkContext.setJobGroup(group, "the rounds of one call")
    with executed(spark) as plans:
        try:
            in_parts(*window, ReplayRequest(first_epoch=1, last_epoch=2), 30, say)
        finally:
            spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    jobs = [after - before for before, after in pairwise(counts) if after > before]
    assert jobs and max(jobs) <= 4, jobs
    rounds = [plan for plan in plans if "FlatMapCoGroupsInArrow" in plan]
    assert rounds
    reading = [plan for plan in rounds if re.search(r"CoGroupsInArrow .*\(part#\d+, place#", plan)]
    assert len(reading) == 4, "the first round of two epochs, and what closes them"
    assert all("StorageLevel(disk, 1 replicas)" in plan for plan in reading), "a small heap has no room for parts"
    assert len(rounds) > len(reading), "the others go on from what lies on the executor's disk"
    for plan in rounds:
        assert "Exchange" not in plan[: plan.index("InMemoryTableScan")], plan
    for plan in reading:
        assert not exchanged_scans(plan), plan


def exchanged_scans(plan: str) -> list[str]:
    """Cached rows with an exchange right above them, or a sort."""
    lines = plan.splitlines()
    found = []
    for i, line in enumerate(lines):
        if "InMemoryTableScan" in line:
            above = [text for text in lines[:i] if re.search(r"Exchange|Sort |CoGroups", text)]
            found += [text for text in above[-1:] if "CoGroups" not in text]
    return found


@pytest.mark.slow
def test_parts_from_nothing_emptied_and_refilled(spark: SparkSession) -> None:
    check(spark, grown_and_cut(), 0, [])


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 40, 120])
@pytest.mark.parametrize("seed", seeds.several(range(3)))
def test_parts_on_many_histories(spark: SparkSession, seed: int, size: int) -> None:
    """Late epochs in the middle, with later diffs stored; parts small and large."""
    history = packed(range(30 * seed + 10, 30 * seed + 40), 5)
    notes = check(spark, late(history, 1, seed), 1, changes(history), size)
    assert size > 1 or all(note["parts"] > 100 for note in notes)


def test_it_is_proved_in_the_parts_in_which_it_was_found(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold edges, too, that have gone by the last epoch."""
    history = packed(range(4), 3)
    history[2] = set(sorted(history[2])[::2])
    rounds = ExecutorRoundStore()
    found = in_parts(*frames(spark, history, []), ReplayRequest(first_epoch=0, last_epoch=2), 10, rounds=rounds)
    triples = found.where("diff <> 0").groupBy("a", "b", "k").agg(F.sum("diff").alias("n")).where("n <> 0")
    edges = triples.select("a", "b", "k").localCheckpoint()
    monkeypatch.setattr(bsp, "_partition_layout", None)  # none is made again
    rows = truss_bsp.build_checkpoint(edges, edges.count(), 10, rounds).toPandas()
    assert set(zip(rows["a"], rows["b"], strict=True)) == history[2] < history[0] | history[1] | history[2]
    a, b = (rows[end].to_numpy() for end in ("a", "b"))
    assert rows["level"].tolist() == (peel(a, b) - 2).tolist()
    assert (np.array(after(a, b, rows["level"].to_numpy(), rows["label"].to_numpy())) == rows["own"]).all()
    assert (rows["own"] <= rows["level"]).all()


@pytest.mark.parametrize("size", [40, pytest.param(4, marks=pytest.mark.slow)])
def test_places_are_a_valid_order_and_show_what_is_too_low(spark: SparkSession, size: int) -> None:
    a, b = arrays(sorted(packed(range(3), 1)[0] | clique(5)))
    k = peel(a, b)
    edges = pd.DataFrame({"a": a, "b": b, "k": k})
    found = truss_bsp.elimination_order(spark.createDataFrame(edges), size).toPandas()
    assert len(found) == len(edges)
    label = edges.merge(found, on=["a", "b"])["label"].to_numpy()
    assert (np.array(after(a, b, k - 2, label)) <= k - 2).all()
    low = clique(5)  # they lie among vertices of others: all that can rise rise together
    edges.loc[[pair in low for pair in zip(a.tolist(), b.tolist(), strict=True)], "k"] -= 1
    placed = {(row.a, row.b) for row in truss_bsp.elimination_order(spark.createDataFrame(edges), size).collect()}
    assert set(zip(a.tolist(), b.tolist(), strict=True)) - placed >= low


def test_triangles_are_looked_for_once_and_nothing_is_left(spark: SparkSession) -> None:
    a, b = arrays(sorted(packed(range(12), 1)[0] | torus(6)))
    edges = spark.createDataFrame(pd.DataFrame({"a": a, "b": b, "k": peel(a, b)}))
    seen = list[set[str]]()
    truss_bsp.elimination_order(edges, 4, say=lambda text: seen.append(kept(spark)))
    known = [{file for file in each if ".places." in file} for each in seen]
    lists = {frozenset(each - after) for each, after in zip(seen, known, strict=True)}
    assert len(seen) > 1 and len(lists) == 1 and all(lists) and all(known), "and what each part knows"
    assert kept(spark) == set()


def kept(spark: SparkSession) -> set[str]:
    """What parts have left in the local directory of the executor."""

    def look(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        folder = Path(os.environ["SPARK_LOCAL_DIRS"].split(",")[0], partition_cache.KIND)
        found = [str((path, path.stat().st_ino)) for path in folder.rglob("*.npy")]
        for _ in rows:
            yield pa.RecordBatch.from_pydict({"path": pa.array(found, pa.string())})

    return {row.path for row in spark.range(0, 1, 1, 1).mapInArrow(look, "path string").collect()}


class Losing(ExecutorRoundStore):
    """Executors that lose some of what parts have left there, before any job of a round, or do not have some at hand
    for one job, as if another did it; `lost`: how many files."""

    def __init__(self, spark: SparkSession, seed: int) -> None:
        self.spark, self.seed, self.lost = spark, seed, 0

    def persist_rows(self, rows: DataFrame, after: DataFrame | None = None) -> DataFrame:
        self.seed += 1
        seed = self.seed

        def lose(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            rng, lost = np.random.default_rng(seed), 0
            folder = Path(os.environ["SPARK_LOCAL_DIRS"].split(",")[0], partition_cache.KIND)
            for path in folder.rglob("*.elsewhere"):
                path.rename(path.with_suffix(""))
            for path in sorted(folder.rglob("*.npy")):
                if rng.random() < (0.5 if path.name.count(".") > 1 else 0.03):  # values, or edges and lists
                    match rng.integers(0, 4):
                        case 0:
                            path.unlink()
                        case 1:
                            path.write_bytes(b"half a file")
                        case _:
                            path.rename(f"{path}.elsewhere")
                    lost += 1
            for _ in rows:
                yield pa.RecordBatch.from_pydict({"lost": pa.array([lost], pa.int64())})

        self.lost += self.spark.range(0, 1, 1, 1).mapInArrow(lose, "lost long").collect()[0].lost
        return super().persist_rows(rows, after)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "graphs"), [(0, 1), *((seed, 3) for seed in range(6))])
def test_what_executors_lose_is_heard_again(spark: SparkSession, seed: int, graphs: int) -> None:
    """Some parts go on from what they left, others from all that was said, in one round."""
    history = packed(range(10 * seed + 1, 10 * seed + 1 + graphs), 2)
    for epoch, gone in enumerate([set(), {min(TORUS)}]):
        history[epoch] |= TORUS - gone
    losing = Losing(spark, 1000 * seed)
    check(spark, history, 0, [], 10, losing)
    assert losing.lost > 10
