"""A graph with maintained trussness that grows, and that lasts from one process to the next in a folder of files.

Law     After `apply_batch` the levels equal a full peel of the edges then present, whatever was opened, grown or saved
        before.
Shapes  a, b: int64 vectors, a[i] < b[i], any ids. Levels: kappa = trussness - 2, -1 if an edge is absent.
Files   They are those of `array_store`: correct, or absent. They are a cache: a run that finds none builds the graph
        again from the tables.
Growth  `Levels` with spare room: vertices and edges that are new get the next free number; a neighbour list that is
        full moves to the end of the pool with half as much room again. The room of removed edges and moved lists is
        reclaimed when a quarter of the edges are absent (`to_compact`).
Cost    90 bytes an edge, and an eighth of spare room.
Source  reference/truss/region of the design.
"""

# numba infers the types of kernels from the arrays that they receive.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from altneu.algorithms.graph.kernels import array_store
from altneu.algorithms.graph.kernels.graph import Ints, Shorts, compact_ids
from altneu.algorithms.graph.kernels.level_sorted_graph import (
    BACK,
    FRONT,
    LABEL_GAP,
    STAMP,
    UNKNOWN,
    Levels,
    arrange_lists,
    find_edge,
    index_edges,
)
from altneu.algorithms.graph.kernels.maintained_graph import BatchResult, MaintainedGraph
from altneu.algorithms.graph.proof_records import GraphCounts, Prints, ProvedState

SPARE = 8  # spare room: an eighth more vertices, edges and slots than are in use,
SPARE_FLOOR = 1024  # and this number more
LEAST, MOST = -(2**63), 2**63 - 1  # the least and the greatest id
COUNTS = ("backing", "own")  # the arrays of `CountedState`
SCRATCH = ("need", "state", "mark")  # zeros between operations: not saved
PARTIAL = ("floor", "asked")  # only a part of a graph has these
OF_LISTS = ("level", "label", "begin", "live", "neighbour", "edge", "place")  # what a batch changes, and a proof reads


class StateMismatch(ValueError):
    """Raised when a change does not fit the graph: an edge is removed that is absent, or inserted that is present."""


class UsedCapacity(NamedTuple):
    """The part of the arrays that is in use."""

    vertices: int
    edges: int
    slots: int  # of the pool of neighbour lists


class CountedState(NamedTuple):
    """The counts of the prover for the graph as it is.

    prints, counts: the fingerprints of all collections, and their counts; backing, own: for each edge the triangles
    whose other edges have its level or more, and those that it owns.
    """

    prints: Prints
    counts: GraphCounts
    backing: Shorts
    own: Shorts

    def for_edges(self, edges: NDArray[Any] | slice, room: int) -> CountedState:
        """Return a copy with these edges, in arrays of the size `room`."""
        return self._replace(backing=_lengthen(self.backing[edges], room), own=_lengthen(self.own[edges], room))


class TrussCertificate(NamedTuple):
    """The kappa of edges, and what proves it (`truss_maintenance`); label is int64, the others are int32."""

    level: Shorts
    label: Ints
    own: Shorts
    backing: Shorts

    def differs_from(self, before: TrussCertificate) -> NDArray[np.bool_]:
        """Tell which of these edges have another certificate than before, when there were at most as many edges."""
        differs, known = np.zeros(self.level.size, np.bool_), before.level.size
        differs[known:] = True
        for name in self._fields:
            differs[:known] |= getattr(self, name)[:known] != getattr(before, name)
        return differs

    def for_edges(self, edges: NDArray[np.integer]) -> TrussCertificate:
        return TrussCertificate(self.level[edges], self.label[edges], self.own[edges], self.backing[edges])


class VertexRange(NamedTuple):
    """The vertices, by number, whose ids are low … high. Ranges cover all ids; `which` is about its number."""

    vertices: Ints
    low: int
    high: int
    which: int


