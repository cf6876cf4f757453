"""The rows of serving tables from collections, and which of them a change touches: against plain Python, without
runs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from altneu.pipeline.home.home import Home
from altneu.pipeline.run import serving_tables
from altneu.pipeline.storage import local_frame
from altneu.pipeline.storage.table_schemas import table_columns
from tests import home_helpers, reference, seeds
from tests.laws.serving_tables import (
    ALL,
    CASES,
    History,
    Where,
    assert_edge_now,
    assert_vertex_history,
    draw_batch,
)

TABLES = ("upserts", "trussness", "degrees", "triangle_counts", "names")
QUICK = ("a window and a filter", "names")
SOME_CASES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
QUICK_PAIRS = (("vertex_history", "names"), ("edge_now", "a window and a filter"))
Stored = dict[str, list[tuple[Any, ...]]]


def number_of(home: Home) -> Callable[[int], int]:
    """A vertex's number in the collections: of names the numbers have another order."""
    return (lambda vertex: 50 - vertex) if home.config.vertices.ids == "string" else int


def diff_triples(states: list[dict[Any, int]]) -> list[tuple[Any, ...]]:
    """(*data, epoch, revision, diff) of a weight at each epoch."""
    rows, before = [], dict[Any, int]()
    for epoch, now in enumerate(states):
        moved = {key: now.get(key, 0) - before.get(key, 0) for key in {**before, **now}}
        rows += [(*key, epoch, 1, n) for key, n in moved.items() if n]
        before = now
    return rows


def collections(home: Home, history: History, live_for: int | None, where: Where) -> Stored:
    """What a home stores of a history: edges and counts of epochs to come, in which edges expire, too; no trussness."""
    number, last = number_of(home), max(history) + (live_for or 0) + 1
    trusses, degrees, corners = list[dict[Any, int]](), list[dict[Any, int]](), list[dict[Any, int]]()
    for epoch in range(last):
        graph = reference.edges(history, epoch, live_for, where)
        if epoch <= max(history):
            known = reference.trussness(graph)
            trusses.append({(*sorted(map(number, edge)), k): 1 for edge, k in known.items()})
        degrees.append(Counter((number(v),) for edge in graph for v in edge))
        corners.append(Counter((number(v),) for each in reference.triangles(graph) for v in each))
    vertices = {v for rows in history.values() for row in rows for v in row[:2]}
    upserts = [
        (number(src), number(dst), *([value] if home.config.values else []), op, seq, "f", line, epoch, 1, 1)
        for epoch, rows in history.items()
        for line, (src, dst, value, op, seq) in enumerate(rows, 1)
    ]
    names = [(number(v), str(v), 0, 1, 1) for v in sorted(vertices)]
    triples = (upserts, *map(diff_triples, (trusses, degrees, corners)), names)
    return dict(zip(TABLES, triples, strict=True))


def reader(spark: SparkSession, home: Home, stored: Stored) -> Callable[[str], DataFrame]:
    return lambda table: local_frame.local_frame(spark, table_columns(home, table), stored[table])


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def draw_history(rng: random.Random, home: Home) -> History:
    history = {epoch: draw_batch(rng, values=bool(home.config.values)) for epoch in range(6)}
    return history | {3: []}


@pytest.mark.law(4)
@pytest.mark.parametrize("name", SOME_CASES)
def test_the_rows_of_a_history_are_recomputed_ones(spark: SparkSession, tmp_path: Path, name: str) -> None:
    toml, *rule = CASES[name]
    home, ledger = home_helpers.make(tmp_path / "home", ALL + toml)
    history = draw_history(random.Random(seeds.one()), home)
    read, row = reader(spark, home, collections(home, history, *rule)), SimpleNamespace(frontier=max(history))
    assert_vertex_history(
        home, rows_of(serving_tables.serving_rows("vertex_history", read, ledger, row)), history, *rule
    )
    assert_edge_now(home, rows_of(serving_tables.serving_rows("edge_now", read, ledger, row)), history, *rule)


@pytest.mark.law(4)
@pytest.mark.parametrize(
    ("table", "name"),
    [
        pytest.param(table, name, marks=[] if (table, name) in QUICK_PAIRS else pytest.mark.slow)
        for table in ("vertex_history", "edge_now")
        for name in CASES
    ],
)
def test_what_a_run_does_not_touch_is_as_it_was(spark: SparkSession, tmp_path: Path, table: str, name: str) -> None:
    """The old rows but for those of what is touched, and the new rows of that, are the new rows."""
    toml, *rule = CASES[name]
    home, _ = home_helpers.make(tmp_path / "home", ALL + toml)
    rng = random.Random(seeds.one())
    history = draw_history(rng, home)
    values = bool(home.config.values)
    apart = [(a, b, 1 if values else None, "upsert", 0) for a in range(40, 44) for b in range(40, a)]
    history[5] += apart  # nothing touches them
    changed = history | {2: draw_batch(rng, values=values, most=4), 6: draw_batch(rng, values=values, most=4)}
    before, after = collections(home, history, *rule), collections(home, changed, *rule)
    run = run_between(spark, home, before, after, (max(history), max(changed)))
    make = serving_tables._vertex_rows if table == "vertex_history" else serving_tables._edge_rows
    old, new = make(reader(spark, home, before), home, max(history)), make(run.read_after, home, run.frontier)
    touched = serving_tables._touched_keys(run, table).localCheckpoint()
    stays = Counter(map(tuple, old.collect()))
    stays.subtract(map(tuple, serving_tables._rows_of_keys(run, table, old, touched).collect()))
    assert not -stays, "of a touched key all rows are"
    made_again = make(run.read_after, home, run.frontier, touched)
    assert +stays + Counter(map(tuple, made_again.collect())) == Counter(map(tuple, new.collect()))
    assert len(+stays) >= 4


def run_between(
    spark: SparkSession, home: Home, before: Stored, after: Stored, frontiers: tuple[int, int]
) -> SimpleNamespace:
    """As much of a run as asks which rows it touches."""

    def change(table: str) -> list[tuple[Any, ...]]:
        sums: Counter[Any] = Counter()
        for sign, rows in ((1, after[table]), (-1, before[table])):
            for row in rows:
                sums[row[:-1]] += sign * row[-1]
        return [(*row[:-1], 2, n) for row, n in sums.items() if n]

    return SimpleNamespace(
        home=home,
        parent=SimpleNamespace(frontier=frontiers[0]),
        frontier=frontiers[1],
        warehouse=SimpleNamespace(collections=TABLES),
        read_after=reader(spark, home, after),
        read_delta=reader(spark, home, {table: change(table) for table in TABLES}),
    )
