"""Look-ups on executors' disks find what a slow reference finds, whatever becomes of the files."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from altneu.algorithms.fingerprint import Fingerprint
from altneu.algorithms.graph import executor_adjacency, executor_local_store
from altneu.algorithms.graph.bsp import EDGE, FIXED
from altneu.algorithms.graph.executor_adjacency import KIND, VALUES, Adjacency, Block, Missing
from altneu.algorithms.spark_conf import configured
from tests import seeds

Edge = tuple[int, int]
Values = tuple[int, int, int, int]
ABSENT = (-1, 0, 0, 0)
Row = tuple[int, ...]


class Graph:
    """A random one, rows that sum up to it, and edges that move, some of which are there."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        ids = rng.choice([-(2**62), -7, 0, 1, 2, 3, 5, 8, 13, 2**40, 2**62], int(rng.integers(0, 11)), replace=False)
        pairs = list(combinations(sorted(int(each) for each in ids), 2))
        self.edges = {pair: self._values(rng) for pair in pairs if rng.random() < 0.6}
        self.moves = {pair for pair in pairs if rng.random() < 0.2}
        self.rows: list[Row] = [(*pair, *values, 1) for pair, values in self.edges.items()]
        for pair in pairs:  # what comes and goes again, and what was written in two halves
            if rng.random() < 0.4:
                values = self._values(rng)
                self.rows += [(*pair, *values, 1), (*pair, *values, -1)]
            if rng.random() < 0.2 and pair in self.edges:
                self.rows += [(*pair, *self.edges[pair], 1), (*pair, *self.edges[pair], -1)]
        order = rng.permutation(len(self.rows))
        self.rows = [self.rows[at] for at in order]
        self.asked = {pair: int(rng.integers(0, 4)) for pair in pairs if rng.random() < 0.5}

    @staticmethod
    def _values(rng: np.random.Generator) -> Values:
        level, own, backing = (int(each) for each in rng.integers(0, 4, 3))
        return level, int(rng.integers(-(2**50), 2**50)), own, backing

    def known(self, pair: Edge) -> Values | None:
        return self.edges.get(pair, ABSENT if pair in self.moves else None)

    def triangles(self, asked: dict[Edge, int]) -> set[Row]:
        found = set()
        for (u, v), least in asked.items():
            for w in {end for pair in (*self.edges, *self.moves) for end in pair} - {u, v}:
                other = [(min(end, w), max(end, w)) for end in (u, v)]
                values = [self.known(pair) for pair in other]
                if all(
                    each is not None and (pair in self.moves or each[0] >= least)
                    for pair, each in zip(other, values, strict=True)
                ):
                    found |= {(*pair, *each) for pair, each in zip(other, values, strict=True) if each is not None}
        return found

    def made(self, spark: SparkSession, blocks: int) -> Adjacency:
        rows = table([*EDGE, *VALUES, "diff"], self.rows)
        moves = table(EDGE, sorted(self.moves))
        return Adjacency(spark.createDataFrame(rows), spark.createDataFrame(moves), blocks)


