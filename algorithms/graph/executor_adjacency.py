"""The adjacency of a graph that no task can hold: look-ups of neighbours in files on the executors' disks.

Law      `Adjacency.look_up_triangles` finds what a join of all edges with themselves would find; `fingerprint` is that
         of all edges.
Method   Edges are dealt to blocks by a hash of both ends, so that the edges of a hub are spread over all blocks. The
         task that receives a block sorts it by either end and writes it to its executor's disk
         (`executor_local_store`). Spark caches one row for each block, as a mark of the place of its files. A look-up
         is a task for each of these rows, which Spark runs on the executor that has the row, and so the files. The
         task searches the files; nothing passes over all edges.
Shapes   Edges: a < b, with the values `VALUES` of a certificate: -1 and zeros for one that moves but does not exist.
Cost     EXECUTES. One shuffle of all edges, in packs; then two or three jobs for each look-up, with one task for each
         block, whose work is the neighbours of the queried vertices and the logarithm of the block. The results pass
         the driver. Triangles are looked up on few enough edges at a time that at most `MAX_NEIGHBOURS` neighbours pass
         it. If there are more neighbours, a further job counts those that are high enough: edges between hubs have many
         neighbours, but few of these.
Faults   Spark recomputes rows that are lost with an executor, and the files with them. When executors are busy or give
         their rows away, a task may run on an executor that does not have the files: it answers that they are missing.
         The look-up is then repeated, and after some attempts all blocks are built again. `Missing` if that does not
         help.
Source   Ammar, McSherry, Salihoglu, Joglekar, "Distributed evaluation of subgraph queries using worst-case optimal
         low-memory dataflows" (2018): indexes of edges by prefix, to which proposals are sent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from altneu.algorithms.fingerprint import Fingerprint
from altneu.algorithms.graph import arrow_packing, executor_local_store
from altneu.algorithms.graph.bsp import EDGE
from altneu.algorithms.graph.kernels.graph import Ints, distinct_values, positions_of, run_starts
from altneu.algorithms.graph.kernels.hashing import bucket_of_edges
from altneu.algorithms.graph.kernels.intervals import consolidate, sort_order
from altneu.algorithms.graph.kernels.persistent_graph import TrussCertificate

KIND = "adjacency"
VALUES = [*TrussCertificate._fields]
BLOCK = 1 << 20  # edges of a block, of some hundred bytes each while the block is built
MIN_BLOCK_EDGES = 1 << 15  # edges of a block: with fewer a task is hardly worth its start
MAX_NEIGHBOURS = 1 << 22  # neighbours that one look-up returns: up to 44 bytes each in the driver
NEIGHBOURS_AT_ONCE = 1 << 20  # neighbours that a task looks at together: some 60 bytes each
TRIES = 6

_ROWS = [*EDGE, *VALUES, "diff", "moves"]
_BLOCK_COLUMNS = {
    "a": np.int64,
    "b": np.int64,
    "level": np.int32,
    "label": np.int64,
    "own": np.int32,
    "backing": np.int32,
}
_BLOCK = [*_BLOCK_COLUMNS, "moves", "tail", "by_tail"]
_FILE_SCHEMA = "part int, first bigint, second bigint"
_ANSWER = "part int, rows binary"

LookUp = Callable[["Block", pa.Table], pa.RecordBatch]


class Missing(Exception):
    """Raised when executors do not keep the files that they have written."""


@contextmanager
def open_adjacency(rows: DataFrame, moves: DataFrame, edges: int, tasks: int, most: int) -> Iterator[Adjacency]:
    """Hold the adjacency of a graph on the executors' disks while the block runs.

    Args:
        rows: a, b, `VALUES`, diff, all bigint; the diffs of equal rows are summed.
        moves: a, b, each once: edges that a look-up returns whatever their level is, even if they do not exist.
        edges: about the number of edges.
        tasks: the number of tasks that run at once.
        most: the number of edges that one task may hold.
    """
    adjacency = Adjacency(rows, moves, max(1, -(-edges // min(BLOCK, most)), min(tasks, edges // MIN_BLOCK_EDGES)))
    try:
        yield adjacency
    except Exception:
        with contextlib.suppress(Exception):  # the session may be gone, and the executors' directories with it
            adjacency.delete_files()
        raise
    adjacency.delete_files()


class Adjacency:
    """The adjacency of one graph, in blocks. `fingerprint` is that of (a, b, level + 2) of all edges that exist."""

    fingerprint: Fingerprint

    def __init__(self, rows: DataFrame, moves: DataFrame, blocks: int) -> None:
        stored = rows.select(*EDGE, *VALUES, "diff", F.lit(0).cast("bigint").alias("moves"))
        none = [F.lit(value).cast("bigint").alias(name) for name, value in zip(VALUES, (-1, 0, 0, 0), strict=True)]
        unit = F.lit(1).cast("bigint")
        self._spark, self._blocks = rows.sparkSession, blocks
        self._rows = stored.unionByName(moves.select(*EDGE, *none, unit.alias("diff"), unit.alias("moves")))
        self._build_blocks()

    def _build_blocks(self) -> None:
        self._name = name = uuid4().hex

        # from these type hints Spark knows that input and output are batches
        def leave_block(key: tuple[pa.Scalar, ...], dealt: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield _store_block(name, key[0].as_py(), dealt)

        dealt = self._rows.mapInArrow(partial(_deal_rows, self._blocks), "part int, n bigint, rows binary")
        marks = dealt.repartition(self._blocks, "part").groupBy("part").applyInArrow(leave_block, _FILE_SCHEMA)
        self._markers = marks.persist(StorageLevel.MEMORY_AND_DISK)
        sums = self._markers.collect()
        self.fingerprint = Fingerprint.sum_all(Fingerprint(row.first % 2**64, row.second % 2**64) for row in sums)

    def delete_files(self) -> None:
        """Delete the files; EXECUTES."""
        try:
            self._markers.mapInArrow(
                partial(executor_local_store.delete_graph_batches, KIND, self._name), "part int"
            ).collect()
        finally:
            self._markers.unpersist()

    def look_up_degrees(self, vertices: Ints) -> Ints:
        """Return the number of existing edges at each of these vertices, which are sorted."""
        degrees = np.zeros(vertices.size, np.int64)
        vertex, degree = self._ask_all_blocks(_answer_degrees, [vertices], ["vertex"], ["vertex", "degree"])
        np.add.at(degrees, np.searchsorted(vertices, vertex), degree)
        return degrees

    def look_up_edges(self, a: Ints, b: Ints) -> list[Ints]:
        """Return a, b and `VALUES` of those of these edges that exist."""
        _, *edges = self._filter_edges(a, b, np.zeros(a.size, np.int64))
        return [column[edges[2] >= 0].astype(np.int64) for column in edges]

    def look_up_triangles(self, a: Ints, b: Ints, least: Ints) -> list[Ints]:
        """Return the other two edges of triangles on these edges (a, b), as a, b and `VALUES`, each once, sorted.

        A triangle counts if each of its other two edges has at least the level `least` of the edge (a, b), or moves.
        """
        vertices = distinct_values(np.concatenate([a, b]))
        degree = self.look_up_degrees(vertices)
        of_a, of_b = (degree[np.searchsorted(vertices, end)] for end in (a, b))
        u, v, proposed = np.where(of_a <= of_b, a, b), np.where(of_a <= of_b, b, a), np.minimum(of_a, of_b)
        tables = [np.empty((0, len(_BLOCK_COLUMNS)), np.int64)]
        if proposed.sum() > MAX_NEIGHBOURS:
            proposed = self._count_neighbours(u, v, least)
            u, v, least, proposed = (column[proposed > 0] for column in (u, v, least, proposed))
        for part in _slice_by_size(proposed, MAX_NEIGHBOURS):
            tables.append(self._close_triangles(u[part], v[part], least[part]))
        columns = list(np.concatenate(tables).T)
        order = sort_order(columns[:2])
        columns = [column[order] for column in columns]
        once = run_starts(*columns[:2])
        return [column[once] for column in columns]

    def _count_neighbours(self, u: Ints, v: Ints, least: Ints) -> Ints:
        """Count the edges at each u, except (u, v) itself, that have at least the level `least` or move."""
        counted = np.zeros(u.size, np.int64)
        number, count = self._ask_all_blocks(_answer_counts, [u, v, least], ["u", "v", "least"], ["number", "count"])
        np.add.at(counted, number, count)
        return counted

    def _close_triangles(self, u: Ints, v: Ints, least: Ints) -> NDArray[np.int64]:
        """Return the other edges of the triangles on edges (u, v) that have few enough neighbours at u."""
        number, *proposed = self._ask_all_blocks(
            _answer_proposals, [u, v, least], ["u", "v", "least"], ["number", *_BLOCK_COLUMNS]
        )
        v, least = v[number], least[number]
        w = np.where(proposed[0] == u[number], proposed[1], proposed[0])
        closing, *other = self._filter_edges(np.minimum(v, w), np.maximum(v, w), least)
        return np.concatenate([np.stack([column[closing] for column in proposed], axis=1), np.stack(other, axis=1)])

    def _ask_all_blocks(self, look: LookUp, columns: Sequence[Ints], names: list[str], answer: list[str]) -> list[Ints]:
        """Return the answers of all blocks to a question with these columns, and the column `number` of its rows."""
        question = _record_batch([*columns, np.arange(columns[0].size)], [*names, "number"])
        rows = [
            arrow_packing.pack_rows(question.slice(at, arrow_packing.MAX_PACK_ROWS))
            for at in range(0, question.num_rows, arrow_packing.MAX_PACK_ROWS)
        ]
        return self._ask_blocks(look, pa.table({"rows": pa.array(rows, pa.binary())}), answer)

    def _filter_edges(self, a: Ints, b: Ints, least: Ints) -> list[Ints]:
        """Return those of these edges that have at least the level `least`, or may change theirs: the index of each,
        a, b and `VALUES`.
        """
        rows = _record_batch([a, b, least, np.arange(a.size)], [*EDGE, "least", "number"])
        dealt = arrow_packing.packs_by_number("part", bucket_of_edges(a, b, self._blocks), rows)
        return self._ask_blocks(
            _answer_edges, pa.Table.from_batches([dealt]).drop_columns("n"), ["number", *_BLOCK_COLUMNS]
        )

    def send_questions(self, look: LookUp, given: pa.Table) -> DataFrame:
        """Return the plan that answers questions, packs `rows`, from the block of their `part`, or from all blocks.

        The result has `part` and `rows`, a pack of the answer, which is null where the files are missing.
        """
        questions, blocks = F.broadcast(self._spark.createDataFrame(given)), self._markers.select("part")
        to_each = blocks.join(questions, "part") if "part" in given.column_names else blocks.crossJoin(questions)
        return to_each.mapInArrow(partial(_answer_questions, self._name, look), _ANSWER)

    def _ask_blocks(self, look: LookUp, questions: pa.Table, names: list[str]) -> list[Ints]:
        if questions.num_rows == 0:
            return [np.empty(0, np.int64) for _ in names]
        for attempt in range(TRIES):
            if attempt > TRIES // 2:
                self.delete_files()
                self._build_blocks()
            answers = self.send_questions(look, questions).toArrow()
            if answers["rows"].null_count == 0:
                rows = arrow_packing.unpack_rows(answers, names)
                return [rows[name].to_numpy() for name in names]
        raise Missing("the executors do not keep the files that they have written")


def _slice_by_size(size: Ints, most: int) -> Iterator[slice]:
    """Yield slices of rows whose sizes add up to at most `most`, or that are a single row."""
    start, ends = 0, np.cumsum(size)
    while start < size.size:
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield slice(start, end)
        start = end


def _record_batch(columns: Sequence[NDArray[Any]], names: Sequence[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names)


# -- the work of tasks -------------------------------------------------------------------------------------------------


def _deal_rows(blocks: int, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in arrow_packing.gather_batches(rows, arrow_packing.MAX_PACK_ROWS):
        part = bucket_of_edges(batch["a"].to_numpy(), batch["b"].to_numpy(), blocks)
        yield arrow_packing.packs_by_number("part", part, batch.select(_ROWS))


def _store_block(name: str, part: int, dealt: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
    """Write a block to the disk; return the row of it that Spark caches."""
    rows = dict(zip(_ROWS, arrow_packing.unpack_columns(dealt, dict.fromkeys(_ROWS, np.int64)), strict=True))
    block = Block.from_rows(rows)
    block.save_block(name, part)
    exists = block.level >= 0
    fingerprint = Fingerprint.from_rows([block.a[exists], block.b[exists], block.level[exists].astype(np.int64) + 2])
    sums = np.array([fingerprint.first, fingerprint.second], np.uint64).astype(np.int64)
    return _record_batch([np.array([part], np.int32), sums[:1], sums[1:]], ["part", "first", "second"])


def _answer_questions(name: str, look: LookUp, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the answers of blocks, one pack for each question; null where the files are not on this executor."""
    for batch in rows:
        answers = list[bytes | None]()
        for part, question in zip(batch["part"].to_pylist(), batch["rows"], strict=True):
            block = Block.load_block(name, part)
            answers.append(
                None if block is None else arrow_packing.pack_rows(look(block, arrow_packing.open_pack(question)))
            )
        yield pa.RecordBatch.from_arrays([batch["part"], pa.array(answers, pa.binary())], ["part", "rows"])


