"""Trussness under change: descent after deletions, lift after insertions. Kernels on `levels.Levels`.

Write r(e) for the level of e, and U r(e) for the largest h such that at least h triangles on e have both other
edges at r >= h. kappa is the greatest r with r <= U r.

Descent. The old kappa bounds the new one from above. Setting r(e) to min(r(e), U r(e)) for edges that lost a
triangle that counted, in any order, never passes below kappa and ends at r <= U r: at kappa.
Lift. The old kappa bounds the new one from below, with r <= U r. Level by level, upwards: the largest set S of edges
of level k that can rise by one together, r + 1_S <= U(r + 1_S), joins level k + 1. What stays is final, for no edge
of a higher level will ever be below it. S is found by growing candidates from the change and pruning them.

Certificate. Level and then `label` put all edges in one order. Each triangle is owned by its first edge; own(e) is
the number that e owns. Invariant between operations: own(e) <= r(e). It proves that none is too low: taken away in
this order, no edge of level k has more than k triangles left. So only an edge with own(e) > r(e) has to be looked at.
- The order of the batch peel is such an order.
- An edge that falls to h goes to the back of level h, and owns the triangles that are wholly above: at most h.
- A new edge, and one that rises, goes to the front of its level, where it takes nothing from the others.
- A candidate hands each triangle that it owns to the next edge in it; whoever then owns too many is looked at next.
- An edge that owns too many, but cannot rise since too few of those triangles can, goes just as far back as it must.
- A candidate that is pruned goes to the back of its level, in the order of pruning.
Without labels (`certified` false: the levels came from outside) candidates grow through all edges of like level.

Cost: the triangles on the edges that are looked at; nothing depends on the size of the graph.
Source: Zhang, Yu, "Unboundedness and efficiency of truss maintenance" (SIGMOD 2019); Zhang et al., "A fast
order-based approach for core maintenance" (ICDE 2017) for the order; Sariyuce et al. (2017) for the descent.
"""

# numba infers the types of its kernels from the arrays they get.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

import heapq

import numpy as np
from numba import njit

from algorithms.kernels.levels import BACK, FRONT, LABEL_GAP, PROBE, STEPS, UNKNOWN, closing, reach, set_level

UNSEEN, QUEUED, CANDIDATE, REJECTED, LEAVING = 0, 1, 2, 3, 4


@njit(cache=True, nogil=True)
def remove(g, edges, queue, certified, left, right):
    """Take the edges out; the edges that lose a counted triangle join the queue (a typed list, in place)."""
    level, label, own, backing, state = g.level, g.label, g.own, g.backing, g.state
    for e in edges:
        r = level[e]
        found = closing(g, e, 1, left, right)
        for t in range(found):
            f, other = left[t], right[t]
            _lose(level, state, backing, f, other, r, -1, queue)
            if certified:
                first = f if _before(level, label, f, other) else other
                if _before(level, label, first, e):
                    own[first] -= 1
        set_level(g, e, -1)
        backing[e] = UNKNOWN


