"""A maintained graph, proved epoch by epoch: that every trussness is right, and what the tables must hold.

Law     Two local facts prove the levels of a graph with labels (see `truss_maintenance`): every edge of level k has at
        least k triangles whose other edges have level k or more (not too high), and at most k triangles of which no
        other edge comes before it by level, label and number (not too low: taken away in that order, no edge of level k
        has more than k triangles left). Both are counts of triangles. With a batch, the triangles of which an edge
        comes, goes, or gets another level or label, are taken out of the counts as they were and into them as they are;
        so if the counts were right before, they are right after it, and the facts need a look only where counts or
        levels are new. Triangles are counted by those that come and go.
        From the same arrays come the fingerprints and counts that the tables must show at every epoch. Nothing here
        uses what the maintenance says that it has done: changes are found by comparing levels and labels with copies,
        and the counts are its own (`persistent_graph.CountedState`); those of a part of the vertices are compared with
a recount. Shapes  As in `warm`; what is found, as in `algorithms.proof_records`.
Cost    A batch: the triangles on the changed edges that have their level, the lists at their ends; and one comparison
        of 12 bytes for each edge of the graph. Where that is not less, one enumeration of all triangles. A part: the
        lists of its vertices' neighbours. Memory: 22 bytes an edge besides.
Source  The certificate of `truss_maintenance`; reference/truss of the design.
"""

# numba infers the types of its kernels from the arrays they get.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from algorithms.fingerprint import Fingerprint
from algorithms.kernels.graph import Ints, Shorts, by_degree, distinct_values
from algorithms.kernels.hashing import SEED, hash_value
from algorithms.kernels.level_sorted_graph import PROBE, count_at_level, find_edge
from algorithms.kernels.persistent_graph import CountedState, PersistentGraph, VertexRange
from algorithms.proof_records import (
    COLLECTIONS,
    SHOWN,
    GraphCounts,
    Prints,
    Proof,
    ProofScope,
    ProvedEpoch,
    UnprovedEdge,
    add_counts,
)

WHOLE = 8  # a batch that moves more than one in so many edges is proved by one enumeration of all triangles
FINE, TOO_HIGH, TOO_LOW = range(3)
LISTS = "the lists of neighbours are not those of the edges, or not in their order"


class _FollowedEdges(NamedTuple):
    """The edges whose counts may have changed; the vertices of triangles that come or go, and in how many each is."""

    touched: Shorts
    vertices: Ints
    times: Ints

    @classmethod
    def empty(cls) -> _FollowedEdges:
        return cls(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64))


