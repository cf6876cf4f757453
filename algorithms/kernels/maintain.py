"""Trussness under change: descent after deletions, lift rounds after insertions. Kernels on `levels.Levels`.

Write r(e) for the level of e, and U r(e) for the largest h such that at least h triangles on e have both other
edges at r >= h. kappa is the greatest r with r <= U r.

Descent. The old kappa bounds the new one from above. Setting r(e) to min(r(e), U r(e)) for edges that lost a
triangle that counted, in any order, never passes below kappa and ends at r <= U r: at kappa.
Lift. The old kappa bounds the new one from below, with r <= U r. A round raises by one the largest set S such that
r + 1_S <= U(r + 1_S); when S is empty, r = kappa. A round looks only where the change can reach.

Certificate. `label` orders the edges of one level. Let later(e) be the edges of higher level, and those of its own
level with no smaller label. Invariant between operations: at most r(e) triangles on e have both others in later(e).
So e can rise only if an edge of its level with a smaller label rises, which stops the growth of the candidates.
- The layers of the batch peel are such labels.
- An edge that falls to r goes to the back of its new level: when it fell it had at most r triangles above r, and
  edges that fall after it stand behind it. Those already there counted it before, and still do.
- A candidate that does not rise goes to the back of its level in the order of pruning, for the same reason; every
  other edge that could count it more than before was looked at, and held with all candidates counted.
- An edge that rises, or is new, goes to the front of its level, where no one counts it, and is looked at next.
Without labels (`certified` false: the levels came from outside) a round grows through all edges of like level.

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

from algorithms.kernels.levels import BACK, FRONT, PROBE, STEPS, closing, reach, set_level

UNSEEN, QUEUED, CANDIDATE, REJECTED, LEAVING = 0, 1, 2, 3, 4
UNKNOWN = -1


@njit(cache=True, nogil=True)
def remove(g, edges, backing, queue, left, right):
    """Take the edges out; the edges that lose a counted triangle join the queue (a typed list, in place)."""
    for e in edges:
        r = g.level[e]
        found = closing(g, e, 1, left, right)
        set_level(g, e, -1)
        for t in range(found):
            _lose(g.level, g.state, left[t], right[t], r, -1, backing, queue)


@njit(cache=True, nogil=True)
def descend(g, backing, queue, certified, changed, limit, left, right):
    """Lower the levels to kappa; False when the clock passed `limit` steps on the way (the levels are then unusable).

    backing  int32[m]  triangles that count for the edge at its level, or UNKNOWN; all UNKNOWN again at the end
    changed            gets (edge, level before) of every lowered edge, maybe several times, oldest first
    """
    taken = 0
    while taken < len(queue):
        if g.clock[STEPS] > limit:
            return False
        e = queue[taken]
        taken += 1
        g.state[e] = UNSEEN
        r = g.level[e]
        if r <= 0:
            continue
        if backing[e] == UNKNOWN:
            backing[e] = closing(g, e, r, left, right)
        if backing[e] >= r:
            continue
        h = _bound(g, e, r, backing, left, right)
        changed.append((np.int64(e), np.int64(r)))
        if certified:
            g.label[e] = g.clock[BACK]
            g.clock[BACK] += 1
        found = closing(g, e, h + 1, left, right)
        set_level(g, e, h)
        for t in range(found):
            _lose(g.level, g.state, left[t], right[t], r, h, backing, queue)
    for e in queue:
        backing[e] = UNKNOWN
    return True


@njit(cache=True, nogil=True)
def _lose(level, state, f, other, was, now, backing, queue):
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
def _bound(g, e, r, backing, left, right):
    """U r(e), known to be below r; leaves the triangles that count there in backing[e].

    Most edges fall by one, so the search opens the lists level by level at first, and then by halves.
    """
    least, step = r - 1, 1
    while least > 0:
        found = closing(g, e, least, left, right)
        h = _h_index(g.level, found, r - 1, least, left, right)
        if h >= least:
            backing[e] = _at_least(g.level, found, h, left, right)
            return h
        least -= step
        step += step
    found = closing(g, e, 1, left, right)
    h = _h_index(g.level, found, r - 1, 1, left, right)
    backing[e] = _at_least(g.level, found, h, left, right)
    return h


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
def insert(g, edges, seeds, left, right):
    """Bring the edges in, one after the other, each at U of the levels there; fills seeds for the first round.

    An edge f gains a triangle that counts against its certificate only if it lies below the new one: an edge of
    the same level stands behind the newcomer, which is itself a seed.
    """
    level = g.level
    for e in edges:
        found = closing(g, e, 0, left, right)
        k = _h_index(g.level, found, found, 1, left, right)
        for t in range(found):
            f, other = left[t], right[t]
            for _ in range(2):
                if level[f] < k and level[f] <= level[other]:
                    seeds.append(np.int64(f))
                f, other = other, f
        set_level(g, e, k)
        g.label[e] = g.clock[FRONT]
        g.clock[FRONT] -= 1
        seeds.append(np.int64(e))


@njit(cache=True, nogil=True)
def lift(g, seeds, need, certified, changed, limit, left, right):
    """Rounds until nothing rises; False when the clock passed `limit` steps (the levels are then unusable).

    need  int32[m]  scratch; changed: as in `descend`
    """
    while len(seeds) > 0:
        visited, candidates = _grow(g, seeds, certified, limit, left, right)
        if g.clock[STEPS] > limit:
            return False
        _prune(g, candidates, need, certified, left, right)
        risen = [e for e in candidates if g.state[e] == CANDIDATE]
        for e in visited:
            g.state[e] = UNSEEN
        # Those that rise keep their order, at the front of the next level.
        g.clock[FRONT] -= len(risen)
        for i, e in enumerate(risen):
            changed.append((e, np.int64(g.level[e])))
            set_level(g, e, g.level[e] + 1)
            g.label[e] = g.clock[FRONT] + 1 + i
        seeds = risen
    return True


@njit(cache=True, nogil=True)
def _grow(g, seeds, certified, limit, left, right):
    """Visit from the seeds, smallest label first, all edges that might rise: (visited, those with enough triangles)."""
    level, label, state = g.level, g.label, g.state  # taken once: each g.x in a loop would cost a reference count
    heap = [(np.int64(0), np.int64(0)) for _ in range(0)]
    visited = [np.int64(0) for _ in range(0)]
    candidates = [np.int64(0) for _ in range(0)]
    for e in seeds:
        if state[e] == UNSEEN:
            state[e] = QUEUED
            visited.append(e)
            heapq.heappush(heap, (label[e] if certified else np.int64(0), e))
    while len(heap) > 0 and g.clock[STEPS] <= limit:
        e = heapq.heappop(heap)[1]
        k = level[e]
        found = closing(g, e, k, left, right)
        enough = 0
        for t in range(found):
            enough += _counts(level, label, state, left[t], e, certified) and _counts(
                level, label, state, right[t], e, certified
            )
        if enough <= k:
            state[e] = REJECTED
            continue
        state[e] = CANDIDATE
        candidates.append(e)
        for t in range(found):
            f, other = left[t], right[t]
            for _ in range(2):
                if (
                    state[f] == UNSEEN
                    and level[f] == k
                    and (not certified or label[f] > label[e])
                    and _counts(level, label, state, other, f, certified)
                ):
                    state[f] = QUEUED
                    visited.append(np.int64(f))
                    heapq.heappush(heap, (label[f] if certified else np.int64(0), np.int64(f)))
                f, other = other, f
    return visited, candidates


@njit(cache=True, nogil=True, inline="always")
def _counts(level, label, state, f, e, certified):
    """May edge f, at the level of e or above, stand in a triangle that lifts e?"""
    if level[f] > level[e]:
        return True
    if certified:
        return label[f] >= label[e] or state[f] == CANDIDATE
    return state[f] != REJECTED


@njit(cache=True, nogil=True)
def _prune(g, candidates, need, certified, left, right):
    """Reject candidates without level + 1 triangles among candidates and higher edges, until all have them."""
    level, label, state = g.level, g.label, g.state  # taken once: each g.x in a loop would cost a reference count
    leaving = [np.int64(0) for _ in range(0)]
    for e in candidates:
        found = closing(g, e, level[e], left, right)
        need[e] = 0
        for t in range(found):
            need[e] += _stands(level, state, left[t], level[e]) and _stands(level, state, right[t], level[e])
    for e in candidates:
        if need[e] <= level[e]:
            state[e] = LEAVING
            leaving.append(e)
    taken = 0
    while taken < len(leaving):
        e = leaving[taken]
        taken += 1
        k = level[e]
        found = closing(g, e, k, left, right)
        for t in range(found):
            if _stands(level, state, left[t], k) and _stands(level, state, right[t], k):
                for f in (left[t], right[t]):
                    if level[f] == k:
                        need[f] -= 1
                        if state[f] == CANDIDATE and need[f] <= k:
                            state[f] = LEAVING
                            leaving.append(np.int64(f))
        state[e] = REJECTED
        if certified:
            label[e] = g.clock[BACK]
            g.clock[BACK] += 1


@njit(cache=True, nogil=True, inline="always")
def _stands(level, state, f, k):
    """Is edge f above level k, or at it and not rejected (one that is leaving counts until its turn)?"""
    return level[f] > k or (level[f] == k and (state[f] == CANDIDATE or state[f] == LEAVING))


@njit(cache=True, nogil=True)
def delete_edges(g, edges, backing, certified, limit, left, right):
    """remove and descend: (finished, edge int32[c], level before int32[c]), the log of the lowered edges."""
    changed = [(np.int64(0), np.int64(0)) for _ in range(0)]
    queue = [np.int64(0) for _ in range(0)]
    remove(g, edges, backing, queue, left, right)
    finished = descend(g, backing, queue, certified, changed, limit, left, right)
    log_edges, log_levels = _columns(changed)
    return finished, log_edges, log_levels


@njit(cache=True, nogil=True)
def insert_edges(g, edges, need, certified, limit, left, right):
    """insert and lift: (finished, edge int32[c], level before int32[c]), the log of the raised edges."""
    changed = [(np.int64(0), np.int64(0)) for _ in range(0)]
    seeds = [np.int64(0) for _ in range(0)]
    insert(g, edges, seeds, left, right)
    finished = lift(g, seeds, need, certified, changed, limit, left, right)
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