def table(names: list[str], rows: list[Row] | list[Edge]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [[]] * len(names)
    return pa.table({name: pa.array(list(each), pa.int64()) for name, each in zip(names, columns, strict=True)})


def columns(rows: list[Row], width: int) -> list[np.ndarray]:
    return list(np.array(rows, np.int64).reshape(-1, width).T)


def told(found: list[np.ndarray]) -> list[Row]:
    return [tuple(int(each) for each in row) for row in zip(*found, strict=True)]


def agrees(graph: Graph, found: Adjacency) -> None:
    known = columns([(a, b, values[0] + 2) for (a, b), values in graph.edges.items()], 3)
    assert found.fingerprint == Fingerprint.from_rows(known)
    ends = sorted({end for pair in (*graph.edges, *graph.asked) for end in pair})
    degrees = [sum(vertex in pair for pair in graph.edges) for vertex in ends]
    assert found.look_up_degrees(np.array(ends, np.int64)).tolist() == degrees
    asked = columns([(*pair, least) for pair, least in graph.asked.items()], 3)
    there = sorted((*pair, *graph.edges[pair]) for pair in graph.asked if pair in graph.edges)
    assert sorted(told(found.look_up_edges(*asked[:2]))) == there
    assert told(found.look_up_triangles(*asked)) == sorted(graph.triangles(graph.asked))


@pytest.fixture
def plans(tiny: SparkSession) -> Iterator[SparkSession]:
    with configured(tiny, FIXED):
        yield tiny


@pytest.mark.parametrize("seed", seeds.mark_wide(range(12), 3))
def test_as_a_slow_reference(seed: int, plans: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(seed)
    monkeypatch.setattr(executor_adjacency, "MAX_NEIGHBOURS", (1, 3, 1 << 20)[seed % 3])
    found = graph.made(plans, blocks=(1, 2, 5)[seed % 3])
    try:
        agrees(graph, found)
    finally:
        found.delete_files()
    assert not (local(plans) / KIND / found._name).exists()


@pytest.mark.parametrize("seed", range(20))
def test_a_task_finds_and_counts_the_same_in_slices(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(seed)
    rows = [(*row, 0) for row in graph.rows] + [(*pair, *ABSENT, 1, 1) for pair in graph.moves]
    block = Block.from_rows(dict(zip([*EDGE, *VALUES, "diff", "moves"], columns(rows, 8), strict=True)))
    pairs = sorted(graph.asked.items())
    if not pairs:
        return
    asked = table(
        ["u", "v", "least", "number"], [(*pair[:: 1 - 2 * (i % 2)], k, i) for i, (pair, k) in enumerate(pairs)]
    )
    found = []
    for some in (1, 5, 1 << 20):
        monkeypatch.setattr(executor_adjacency, "NEIGHBOURS_AT_ONCE", some)
        proposed, counts = (
            look(block, asked).to_pydict()
            for look in (executor_adjacency._answer_proposals, executor_adjacency._answer_counts)
        )
        assert dict(zip(counts["number"], counts["count"], strict=True)) == Counter(proposed["number"]), some
        found.append(sorted(zip(*proposed.values(), strict=True)))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("blocks", [1, 4])
def test_of_two_values_of_an_edge_the_greatest(blocks: int, plans: SparkSession) -> None:
    """A state that is damaged so is no other than a join would make of it; its fingerprint is another one or not."""
    rows: list[Row] = [(1, 2, 3, 9, 0, 0, 1), (1, 2, 3, 5, 7, 0, 1), (1, 2, 4, 0, 0, 0, 1), (1, 2, 4, 0, 0, 0, -1)]
    graph = Graph(0)
    graph.rows, graph.moves = rows, {(1, 2)}
    found = graph.made(plans, blocks)
    assert told(found.look_up_edges(*columns([(1, 2)], 2))) == [(1, 2, 3, 9, 0, 0)]
    found.delete_files()


def local(spark: SparkSession) -> Path:
    """The local directory of the executor."""

    def look(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in rows:
            yield pa.RecordBatch.from_pydict({"path": [os.environ["SPARK_LOCAL_DIRS"].split(",")[0]]})

    return Path(spark.range(0, 1, 1, 1).mapInArrow(look, "path string").collect()[0].path)


def lost(folder: Path, found: Adjacency) -> None:
    """As where the tasks of a look-up are sent to another executor than the one that has the rows."""
    shutil.rmtree(folder / KIND / found._name)


def half(folder: Path, found: Adjacency) -> None:
    for path in (folder / KIND / found._name).rglob("tail.npy"):
        path.unlink()


def damaged(folder: Path, found: Adjacency) -> None:
    for path in (folder / KIND / found._name).rglob("level.npy"):
        path.write_bytes(b"half a file")


def rows_lost(folder: Path, found: Adjacency) -> None:
    """As with an executor: Spark makes rows and files again."""
    lost(folder, found)
    found._markers.unpersist(blocking=True).persist()


@pytest.mark.parametrize(
    ("fault", "made"),
    [(lost, 2), (rows_lost, 1), *(pytest.param(fault, 2, marks=pytest.mark.slow) for fault in (half, damaged))],
)
def test_what_is_lost_is_made_again(
    fault: Callable[[Path, Adjacency], None], made: int, plans: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = set()
    make = Adjacency._build_blocks

    def counted(self: Adjacency) -> None:
        make(self)
        names.add(self._name)

    monkeypatch.setattr(Adjacency, "_build_blocks", counted)
    graph, folder = Graph(3), local(plans)
    found = graph.made(plans, blocks=3)
    assert graph.edges and list((folder / KIND / found._name).iterdir())
    fault(folder, found)
    agrees(graph, found)
    assert len(names) == made
    found.delete_files()
    assert not any((folder / KIND / name).exists() for name in names)


def test_files_that_never_stay(plans: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    make, graph, folder = Adjacency._build_blocks, Graph(3), local(plans)

    def nowhere(self: Adjacency) -> None:
        make(self)
        lost(folder, self)

    monkeypatch.setattr(Adjacency, "_build_blocks", nowhere)
    with pytest.raises(Missing, match="do not keep the files"):
        agrees(graph, graph.made(plans, blocks=3))


@pytest.mark.parametrize("error", [pytest.param(None, marks=pytest.mark.slow), ValueError("of the caller")])
def test_nothing_is_left(error: Exception | None, plans: SparkSession) -> None:
    graph, folder = Graph(3), local(plans)
    rows, moves = table([*EDGE, *VALUES, "diff"], graph.rows), table(EDGE, sorted(graph.moves))
    frames = plans.createDataFrame(rows), plans.createDataFrame(moves)
    raised = pytest.raises(ValueError, match="of the caller") if error else nullcontext()
    with raised, executor_adjacency.open_adjacency(*frames, len(graph.edges), 2, 4) as found:
        agrees(graph, found)
        assert (folder / KIND / found._name).exists()
        if error:
            raise error
    assert not (folder / KIND / found._name).exists() and not found._markers.is_cached


@pytest.mark.parametrize("names", [["rows"], ["part", "rows"]])
def test_a_look_up_moves_nothing_but_what_is_asked(names: list[str], plans: SparkSession) -> None:
    """The plan, that is; and of a block it reads one row."""
    found = Graph(3).made(plans, blocks=3)
    packs = {"part": pa.array([0], pa.int32()), "rows": pa.array([b""])}
    sent = found.send_questions(executor_adjacency._answer_edges, pa.table({name: packs[name] for name in names}))
    plan = sent._jdf.queryExecution().executedPlan().toString()
    assert "InMemoryTableScan [part#" in plan, plan
    assert (plan.count("Exchange"), plan.count(" BroadcastExchange"), plan.count(" Exchange ")) == (2, 1, 1), plan
    assert plan.index("InMemoryRelation") < plan.index(" Exchange hashpartitioning(part#"), "that of the cached rows"
    assert found._markers.rdd.getNumPartitions() == 3, "no tasks without a block but by chance"
    assert found._markers.count() <= 3
    found.delete_files()


def block() -> executor_adjacency.Block:
    rows = table([*EDGE, *VALUES, "diff", "moves"], [(1, 2, 3, 9, 0, 0, 1, 0), (1, 3, 2, 8, 0, 0, 1, 0)])
    return executor_adjacency.Block.from_rows({name: rows[name].to_numpy() for name in rows.column_names})


def test_a_block_on_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    block().save_block("graph", 0)
    assert executor_adjacency.Block.load_block("graph", 0) is None, "nowhere to leave it"
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    for _ in range(2):  # two attempts of one task
        block().save_block("graph", 0)
    again = executor_adjacency.Block.load_block("graph", 0)
    assert again is not None and again.a.tolist() == [1, 1] and again.by_tail.tolist() == [0, 1]
    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="No space left"):
        block().save_block("graph", 1)
    executor_local_store.delete_graph(KIND, "graph")
    assert not any(tmp_path.rglob("*.npy"))


def full(file: Path, column: np.ndarray) -> None:
    raise OSError(28, "No space left on device")
