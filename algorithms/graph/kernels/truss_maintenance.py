"""The maintenance of trussness: descent after deletions, lift after insertions, as kernels on `Levels` of a graph.

Write r(e) for the level of e, and U r(e) for the largest h such that at least h triangles on e have both other
edges at r >= h. kappa is the greatest r with r <= U r.

Descent. The old kappa bounds the new one from above. Setting r(e) to min(r(e), U r(e)) for edges that lost a triangle
that counted, in any order, never passes below kappa and ends at r <= U r: at kappa.
Lift. The old kappa bounds the new one from below, with r <= U r. Level by level, upwards, the largest set S of edges of
level k that can rise by one together, r + 1_S <= U(r + 1_S), joins level k + 1. The edges that stay are final, because
no edge of a higher level will ever be below them. S is found by growing candidates from the change and pruning them.

Certificate. Level and then `label` put all edges in one order. Each triangle is owned by its first edge; own(e) is the
number that e owns. Invariant between operations: own(e) <= r(e). It proves that none is too low: if edges are removed
in this order, no edge of level k has more than k triangles left. So only an edge with own(e) > r(e) has to be looked
at.
- The order of the batch peel is such an order.
- An edge that falls to h goes to the back of level h, and owns the triangles that are wholly above: at most h.
- A new edge, and one that rises, goes to the front of its level, where no other edge owns more triangles because of it.
- A candidate hands each triangle that it owns to the next edge in it; an edge that then owns too many is looked at in
  turn.
- An edge that owns too many triangles, but cannot rise because too few of them can, goes only as far back as it must. A
  candidate that is rejected goes behind the edge that caused this, and takes back the triangles that it handed on.
Without labels (`certified` false: the levels came from outside) candidates grow through all edges of like level.

Cost    The triangles on the edges that are looked at; nothing depends on the size of the graph.
Source  Zhang, Yu, "Unboundedness and efficiency of truss maintenance" (SIGMOD 2019); Zhang et al., "A fast order-based
        approach for core maintenance" (ICDE 2017) for the order; Sariyuce et al. (2017) for the descent.
"""

# numba infers the types of kernels from the arrays that they receive.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

import heapq

import numpy as np
from numba import njit

from altneu.algorithms.graph.kernels.level_sorted_graph import (
    BACK,
    FRONT,
    LABEL_GAP,
    PROBE,
    STEPS,
    UNKNOWN,
    closing_edges,
    count_at_level,
    is_unknown_below,
    set_level,
)

FAR = 2**30  # stands for a backing that is not known to be too small
UNSEEN, QUEUED, CANDIDATE, REJECTED, LEAVING, AWAITED = range(6)


@njit(cache=True, nogil=True)
def remove_edges(g, edges, queue, certified, left, right):
    """Remove the edges; edges that lose a counted triangle join the queue (a typed list, in place)."""
    level, label, own, backing, state = g.level, g.label, g.own, g.backing, g.state
    for e in edges:
        r = level[e]
        count = closing_edges(g, e, 1, left, right)
        for t in range(count):
            f, other = left[t], right[t]
            _lose_triangle(level, state, backing, f, other, r, -1, queue)
            if certified:
                first = f if _precedes(level, label, f, other) else other
                if _precedes(level, label, first, e):
                    own[first] -= 1
        set_level(g, e, -1)
        backing[e] = UNKNOWN


@njit(cache=True, nogil=True)
def lower_levels(g, queue, certified, changed, limit, left, right):
    """Lower the levels to kappa; return False if the clock passed `limit` steps (the levels are then unusable).

    changed  receives (edge, level before) of every lowered edge, maybe several times, oldest first
    """
    level, label, own, backing, state = g.level, g.label, g.own, g.backing, g.state
    taken = 0
    while taken < len(queue):
        if g.clock[STEPS] > limit:
            return False
        e = queue[taken]
        taken += 1
        state[e] = UNSEEN
        r = level[e]
        if r <= 0:
            continue
        if backing[e] == UNKNOWN:
            backing[e] = closing_edges(g, e, r, left, right)
        if backing[e] >= r:
            continue
        h, count = _level_bound(g, e, r, left, right)
        if h < 0:  # in a part of a graph that lacks triangles: the edge falls by one, which is certain
            h, backing[e] = np.int64(r - 1), FAR
            count = closing_edges(g, e, max(r - 1, 1), left, right)
        changed.append((np.int64(e), np.int64(r)))
        above = 0
        for t in range(count):
            f, other = left[t], right[t]
            if level[f] > h and level[other] > h:
                above += 1
                _lose_triangle(level, state, backing, f, other, r, h, queue)
                if certified:
                    first = f if _precedes(level, label, f, other) else other
                    if _precedes(level, label, first, e):
                        own[first] -= 1
        if certified:
            own[e] = above
            label[e] = g.clock[BACK]
            g.clock[BACK] += LABEL_GAP
        set_level(g, e, h)
    if not certified:
        for e in queue:
            backing[e] = UNKNOWN
    return True