@njit(cache=True, nogil=True)
def descend(g, queue, certified, changed, limit, left, right):
    """Lower the levels to kappa; False when the clock passed `limit` steps on the way (the levels are then unusable).

    changed  gets (edge, level before) of every lowered edge, maybe several times, oldest first
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
            backing[e] = closing(g, e, r, left, right)
        if backing[e] >= r:
            continue
        h, found = _bound(g, e, r, left, right)
        changed.append((np.int64(e), np.int64(r)))
        above = 0
        for t in range(found):
            f, other = left[t], right[t]
            if level[f] > h and level[other] > h:
                above += 1
                _lose(level, state, backing, f, other, r, h, queue)
                if certified:
                    first = f if _before(level, label, f, other) else other
                    if _before(level, label, first, e):
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
def _before(level, label, e, f):
    """Does e come before f in the order?"""
    if level[e] != level[f]:
        return level[e] < level[f]
    return label[e] < label[f] or (label[e] == label[f] and e < f)


@njit(cache=True, nogil=True)
def _lose(level, state, backing, f, other, was, now, queue):
    """The third edge beside f and other fell from level `was` to `now`: who counted the triangle and no longer may?"""
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
def _bound(g, e, r, left, right):
    """(U r(e), known to be below r; the pairs in left, right: all at that level and above, and maybe others).

    Leaves the number of triangles that count there in backing[e]. Most edges fall by one, so the search opens the
    lists level by level at first, and then by halves.
    """
    least, step = r - 1, 1
    while True:
        least = max(least, 1)
        found = closing(g, e, least, left, right)
        h = _h_index(g.level, found, r - 1, least, left, right)
        if h >= least or least == 1:
            g.backing[e] = _at_least(g.level, found, h, left, right)
            return h, found
        least -= step
        step += step


@njit(cache=True, nogil=True)
def _at_least(level, found, h, left, right):
    """How many of the pairs lie at level >= h."""
    count = 0
    for t in range(found):
        count += min(level[left[t]], level[right[t]]) >= h
    return count


@njit(cache=True, nogil=True)
def _h_index(level, found, most, least, left, right):
    """The largest h <= most such that h of the pairs lie at level >= h; exact when it is >= least, else 0."""
    most = min(most, found)
    if most < least:
        return np.int64(0)
    count = np.zeros(most - least + 1, np.int32)
    for t in range(found):
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
def insert(g, edges, heap, certified, left, right):
    """Bring the edges in, one after the other, each at U of the levels there; the seeds of the lift join the heap."""
    level, label, own, backing = g.level, g.label, g.own, g.backing
    for e in edges:
        found = closing(g, e, 0, left, right)
        k = _h_index(level, found, found, 1, left, right)
        set_level(g, e, k)
        label[e] = g.clock[FRONT]
        g.clock[FRONT] -= LABEL_GAP
        at_least = 0
        for t in range(found):
            f, other = left[t], right[t]
            low = min(level[f], level[other])
            at_least += low >= k
            if not certified:
                for x in (f, other):
                    if level[x] == low and low < k:
                        heapq.heappush(heap, (np.int64(low), np.int64(0), np.int64(x)))
                continue
            for x in (f, other):
                if level[x] == low and low <= k:
                    backing[x] += 1
            if low < k:
                first = f if _before(level, label, f, other) else other
                _gain(level, label, own, first, heap)
        if certified:
            own[e] = backing[e] = at_least
        if at_least > k:
            heapq.heappush(heap, (np.int64(k), label[e] if certified else np.int64(0), np.int64(e)))


@njit(cache=True, nogil=True, inline="always")
def _gain(level, label, own, e, heap):
    """One more triangle is e's own; when it passes the level, e has to be looked at."""
    own[e] += 1
    if own[e] == level[e] + 1:
        heapq.heappush(heap, (np.int64(level[e]), label[e], np.int64(e)))


@njit(cache=True, nogil=True)
def lift(g, heap, certified, changed, limit, left, right):
    """Raise the levels to kappa; False when the clock passed `limit` steps (the levels are then unusable).

    heap  (level, label, edge) of the edges to look at, a typed list; changed: as in `descend`
    """
    level, label, own, backing, need, state = g.level, g.label, g.own, g.backing, g.need, g.state
    while len(heap) > 0:
        k = heap[0][0]
        candidates = [np.int64(0) for _ in range(0)]
        rejected = [np.int64(0) for _ in range(0)]
        while len(heap) > 0 and heap[0][0] == k:
            if g.clock[STEPS] > limit:
                return False
            e = heapq.heappop(heap)[2]
            if certified:
                _consider(g, e, k, heap, candidates, rejected, left, right)
            elif state[e] == UNSEEN:
                _visit(g, e, k, heap, candidates, rejected, left, right)
        _prune(g, candidates, certified, left, right)
        risen = [e for e in candidates if state[e] == CANDIDATE]
        for e in candidates:
            state[e] = UNSEEN
        for e in rejected:
            state[e] = UNSEEN
        for e in risen:
            changed.append((e, k))
            set_level(g, e, k + 1)
        for e in risen:
            if not certified:
                heapq.heappush(heap, (k + 1, np.int64(0), e))
                continue
            backing[e] = need[e]
            state[e] = CANDIDATE
        if certified:
            for e in risen:
                if own[e] > k + 1:
                    heapq.heappush(heap, (k + 1, label[e], e))
                # Edges that were at k + 1 have the triangle as backing now: told once, by the first that rose.
                found = closing(g, e, k + 1, left, right)
                for t in range(found):
                    f, other = left[t], right[t]
                    for _ in range(2):
                        if level[f] == k + 1 and state[f] == UNSEEN:
                            backing[f] += state[other] == UNSEEN or label[e] < label[other]
                        f, other = other, f
            for e in risen:
                state[e] = UNSEEN
    return True


