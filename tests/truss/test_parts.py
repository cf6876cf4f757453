"""The kernels of the trussness in parts, against a peel: parts that exchange what changes, without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from altneu.algorithms.graph.kernels import partition_kernels
from altneu.algorithms.graph.kernels.graph import Ints, Shorts
from altneu.algorithms.graph.kernels.truss import peel
from tests import seeds

WORDS = 8  # of a bit for each part


def random_graph(rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Between nothing and a clique, some with a hub."""
    n = int(rng.integers(3, 24))
    pairs = [(a, b) for a in range(n) for b in range(a + 1, n)]
    share = rng.choice([0.1, 0.3, 0.6, 1.0])
    kept = [pair for pair in pairs if rng.random() < share or (pair[0] == 0 and share < 0.5)]
    a, b = np.array(kept or pairs[:1], np.int64).T * 7 - 3
    return np.ascontiguousarray(a), np.ascontiguousarray(b)


class Parts:
    """All parts of one graph, and what each of them knows."""

    def __init__(self, a: Ints, b: Ints, owner: Shorts) -> None:
        whole = partition_kernels.build_cell(a, b, None)
        held = {number: set(np.flatnonzero(owner == number).tolist()) for number in np.unique(owner).tolist()}
        for edge, number in zip(
            *partition_kernels.set_bits(partition_kernels.edge_holders(whole, owner, WORDS)), strict=True
        ):
            held[int(number)].add(int(edge))
        self.places = {number: np.array(sorted(edges)) for number, edges in held.items()}
        self.parts = {n: partition_kernels.build_partition(n, a[at], b[at], owner[at]) for n, at in self.places.items()}
        self.owner, self.rounds, self.messages = owner, 0, 0

    def knows(self, values: NDArray[np.generic]) -> dict[int, NDArray[np.generic]]:
        return {number: values[at].copy() for number, at in self.places.items()}

    def own(self, known: dict[int, NDArray[np.generic]]) -> Ints:
        out = np.full(self.owner.size, -9, np.int64)
        for number, at in self.places.items():
            mine = self.owner[at] == number
            out[at[mine]] = known[number][mine]
        return out

    def tell(self, known: dict[int, NDArray[np.generic]], said: list[tuple[int, int, int]]) -> Iterator[int]:
        """Hand out (part, edge, value); the parts that heard something."""
        for number, edge, value in said:
            known[number][np.searchsorted(self.places[number], edge)] = value
        yield from sorted({number for number, _, _ in said})

    def settled(self, bound: Shorts, rng: np.random.Generator) -> Ints:
        known = self.knows(bound)
        queued = {n: made.own.copy() for n, made in self.parts.items()}
        active = list(self.parts)
        while active:
            self.rounds += 1
            said = []
            rng.shuffle(active)
            for number in active:
                made, mine, at = self.parts[number], known[number], self.places[number]
                before = mine.copy()
                partition_kernels.settle_bounds(made, mine, queued[number])
                assert not queued[number].any()
                moved = np.flatnonzero(before != mine)
                assert made.own[moved].all(), "a part lowers its own edges alone"
                told = partition_kernels.partitions_to_notify(made, mine, moved)
                said += [(int(to), int(at[e]), int(mine[e])) for to, e in zip(*told, strict=True)]
            self.messages += len(said)
            before = {number: values.copy() for number, values in known.items()}
            active = list(self.tell(known, said))
            for number in active:
                fell = known[number] < before[number]
                queued[number] = partition_kernels.shaken_edges(self.parts[number], known[number], fell)
        return self.own(known)

    def placed(self, kappa: Shorts) -> Ints:
        levels, known = self.knows(kappa), self.knows(np.full(kappa.size, partition_kernels.NOWHERE, np.int64))
        active, round_ = list(self.parts), 0
        while active:
            said = []
            for number in active:
                made, at, label = self.parts[number], self.places[number], known[number]
                moved = partition_kernels.place_edges(made, levels[number], label, round_)
                told = partition_kernels.partitions_to_notify_of_place(made, levels[number], label, moved)
                said += [(int(to), int(at[e]), int(label[e])) for to, e in zip(*told, strict=True)]
            active, round_ = list(self.tell(known, said)), round_ + 1
        return self.own(known)