class PersistentGraph:
    """A graph with its levels at full capacity.

    ids: int64[capacity], the vertex of each number; room: int64[capacity], the slots of each vertex's list; counted:
    None if the prover has not followed the graph; turn: the id from which on the prover recounts next.
    """

    def __init__(self, levels: Levels, ids: Ints, room: Ints, used: UsedCapacity, kept: MaintainedGraph) -> None:
        self.levels, self.ids, self.room, self.used, self.kept = levels, ids, room, used, kept
        self.counted: CountedState | None = None
        self.turn: int | None = None
        self._origin: Path | None = None
        self._index_vertices()

    @classmethod
    def from_edges(cls, ids: Ints, tail: Shorts, head: Shorts, level: Shorts, spare: bool = True) -> PersistentGraph:
        """Return a graph of edges (distinct, in any direction) with known levels.

        Args:
            ids: the ids of the vertices, sorted.
            tail: one end of each edge, by its place in `ids`.
            head: the other end.
            level: the level of each edge.
            spare: leave room for more vertices and edges.
        """
        n, m = ids.size, tail.size
        n_all, m_all = (x + (x // SPARE + SPARE_FLOOR if spare else 0) for x in (n, m))
        degree = np.bincount(tail, minlength=n_all) + np.bincount(head, minlength=n_all)
        room = degree + (degree // SPARE + 2 if spare else 0)
        room[n:] = 0
        begin = np.zeros(n_all + 1, np.int64)
        np.cumsum(room, out=begin[1:])
        slots = int(begin[-1])
        pool = slots + (slots // SPARE + SPARE_FLOOR if spare else 0)
        levels = Levels(
            tail=_lengthen(tail, m_all),
            head=_lengthen(head, m_all),
            level=_lengthen(level.astype(np.int32), m_all, -1),
            label=np.zeros(m_all, np.int64),
            own=np.zeros(m_all, np.int32),
            backing=np.full(m_all, UNKNOWN, np.int32),
            need=np.zeros(m_all, np.int32),
            begin=begin,
            live=np.zeros(n_all, np.int64),
            neighbour=np.zeros(pool, np.int32),
            edge=np.zeros(pool, np.int32),
            place=np.zeros((m_all, 2), np.int32),
            slots=np.zeros(2 * m_all + 1, np.uint64),
            mark=np.zeros(n_all, np.int64),
            state=np.zeros(m_all, np.uint8),
            clock=np.array([0, 0, 0, -LABEL_GAP, LABEL_GAP], np.int64),
            **_full_arrays(),
        )
        index_edges(levels, 0, m)
        arrange_lists(levels)
        return cls(
            levels,
            _lengthen(ids, n_all),
            room,
            UsedCapacity(n, m, slots),
            MaintainedGraph(levels, int(room.max(initial=0))),
        )

    @classmethod
    def from_checkpoint(
        cls, a: Ints, b: Ints, values: TrussCertificate, ends: tuple[int, int], counted: ProvedState, spare: bool = True
    ) -> PersistentGraph:
        """Return a graph of edges (distinct, a < b) with their certificates, from a checkpoint of an earlier graph.

        Args:
            a: one end of each edge.
            b: the other end.
            values: the certificates.
            ends: the labels at which the earlier graph would have put the next edges at the front and at the back.
            counted: the fingerprints and counts of the whole graph.
            spare: leave room for more vertices and edges.
        """
        graph = cls.from_edges(*compact_ids(a, b), values.level, spare)
        levels, edges = graph.levels, slice(a.size)
        levels.label[edges], levels.own[edges], levels.backing[edges] = values[1:]
        levels.clock[FRONT], levels.clock[BACK] = ends
        graph.kept.certified = True
        graph.counted = CountedState(*counted, values.backing, values.own).for_edges(slice(None), levels.level.size)
        return graph

    @property
    def label_bounds(self) -> tuple[int, int]:
        """Return the labels at which the next edges are put at the front and at the back."""
        return int(self.levels.clock[FRONT]), int(self.levels.clock[BACK])

    def copy_certificate(self) -> TrussCertificate:
        """Return a copy of the certificate of all edge numbers in use: level (-1: absent), and `own` and `backing` of
        the prover.
        """
        assert self.counted is not None
        levels, counted = self.levels, self.counted
        whole = TrussCertificate(levels.level, levels.label, counted.own, counted.backing)
        return whole.for_edges(np.arange(self.used.edges, dtype=np.int32))

    # -- changes ------------------------------------------------------------------------------------------------

    def apply_batch(
        self, removed: Shorts, inserted: Shorts, method: str = "auto", *, last: bool = False
    ) -> BatchResult:
        """Apply one batch of edges, given by number; `MaintainedGraph.apply_batch` explains the parameters."""
        level = self.levels.level
        if (level[removed] < 0).any() or (level[inserted] >= 0).any():
            raise StateMismatch("an edge is removed that is absent, or inserted that is present")
        self.make_room(inserted)
        return self.kept.apply_batch(removed, inserted, method, last)

    def number_edges(self, a: Ints, b: Ints) -> Shorts:
        """Return the numbers of edges; an edge that is new gets one, and is absent."""
        if self.used.vertices + 2 * a.size > self.ids.size or self.used.edges + a.size > self.levels.tail.size:
            self._grow_arrays(a.size)
        u, v = self._vertex_numbers(a), self._vertex_numbers(b)
        numbers: Shorts
        numbers, edges = _number_new_edges(self.levels, u, v, self.used.edges)
        self.used = self.used._replace(edges=edges)
        return numbers

    def edge_ends(self, edges: Shorts) -> tuple[Ints, Ints]:
        """Return the ids of both ends, the lesser first."""
        u, v = self.ids[self.levels.tail[edges]], self.ids[self.levels.head[edges]]
        return np.minimum(u, v), np.maximum(u, v)

    def next_vertex_range(self, parts: int, which: int) -> VertexRange:
        """Return the vertices that follow the last range; in a new graph the `which`-th of `parts` ranges with as many
        edge ends.

        A range has one in `parts` - 1 of all ends, or a little more, because the last range before the first vertex
        comes again may be short. So every vertex is in one of `parts` successive ranges.
        """
        ids, degree = self._sorted, self.levels.live[self._order]
        starts = np.cumsum(degree) - degree
        total, turn = int(degree.sum()), self.turn
        begin, size = which * max(1, -(-total // parts)), max(1, -(-total // max(1, parts - 1)))
        first = int(np.searchsorted(starts, begin) if turn is None else np.searchsorted(ids, turn))
        if first in (0, ids.size):
            first, turn = 0, LEAST
        start = int(starts[first]) if ids.size else 0
        last = int(np.searchsorted(starts, start + size))
        low = int(ids[first]) if turn is None else turn
        self.turn = int(ids[last]) if last < ids.size else LEAST
        high = self.turn - 1 if last < ids.size else MOST
        return VertexRange(self._order[first:last].astype(np.int64), low, high, start * parts // max(1, total))

    def _index_vertices(self) -> None:
        """Sort the vertices by their ids, those that came late included."""
        ids = self.ids[: self.used.vertices]
        if (ids[1:] > ids[:-1]).all():
            self._sorted, self._order = ids, np.arange(ids.size, dtype=np.int32)
        else:
            self._order = np.argsort(ids, kind="stable").astype(np.int32)
            self._sorted = ids[self._order]

    def _vertex_numbers(self, x: Ints) -> Ints:
        place = np.searchsorted(self._sorted, x)
        known = np.zeros(x.size, np.bool_)
        if self._sorted.size:
            place = np.minimum(place, self._sorted.size - 1)
            known = self._sorted[place] == x
        if not known.all():
            new = np.unique(x[~known])
            at = self.used.vertices
            self.ids[at : at + new.size] = new
            self.used = self.used._replace(vertices=at + new.size)
            self._index_vertices()
            place = np.searchsorted(self._sorted, x)
        return self._order[place].astype(np.int64)

    def _grow_arrays(self, extra: int) -> None:
        """Make room for `extra` more edges, whose vertices may all be new."""
        levels, vertices, edges = self.levels, self.used.vertices, self.used.edges
        n_all = max(self.ids.size, vertices + 2 * extra) + self.ids.size // SPARE + SPARE_FLOOR
        m_all = max(levels.tail.size, edges + extra) + levels.tail.size // SPARE + SPARE_FLOOR
        begin = np.full(n_all + 1, levels.begin[-1], np.int64)
        begin[: levels.begin.size] = levels.begin
        fill = {"level": -1, "backing": UNKNOWN}
        wider = {
            name: _lengthen(getattr(levels, name), m_all, fill.get(name, 0))
            for name in ("tail", "head", "level", "label", "own", "backing", "need", "place", "state")
        }
        self.levels = levels._replace(
            **wider,
            begin=begin,
            live=_lengthen(levels.live, n_all),
            mark=_lengthen(levels.mark, n_all),
            slots=np.zeros(2 * m_all + 1, np.uint64),
        )
        index_edges(self.levels, 0, edges)
        if self.counted is not None:
            self.counted = self.counted.for_edges(slice(None), m_all)
        self.ids, self.room = _lengthen(self.ids, n_all), _lengthen(self.room, n_all)
        self._index_vertices()
        self.kept.attach_arrays(self.levels)

    def make_room(self, come: Shorts) -> None:
        """Move lists that the new edges would overflow to the end of the pool."""
        ends = np.concatenate([self.levels.tail[come], self.levels.head[come]])
        if ends.size < self.used.vertices:
            vertices, more = np.unique(ends, return_counts=True)
        else:
            counts = np.bincount(ends)
            vertices = np.flatnonzero(counts)
            more = counts[vertices]
        need = self.levels.live[vertices] + more
        full = need > self.room[vertices]
        if not full.any():
            return
        vertices, wanted = vertices[full].astype(np.int64), need[full] * 3 // 2 + 4
        slots = self.used.slots + int(wanted.sum())
        if slots > self.levels.edge.size:
            pool = slots + slots // SPARE + SPARE_FLOOR
            neighbour, edge = _lengthen(self.levels.neighbour, pool), _lengthen(self.levels.edge, pool)
            self.levels = self.levels._replace(neighbour=neighbour, edge=edge)
        _move_lists(self.levels, vertices, wanted, self.used.slots)
        self.room[vertices] = wanted
        self.used = self.used._replace(slots=slots)
        self.kept.attach_arrays(self.levels, int(wanted.max()))

    def to_compact(self) -> PersistentGraph:
        """Return a copy without absent edges and moved lists. The numbers of vertices and edges change."""
        levels = self.levels
        on = np.flatnonzero(levels.level[: self.used.edges] >= 0)
        busy = np.zeros(self.used.vertices, np.bool_)
        busy[levels.tail[on]] = busy[levels.head[on]] = True
        numbers = self._order[busy[self._order]]
        rank = np.empty(self.used.vertices, np.int32)
        rank[numbers] = np.arange(numbers.size, dtype=np.int32)
        new = self.from_edges(self.ids[numbers], rank[levels.tail[on]], rank[levels.head[on]], levels.level[on], True)
        for name in ("label", "own", "backing"):
            getattr(new.levels, name)[: on.size] = getattr(levels, name)[on]
        new.levels.clock[:] = levels.clock
        kept, widest = self.kept, int(new.room.max(initial=0))
        new.kept, new.turn = MaintainedGraph(new.levels, widest, kept.spread, kept.rent, kept.certified), self.turn
        if self.counted is not None:
            new.counted = self.counted.for_edges(on, new.levels.level.size)
        return new

    def copy_lists(self) -> PersistentGraph:
        """Return a copy with levels, labels and lists of its own, for a reader in another thread.

        The ends and the index of the edges are those of this graph, which must get no new edge numbers meanwhile.
        """
        own = {name: getattr(self.levels, name).copy() for name in OF_LISTS}
        levels = self.levels._replace(**own)
        graph = PersistentGraph(
            levels, self.ids, self.room.copy(), self.used, MaintainedGraph(levels, 0, certified=True)
        )
        graph.counted = self.counted
        return graph

    # -- files --------------------------------------------------------------------------------------------------

    def save_graph(self, folder: Path, key: str, **facts: Any) -> None:
        """Save the graph as folder/key (`array_store.write_arrays`). `facts` are further entries of the manifest."""
        present = int((self.levels.level >= 0).sum())
        if present < self.used.edges * 3 // 4:
            self.to_compact().save_graph(folder, key, **facts)
            return
        arrays = {name: x for name, x in self.levels._asdict().items() if name not in (*SCRATCH, *PARTIAL)}
        arrays |= {"ids": self.ids, "room": self.room}
        if (counted := self.counted) is not None:
            arrays |= {f"counted_{name}": getattr(counted, name) for name in COUNTS}
        manifest = {
            "used": self.used,
            "certified": self.kept.certified,
            "spread": self.kept.spread,
            "rent": self.kept.rent,
            "turn": self.turn,
            "edges": present,
            "counted": None if counted is None else ProvedState(counted.prints, counted.counts).to_json(),
        }
        array_store.write_arrays(folder, key, arrays, self._origin, **manifest, **facts)

    @classmethod
    def open_graph(cls, folder: Path, key: str) -> PersistentGraph | None:
        """Return the graph saved under that key; None if it is absent, damaged or of another format."""
        read = array_store.read_arrays(folder, key)
        if read is None:
            return None
        arrays, facts = read
        m, n = arrays["tail"].size, arrays["ids"].size
        ids, room = arrays.pop("ids"), arrays.pop("room")
        counts = [arrays.pop(f"counted_{name}") for name in COUNTS] if facts["counted"] else None
        scratch: dict[str, Any] = {
            "need": np.zeros(m, np.int32),
            "state": np.zeros(m, np.uint8),
            "mark": np.zeros(n, np.int64),
            **_full_arrays(),
        }
        arrays["clock"][STAMP] = 0  # the stamp of `mark`, which is new
        levels = Levels(**arrays, **scratch)
        learned = facts["spread"], facts["rent"], facts["certified"]
        kept = MaintainedGraph(levels, int(room.max(initial=0)), *learned)
        graph = cls(levels, ids, room, UsedCapacity(*facts["used"]), kept)
        graph.turn, graph._origin = facts["turn"], folder / key
        if counts is not None:
            graph.counted = CountedState(*ProvedState.from_json(facts["counted"]), *counts)
        return graph


def _full_arrays() -> dict[str, Shorts]:
    return {name: np.empty(0, np.int32) for name in PARTIAL}


def _lengthen(x: NDArray[Any], size: int, fill: int = 0) -> NDArray[Any]:
    out = np.full((size, *x.shape[1:]), fill, x.dtype)
    out[: x.shape[0]] = x
    return out


@njit(cache=True, nogil=True)
def _number_new_edges(g, u, v, used):
    """Return the number of each edge, the next free one if it is new, and how many are then in use."""
    out = np.empty(u.size, np.int32)
    for i in range(u.size):
        e = find_edge(g, u[i], v[i])
        if e < 0:
            e = used
            used += 1
            g.tail[e], g.head[e] = u[i], v[i]
            index_edges(g, e, e + 1)
        out[i] = e
    return out, used


@njit(cache=True, nogil=True)
def _move_lists(g, vertices, rooms, at):
    """Move these neighbour lists to new places in the pool, from `at` on."""
    for i in range(vertices.size):
        v = vertices[i]
        for slot in range(g.live[v]):
            g.neighbour[at + slot] = g.neighbour[g.begin[v] + slot]
            g.edge[at + slot] = g.edge[g.begin[v] + slot]
        g.begin[v] = at
        at += rooms[i]