class Block:
    """A block of edges.

    a, b, level, label, own, backing, moves: sorted by (a, b), each edge once. tail: b, sorted by (b, a); by_tail: the
    places of these edges in the other order.
    """

    def __init__(self, *columns: NDArray[Any]) -> None:
        self.a, self.b, self.level, self.label, self.own, self.backing, self.moves, self.tail, self.by_tail = columns

    @classmethod
    def from_rows(cls, rows: dict[str, Ints]) -> Block:
        """Return the block of rows whose diffs are summed.

        An edge with several values, which a whole graph does not have, keeps the greatest.
        """
        columns = [rows[name] for name in _BLOCK_COLUMNS]
        order = sort_order(columns[:2])
        columns, diff = [column[order] for column in columns], rows["diff"][order]
        size = np.diff(np.append(run_starts(*columns[:2]), order.size))
        only = np.repeat(size == 1, size)  # the only row of its edge, as most rows are
        *several, _ = consolidate([column[~only] for column in columns], diff[~only])
        greatest = np.append(run_starts(*several[:2]), several[0].size)[1:] - 1
        once = only & (diff != 0)
        columns = [np.append(column[once], more[greatest]) for column, more in zip(columns, several, strict=True)]
        order = sort_order(columns[:2])
        typed = [column[order].astype(of) for column, of in zip(columns, _BLOCK_COLUMNS.values(), strict=True)]
        moves, moving = np.zeros(order.size, np.bool_), rows["moves"] > 0
        moves[positions_of(typed[0], typed[1], rows["a"][moving], rows["b"][moving])] = True
        by_tail = sort_order(typed[1::-1])
        return cls(*typed, moves, typed[1][by_tail], by_tail.astype(np.int32))

    def save_block(self, name: str, part: int) -> None:
        folder = executor_local_store.graph_folder(KIND, name)
        if folder is None:
            return
        try:
            executor_local_store.save_arrays(folder, part, {each: getattr(self, each) for each in _BLOCK})
        except OSError:
            if self.load_block(name, part) is None:  # no other attempt of this task was faster
                raise

    @classmethod
    def load_block(cls, name: str, part: int) -> Block | None:
        folder = executor_local_store.graph_folder(KIND, name)
        try:
            return None if folder is None else cls(*executor_local_store.load_arrays(folder, part, _BLOCK))
        except OSError:
            return None

    def count_held(self, vertices: Ints) -> Ints:
        """Count the edges of each vertex in this block, whether they exist or not."""
        return np.asarray(_span_of(self.a, vertices)[1] + _span_of(self.tail, vertices)[1])

    def edges_at(self, vertices: Ints) -> tuple[Ints, Ints]:
        """Return the edges at each of these vertices: the index of the vertex, and the place of the edge."""
        first, second = _ranges_of(self.a, vertices), _ranges_of(self.tail, vertices)
        where = first[1], self.by_tail[second[1]].astype(np.int64)
        return np.concatenate([first[0], second[0]]), np.concatenate(where)

    def look_up_degrees(self, vertices: Ints) -> Ints:
        """Return the number of existing edges of each vertex in this block; the vertices are sorted."""
        absent = self.level < 0
        ends, gone = (self.a, self.tail), (np.sort(self.a[absent]), np.sort(self.b[absent]))
        return np.asarray(
            sum(_span_of(end, vertices)[1] for end in ends) - sum(_span_of(end, vertices)[1] for end in gone)
        )

    def answer_rows(self, number: Ints, place: Ints) -> pa.RecordBatch:
        """Return edges as an answer: a number, and the columns of the edge."""
        return _record_batch(
            [number, *(getattr(self, name)[place] for name in _BLOCK_COLUMNS)], ["number", *_BLOCK_COLUMNS]
        )