@njit(cache=True, nogil=True, inline="always")
def _precedes(level, label, e, f):
    """Tell whether e comes before f in the order."""
    if level[e] != level[f]:
        return level[e] < level[f]
    return label[e] < label[f] or (label[e] == label[f] and e < f)


@njit(cache=True, nogil=True)
def _lose_triangle(level, state, backing, f, other, was, now, queue):
    """Queue edges that counted a triangle and no longer may: its third edge fell from level `was` to `now`."""
    for _ in range(2):
        k = level[f]
        if now < k and k <= was and k <= level[other]:
            if backing[f] != UNKNOWN:
                backing[f] -= 1
            if state[f] == UNSEEN and (backing[f] == UNKNOWN or backing[f] < k):
                state[f] = QUEUED
                queue.append(np.int64(f))
        f, other = other, f


@njit(cache=True, nogil=True)
def _level_bound(g, e, r, left, right):
    """Return U r(e), known to be below r, and the pairs in left, right: all at that level and above, and maybe others.

    The result is -1 if a part of a graph lacks triangles.

    backing[e] receives the number of triangles that count at that level. Most edges fall by one, so the search opens
    the lists level by level at first, and then in steps that double.
    """
    least, step = r - 1, 1
    while True:
        least = max(least, 1)
        if is_unknown_below(g, e, least):
            return np.int64(-1), np.int64(0)
        count = closing_edges(g, e, least, left, right)
        h = _h_index(g.level, count, r - 1, least, left, right)
        if h >= least or least == 1:
            g.backing[e] = _count_at_least(g.level, count, h, left, right)
            return h, count
        least -= step
        step += step


@njit(cache=True, nogil=True)
def _count_at_least(level, closing, h, left, right):
    """Count the pairs that lie at level >= h."""
    count = 0
    for t in range(closing):
        count += min(level[left[t]], level[right[t]]) >= h
    return count


@njit(cache=True, nogil=True)
def _h_index(level, closing, most, least, left, right):
    """Return the largest h <= most such that h of the pairs lie at level >= h; exact if it is >= least, otherwise 0."""
    most = min(most, closing)
    if most < least:
        return np.int64(0)
    count = np.zeros(most - least + 1, np.int32)
    for t in range(closing):
        low = min(level[left[t]], level[right[t]])
        if low >= least:
            count[min(low, most) - least] += 1
    above = 0
    for h in range(most, least - 1, -1):
        above += count[h - least]
        if above >= h:
            return np.int64(h)
    return np.int64(0)


@njit(cache=True, nogil=True)
def add_edges(g, edges, heap, certified, left, right):
    """Insert the edges, one after the other, each at U of the present levels; the seeds of the lift join the heap."""
    level, label, own, backing = g.level, g.label, g.own, g.backing
    for e in edges:
        count = closing_edges(g, e, 0, left, right)
        k = _h_index(level, count, count, 1, left, right)
        set_level(g, e, k)
        label[e] = g.clock[FRONT]
        g.clock[FRONT] -= LABEL_GAP
        at_least = 0
        for t in range(count):
            f, other = left[t], right[t]
            low = min(level[f], level[other])
            at_least += low >= k
            if not certified:
                for x in (f, other):
                    if level[x] == low and low < k:
                        _push_candidate(heap, low, 0, x)
                continue
            for x in (f, other):
                if level[x] == low and low <= k:
                    backing[x] += 1
            if low < k:
                first = f if _precedes(level, label, f, other) else other
                _gain_triangle(level, label, own, first, heap)
        if certified:
            own[e] = backing[e] = at_least
        if at_least > k:
            _push_candidate(heap, k, label[e] if certified else 0, e)


