"""The trussness of a graph in parts: the work of one part in a round, between two exchanges with the others.

A part owns some edges; it also holds every edge that lies in a triangle with one of them. It has all triangles of its
own edges. Of each other edge it knows a bound, from the last message about it.

Law     With kappa = trussness - 2, let U of an edge be the h-index, over its triangles, of the lesser value of the two
        other edges. From any upper bounds of kappa, bound <- min(bound, U bound), in any fair order and with bounds of
        others that are late and therefore too high, ends at kappa.
        Given kappa, an edge finds its place when at most kappa of its triangles are left: those whose two other edges
        have a higher kappa, or the same kappa and no place yet, as far as the part knows. In that order, and by level,
        every edge has at most kappa triangles whose others come after it: no kappa is too low (`incremental_prover`).
        Edges that find no place have kappa + 1 triangles among themselves and higher ones, and could all rise: their
        kappa is too low.
Shapes  a, b: int64[m], a < b, no edge twice; owner: int32[m], the part of each edge. Triangles of own edges alone, as
        positions in these arrays. bound: int32[m], -1 for an edge that does not exist. label: int64[m].
Cost    A round looks at the triangles of the edges that may have changed; to build the lists costs one enumeration of
        the triangles with an own edge.
        Memory: 8 bytes for each triangle on each own edge, and about 100 bytes an edge.
Source  Lu, Zhou, Zhang, Stanley, "The h-index of a network node" (2016); Sariyuce, Seshadhri, Pinar, "Local algorithms
        for hierarchical dense subgraph discovery" (VLDB 2018); reference/truss/region of the design.
"""

# numba infers the types of kernels from the arrays that they receive.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from altneu.algorithms.graph.kernels.graph import Colours, Ints, Oriented, Shorts, orient_edges

NOWHERE = -1  # the label of an edge that has no place yet
TURN = 32  # the number of bits of a label that hold the turn within the round


class Partition(NamedTuple):
    """A part of a graph.

    number: that of this part; own: bool[m]; ptr, left, right: the triangles of own edge e are left, right at ptr[e] ..
    ptr[e + 1].
    """

    number: int
    owner: Shorts
    own: NDArray[np.bool_]
    ptr: Ints
    left: Shorts
    right: Shorts


def build_partition(number: int, a: Ints, b: Ints, owner: Shorts) -> Partition:
    """Return the part of that number, from the edges that it holds.

    >>> made = build_partition(0, np.array([1, 1, 2]), np.array([2, 3, 3]), np.array([0, 1, 1], np.int32))
    >>> made.ptr.tolist(), made.left.tolist(), made.right.tolist()
    ([0, 1, 1, 1], [2], [1])
    """
    own = owner == number
    graph = orient_edges(a, b)
    own_end = _own_edges_first(graph.indptr, graph.head, graph.origin, own)
    ptr, left, right = _own_triangles(graph.indptr, graph.head, graph.origin, own, own_end)
    return Partition(number, owner, own, ptr, left, right)


def settle_bounds(held: Partition, bound: Shorts, queued: NDArray[np.bool_]) -> int:
    """Lower the bounds of own edges, in place, until none changes any more; return the number of looks.

    queued: the edges to look at first; it is emptied.
    """
    return int(_settle_kernel(held.ptr, held.left, held.right, held.own, bound, queued))