class IncrementalProver:
    """Follows a graph: `before` and `after` each batch; `begin` where the epochs begin of which `proof` is to speak.
    What was counted of the graph, and judged, before it was kept is taken over; else everything is counted."""

    def __init__(self, graph: PersistentGraph, ask: ProofScope) -> None:
        self.graph, self.ask = graph, ask
        self.wrong, self.shown, self.looked_at = 0, list[UnprovedEdge](), 0
        self.steps = list[ProvedEpoch]()
        levels = graph.levels
        self._level, self._label, self._live = levels.level.copy(), levels.label.copy(), levels.live.copy()
        self._left = self._right = np.empty(0, np.int32)
        self._allocate_scratch()
        self._gone = _FollowedEdges.empty()
        if not graph.kept.certified:
            lied = graph.kept.relabel()
            self._note_wrong_edges(lied, np.full(lied.size, TOO_LOW), self._level)
            self._level, self._label = levels.level.copy(), levels.label.copy()
            graph.counted = None
        if graph.counted is None:
            self.looked_at += graph.kept.present
            graph.counted = self._recount()
            self._verify_edges(np.flatnonzero(levels.level >= 0).astype(np.int32))
        self.start_window()

    @property
    def _certificate_counts(self) -> CountedState:
        assert self.graph.counted is not None
        return self.graph.counted

    def start_window(self) -> None:
        """Forget the batches so far, but not what they have shown to be wrong."""
        self.steps.clear()
        self._base = self._certificate_counts.prints, self._certificate_counts.counts

    def get_proof(self) -> Proof:
        """Return the proof of the batches since `begin`."""
        asked, part, between = self.ask, dict[str, Fingerprint](), (0, 0)
        if asked.parts:
            stretch = self.graph.next_vertex_range(asked.parts, asked.which)
            asked, between = ProofScope(asked.parts, stretch.which), (stretch.low, stretch.high)
            part = self.share_fingerprints(stretch)
        return Proof(*self._base, self.steps, part, self.looked_at, self.wrong, self.shown, asked, between)

    # -- one batch -----------------------------------------------------------------------------------------------

    def before_batch(self, removed: Shorts, inserted: Shorts) -> None:
        """To be called with the batch that comes next."""
        self._grow_to_graph()
        self._whole = self._is_cheaper_to_enumerate(removed.size + inserted.size)
        self._gone = _FollowedEdges.empty() if self._whole else self._follow_edges(removed, leave=True)

    def after_batch(self, epoch: int) -> None:
        """To be called when the batch has been applied: what has changed, proved."""
        self._grow_to_graph()
        levels, was = self.graph.levels, self._certificate_counts
        changed = np.flatnonzero((levels.level != self._level) | (levels.label != self._label)).astype(np.int32)
        if self._whole or self._is_cheaper_to_enumerate(changed.size):
            del changed
            found = self._recount()
            prints = {name: found.prints[name] - was.prints[name] for name in COLLECTIONS}
            counts = add_counts(found.counts, was.counts, -1)
            self._level[:], self._label[:] = levels.level, levels.label
            touched = np.flatnonzero(levels.level >= 0).astype(np.int32)
        else:
            old, new = self._level[changed], levels.level[changed]
            present = changed[new >= 0]
            come = self._follow_edges(present, leave=False)
            touched = distinct_values(np.concatenate([self._gone.touched, come.touched, present]))
            touched = touched[levels.level[touched] >= 0]
            vertices = self.graph.ids[np.concatenate([self._gone.vertices, come.vertices])]
            times = np.concatenate([-self._gone.times, come.times])
            prints = {
                **self._edge_fingerprints(changed, old, new),
                "triangle_counts": Fingerprint.from_rows([vertices], times),
            }
            counts = self._count_changes(changed, old, new)
            counts.triangles = int(times.sum()) // 3
            found = was._replace(
                prints={name: was.prints[name] + prints[name] for name in COLLECTIONS},
                counts=add_counts(was.counts, counts),
            )
            self._level[changed], self._label[changed] = new, levels.label[changed]
        self.graph.counted = found
        self._live[:] = levels.live
        self._verify_edges(touched)
        self.looked_at += touched.size
        self.steps.append(ProvedEpoch(epoch, prints, counts, touched.size))

    def _is_cheaper_to_enumerate(self, edges: int) -> bool:
        """Is one enumeration of all triangles no more work than to follow so many edges?"""
        return edges * WHOLE > self.graph.kept.present

    def _unknown_degrees(self, vertices: Ints) -> Ints:
        """How many edges vertices have that the graph does not know."""
        return np.zeros(vertices.size, np.int64)

    # -- the whole graph, and a part of it -----------------------------------------------------------------------

    def share_fingerprints(self, stretch: VertexRange) -> Prints:
        """Return the degrees and triangles of some vertices, and the edges whose lesser end is one of them, with every
        fact counted again."""
        levels, graph, chosen = self.graph.levels, self.graph, stretch.vertices
        self._check_lists(chosen)
        support, edges, backing, own = _recount_vertices(levels, chosen, self._seen, self._mark, self._stamp)
        if (backing != self._certificate_counts.backing[edges]).any() or (
            own != self._certificate_counts.own[edges]
        ).any():
            self._note_state("the triangles that were counted along the changes are not those that are there")
        self.looked_at += edges.size
        a = graph.edge_ends(edges)[0]
        lesser = edges[(a >= stretch.low) & (a <= stretch.high)]
        prints = self._edge_fingerprints(lesser, np.full(lesser.size, -1, np.int32), levels.level[lesser])
        ids = [graph.ids[chosen]]
        return prints | {
            "degrees": Fingerprint.from_rows(ids, levels.live[chosen]),
            "triangle_counts": Fingerprint.from_rows(ids, support),
        }

    def _recount(self) -> CountedState:
        """Everything: of each edge, and of the triangles by one enumeration."""
        levels = self.graph.levels
        n, degree = levels.live.size, levels.live
        ids = np.flatnonzero(levels.level >= 0).astype(np.int32)
        ends = levels.tail[ids], levels.head[ids]
        if (np.bincount(np.concatenate(ends), minlength=n) != degree).any():
            self._note_state(LISTS)
        self._check_lists(np.arange(n))
        level = levels.level[ids]
        prints, sizes = self._edge_fingerprints(ids, np.full(ids.size, -1, np.int32), level), np.bincount(level)
        by_rank, indptr, tail, head, origin = by_degree(n, *ends)
        ids = ids[origin]
        del ends, level, origin
        support, *facts = _enumerate_all(indptr, head, levels.level[ids], levels.label[ids], ids)
        backing, own = np.zeros(levels.level.size, np.int32), np.zeros(levels.level.size, np.int32)
        backing[ids], own[ids] = facts
        per_vertex = np.zeros(n, np.int64)
        twice = sum(np.bincount(end, support, n).astype(np.int64) for end in (tail, head))  # on two edges each
        per_vertex[by_rank] = twice // 2
        busy = np.flatnonzero(per_vertex)
        prints["triangle_counts"] = Fingerprint.from_rows([self.graph.ids[busy]], per_vertex[busy])
        counts = GraphCounts(
            edges=ids.size,
            vertices=int((degree > 0).sum()),
            wedges=int((degree * (degree - 1) // 2).sum()),
            triangles=int(per_vertex.sum()) // 3,
            trusses={k + 2: int(sizes[k]) for k in np.flatnonzero(sizes).tolist()},
        )
        return CountedState(prints, counts, backing, own)

    # -- parts of these ------------------------------------------------------------------------------------------

    def _follow_edges(self, edges: Shorts, *, leave: bool) -> _FollowedEdges:
        before = self._level, self._label
        counts = self._certificate_counts.backing, self._certificate_counts.own
        scratch = self._flag, self._seen, self._delta, self._checked, *self._scratch_arrays()
        *found, sound = _follow_kernel(self.graph.levels, edges, leave, *before, *counts, *scratch)
        if not sound:
            self._note_state(LISTS)
        return _FollowedEdges(*found)

    def _verify_edges(self, edges: Shorts) -> None:
        """Both facts, by the counts."""
        level = self.graph.levels.level
        why = np.where(self._certificate_counts.backing[edges] < level[edges], TOO_HIGH, FINE)
        why[self._certificate_counts.own[edges] > level[edges]] = TOO_LOW
        at = np.flatnonzero(why != FINE)
        self._note_wrong_edges(edges[at], why[at], level)

    def _note_state(self, why: str) -> None:
        self.wrong += 1
        self.shown.append(UnprovedEdge(0, 0, 0, why))

    def _note_wrong_edges(self, edges: Shorts, why: NDArray[Any], level: Shorts) -> None:
        self.wrong += edges.size
        edges, why = edges[:SHOWN], why[:SHOWN]
        rows = zip(*(x.tolist() for x in (*self.graph.edge_ends(edges), level[edges] + 2, why)), strict=True)
        self.shown += [UnprovedEdge(a, b, k, "too high" if code == TOO_HIGH else "too low") for a, b, k, code in rows]
        del self.shown[SHOWN:]

    def _edge_fingerprints(self, edges: Shorts, old: Shorts, new: Shorts) -> dict[str, Fingerprint]:
        """What edges, degrees and trussness change by, where these edges had the one level and have the other."""
        levels = self.graph.levels
        sums = _sums_of_edges(self.graph.ids, levels.tail, levels.head, edges, old, new)
        names = ("edges", "degrees", "trussness")
        return {name: Fingerprint(int(sums[i, 0]), int(sums[i, 1])) for i, name in enumerate(names)}

    def _count_changes(self, changed: Shorts, old: Shorts, new: Shorts) -> GraphCounts:
        """What the counts change by, but for the triangles; and whether the lists have changed by these edges alone."""
        levels = self.graph.levels
        sign = (new >= 0).astype(np.int64) - (old >= 0)
        moved = np.zeros(levels.live.size, np.int64)
        for end in (levels.tail, levels.head):
            np.add.at(moved, end[changed], sign)
        degree, was = levels.live, self._live
        if (degree - was != moved).any():
            self._note_state(LISTS)
        self._check_lists(
            distinct_values(np.concatenate([levels.tail[changed], levels.head[changed]])).astype(np.int64)
        )
        other = np.flatnonzero(moved)
        more = self._unknown_degrees(other)
        degree, was = degree[other] + more, was[other] + more
        raised = old != new
        trusses: dict[int, int] = {}
        for values, by in ((old[raised], -1), (new[raised], 1)):
            for k, n in zip(*(x.tolist() for x in np.unique(values[values >= 0], return_counts=True)), strict=True):
                trusses[k + 2] = trusses.get(k + 2, 0) + by * n
        return GraphCounts(
            edges=int(sign.sum()),
            vertices=int((degree > 0).sum() - (was > 0).sum()),
            wedges=int((degree * (degree - 1) // 2 - was * (was - 1) // 2).sum()),
            trusses={k: n for k, n in trusses.items() if n},
        )

    def _check_lists(self, vertices: Ints) -> None:
        if not _are_lists_sound(self.graph.levels, vertices):
            self._note_state(LISTS)

    def _scratch_arrays(self) -> tuple[Ints, Ints, Shorts, Shorts]:
        """Scratch for `_wings_of`."""
        widest = int(self.graph.levels.live.max(initial=0))
        if self._left.size < widest:
            self._left, self._right = np.empty(widest, np.int32), np.empty(widest, np.int32)
        return self._mark, self._stamp, self._left, self._right

    def _allocate_scratch(self) -> None:
        levels = self.graph.levels
        self._flag, self._seen = np.zeros(levels.level.size, np.uint8), np.zeros(levels.level.size, np.uint8)
        self._delta, self._mark = np.zeros(levels.live.size, np.int64), np.zeros(levels.live.size, np.int64)
        self._stamp, self._checked = np.zeros(1, np.int64), np.zeros(levels.live.size, np.bool_)

    def _grow_to_graph(self) -> None:
        """The graph may have grown."""
        levels = self.graph.levels
        more = levels.level.size - self._level.size
        if more > 0:
            self._level = np.concatenate([self._level, np.full(more, -1, np.int32)])
            self._label = np.concatenate([self._label, np.zeros(more, np.int64)])
        if levels.live.size > self._live.size:
            self._live = np.concatenate([self._live, np.zeros(levels.live.size - self._live.size, np.int64)])
        if levels.level.size != self._flag.size or levels.live.size != self._delta.size:
            self._allocate_scratch()


@njit(cache=True, nogil=True)
def _wings_of(g, e, least, mark, stamp, left, right):
    """The pairs of edges, of level `least` or more, that close a triangle over e: how many; they are in left, right.
    Not `level_sorted_graph.closing_edges`, by which the maintenance has found them: a fault in it must show here."""
    u, v = np.int64(g.tail[e]), np.int64(g.head[e])
    du, dv = (count_at_level(g, u, least), count_at_level(g, v, least)) if least else (g.live[u], g.live[v])
    if du > dv:
        u, v, du, dv = v, u, dv, du
    found = 0
    if du * PROBE < dv:
        for i in range(g.begin[u], g.begin[u] + du):
            f = find_edge(g, v, np.int64(g.neighbour[i]))
            if f >= 0 and g.level[f] >= least:
                left[found], right[found] = g.edge[i], f
                found += 1
        return found
    stamp[0] += 1
    if stamp[0] == 1 << 31:
        mark[:] = 0
        stamp[0] = 1
    for i in range(g.begin[u], g.begin[u] + du):
        mark[g.neighbour[i]] = (stamp[0] << 32) | np.int64(g.edge[i])
    for i in range(g.begin[v], g.begin[v] + dv):
        laid = mark[g.neighbour[i]]
        if (laid >> 32) == stamp[0]:
            left[found], right[found] = laid & 0xFFFFFFFF, g.edge[i]
            found += 1
    return found


@njit(cache=True, nogil=True)
def _follow_kernel(
    g, edges, leave, old_level, old_label, backing, own, flag, seen, delta, checked, mark, stamp, left, right
):
    """Take the triangles of some edges out of the counts as they were, and into them as they are. leave: these edges
    are about to go, and nothing else has changed; else they have come, or have another level or label.

    As `_FollowedEdges`; and whether the lists that were used are in order, so that their first parts are enough: a
    triangle whose other edges are both lower than the edge was and is does not count for it. Each is met at the lowest
    of these edges, at the level that it has or had, whichever is less.
    """
    level, label = g.level, g.label
    for e in edges:
        flag[e] = 1
    touched, size = np.empty(1024, np.int32), 0
    vertices, busy = np.empty(1024, np.int64), 0
    sound = True
    for e in edges:
        least = np.int32(0) if leave else _lowest_level(old_level, level, e)
        if least > 0:
            for v in (g.tail[e], g.head[e]):
                if not checked[v]:
                    checked[v] = True
                    for slot in range(g.begin[v] + 1, g.begin[v] + g.live[v]):
                        if level[g.edge[slot]] > level[g.edge[slot - 1]]:
                            sound = False
        for t in range(_wings_of(g, e, least, mark, stamp, left, right)):
            f, h = left[t], right[t]
            met = False
            for x in (f, h):
                if flag[x]:
                    lowest = np.int32(0) if leave else _lowest_level(old_level, level, x)
                    if lowest < least or (lowest == least and x < e):
                        met = True
            if met:
                continue
            was = old_level[e] >= 0 and old_level[f] >= 0 and old_level[h] >= 0
            if was:
                _count_triangle(old_level, old_label, backing, own, e, f, h, -1)
            if not leave:
                _count_triangle(level, label, backing, own, e, f, h, 1)
            if size + 3 > touched.size:
                touched = np.concatenate((touched, np.empty(size, np.int32)))
            for x in (e, f, h):
                if not seen[x]:
                    seen[x] = 1
                    touched[size] = x
                    size += 1
            if was and not leave:
                continue
            if busy + 3 > vertices.size:
                vertices = np.concatenate((vertices, np.empty(busy, np.int64)))
            w = g.tail[f]
            if w == g.tail[e] or w == g.head[e]:
                w = g.head[f]
            for x in (g.tail[e], g.head[e], w):
                if delta[x] == 0:
                    vertices[busy] = x
                    busy += 1
                delta[x] += 1
    for e in edges:
        flag[e] = 0
        checked[g.tail[e]] = checked[g.head[e]] = False
    touched = touched[:size].copy()
    for x in touched:
        seen[x] = 0
    vertices = vertices[:busy].copy()
    times = delta[vertices]
    delta[vertices] = 0
    return touched, vertices, times, sound


@njit(cache=True, nogil=True, inline="always")
def _lowest_level(old, new, e):
    return np.int32(0) if old[e] < 0 else min(old[e], new[e])


@njit(cache=True, nogil=True, inline="always")
def _count_triangle(level, label, backing, own, e, f, h, sign):
    """One triangle: it backs its lowest edges, and is the first one's own."""
    least = min(level[e], level[f], level[h])
    first = np.int64(-1)
    for x in (np.int64(e), np.int64(f), np.int64(h)):
        if level[x] == least:
            backing[x] += sign
            if first < 0 or _precedes(level, label, x, first):
                first = x
    own[first] += sign


@njit(cache=True, nogil=True, inline="always")
def _precedes(level, label, e, f):
    """Does edge e come before f, of its level or higher?"""
    return level[f] > level[e] or label[f] > label[e] or (label[f] == label[e] and f > e)


@njit(cache=True, nogil=True)
def _enumerate_all(indptr, head, level, label, number):
    """Count the certificates of every edge of an oriented graph, and its triangles, by one enumeration."""
    m, n = head.size, indptr.size - 1
    support, backing, own = np.zeros(m, np.int32), np.zeros(m, np.int32), np.zeros(m, np.int32)
    mark = np.full(n, -1, np.int32)
    for u in range(n):
        for i in range(indptr[u], indptr[u + 1]):
            mark[head[i]] = i
        for i in range(indptr[u], indptr[u + 1]):
            v = head[i]
            for j in range(indptr[v], indptr[v + 1]):
                k = np.int64(mark[head[j]])
                if k >= 0:
                    support[i] += 1
                    support[j] += 1
                    support[k] += 1
                    x, y, z = level[i], level[j], level[k]
                    least = min(x, y, z)
                    first = np.int64(-1)
                    for e in (i, j, k):
                        if level[e] == least:
                            backing[e] += 1
                            if first < 0 or (label[e], number[e]) < (label[first], number[first]):
                                first = np.int64(e)
                    own[first] += 1
        for i in range(indptr[u], indptr[u + 1]):
            mark[head[i]] = -1
    return support, backing, own


@njit(cache=True, nogil=True)
def _sums_of_edges(ids, tail, head, edges, old, new):
    """Edges, degrees, trussness: the two sums of hashes of each, of edges that had the one level and have the other."""
    sums = np.zeros((3, 2), np.uint64)
    for i in range(edges.size):
        e = edges[i]
        a, b = ids[tail[e]], ids[head[e]]
        if a > b:
            a, b = b, a
        net = np.uint64(np.int64(new[i] >= 0) - np.int64(old[i] >= 0))  # modulo 2**64, as the sums are
        for lane in range(2):
            seed = np.uint64(SEED) if lane == 0 else hash_value(np.uint64(1), np.uint64(SEED))
            vertex = hash_value(np.uint64(a), seed)
            pair = hash_value(np.uint64(b), vertex)
            sums[0, lane] += net * pair
            sums[1, lane] += net * (vertex + hash_value(np.uint64(b), seed))
            if old[i] != new[i]:
                if old[i] >= 0:
                    sums[2, lane] -= hash_value(np.uint64(old[i] + 2), pair)
                if new[i] >= 0:
                    sums[2, lane] += hash_value(np.uint64(new[i] + 2), pair)
    return sums


@njit(cache=True, nogil=True)
def _recount_vertices(g, vertices, seen, mark, stamp):
    """Each vertex's triangles; the edges at these vertices, each once, and of each the triangles whose other edges have
    its level or more, and those that it owns. A vertex's neighbours are laid out, those with many neighbours first; an
    edge between two of them is met at the later one: in its list, or by looking up those before it, if they are few."""
    level, label = g.level, g.label
    size = widest = 0
    for v in vertices:
        size += g.live[v]
        widest = max(widest, g.live[v])
    triangles, found = np.zeros(vertices.size, np.int64), 0
    edges, backing, own = np.empty(size, np.int32), np.zeros(size, np.int32), np.zeros(size, np.int32)
    at = np.empty(widest, np.int64)  # where the edge to a neighbour is in `edges`; -1: it was met before
    for i in range(vertices.size):
        v = vertices[i]
        near = g.neighbour[g.begin[v] : g.begin[v] + g.live[v]]
        order = np.argsort(-g.live[near])
        near, ways = near[order], g.edge[g.begin[v] : g.begin[v] + g.live[v]][order]
        stamp[0] += 1
        if stamp[0] == 1 << 31:
            mark[:] = 0
            stamp[0] = 1
        for j in range(near.size):
            mark[near[j]] = (stamp[0] << 32) | j
            at[j] = -1
            if not seen[ways[j]]:
                seen[ways[j]] = 1
                edges[found] = ways[j]
                at[j] = found
                found += 1
        for j in range(near.size):
            u, e = np.int64(near[j]), ways[j]
            walk = g.live[u] <= j * PROBE
            for step in range(g.live[u] if walk else j):
                k, h = step, np.int64(-1)
                if walk:
                    laid = mark[g.neighbour[g.begin[u] + step]]
                    k = laid & 0xFFFFFFFF
                    if (laid >> 32) == stamp[0] and k < j:
                        h = np.int64(g.edge[g.begin[u] + step])
                else:
                    h = find_edge(g, u, np.int64(near[k]))
                if h < 0 or level[h] < 0:
                    continue
                f = ways[k]
                triangles[i] += 1
                if at[j] >= 0 and level[f] >= level[e] and level[h] >= level[e]:
                    backing[at[j]] += 1
                    own[at[j]] += _precedes(level, label, e, f) and _precedes(level, label, e, h)
                if at[k] >= 0 and level[e] >= level[f] and level[h] >= level[f]:
                    backing[at[k]] += 1
                    own[at[k]] += _precedes(level, label, f, e) and _precedes(level, label, f, h)
    edges = edges[:found].copy()
    for e in edges:
        seen[e] = 0
    return triangles, edges, backing[:found].copy(), own[:found].copy()


@njit(cache=True, nogil=True)
def _are_lists_sound(g, vertices):
    """Does each list of these vertices hold edges that are present at its vertex, each once?"""
    for v in vertices:
        for i in range(g.live[v]):
            slot = g.begin[v] + i
            e, w = g.edge[slot], g.neighbour[slot]
            side = 0 if g.tail[e] == v else 1
            if g.level[e] < 0 or g.place[e, side] != i:
                return False
            if (g.tail[e] if side else g.head[e]) != w or (g.head[e] if side else g.tail[e]) != v:
                return False
    return True
