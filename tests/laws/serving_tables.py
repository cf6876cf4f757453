"""What serving tables must say, in plain Python: a history is `{epoch: rows}`, as in `tests.reference`."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from altneu.pipeline.home.home import Home
from tests import builders, reference
from tests.reference import Row

FOREVER = 2**63 - 1
ALL = '[publish]\ntables = ["vertex_history", "edge_now", "epoch_totals"]\n'
History = dict[int, list[Row]]
Where = Callable[[int | None], bool]
Rows = list[dict[str, Any]]


def anything(value: int | None) -> bool:
    return True


def positive(value: int | None) -> bool:
    return value is not None and value > 0


CASES: dict[str, tuple[str, int | None, Where]] = {  # settings, and the window and the filter in them
    "kept until deleted": ("", None, anything),
    "a window and a filter": ('[values]\nw = "long"\n[edges]\nlive_for = 3\nwhere = "w > 0"\n', 3, positive),
    "names": ('[vertices]\nids = "string"\n[values]\nw = "long"\n[edges]\nlive_for = 2\n', 2, anything),
    "values": ('[values]\nw = "long"\n', None, anything),
}


def draw_batch(rng: random.Random, *, values: bool, most: int = 14) -> list[Row]:
    """Draw fewer than `most` rows, with ties and loops."""
    drawn = range(-2, 4) if values else (None,)
    return builders.draw_batch(rng, range(9), rng.randrange(most), values=drawn, deletes=0.3, seqs=3)


def recompute_vertices(history: History, at: int, live_for: int | None, where: Where) -> dict[int, tuple[Any, ...]]:
    """vertex → degree, triangles, clustering, greatest trussness."""
    graph = reference.edges(history, at, live_for, where)
    truss, closed = reference.trussness(graph), Counter(v for each in reference.triangles(graph) for v in each)
    found = {}
    for vertex, near in reference.neighbours(graph).items():
        d, greatest = len(near), max(k for edge, k in truss.items() if vertex in edge)
        clustering = 2 * closed[vertex] / (d * (d - 1)) if d > 1 else 0.0
        found[vertex] = d, closed[vertex], pytest.approx(clustering), greatest
    return found


def assert_vertex_history(
    home: Home, rows: Rows, history: History, live_for: int | None, where: Where, since: int | None = None
) -> None:
    """At every epoch from `since` on."""
    frontier, name = max(history), name_of(home)
    assert len({(row["vertex"], row["epoch"]) for row in rows}) == len(rows)
    for at in range(min(history) if since is None else since, frontier + 1):
        there = [row for row in rows if row["epoch"] <= at < row["until"]]
        assert len({row["vertex"] for row in there}) == len(there), at
        expected = recompute_vertices(history, at, live_for, where)
        got = {row["vertex"]: (row["degree"], row["triangles"], row["clustering"], row["trussness"]) for row in there}
        assert got == {name(vertex): numbers for vertex, numbers in expected.items()}, at
    assert all(row["is_current"] == (row["until"] == FOREVER) for row in rows)
    assert all(row["epoch"] < row["until"] and row["epoch"] <= frontier for row in rows)


def assert_edge_now(home: Home, rows: Rows, history: History, live_for: int | None, where: Where) -> None:
    frontier, name = max(history), name_of(home)
    truss = reference.trussness(reference.edges(history, frontier, live_for, where))
    alive = {
        key: value
        for key, (epoch, value) in reference.relation(history, frontier).items()
        if key[0] != key[1] and where(value) and (live_for is None or frontier < epoch + live_for)
    }
    value = next(iter(home.config.values), None)
    assert Counter(
        (row["src"], row["dst"], row["trussness"], row["both_ways"], row.get(value)) for row in rows
    ) == Counter(
        (name(a), name(b), truss[min(a, b), max(a, b)], (b, a) in alive, number if value else None)
        for (a, b), number in alive.items()
    )


def assert_epoch_totals(home: Home, rows: Rows, history: History, live_for: int | None, where: Where) -> None:
    totals = sorted(rows, key=lambda row: int(row["epoch"]))
    assert [row["epoch"] for row in totals] == list(range(min(history), max(history) + 1))
    for row in totals:
        expected = reference.totals(reference.edges(history, row["epoch"], live_for, where))
        assert {measure: row[measure] for measure in expected} == pytest.approx(expected), row["epoch"]
        assert row["label"] == home.schedule.format_label(row["epoch"])


def name_of(home: Home) -> Callable[[int], Any]:
    """A vertex as the home writes it."""
    return str if home.config.vertices.ids == "string" else int


def assert_serving_tables(
    home: Home,
    found: Mapping[str, Rows],
    history: History,
    live_for: int | None = None,
    where: Where = anything,
    since: int | None = None,
) -> None:
    assert_vertex_history(home, found["vertex_history"], history, live_for, where, since)
    assert_edge_now(home, found["edge_now"], history, live_for, where)
    assert_epoch_totals(home, found["epoch_totals"], history, live_for, where)