@njit(cache=True, nogil=True)
def _consider(g, e, k, heap, candidates, rejected, left, right):
    """Edge e of level k owns more than k triangles: it becomes a candidate, or moves back when it cannot rise.

    Edges before e that are no candidates stay at k: none can come to own more. So only the triangles of its own can
    lift e, and only those whose other edges may rise: they must have a backing above k, too.
    need: of a candidate, its triangles among candidates and higher edges; of a rejected edge, its turn.
    """
    level, label, own, need, state = g.level, g.label, g.own, g.need, g.state
    found = closing(g, e, k, left, right)
    turn = need[e] if state[e] == REJECTED else len(rejected)
    blockers = np.empty(found, np.int64)
    kept, blocked = 0, 0
    for t in range(found):
        f, other = left[t], right[t]
        same_f = level[f] == k and state[f] != CANDIDATE
        same_other = level[other] == k and state[other] != CANDIDATE
        if (same_f and _before(level, label, f, e)) or (same_other and _before(level, label, other, e)):
            continue
        # Keep the triangles of its own only, the first edge of the level (if any) on the left.
        if same_other and (not same_f or _before(level, label, other, f)):
            f, other, same_f, same_other = other, f, same_other, same_f
        left[kept], right[kept] = f, other
        kept += 1
        if same_f and _cannot_rise(g, f, k, turn):
            blockers[blocked] = label[f]
            blocked += 1
        elif same_other and _cannot_rise(g, other, k, turn):
            blockers[blocked] = label[other]
            blocked += 1
    if kept - blocked <= k:
        if state[e] == UNSEEN:
            state[e] = REJECTED
            need[e] = turn
            rejected.append(e)
        # Behind as few of those that block it as will do. They were rejected before it, so this comes to an end.
        label[e] = np.partition(blockers[:blocked], kept - k - 1)[kept - k - 1] + 1
        own[e] = kept
        for t in range(kept):
            f = left[t]
            if level[f] == k and state[f] != CANDIDATE and _before(level, label, f, e):
                own[e] -= 1
                _gain(level, label, own, f, heap)
        return
    state[e] = CANDIDATE
    candidates.append(e)
    label[e] = g.clock[FRONT]  # its place if it rises: before those that were candidates earlier
    g.clock[FRONT] -= LABEL_GAP
    count = 0
    for t in range(kept):
        f, other = left[t], right[t]
        if level[f] == k and state[f] != CANDIDATE:
            _gain(level, label, own, f, heap)
        else:
            count += 1
            for x in (f, other):
                if level[x] == k:
                    need[x] += 1
    own[e] = need[e] = count


@njit(cache=True, nogil=True, inline="always")
def _cannot_rise(g, f, k, turn):
    """Is it known that f stays at k, from its backing or because it was rejected before that turn?"""
    return g.backing[f] <= k or (g.state[f] == REJECTED and g.need[f] < turn)


@njit(cache=True, nogil=True)
def _visit(g, e, k, heap, candidates, rejected, left, right):
    """Without labels: e is a candidate when enough of its triangles hold nothing rejected; then its neighbours are next."""
    level, need, state = g.level, g.need, g.state
    found = closing(g, e, k, left, right)
    enough, count = 0, 0
    for t in range(found):
        f, other = left[t], right[t]
        enough += state[f] != REJECTED and state[other] != REJECTED
    if enough <= k:
        state[e] = REJECTED
        rejected.append(e)
        return
    state[e] = CANDIDATE
    candidates.append(e)
    for t in range(found):
        f, other = left[t], right[t]
        if state[f] == REJECTED or state[other] == REJECTED:
            continue
        f_stands, other_stands = _stands(level, state, f, k), _stands(level, state, other, k)
        if f_stands and other_stands:
            count += 1
            for x in (f, other):
                if level[x] == k:
                    need[x] += 1
        for x in (f, other):
            if level[x] == k and state[x] == UNSEEN:
                heapq.heappush(heap, (k, np.int64(0), np.int64(x)))
    need[e] = count


