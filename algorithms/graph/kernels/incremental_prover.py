"""The proof of a maintained graph, epoch by epoch: that every trussness is right, and what the tables must contain.

Law     Two local facts prove the levels of a graph with labels (`truss_maintenance`): every edge of level k has at
        least k triangles whose other edges have level k or more (not too high), and at most k triangles in which no
        other edge comes before it by level, label and number (not too low: if edges are removed in that order, no edge
        of level k has more than k triangles left when it is removed). Both are counts of triangles. A triangle of which
        an edge comes, goes, or gets another level or label in a batch is subtracted from the counts as it was before
        the batch and added as it is after it. So if the counts were right before, they are right after it, and the
        facts have to be checked only where counts or levels are new. The number of triangles follows from those that
        come and go.
        The fingerprints and counts that the tables must show at every epoch come from the same arrays. Nothing here
        relies on what the maintenance reports: changes are found by comparing levels and labels with copies, and the
        prover has its own counts (`persistent_graph.CountedState`); those of a part of the vertices are compared with
        a recount.
Shapes  The graph is that of `persistent_graph`; the result is that of `altneu.algorithms.graph.proof_records`.
Cost    A batch: the triangles on the changed edges that have their level, the lists at their ends; and one comparison
        of 12 bytes for each edge of the graph. If that is not less, one enumeration of all triangles. A part: the
        lists of its vertices' neighbours. Memory: 22 bytes an edge besides.
Source  The certificate of `truss_maintenance`; reference/truss of the design.
"""

# numba infers the types of kernels from the arrays that they receive.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from altneu.algorithms.fingerprint import Fingerprint
from altneu.algorithms.graph.kernels.atomics import take_slice
from altneu.algorithms.graph.kernels.graph import Ints, Shorts, by_degree, distinct_values
from altneu.algorithms.graph.kernels.hashing import SEED, hash_value
from altneu.algorithms.graph.kernels.level_sorted_graph import PROBE, count_at_level, find_edge
from altneu.algorithms.graph.kernels.persistent_graph import (
    CountedState,
    PersistentGraph,
    TrussCertificate,
    VertexRange,
)
from altneu.algorithms.graph.kernels.threads import sum_in_threads
from altneu.algorithms.graph.proof_records import (
    COLLECTIONS,
    MAX_LISTED_EDGES,
    GraphCounts,
    Prints,
    Proof,
    ProofScope,
    ProvedEpoch,
    UnprovedEdge,
    add_counts,
)

WHOLE = 8  # a batch that moves more than one edge in this number is proved by one enumeration of all triangles
FINE, TOO_HIGH, TOO_LOW = range(3)
LISTS = "the lists of neighbours do not match the edges, or are not in order"


class _FollowedEdges(NamedTuple):
    """The edges whose counts may have changed; the vertices of triangles that come or go, and the number of these of
    each.
    """

    touched: Shorts
    vertices: Ints
    times: Ints

    @classmethod
    def empty(cls) -> _FollowedEdges:
        return cls(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64))