def after(a: Ints, b: Ints, kappa: Ints, label: Ints) -> list[int]:
    """How many triangles of each edge have no other edge before it, by the definition."""
    place = {(int(x), int(y)): i for i, (x, y) in enumerate(zip(a, b, strict=True))}
    key = list(zip(kappa.tolist(), label.tolist(), range(kappa.size), strict=True))
    count = [0] * kappa.size
    vertices = sorted({*a.tolist(), *b.tolist()})
    for (x, y), e in place.items():
        for z in vertices:
            if z > y and (x, z) in place and (y, z) in place:
                count[min((e, place[x, z], place[y, z]), key=lambda i: key[i])] += 1
    return count


def owners(rng: np.random.Generator, edges: int) -> Shorts:
    number = int(rng.choice([1, 2, 3, 7, 70, 150]))
    return rng.integers(0, number, edges).astype(np.int32) * int(rng.choice([1, 3]))


@pytest.mark.parametrize("seed", seeds.several(range(60)))
def test_parts_end_at_the_trussness_and_in_a_valid_order(seed: int) -> None:
    """Whoever owns an edge, whatever the bounds, whatever the order: at least so far above that all are right."""
    rng = np.random.default_rng(seed)
    a, b = random_graph(rng)
    owner = owners(rng, a.size)
    kappa = peel(a, b) - 2
    made = Parts(a, b, owner)
    for bound in (
        partition_kernels.count_cell_support(partition_kernels.build_cell(a, b, None)),
        np.full(a.size, a.size),
        kappa + rng.integers(0, 3, a.size),
    ):
        assert made.settled(bound.astype(np.int32), rng).tolist() == kappa.tolist()
    label = made.placed(kappa)
    assert (label != partition_kernels.NOWHERE).all()
    assert (np.array(after(a, b, kappa, label)) <= kappa).all()


@pytest.mark.parametrize("seed", seeds.several(range(20)))
def test_edges_that_are_not_there_count_for_nothing(seed: int) -> None:
    """Held by the parts, for they come or have been at other epochs; then some are gone: only who is shaken looks."""
    rng = np.random.default_rng(seed)
    a, b = random_graph(rng)
    made = Parts(a, b, owners(rng, a.size))
    there = rng.random(a.size) < 0.7
    bound = np.where(there, a.size, -1).astype(np.int32)
    expected = np.full(a.size, -1)
    if there.any():
        expected[there] = peel(a[there], b[there]) - 2
    assert made.settled(bound, rng).tolist() == expected.tolist()


@pytest.mark.parametrize("seed", seeds.several(range(20)))
def test_who_finds_no_place_is_too_low(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = random_graph(rng)
    kappa = peel(a, b) - 2
    if not kappa.any():
        return
    low = np.flatnonzero(kappa > 0)
    wrong = kappa.copy()
    wrong[rng.choice(low, size=max(1, low.size // 2))] -= 1
    label = Parts(a, b, owners(rng, a.size)).placed(wrong)
    nowhere = np.flatnonzero(label == partition_kernels.NOWHERE)
    assert nowhere.size and set(nowhere.tolist()) & set(np.flatnonzero(wrong < kappa).tolist())


@pytest.mark.parametrize("seed", seeds.several(range(20)))
def test_cells_count_every_triangle_once(seed: int) -> None:
    """Support and holders, added up over cells, are those of the whole."""
    rng = np.random.default_rng(seed)
    a, b = random_graph(rng)
    owner, p = owners(rng, a.size), int(rng.integers(2, 5))
    of = rng.integers(0, p, int(b.max()) + 4)
    x, y = of[np.stack([a, b]) + 3]
    whole = partition_kernels.build_cell(a, b, None)
    total, found = np.zeros(a.size, np.int64), set()
    cells = {tuple(sorted((i, j, k))) for i in range(p) for j in range(p) for k in range(p)}
    for cell in cells:
        there = np.array([any(tuple(sorted((i, j, z))) == cell for z in range(p)) for i, j in zip(x, y, strict=True)])
        if there.any():
            at = np.flatnonzero(there)
            colours = (lambda vertices: of[vertices + 3]) if len(set(cell)) == 2 else None
            made = partition_kernels.build_cell(a[at], b[at], colours)
            total[at] += partition_kernels.count_cell_support(made)
            pairs = partition_kernels.set_bits(partition_kernels.edge_holders(made, owner[at], WORDS))
            found |= {(int(n), int(at[e])) for e, n in zip(*pairs, strict=True)}
    assert total.tolist() == partition_kernels.count_cell_support(whole).tolist()
    assert found == {
        (int(n), int(e))
        for e, n in zip(*partition_kernels.set_bits(partition_kernels.edge_holders(whole, owner, WORDS)), strict=True)
    }
