"""What tests build histories of, and the one comparison of a home with what it has to hold.

A batch is a list of rows as `tests.reference` has them; a history is the batches that stand in the end, by epoch.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from altneu.pipeline.reading import views
from altneu.pipeline.reading.graph import Graph
from altneu.pipeline.state.ledger import Ledger
from tests import reference
from tests.reference import Row

Batch = list[Row]
History = Mapping[int, Batch]


def upsert(src: Any, dst: Any, value: int | None = None, seq: int = 0) -> Row:
    return (src, dst, value, "upsert", seq)


def delete(src: Any, dst: Any, seq: int = 0) -> Row:
    return (src, dst, None, "delete", seq)


def make_upserts(*pairs: tuple[Any, Any]) -> Batch:
    return [upsert(*pair) for pair in pairs]


def make_clique(*vertices: Any) -> Batch:
    """All pairs of some vertices, in their order."""
    return make_upserts(*combinations(vertices, 2))


def draw_batch(
    rng: random.Random,
    vertices: Sequence[Any],
    size: int,
    *,
    values: Sequence[int | None] = (None,),
    deletes: float = 0.2,
    seqs: int | None = None,
    loops: bool = True,
) -> Batch:
    """Draw rows between some vertices, repeated keys among them: `deletes` is the share of deletions. `seqs`: of so
    many sequence numbers, so that there are ties; None: each row has its own. `loops`: with edges from a vertex to
    itself."""
    rows = []
    for place in range(size):
        src, dst = (rng.choice(vertices), rng.choice(vertices)) if loops else rng.sample(vertices, 2)
        seq = place if seqs is None else rng.randrange(seqs)
        rows.append(delete(src, dst, seq) if rng.random() < deletes else upsert(src, dst, rng.choice(values), seq))
    return rows


def draw_batches(
    rng: random.Random, graphs: int, vertices: range, most: int, *, values: Sequence[int | None], deletes: float
) -> Batch:
    """Draw rows of many small graphs apart from each other, so that one run carries them all: each of so many vertices
    as `vertices` has numbers, with at most `most` rows; with ties and loops."""
    rows: Batch = []
    for graph in range(graphs):
        own = range(graph * 100, graph * 100 + rng.choice(vertices))
        rows += draw_batch(rng, own, rng.randrange(most + 1), values=values, deletes=deletes, seqs=3)
    return rows


def assert_same_state(ledger: Ledger, expected: History) -> None:
    """Compare what readers see at every epoch up to the frontier with a recomputation from the batches: totals, and
    the trussness of every edge."""
    home = ledger.home
    live_for = home.config.edges.live_for
    named = home.config.vertices.ids == "string"
    graph, row = Graph(home.path).arrow, ledger.revisions.get()
    if row.frontier is None:
        assert not any(expected.values())
        return
    shown = {each["epoch"]: each for each in views.select_totals(ledger, all_epochs=True)}
    assert row.frontier == max(expected) and set(shown) == set(range(min(expected), row.frontier + 1))
    for epoch in shown:
        edges = reference.edges(dict(expected), epoch, live_for)
        totals = reference.totals(edges)
        assert {name: shown[epoch][name] for name in totals} == totals, epoch
        found = as_edges(graph.edges(as_of=home.schedule.format_label(epoch)).to_pylist(), named)
        assert found == as_edges(listed(reference.trussness(edges)), named), epoch


def listed(trussness: Mapping[reference.Edge, int]) -> list[dict[str, Any]]:
    return [{"src": a, "dst": b, "trussness": k} for (a, b), k in trussness.items()]


def as_edges(rows: Iterable[Mapping[str, Any]], named: bool) -> dict[Any, int]:
    """Edge → trussness; of names the order of the ends means nothing."""
    ends = frozenset if named else tuple
    found = {ends((row["src"], row["dst"])): int(row["trussness"]) for row in rows}
    assert len(found) == len(list(rows))
    return found