class IncrementalProver:
    """A prover that follows a graph.

    Call `before_batch` and `after_batch` around each batch, and `start_window` before the epochs that the proof covers.
    The counts and verdicts of a cached graph are taken over; if there are none, everything is counted.
    """

    def __init__(self, graph: PersistentGraph, ask: ProofScope) -> None:
        self.graph, self.ask = graph, ask
        self.wrong, self.listed_edges, self.looked_at = 0, list[UnprovedEdge](), 0
        self.steps = list[ProvedEpoch]()
        levels = graph.levels
        self._level, self._label, self._live = levels.level.copy(), levels.label.copy(), levels.live.copy()
        self._left = self._right = np.empty(0, np.int32)
        self._allocate_scratch()
        self._gone = _FollowedEdges.empty()
        if not graph.kept.certified:
            relabelled = graph.kept.relabel()
            self._note_wrong_edges(relabelled, np.full(relabelled.size, TOO_LOW), self._level)
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
        """Forget the batches so far, but not the edges that they have shown to be wrong."""
        self.steps.clear()
        self._noted = self.wrong, len(self.listed_edges)
        self._base = self._certificate_counts.prints, self._certificate_counts.counts

    def get_proof(self) -> Proof:
        """Return the proof of the batches since `start_window`."""
        asked, part, between = self.ask, dict[str, Fingerprint](), (0, 0)
        if asked.parts:
            stretch = self.graph.next_vertex_range(asked.parts, asked.which)
            asked, between = ProofScope(asked.parts, stretch.which), (stretch.low, stretch.high)
            part = self.share_fingerprints(stretch)
        return Proof(*self._base, self.steps, part, self.looked_at, self.wrong, self.listed_edges, asked, between)

    def adopt_graph(self, graph: PersistentGraph, vertices: Ints) -> None:
        """Go on with a graph that has to be the one that was followed, and give it the counts.

        vertices: those at which anything has changed since both were the same; their lists are compared.
        """
        ours, theirs = self.graph.levels, graph.levels
        same = (ours.live == theirs.live).all() and (ours.level == theirs.level).all()
        if not (same and (ours.label == theirs.label).all() and _are_lists_in_order(theirs, vertices)):
            self._note_state(LISTS)
        graph.counted, self.graph = self.graph.counted, graph
        self._check_lists(vertices)

    # -- one batch -----------------------------------------------------------------------------------------------

    def before_batch(self, removed: Shorts, inserted: Shorts) -> None:
        """Prepare for the next batch, before it is applied."""
        self._grow_to_graph()
        self._whole = self._is_cheaper_to_enumerate(removed.size + inserted.size)
        self._gone = _FollowedEdges.empty() if self._whole else self._follow_edges(removed, leave=True)

    def after_batch(self, epoch: int) -> None:
        """Prove the changes of a batch, after it has been applied."""
        self._grow_to_graph()
        levels, was = self.graph.levels, self._certificate_counts
        changed = np.flatnonzero((levels.level != self._level) | (levels.label != self._label)).astype(np.int32)
        if self._whole or self._is_cheaper_to_enumerate(changed.size):
            del changed
            facts = self._recount()
            prints = {name: facts.prints[name] - was.prints[name] for name in COLLECTIONS}
            counts = add_counts(facts.counts, was.counts, -1)
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
            facts = was._replace(
                prints={name: was.prints[name] + prints[name] for name in COLLECTIONS},
                counts=add_counts(was.counts, counts),
            )
            self._level[changed], self._label[changed] = new, levels.label[changed]
        self.graph.counted = facts
        self._live[:] = levels.live
        self._verify_edges(touched)
        self.looked_at += touched.size
        self.steps.append(ProvedEpoch(epoch, prints, counts, touched.size, self._date_wrong_edges(epoch)))

    def _is_cheaper_to_enumerate(self, edges: int) -> bool:
        """Tell whether one enumeration of all triangles is at most as much work as following these edges."""
        return edges * WHOLE > self.graph.kept.present

    def _unknown_degrees(self, vertices: Ints) -> Ints:
        """Return the numbers of edges of these vertices that the graph does not know."""
        return np.zeros(vertices.size, np.int64)

    # -- the whole graph, and a part of it -----------------------------------------------------------------------

    def share_fingerprints(self, stretch: VertexRange) -> Prints:
        """Return the fingerprints of the degrees and triangles of some vertices, and of the edges whose lesser end is
        one of them.

        Every count of these edges is checked by a recount.
        """
        levels, graph, chosen = self.graph.levels, self.graph, stretch.vertices
        self._check_lists(chosen)
        support, edges, backing, own = _recount_vertices(levels, chosen, self._seen, self._mark, self._stamp)
        if (backing != self._certificate_counts.backing[edges]).any() or (
            own != self._certificate_counts.own[edges]
        ).any():
            self._note_state("the triangle counts that follow the changes differ from a recount")
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
        """Count everything: the facts of each edge, and the triangles, by one enumeration."""
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
        support, *facts = sum_in_threads(
            _enumerate_share, indptr, head, levels.level[ids], levels.label[ids], ids, rows=ids.size
        )
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
        counts = self._certificate_counts
        before = TrussCertificate(self._level, self._label, counts.own, counts.backing)
        scratch = self._flag, self._seen, self._delta, self._checked, *self._scratch_arrays()
        *sums, sound = _follow_kernel(self.graph.levels, edges, leave, before, scratch)
        if not sound:
            self._note_state(LISTS)
        return _FollowedEdges(*sums)

    def _verify_edges(self, edges: Shorts) -> None:
        """Check both facts of these edges, by the counts."""
        level = self.graph.levels.level
        why = np.where(self._certificate_counts.backing[edges] < level[edges], TOO_HIGH, FINE)
        why[self._certificate_counts.own[edges] > level[edges]] = TOO_LOW
        at = np.flatnonzero(why != FINE)
        self._note_wrong_edges(edges[at], why[at], level)

    def _date_wrong_edges(self, epoch: int) -> int:
        """Write the epoch at what was noted since the epoch before, and return how much that is."""
        wrong, known = self._noted
        self.listed_edges[known:] = [edge._replace(epoch=epoch) for edge in self.listed_edges[known:]]
        self._noted = self.wrong, len(self.listed_edges)
        return self.wrong - wrong

    def _note_state(self, why: str) -> None:
        self.wrong += 1
        self.listed_edges.append(UnprovedEdge(0, 0, 0, why))

    def _note_wrong_edges(self, edges: Shorts, why: NDArray[Any], level: Shorts) -> None:
        self.wrong += edges.size
        edges, why = edges[:MAX_LISTED_EDGES], why[:MAX_LISTED_EDGES]
        rows = zip(*(x.tolist() for x in (*self.graph.edge_ends(edges), level[edges] + 2, why)), strict=True)
        self.listed_edges += [
            UnprovedEdge(a, b, k, "too high" if code == TOO_HIGH else "too low") for a, b, k, code in rows
        ]
        del self.listed_edges[MAX_LISTED_EDGES:]

    def _edge_fingerprints(self, edges: Shorts, old: Shorts, new: Shorts) -> dict[str, Fingerprint]:
        """Return the changes of edges, degrees and trussness of edges that had the old level and have the new one."""
        levels = self.graph.levels
        (sums,) = sum_in_threads(
            _sums_of_edges, self.graph.ids, levels.tail, levels.head, edges, old, new, rows=edges.size
        )
        names = ("edges", "degrees", "trussness")
        return {name: Fingerprint(int(sums[i, 0]), int(sums[i, 1])) for i, name in enumerate(names)}

    def _count_changes(self, changed: Shorts, old: Shorts, new: Shorts) -> GraphCounts:
        """Return the changes of the counts, except the triangles; also check that the lists have changed by these edges
        alone.
        """
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
        """Return the scratch arrays of `_wings_of`."""
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
        """Enlarge the arrays if the graph has grown."""
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
    """Write the pairs of edges of level `least` or more that close a triangle over e into left, right; return their
    number.

    This is not `level_sorted_graph.closing_edges`, with which the maintenance finds them, so that a fault in that
    function shows here.
    """
    u, v = np.int64(g.tail[e]), np.int64(g.head[e])
    du, dv = (count_at_level(g, u, least), count_at_level(g, v, least)) if least else (g.live[u], g.live[v])
    if du > dv:
        u, v, du, dv = v, u, dv, du
    count = 0
    if du * PROBE < dv:
        for i in range(g.begin[u], g.begin[u] + du):
            f = find_edge(g, v, np.int64(g.neighbour[i]))
            if f >= 0 and g.level[f] >= least:
                left[count], right[count] = g.edge[i], f
                count += 1
        return count
    stamp[0] += 1
    if stamp[0] == 1 << 31:
        mark[:] = 0
        stamp[0] = 1
    for i in range(g.begin[u], g.begin[u] + du):
        mark[g.neighbour[i]] = (stamp[0] << 32) | np.int64(g.edge[i])
    for i in range(g.begin[v], g.begin[v] + dv):
        laid = mark[g.neighbour[i]]
        if (laid >> 32) == stamp[0]:
            left[count], right[count] = laid & 0xFFFFFFFF, g.edge[i]
            count += 1
    return count