@njit(cache=True, nogil=True, inline="always")
def _gain_triangle(level, label, own, e, heap):
    """Add one triangle to those that e owns; when their number passes the level, e has to be looked at."""
    own[e] += 1
    if own[e] == level[e] + 1:
        _push_candidate(heap, level[e], label[e], e)


@njit(cache=True, nogil=True, inline="always")
def _push_candidate(heap, k, at, e):
    heapq.heappush(heap, (np.int64(k), np.int64(at), np.int64(e)))


@njit(cache=True, nogil=True)
def raise_levels(g, heap, certified, changed, limit, left, right):
    """Raise the levels to kappa; return False if the clock passed `limit` steps (the levels are then unusable).

    heap has (level, label, edge) of the edges to look at, a typed list; changed receives (edge, level before).
    """
    state = g.state
    while len(heap) > 0:
        k = heap[0][0]
        candidates = [np.int64(0) for _ in range(0)]
        rejected = [np.int64(0) for _ in range(0)]
        if certified:
            finished = _sweep_level(g, k, heap, candidates, rejected, limit, left, right)
        else:
            finished = _grow_candidates(g, k, heap, candidates, rejected, limit, left, right)
        if not finished:
            return False
        risen = np.array([e for e in candidates if state[e] == CANDIDATE])
        for e in rejected:
            state[e] = UNSEEN
        for e in risen:
            changed.append((e, k))
            set_level(g, e, k + 1)
        if certified:
            _place_risen(g, risen, k + 1, heap, left, right)
        else:
            for e in risen:
                state[e] = UNSEEN
                _push_candidate(heap, k + 1, 0, e)
    return True


@njit(cache=True, nogil=True)
def _place_risen(g, risen, k, heap, left, right):
    """Place the edges that rose to level k at its front, those with the fewest triangles first, and count again."""
    label, level, own, backing, state = g.label, g.level, g.own, g.backing, g.state
    backing_now = g.need[risen]
    g.clock[FRONT] -= risen.size * LABEL_GAP
    for place, i in enumerate(np.argsort(backing_now, kind="mergesort")):
        e = risen[i]
        backing[e] = backing_now[i]
        label[e] = g.clock[FRONT] + (place + 1) * LABEL_GAP
    for e in risen:
        own[e] = 0
        count = closing_edges(g, e, k, left, right)
        for t in range(count):
            f, other = left[t], right[t]
            if _precedes(level, label, f, e) or _precedes(level, label, other, e):
                continue
            # The first of the risen edges adds the triangle to the backing of the edges that were at this level before.
            own[e] += 1
            for x in (f, other):
                backing[x] += level[x] == k and state[x] == UNSEEN
        if own[e] > k:
            _push_candidate(heap, k, label[e], e)
    for e in risen:
        state[e] = UNSEEN


@njit(cache=True, nogil=True)
def _sweep_level(g, k, heap, candidates, rejected, limit, left, right):
    """Go through level k in its order; at the end the edges in state CANDIDATE are those that rise.

    An edge that the sweep passes while it owns no more than k triangles stays at k, because no more triangle can be
    handed to it. So a candidate can count on those of its triangles whose other edges are higher, candidates, or still
    to come; it is rejected as soon as only k of them are left.
    need: for a candidate, the triangles on which it counts; for a rejected edge, its turn; for an edge still to come on
    which candidates wait, the last of its rows in `waits`.
    """
    state, own, label = g.state, g.own, g.label
    leaving = [np.int64(0) for _ in range(0)]
    waits = [(np.int64(0), np.int64(0), np.int64(0)) for _ in range(0)]  # (row before, candidate, third edge)
    last = np.iinfo(np.int64).min
    while len(heap) > 0 and heap[0][0] == k:
        if g.clock[STEPS] > limit:
            return False
        _, at, x = heapq.heappop(heap)
        if label[x] != at or state[x] == CANDIDATE:
            continue
        if own[x] > k:
            _consider_edge(g, x, k, heap, candidates, rejected, leaving, waits, left, right)
        elif state[x] == AWAITED:
            _pass_edge(g, x, k, leaving, waits)
        taken = 0
        while taken < len(leaving):
            last = max(last, at) + 1
            e = leaving[taken]
            taken += 1
            _reject_candidate(g, e, at, x, k, last, rejected, leaving, left, right)
            if own[e] > k:
                _push_candidate(heap, k, last, e)
        leaving.clear()
    return True