def _span_of(sorted_: Ints, values: Ints) -> tuple[Ints, Ints]:
    """Return where each of these values begins in sorted values, and how often it occurs."""
    low = np.searchsorted(sorted_, values)
    return low, np.searchsorted(sorted_, values, "right") - low


def _ranges_of(sorted_: Ints, values: Ints) -> tuple[Ints, Ints]:
    """Return each occurrence of these values in sorted values: the index of the value, and the place."""
    low, size = _span_of(sorted_, values)
    which = np.repeat(np.arange(values.size), size)
    return which, np.arange(which.size) + np.repeat(low - (np.cumsum(size) - size), size)


def _answer_degrees(block: Block, question: pa.Table) -> pa.RecordBatch:
    vertices = question["vertex"].to_numpy()
    degree = block.look_up_degrees(vertices)
    return _record_batch([vertices[degree > 0], degree[degree > 0]], ["vertex", "degree"])


def _high_edges(block: Block, question: pa.Table) -> Iterator[tuple[Ints, Ints]]:
    """Yield the edges at u of each queried edge (u, v), except itself, with at least the level `least`, or that move.

    Each item has the index of the queried edge and the place of the edge. An item covers some of the queried edges.
    """
    u, v, least = (question[name].to_numpy() for name in ("u", "v", "least"))
    for part in _slice_by_size(block.count_held(u), NEIGHBOURS_AT_ONCE):
        which, place = block.edges_at(u[part])
        which += part.start
        a, b = block.a[place], block.b[place]
        right = block.moves[place] | (block.level[place] >= least[which])
        right &= ~((a == np.minimum(u, v)[which]) & (b == np.maximum(u, v)[which]))
        yield which[right], place[right]


def _answer_counts(block: Block, question: pa.Table) -> pa.RecordBatch:
    count = sum(np.bincount(which, minlength=question.num_rows) for which, _ in _high_edges(block, question))
    positive = np.flatnonzero(count)
    return _record_batch([question["number"].to_numpy()[positive], np.asarray(count)[positive]], ["number", "count"])


def _answer_proposals(block: Block, question: pa.Table) -> pa.RecordBatch:
    which, place = (np.concatenate(each) for each in zip(*_high_edges(block, question), strict=True))
    return block.answer_rows(question["number"].to_numpy()[which], place)


def _answer_edges(block: Block, question: pa.Table) -> pa.RecordBatch:
    """Find which of the queried edges have at least the level `least`, or move."""
    a, b, least, number = (question[name].to_numpy() for name in (*EDGE, "least", "number"))
    place = positions_of(block.a, block.b, a, b)
    inside = np.flatnonzero(place < block.a.size)  # a block may be empty: all its rows have cancelled
    at = place[inside]
    exists = (block.a[at] == a[inside]) & (block.b[at] == b[inside])
    right = exists & (block.moves[at] | (block.level[at] >= least[inside]))
    return block.answer_rows(number[inside[right]], at[right])