@njit(cache=True, nogil=True)
def _follow_kernel(g, edges, leave, before, scratch):
    """Subtract the triangles of these edges from the counts `before`, a `TrussCertificate`, and add them as they are.

    With `leave` these edges are about to be removed, and nothing else has changed. Otherwise they have been inserted,
    or have another level or label. The result is that of `_FollowedEdges`, and whether the lists that were used are in
    order, so that their first parts are enough: a triangle does not count for an edge if its other edges both are, and
    were, lower than this edge. Each triangle is taken at its lowest edge among these, at the level before or after,
    whichever is less.
    """
    level, label = g.level, g.label
    old_level, old_label, own, backing = before
    flag, seen, delta, checked, mark, stamp, left, right = scratch
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
    """Add or subtract one triangle: it backs its lowest edges, and is the own one of the first edge."""
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
    """Tell whether edge e comes before f, whose level is at least that of e."""
    return level[f] > level[e] or label[f] > label[e] or (label[f] == label[e] and f > e)


@njit(cache=True, nogil=True)
def _enumerate_share(indptr, head, level, label, number, reached):
    """Count the certificate facts and the triangles of every edge of an oriented graph, in the shares of one thread."""
    m, n = head.size, indptr.size - 1
    support, backing, own = np.zeros(m, np.int32), np.zeros(m, np.int32), np.zeros(m, np.int32)
    mark = np.full(n, -1, np.int32)
    low, high = take_slice(reached, n)
    while low < high:
        for u in range(low, high):
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
        low, high = take_slice(reached, n)
    return support, backing, own