@njit(cache=True, nogil=True)
def _consider_edge(g, e, k, heap, candidates, rejected, leaving, waits, left, right):
    """Make edge e of level k, which owns more than k triangles, a candidate, or move it back if it cannot rise.

    The edges before it that are no candidates stay at k, so only its own triangles can lift it.
    """
    turn = g.need[e] if g.state[e] == REJECTED else len(rejected)
    known, blockers = _own_triangles(g, e, k, turn, left, right)
    kept = known
    if is_unknown_below(g, e, k):  # its own triangles that are not known may be good ones
        kept = max(kept, g.own[e])
    if kept - blockers.size <= k:
        if g.state[e] != REJECTED:
            _reject_edge(g, e, k, turn, known, rejected, leaving, left, right)
        # It goes behind as few of the edges that block it as necessary. They were rejected before it, so this ends.
        g.label[e] = np.partition(blockers, kept - k - 1)[kept - k - 1] + 1
        g.own[e] = kept
        for t in range(known):
            f = left[t]
            if not _is_supporting(g.level, g.state, f, k) and _precedes(g.level, g.label, f, e):
                g.own[e] -= 1
                _gain_triangle(g.level, g.label, g.own, f, heap)
        return
    g.state[e], g.need[e] = CANDIDATE, kept - blockers.size
    _await_triangles(g, e, k, turn, known, heap, waits, left, right)
    candidates.append(e)


@njit(cache=True, nogil=True)
def _own_triangles(g, e, k, turn, left, right):
    """Keep the triangles that e owns in left, right, with the first edge of the level (if any) on the left.

    Return their number, and the labels of the edges that block one of them, since they cannot rise.
    """
    level, label, backing, need, state = g.level, g.label, g.backing, g.need, g.state
    count = closing_edges(g, e, k, left, right)
    blockers = np.empty(count, np.int64)
    kept, blocked = 0, 0
    for t in range(count):
        f, other = left[t], right[t]
        f_waits = not _is_supporting(level, state, f, k)
        other_waits = not _is_supporting(level, state, other, k)
        if (f_waits and _precedes(level, label, f, e)) or (other_waits and _precedes(level, label, other, e)):
            continue
        if other_waits and (not f_waits or _precedes(level, label, other, f)):
            f, other, f_waits, other_waits = other, f, other_waits, f_waits
        left[kept], right[kept] = f, other
        kept += 1
        if f_waits and _cannot_rise(backing, state, need, f, k, turn):
            blockers[blocked] = label[f]
            blocked += 1
        elif other_waits and _cannot_rise(backing, state, need, other, k, turn):
            blockers[blocked] = label[other]
            blocked += 1
    return kept, blockers[:blocked]


@njit(cache=True, nogil=True)
def _reject_edge(g, e, k, turn, known, rejected, leaving, left, right):
    """Note that e stays at k, and subtract its own triangles from the candidates that counted on them."""
    level, backing, need, state = g.level, g.backing, g.need, g.state
    for t in range(known):
        f, other = left[t], right[t]
        if not _is_supporting(level, state, f, k) and _cannot_rise(backing, state, need, f, k, turn):
            continue
        for x in (f, other):
            if level[x] == k and state[x] == CANDIDATE:
                _drop_hope(k, need, state, x, leaving)
    state[e], need[e] = REJECTED, turn
    rejected.append(e)


@njit(cache=True, nogil=True)
def _await_triangles(g, e, k, turn, known, heap, waits, left, right):
    """Hand the own triangles of candidate e on to their next edges, and note on which edges still to come it counts."""
    level, label, own, backing, need, state = g.level, g.label, g.own, g.backing, g.need, g.state
    for t in range(known):
        f, other = left[t], right[t]
        if _is_supporting(level, state, f, k):
            continue
        _gain_triangle(level, label, own, f, heap)
        other_waits = not _is_supporting(level, state, other, k)
        if _cannot_rise(backing, state, need, f, k, turn):
            continue
        if other_waits and _cannot_rise(backing, state, need, other, k, turn):
            continue
        _await_edge(label, need, state, e, f, other, k, heap, waits)
        if other_waits:
            _await_edge(label, need, state, e, other, f, k, heap, waits)