@njit(cache=True, nogil=True)
def _prune(g, candidates, certified, left, right):
    """Reject candidates without level + 1 triangles among candidates and higher edges, until all have them."""
    level, label, own, need, state = g.level, g.label, g.own, g.need, g.state
    leaving = [np.int64(0) for _ in range(0)]
    for e in candidates:
        if need[e] <= level[e]:
            state[e] = LEAVING
            leaving.append(e)
    taken = 0
    while taken < len(leaving):
        e = leaving[taken]
        taken += 1
        k = level[e]
        state[e] = REJECTED
        found = closing(g, e, k, left, right)
        for t in range(found):
            f, other = left[t], right[t]
            if not (_stands(level, state, f, k) and _stands(level, state, other, k)):
                continue
            for x in (f, other):
                if level[x] == k:
                    need[x] -= 1
                    if state[x] == CANDIDATE and need[x] <= k:
                        state[x] = LEAVING
                        leaving.append(np.int64(x))
            if certified:
                # Among candidates, the last one that joined owned the triangle; it goes to e.
                if level[f] > k or (level[other] == k and label[other] < label[f]):
                    f = other
                if level[f] == k and label[f] < label[e]:
                    own[f] -= 1
        if certified:
            own[e] = need[e]
            label[e] = g.clock[BACK]
            g.clock[BACK] += LABEL_GAP


@njit(cache=True, nogil=True, inline="always")
def _stands(level, state, f, k):
    """Is edge f above level k, or at it and not rejected (one that is leaving counts until its turn)?"""
    return level[f] > k or (level[f] == k and (state[f] == CANDIDATE or state[f] == LEAVING))


@njit(cache=True, nogil=True)
def delete_edges(g, edges, certified, limit, left, right):
    """remove and descend: (finished, edge int32[c], level before int32[c]), the log of the lowered edges."""
    changed = [(np.int64(0), np.int64(0)) for _ in range(0)]
    queue = [np.int64(0) for _ in range(0)]
    remove(g, edges, queue, certified, left, right)
    finished = descend(g, queue, certified, changed, limit, left, right)
    log_edges, log_levels = _columns(changed)
    return finished, log_edges, log_levels


@njit(cache=True, nogil=True)
def insert_edges(g, edges, certified, limit, left, right):
    """insert and lift: (finished, edge int32[c], level before int32[c]), the log of the raised edges."""
    changed = [(np.int64(0), np.int64(0)) for _ in range(0)]
    heap = [(np.int64(0), np.int64(0), np.int64(0)) for _ in range(0)]
    insert(g, edges, heap, certified, left, right)
    finished = lift(g, heap, certified, changed, limit, left, right)
    log_edges, log_levels = _columns(changed)
    return finished, log_edges, log_levels


@njit(cache=True, nogil=True)
def _columns(log):
    edges, levels = np.empty(len(log), np.int32), np.empty(len(log), np.int32)
    for i, (e, k) in enumerate(log):
        edges[i] = e
        levels[i] = k
    return edges, levels


@njit(cache=True, nogil=True)
def probe(g, edges, left, right):
    """The steps to look at these edges, present or not, and once at each neighbour in a triangle above level 0."""
    total = 0.0
    for e in edges:
        before = g.clock[STEPS]
        found = closing(g, e, 1, left, right)
        total += (g.clock[STEPS] - before) * (1.0 + found)
    return total


@njit(cache=True, nogil=True)
def peel_steps(g, edges):
    """The steps along the lists when each of these edges is looked at once, at its own level."""
    total = 0
    for e in edges:
        du = reach(g, np.int64(g.tail[e]), g.level[e])
        dv = reach(g, np.int64(g.head[e]), g.level[e])
        total += min(du + dv, PROBE * min(du, dv))
    return total