@njit(cache=True, nogil=True)
def _sums_of_edges(ids, tail, head, edges, old, new, reached):
    """Return two sums of hashes each for edges, degrees and trussness of edges that change their level, in the shares
    of one thread.
    """
    sums = np.zeros((3, 2), np.uint64)
    low, high = take_slice(reached, edges.size)
    while low < high:
        for i in range(low, high):
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
        low, high = take_slice(reached, edges.size)
    return (sums,)


@njit(cache=True, nogil=True)
def _recount_vertices(g, vertices, seen, mark, stamp):
    """Count the triangles of each vertex, and the facts of each edge at these vertices.

    Returns the triangles of each vertex; the edges, each once; and for each edge the triangles whose other edges have
    its level or more, and those that it owns. The neighbours of a vertex are laid out, those with many neighbours
    first. An edge between two of them is found at the later one: in its list, or by looking up those before it, if they
    are few.
    """
    level, label = g.level, g.label
    size = widest = 0
    for v in vertices:
        size += g.live[v]
        widest = max(widest, g.live[v])
    triangles, count = np.zeros(vertices.size, np.int64), 0
    edges, backing, own = np.empty(size, np.int32), np.zeros(size, np.int32), np.zeros(size, np.int32)
    at = np.empty(widest, np.int64)  # the place in `edges` of the edge to a neighbour; -1: the edge was met before
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
                edges[count] = ways[j]
                at[j] = count
                count += 1
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
    edges = edges[:count].copy()
    for e in edges:
        seen[e] = 0
    return triangles, edges, backing[:count].copy(), own[:count].copy()


@njit(cache=True, nogil=True)
def _are_lists_sound(g, vertices):
    """Tell whether each list of these vertices holds edges that are present at its vertex, each once."""
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


@njit(cache=True, nogil=True)
def _are_lists_in_order(g, vertices):
    """Tell whether the levels fall along each list of these vertices."""
    for v in vertices:
        for slot in range(g.begin[v] + 1, g.begin[v] + g.live[v]):
            if g.level[g.edge[slot]] > g.level[g.edge[slot - 1]]:
                return False
    return True