def shaken_edges(held: Partition, bound: Shorts, fell: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the own edges whose bound may have to be lowered because of the edges that fell."""
    return np.asarray(_shaken_kernel(held.ptr, held.left, held.right, held.own, bound, fell), np.bool_)


def partitions_to_notify(held: Partition, bound: Shorts, moved: Ints) -> tuple[Shorts, Ints]:
    """Return (part, edge) for each part that needs a message about an own edge whose bound has moved.

    Such a part owns an edge of a higher bound in a triangle with it. An edge of a bound that is not higher never uses
    it.
    """
    number, edge = _notify_kernel(held.ptr, held.left, held.right, held.own, held.owner, bound, bound, moved)
    return number, edge


def place_edges(held: Partition, kappa: Shorts, label: Ints, round_: int) -> Ints:
    """Give places to own edges that have none, in place, until no more edge finds one; return these edges, in order."""
    return np.asarray(_place_kernel(held.ptr, held.left, held.right, held.own, kappa, label, np.int64(round_) << TURN))


def partitions_to_notify_of_place(held: Partition, kappa: Shorts, label: Ints, moved: Ints) -> tuple[Shorts, Ints]:
    """Return (part, edge) for each part that needs to know the place of an own edge: it owns an edge of its level in a
    triangle.
    """
    level = np.where(label == NOWHERE, kappa, -2).astype(np.int32)  # an edge with a place does not need it
    number, edge = _notify_kernel(held.ptr, held.left, held.right, held.own, held.owner, kappa, level, moved, True)
    return number, edge


class CellGraph(NamedTuple):
    """The graph of a cell, and the colors of its vertices by rank, which are -1 except in cells of two different
    colors.

    In such a cell triangles of one color are left to the cell of that color (`triangle_history`).
    """

    graph: Oriented
    colour: Shorts


def build_cell(a: Ints, b: Ints, colours: Colours | None) -> CellGraph:
    """Return the graph of a cell. `colours` colors vertices, in a cell of just two different colors; it is None in
    others.
    """
    graph = orient_edges(a, b)
    if colours is None:
        return CellGraph(graph, np.full(graph.vertices.size, -1, np.int32))
    return CellGraph(graph, colours(graph.vertices)[graph.by_rank].astype(np.int32))


def count_cell_support(cell: CellGraph) -> Shorts:
    """Count the triangles on each edge that belong to the cell, int32[m] in the caller's order.

    >>> count_cell_support(build_cell(np.array([1, 1, 2, 3]), np.array([2, 3, 3, 4]), None)).tolist()
    [1, 1, 1, 0]
    """
    support = np.empty(cell.graph.origin.size, np.int32)
    support[cell.graph.origin] = _support_kernel(cell.graph.indptr, cell.graph.head, cell.colour)
    return support


def edge_holders(cell: CellGraph, owner: Shorts, words: int) -> Ints:
    """Return which partitions must hold each edge because of a triangle of the cell, as bit p % 64 of word p // 64 for
    p.

    The words are int64[m, words], in the caller's order.

    >>> cell = build_cell(np.array([1, 1, 2, 3]), np.array([2, 3, 3, 4]), None)
    >>> found = edge_holders(cell, np.array([0, 0, 1, 2], np.int32), 1)
    >>> [each.tolist() for each in set_bits(found)]
    [[0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1]]
    """
    bits = np.zeros((owner.size, words), np.uint64)
    _holders_kernel(cell.graph.indptr, cell.graph.head, cell.graph.origin, cell.colour, owner, bits)
    return bits.view(np.int64)


def set_bits(words: Ints) -> tuple[Ints, Ints]:
    """Return (row, number) for every bit that is set, by row and number."""
    octets = np.ascontiguousarray(words, "<i8").view(np.uint8)
    row, number = np.nonzero(np.unpackbits(octets, axis=1, bitorder="little"))
    return row, number


@njit(cache=True, nogil=True)
def _own_edges_first(indptr, head, origin, own):
    """Move own edges to the front of each vertex's list, in place; return where they end, int64[n]."""
    ends = indptr[:-1].copy()
    for u in range(ends.size):
        for i in range(indptr[u], indptr[u + 1]):
            if own[origin[i]]:
                j = ends[u]
                head[i], head[j] = head[j], head[i]
                origin[i], origin[j] = origin[j], origin[i]
                ends[u] += 1
    return ends


@njit(cache=True, nogil=True)
def _own_triangles(indptr, head, origin, own, own_end):
    """Return ptr, left, right of `Partition`. Triangles of three edges of other parts, which are most, are not
    searched.
    """
    mark, ptr = np.full(indptr.size - 1, -1, np.int32), np.zeros(own.size + 1, np.int64)
    left, right = np.empty(0, np.int32), np.empty(0, np.int32)
    for filling in range(2):
        for u in range(indptr.size - 1):
            start, end = indptr[u], indptr[u + 1]
            if end - start < 2:
                continue
            for i in range(start, end):
                mark[head[i]] = i
            for i in range(start, end):
                v = head[i]
                # if no edge of u is own, the third edge must be
                last = indptr[v + 1] if own_end[u] > start else own_end[v]
                for j in range(indptr[v], last):
                    k = mark[head[j]]
                    if k < 0:
                        continue
                    x, y, z = origin[i], origin[j], origin[k]
                    for e, f, g in ((x, y, z), (y, x, z), (z, x, y)):
                        if own[e]:
                            if filling == 1:
                                left[ptr[e]], right[ptr[e]] = f, g
                                ptr[e] += 1
                            else:
                                ptr[e + 1] += 1
            for i in range(start, end):
                mark[head[i]] = -1
        if filling == 0:
            for e in range(own.size):
                ptr[e + 1] += ptr[e]
            left, right = np.empty(ptr[-1], np.int32), np.empty(ptr[-1], np.int32)
    # each entry of ptr has moved on to the next one
    for e in range(own.size - 1, -1, -1):
        ptr[e + 1] = ptr[e]
    ptr[0] = 0
    return ptr, left, right


@njit(cache=True, nogil=True)
def _settle_kernel(ptr, left, right, own, bound, queued):
    m = bound.size
    queue = np.empty(m, np.int64)  # a ring: an edge is in it at most once
    waiting, first, widest = 0, 0, np.int64(0)
    for e in range(m):
        if queued[e]:
            queue[waiting] = e
            waiting += 1
        widest = max(widest, ptr[e + 1] - ptr[e])
    count, looks = np.zeros(widest + 1, np.int64), 0
    while waiting > 0:
        e = queue[first]
        first, waiting = (first + 1) % m, waiting - 1
        queued[e] = False
        most = np.int64(bound[e])
        if most <= 0:
            continue
        looks += 1
        h = min(most, ptr[e + 1] - ptr[e])
        count[: h + 1] = 0
        for t in range(ptr[e], ptr[e + 1]):
            low = min(h, min(bound[left[t]], bound[right[t]]))
            if low > 0:
                count[low] += 1
        above = 0
        while h > 0:
            above += count[h]
            if above >= h:
                break
            h -= 1
        if h == most:
            continue
        bound[e] = h
        for t in range(ptr[e], ptr[e + 1]):
            f, g = left[t], right[t]
            for _ in range(2):
                # only an edge that has counted the triangle at more than the new bound of this edge
                if own[f] and not queued[f] and h < bound[f] and bound[f] <= most and bound[f] <= bound[g]:
                    queued[f] = True
                    queue[(first + waiting) % m] = f
                    waiting += 1
                f, g = g, f
    return looks


@njit(cache=True, nogil=True)
def _shaken_kernel(ptr, left, right, own, bound, fell):
    out = np.zeros(bound.size, np.bool_)
    for e in range(bound.size):
        if own[e] and bound[e] > 0:
            for t in range(ptr[e], ptr[e + 1]):
                f, g = left[t], right[t]
                if (fell[f] and bound[f] < bound[e]) or (fell[g] and bound[g] < bound[e]):
                    out[e] = True
                    break
    return out


@njit(cache=True, nogil=True)
def _notify_kernel(ptr, left, right, own, owner, bound, other, moved, same=False):
    """Return the parts of others' edges with other > bound of the moved one, or with `same` other == bound."""
    most = np.int64(0)
    for e in range(owner.size):
        most = max(most, np.int64(owner[e]))
    number, edge = np.empty(0, np.int32), np.empty(0, np.int64)
    for filling in range(2):
        told = np.full(most + 1, -1, np.int64)
        count = 0
        for x in range(moved.size):
            e = moved[x]
            for t in range(ptr[e], ptr[e + 1]):
                for f in (left[t], right[t]):
                    asks = other[f] == bound[e] if same else other[f] > bound[e]
                    if asks and not own[f] and told[owner[f]] != x:
                        told[owner[f]] = x
                        if filling == 1:
                            number[count], edge[count] = owner[f], e
                        count += 1
        if filling == 0:
            number, edge = np.empty(count, np.int32), np.empty(count, np.int64)
    return number, edge


@njit(cache=True, nogil=True)
def _place_kernel(ptr, left, right, own, kappa, label, first):
    m = kappa.size
    rest = np.zeros(m, np.int64)  # triangles that are left
    queue, queued, count = np.empty(m, np.int64), np.zeros(m, np.bool_), 0
    for e in range(m):
        k = kappa[e]
        if not own[e] or k < 0 or label[e] >= 0:
            continue
        for t in range(ptr[e], ptr[e + 1]):
            f, g = left[t], right[t]
            rest[e] += _is_placed(f, k, kappa, label) and _is_placed(g, k, kappa, label)
        if rest[e] <= k:
            queue[count], queued[e] = e, True
            count += 1
    at = 0
    while at < count:
        e = queue[at]
        k = kappa[e]
        for t in range(ptr[e], ptr[e + 1]):
            f, g = left[t], right[t]
            for _ in range(2):
                if own[f] and kappa[f] == k and label[f] < 0 and not queued[f] and _is_placed(g, k, kappa, label):
                    rest[f] -= 1
                    if rest[f] <= k:
                        queue[count], queued[f] = f, True
                        count += 1
                f, g = g, f
        label[e] = first + at
        at += 1
    return queue[:count].copy()


@njit(cache=True, nogil=True, inline="always")
def _is_placed(f, k, kappa, label):
    return kappa[f] > k or (kappa[f] == k and label[f] < 0)


@njit(cache=True, nogil=True)
def _support_kernel(indptr, head, colour):
    support = np.zeros(head.size, np.int32)
    mark = np.full(indptr.size - 1, -1, np.int32)
    for u in range(indptr.size - 1):
        for i in range(indptr[u], indptr[u + 1]):
            mark[head[i]] = i
        for i in range(indptr[u], indptr[u + 1]):
            v = head[i]
            for j in range(indptr[v], indptr[v + 1]):
                w = head[j]
                k = mark[w]
                if k >= 0 and (colour[u] < 0 or colour[u] != colour[v] or colour[u] != colour[w]):
                    support[i] += 1
                    support[j] += 1
                    support[k] += 1
        for i in range(indptr[u], indptr[u + 1]):
            mark[head[i]] = -1
    return support


@njit(cache=True, nogil=True)
def _holders_kernel(indptr, head, origin, colour, owner, bits):
    """Set in `bits` of each edge the bits of the owners of all edges in a triangle with it, and of its own owner."""
    mark = np.full(indptr.size - 1, -1, np.int32)
    one = np.uint64(1)
    for u in range(indptr.size - 1):
        for i in range(indptr[u], indptr[u + 1]):
            mark[head[i]] = i
        for i in range(indptr[u], indptr[u + 1]):
            v = head[i]
            for j in range(indptr[v], indptr[v + 1]):
                w = head[j]
                k = mark[w]
                if k >= 0 and (colour[u] < 0 or colour[u] != colour[v] or colour[u] != colour[w]):
                    corners = (origin[i], origin[j], origin[k])
                    for e in corners:
                        for f in corners:
                            bits[e, owner[f] >> 6] |= one << np.uint64(owner[f] & 63)
        for i in range(indptr[u], indptr[u + 1]):
            mark[head[i]] = -1
