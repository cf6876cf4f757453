"""The slow obvious references: plain Python, one epoch at a time, sharing nothing with the product.

A history is `{epoch: [(src, dst, value, op, seq), ...]}`: the batches as they stand in the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import combinations

Row = tuple[int, int, int | None, str, int]
Edge = tuple[int, int]


def relation(history: dict[int, list[Row]], at: int) -> dict[Edge, tuple[int, int | None]]:
    """Law 1: key → (epoch of its last upsert, value) at an epoch."""
    state: dict[Edge, tuple[int, int | None]] = {}
    for epoch in sorted(e for e in history if e <= at):
        best: dict[Edge, tuple[int, bool, int, int | None]] = {}
        for src, dst, value, op, seq in history[epoch]:
            rank = (seq, op == "upsert", -(10**9) if value is None else value, value)
            if (src, dst) not in best or rank[:3] > best[(src, dst)][:3]:
                best[(src, dst)] = rank
        for key, (_, is_value, _, value) in best.items():
            if is_value:
                state[key] = (epoch, value)
            else:
                state.pop(key, None)
    return state


def edges(
    history: dict[int, list[Row]],
    at: int,
    live_for: int | None = None,
    where: Callable[[int | None], bool] = lambda value: True,
) -> set[Edge]:
    """The simple undirected edges at an epoch."""
    found = set()
    for (src, dst), (epoch, value) in relation(history, at).items():
        if src != dst and where(value) and (live_for is None or at < epoch + live_for):
            found.add((min(src, dst), max(src, dst)))
    return found


def neighbours(graph: Iterable[Edge]) -> dict[int, set[int]]:
    out: dict[int, set[int]] = defaultdict(set)
    for a, b in graph:
        out[a].add(b)
        out[b].add(a)
    return out


def triangles(graph: set[Edge]) -> set[tuple[int, int, int]]:
    near = neighbours(graph)
    return {(a, b, c) for a in near for b, c in combinations(sorted(v for v in near[a] if v > a), 2) if (b, c) in graph}


def trussness(graph: set[Edge]) -> dict[Edge, int]:
    """Largest k such that the edge is in the k-truss: peel k by k, recounting everything each time."""
    left, k, out = set(graph), 2, {}
    while left:
        near = neighbours(left)
        weak = {(a, b) for a, b in left if len(near[a] & near[b]) < k - 1}
        if weak:
            out |= dict.fromkeys(weak, k)
            left -= weak
        else:
            k += 1
    return out


def totals(graph: set[Edge]) -> dict[str, int]:
    near, closed = neighbours(graph), len(triangles(graph))
    wedges = sum(len(list(combinations(around, 2))) for around in near.values())
    return {
        "vertices": len(near),
        "edges": len(graph),
        "triangles": closed,
        "wedges": wedges,
        "max_trussness": max(trussness(graph).values(), default=0),
        "transitivity": 3 * closed / wedges if wedges else 0.0,
    }


PatternEdge = tuple[str, str, bool, Callable[[int | None], bool]]  # ends, directed, which values


def motif(
    pattern: list[PatternEdge],
    history: dict[int, list[Row]],
    at: int,
    live_for: int | None = None,
    where: Callable[[int | None], bool] = lambda value: True,
) -> tuple[int, dict[int, int]]:
    """How often a pattern occurs at an epoch, and per vertex: every injective map is tried, equal images are one."""
    there = {
        key: value
        for key, (epoch, value) in relation(history, at).items()
        if key[0] != key[1] and where(value) and (live_for is None or at < epoch + live_for)
    }
    names = list(dict.fromkeys(v for a, b, _, _ in pattern for v in (a, b)))
    near: dict[int, set[int]] = neighbours(there)
    images = set()

    def extend(chosen: dict[str, int]) -> None:
        if len(chosen) < len(names):
            new = next(v for v in names if v not in chosen)
            tied = [chosen[b if a == new else a] for a, b, _, _ in pattern if new in (a, b) and {a, b} & set(chosen)]
            for vertex in (near[tied[0]] if tied else set(near)) - set(chosen.values()):
                extend(chosen | {new: vertex})
            return
        image = []
        for i, (a, b, directed, test) in enumerate(pattern):
            x, y = chosen[a], chosen[b]
            ways = [(x, y)] if directed else [(x, y), (y, x)]
            if not any(way in there and test(there[way]) for way in ways):
                return
            kind = next(j for j, (_, _, d, t) in enumerate(pattern) if d == directed and t is test and j <= i)
            image.append((kind, (x, y) if directed else (min(x, y), max(x, y))))
        images.add((frozenset(chosen.values()), frozenset(image)))

    extend({})
    counts: dict[int, int] = defaultdict(int)
    for vertices, _ in images:
        for vertex in vertices:
            counts[vertex] += 1
    return len(images), dict(counts)
