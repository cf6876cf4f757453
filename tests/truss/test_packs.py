"""What a part holds and what it has been told, in packs and out of them: against dictionaries."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from altneu.algorithms.graph import arrow_packing, bsp
from altneu.algorithms.graph.bsp import BEFORE, HELD
from altneu.algorithms.graph.truss_bsp import _EpochBounds, _lower_bounds, _PartitionRows

EPOCHS = range(1, 5)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_packing, "MAX_PACK_ROWS", 3)


class Edges:
    """A few edges, some of which are there before epoch 1; others come, and some come and go."""

    def __init__(self, rng: np.random.Generator) -> None:
        pairs = [(a, b) for a in range(-3, 3) for b in range(a + 1, 4)]
        self.pairs = [pairs[i] for i in rng.permutation(len(pairs))[: rng.integers(0, len(pairs))]]
        self.level = {pair: int(rng.integers(-1, 6)) for pair in self.pairs}
        self.cap = {pair: int(rng.integers(0, 9)) for pair in self.pairs}
        self.owner = {pair: int(rng.integers(0, 3)) for pair in self.pairs}
        self.there: dict[tuple[int, int], list[bool]] = {}
        rows = []
        for a, b in self.pairs:
            known = self.level[a, b], self.cap[a, b], self.owner[a, b]
            is_there = [known[0] >= 0]
            if is_there[0]:
                rows.append((a, b, known, 0, 0))
            for epoch in EPOCHS:
                if moves := rng.random() < 0.4 or (epoch == EPOCHS[-1] and not any(is_there)):
                    rows.append((a, b, known, epoch, -1 if is_there[-1] else 1))
                is_there.append(is_there[-1] != moves)
            self.there[a, b] = is_there
        rows = [rows[i] for i in rng.permutation(len(rows))]
        # of an edge with a level only the row of diff 0 has it
        columns = {name: np.zeros(len(rows), np.int64) for name in HELD}
        for i, (a, b, (level, cap, owner), epoch, diff) in enumerate(rows):
            for name, value in zip(HELD, (a, b, owner, level if diff == 0 else -1, cap, epoch, diff), strict=True):
                columns[name][i] = value
        self.rows = bsp.pack_partition(7, columns)


def shuffled(rng: np.random.Generator, rows: pa.Table) -> pa.Table:
    """As another attempt of a task may get them."""
    return rows.take(pa.array(rng.permutation(rows.num_rows)))


@pytest.mark.parametrize("seed", range(40))
def test_a_part_knows_its_edges_at_every_epoch(seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = Edges(rng)
    assert all(n <= arrow_packing.MAX_PACK_ROWS for n in edges.rows["n"].to_pylist())
    held = _PartitionRows.from_rows(shuffled(rng, edges.rows))
    pairs = list(zip(held.a.tolist(), held.b.tolist(), strict=True))
    assert pairs == sorted(edges.pairs)
    for name in ("level", "cap", "owner"):
        assert getattr(held, name).tolist() == [getattr(edges, name)[pair] for pair in pairs], name
    for epoch in (0, *EPOCHS):
        assert held.alive_at(epoch).tolist() == [edges.there[pair][epoch] for pair in pairs], epoch


@pytest.mark.parametrize("inserted", [0, 2])
@pytest.mark.parametrize("seed", range(20))
def test_a_part_knows_what_it_has_been_told(seed: int, inserted: int) -> None:
    """Bounds only fall, but for those of the epochs before; only what another has told last can shake anything."""
    rng = np.random.default_rng(seed)
    edges, me, epoch, number = Edges(rng), 1, int(rng.choice(EPOCHS)), 3
    before = {pair: level if edges.there[pair][epoch - 1] else -1 for pair, level in edges.level.items()}
    bound, fell, told = dict[tuple[int, int], int](), dict[tuple[int, int], bool](), []

    def tell(sender: int, round_: int, said: dict[tuple[int, int], int]) -> None:
        a, b = np.array(list(said) or np.empty((0, 2)), np.int64).T
        to, values = np.full(len(said), me), np.array(list(said.values()), np.int64)
        told.append(bsp.round_messages(sender, round_, to, 5, {"a": a, "b": b, "value": values}))

    remembered = {pair: int(rng.integers(0, 6)) for pair in edges.pairs if rng.random() < 0.5}
    tell(me, BEFORE, remembered)
    for pair, there in edges.there.items():
        if there[epoch - 1]:
            before[pair] = remembered.get(pair, before[pair])
        risen = min(edges.cap[pair], before[pair] + inserted) if inserted else before[pair]
        bound[pair] = -1 if not there[epoch] else risen if there[epoch - 1] else edges.cap[pair]
        fell[pair] = False
    for round_ in range(number):
        for sender in range(3):
            own = [pair for pair in edges.pairs if edges.owner[pair] == sender and rng.random() < 0.5]
            said = {pair: int(rng.integers(-1, 6)) for pair in own}
            tell(sender, round_, said)
            for pair, value in said.items():
                fell[pair] = round_ == number - 1 and sender != me and value < bound[pair]
                bound[pair] = min(bound[pair], value)
    heard = shuffled(rng, pa.concat_tables(told))
    heard = heard.filter(pa.compute.greater(heard["n"], 0)).drop(["looked"])
    held = _PartitionRows.from_rows(shuffled(rng, edges.rows))
    known = _EpochBounds.from_rows(held, heard, epoch, inserted)
    pairs = sorted(edges.pairs)
    assert known.bounds.tolist() == [before[pair] for pair in pairs]
    assert known.gone.tolist() == [edges.there[pair][epoch - 1] and not edges.there[pair][epoch] for pair in pairs]
    newest = pa.compute.equal(heard["round"], number - 1)
    for parted in ([heard], [heard.filter(pa.compute.invert(newest)), heard.filter(newest)]):  # all, or it goes on
        now = known.first.copy()
        for some in parted:
            found = _lower_bounds(held.a, held.b, some, now, me, number - 1)
        assert now.tolist() == [bound[pair] for pair in pairs]
        assert found.tolist() == [fell[pair] for pair in pairs]