@njit(cache=True, nogil=True, inline="always")
def _await_edge(label, need, state, e, f, other, k, heap, waits):
    """Note that candidate e counts on f, which is still to come and may become a candidate."""
    if state[f] == UNSEEN:
        state[f], need[f] = AWAITED, -1
        _push_candidate(heap, k, label[f], f)
    waits.append((np.int64(need[f]), np.int64(e), np.int64(other)))
    need[f] = len(waits) - 1


@njit(cache=True, nogil=True, inline="always")
def _cannot_rise(backing, state, need, f, k, turn):
    """Tell whether f is known to stay at k, by its backing or because it was rejected before that turn."""
    return backing[f] <= k or (state[f] == REJECTED and need[f] < turn)


@njit(cache=True, nogil=True, inline="always")
def _drop_hope(k, need, state, e, leaving):
    """Subtract one triangle on which e, if it is a candidate, may count."""
    if state[e] == CANDIDATE:
        need[e] -= 1
        if need[e] <= k:
            state[e] = LEAVING
            leaving.append(np.int64(e))


@njit(cache=True, nogil=True)
def _pass_edge(g, x, k, leaving, waits):
    """Leave edge x at k, and subtract its triangles from the candidates that counted on it, unless they are lost
    already.
    """
    level, label, need, state = g.level, g.label, g.need, g.state
    row = need[x]
    state[x] = UNSEEN
    while row >= 0:
        row, e, other = waits[row]
        if state[other] != REJECTED and (_is_supporting(level, state, other, k) or _precedes(level, label, x, other)):
            _drop_hope(k, need, state, e, leaving)


@njit(cache=True, nogil=True)
def _reject_candidate(g, e, at, x, k, place, rejected, leaving, left, right):
    """Reject candidate e while the sweep is at (at, x): it goes behind that edge and takes back what it handed on."""
    level, label, own, backing, need, state = g.level, g.label, g.own, g.backing, g.need, g.state
    label[e], own[e] = place, 0
    state[e], need[e] = REJECTED, len(rejected)
    rejected.append(e)
    count = closing_edges(g, e, k, left, right)
    for t in range(count):
        f, other = left[t], right[t]
        f_stands, other_stands = _is_supporting(level, state, f, k), _is_supporting(level, state, other, k)
        if f_stands and other_stands:
            for c in (f, other):
                if level[c] == k:
                    _drop_hope(k, need, state, c, leaving)
            own[e] += 1
            continue
        if f_stands or (not other_stands and _precedes(level, label, other, f)):
            f, other, f_stands, other_stands = other, f, other_stands, f_stands
        if _precedes(level, label, e, f):
            own[f] -= 1
            own[e] += 1
        passed = label[f] < at or (label[f] == at and f <= x)
        if other_stands and level[other] == k and not passed and not _cannot_rise(backing, state, need, f, k, need[e]):
            _drop_hope(k, need, state, other, leaving)


@njit(cache=True, nogil=True)
def _grow_candidates(g, k, heap, candidates, rejected, limit, left, right):
    """Grow candidates, without labels, through all of level k that the change can reach; then prune them."""
    while len(heap) > 0 and heap[0][0] == k:
        if g.clock[STEPS] > limit:
            return False
        e = heapq.heappop(heap)[2]
        if g.state[e] == UNSEEN or g.state[e] == QUEUED:
            _visit_edge(g, e, k, heap, candidates, rejected, left, right)
    _prune_candidates(g, k, candidates, rejected, left, right)
    return True


