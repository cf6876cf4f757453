"""The triangles on one edge, found by intersecting two sorted neighbour lists.

The peel and the maintenance have this primitive alone: nothing is stored per triangle. Lists of similar length
are merged, O(d(u) + d(v)); a short list is searched in a long one by galloping, O(d(u) log(d(v) / d(u))), so that an
edge between a hub and a leaf costs as much as the leaf (Hwang, Lin 1972; Bentley, Yao 1976).
"""

# numba infers the types of kernels from the arrays that they receive.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

from numba import njit

GALLOP_RATIO = 8
ALL = 2**31 - 1


@njit(cache=True, nogil=True)
def closing_pairs(u, v, begin, end, neighbour, edge, level, least, most, left, right):
    """Find the pairs of edges that close a triangle over the edge {u, v}, both at `level` >= least.

    begin, end   int64[n]   list bounds of each vertex in neighbour, edge (int32[..], neighbours ascending)
    level        int32[m]   per edge; an absent edge has a level below every `least` that callers pass
    most                    stop after this many
    left, right  int32[>= the least of the two degrees], written in place
    Returns (pairs written, steps taken).
    """
    i, i_end, j, j_end = begin[u], end[u], begin[v], end[v]
    if i_end - i > j_end - j:
        i, i_end, j, j_end = j, j_end, i, i_end
    count = 0
    if (j_end - j) > GALLOP_RATIO * (i_end - i):
        steps = 0
        while i < i_end and j < j_end and count < most:
            if level[edge[i]] >= least:
                x = neighbour[i]
                # Galloping: double the stride until it passes x, then halve it.
                stride = 1
                while j + stride < j_end and neighbour[j + stride] < x:
                    stride += stride
                    steps += 2
                high = min(j + stride, j_end)
                j += stride >> 1
                while j < high:
                    middle = (j + high) >> 1
                    if neighbour[middle] < x:
                        j = middle + 1
                    else:
                        high = middle
                if j < j_end and neighbour[j] == x and level[edge[j]] >= least:
                    left[count] = edge[i]
                    right[count] = edge[j]
                    count += 1
            i += 1
            steps += 1
        return count, steps
    start = i + j
    while i < i_end and j < j_end:
        x, y = neighbour[i], neighbour[j]
        if x == y and level[edge[i]] >= least and level[edge[j]] >= least:
            left[count] = edge[i]
            right[count] = edge[j]
            count += 1
            if count >= most:
                break
        # Both comparisons are added instead of branched on: a mispredicted branch costs more than the step.
        i += x <= y
        j += y <= x
    return count, i + j - start