@njit(cache=True, nogil=True)
def _visit_edge(g, e, k, heap, candidates, rejected, left, right):
    """Make edge e a candidate if enough of its triangles have no rejected edge, and queue its neighbours."""
    level, need, state = g.level, g.need, g.state
    closing = closing_edges(g, e, k, left, right)
    enough, count = 0, 0
    for t in range(closing):
        f, other = left[t], right[t]
        enough += state[f] != REJECTED and state[other] != REJECTED
    if enough <= k:
        state[e] = REJECTED
        rejected.append(e)
        return
    state[e] = CANDIDATE
    candidates.append(e)
    for t in range(closing):
        f, other = left[t], right[t]
        if state[f] == REJECTED or state[other] == REJECTED:
            continue
        f_stands, other_stands = _is_supporting(level, state, f, k), _is_supporting(level, state, other, k)
        if f_stands and other_stands:
            count += 1
            for x in (f, other):
                if level[x] == k:
                    need[x] += 1
        for x in (f, other):
            if level[x] == k and state[x] == UNSEEN:
                state[x] = QUEUED
                _push_candidate(heap, k, 0, x)
    need[e] = count


@njit(cache=True, nogil=True)
def _prune_candidates(g, k, candidates, rejected, left, right):
    """Reject candidates without k + 1 triangles among candidates and higher edges, until all have them."""
    level, need, state = g.level, g.need, g.state
    leaving = [np.int64(0) for _ in range(0)]
    for e in candidates:
        if need[e] <= k:
            state[e] = LEAVING
            leaving.append(e)
    taken = 0
    while taken < len(leaving):
        e = leaving[taken]
        taken += 1
        state[e] = REJECTED
        rejected.append(e)
        count = closing_edges(g, e, k, left, right)
        for t in range(count):
            f, other = left[t], right[t]
            if _is_supporting(level, state, f, k) and _is_supporting(level, state, other, k):
                for x in (f, other):
                    if level[x] == k:
                        _drop_hope(k, need, state, x, leaving)


@njit(cache=True, nogil=True, inline="always")
def _is_supporting(level, state, f, k):
    """Tell whether edge f is above level k, or at it and not rejected (one that is leaving counts until its turn)."""
    return level[f] > k or (level[f] == k and (state[f] == CANDIDATE or state[f] == LEAVING))


@njit(cache=True, nogil=True)
def delete_edges(g, edges, certified, limit, left, right):
    """Remove edges and descend; return (finished, edge int32[c], level before int32[c]) of the lowered edges."""
    changed = [(np.int64(0), np.int64(0)) for _ in range(0)]
    queue = [np.int64(0) for _ in range(0)]
    remove_edges(g, edges, queue, certified, left, right)
    finished = lower_levels(g, queue, certified, changed, limit, left, right)
    log_edges, log_levels = _log_columns(changed)
    return finished, log_edges, log_levels


@njit(cache=True, nogil=True)
def insert_edges(g, edges, certified, limit, left, right):
    """Insert edges and lift; return (finished, edge int32[c], level before int32[c]) of the raised edges."""
    changed = [(np.int64(0), np.int64(0)) for _ in range(0)]
    heap = [(np.int64(0), np.int64(0), np.int64(0)) for _ in range(0)]
    add_edges(g, edges, heap, certified, left, right)
    finished = raise_levels(g, heap, certified, changed, limit, left, right)
    log_edges, log_levels = _log_columns(changed)
    return finished, log_edges, log_levels


@njit(cache=True, nogil=True)
def _log_columns(log):
    edges, levels = np.empty(len(log), np.int32), np.empty(len(log), np.int32)
    for i, (e, k) in enumerate(log):
        edges[i] = e
        levels[i] = k
    return edges, levels


@njit(cache=True, nogil=True)
def probe_steps(g, edges, left, right):
    """Count the steps to look at these edges, present or not, and once at each neighbour in a triangle above 0."""
    total = 0.0
    for e in edges:
        before = g.clock[STEPS]
        count = closing_edges(g, e, 1, left, right)
        total += (g.clock[STEPS] - before) * (1.0 + count)
    return total


@njit(cache=True, nogil=True)
def peel_steps(g, edges):
    """Count the steps along the lists when each of these edges is looked at once, at its own level."""
    total = 0
    for e in edges:
        du = count_at_level(g, np.int64(g.tail[e]), g.level[e])
        dv = count_at_level(g, np.int64(g.head[e]), g.level[e])
        total += min(du + dv, PROBE * min(du, dv))
    return total
