"""The columns that a query's columns come from: what a column is not made of does not change it, by DuckDB."""

from __future__ import annotations

import random
from collections import Counter

import duckdb
import pyarrow as pa
import pytest

from altneu.algorithms.sql_query import compile_query
from tests import seeds
from tests.algebra.test_queries import QUERIES, RELATIONS

Rows = list[dict[str, object]]
VALUES = {"op": ("upsert", "delete"), "seq": range(90)}


def random_rows(rng: random.Random, columns: dict[str, str], key: tuple[str, ...]) -> Rows:
    rows = [{name: rng.choice(VALUES.get(name, range(4))) for name in columns} for _ in range(40)]
    return list({tuple(row[name] for name in key): row for row in rows}.values()) if key else rows


def run_text(text: str, tables: dict[str, Rows]) -> dict[str, Counter[object]]:
    """Return how often each value is in each column of the result."""
    with duckdb.connect() as connection:
        for name, rows in tables.items():
            connection.register(name, pa.Table.from_pylist(rows))
        cursor = connection.execute(text)
        names, rows = [each[0] for each in cursor.description], cursor.fetchall()
    return {name: Counter(row[place] for row in rows) for place, name in enumerate(names)}


@pytest.mark.parametrize("name", QUERIES)
def test_what_a_column_is_not_made_of_does_not_change_it(name: str) -> None:
    text, rng = QUERIES[name], random.Random(seeds.one(5))
    compiled = compile_query(text, RELATIONS)
    assert set(compiled.sources) == set(compiled.types)
    assert compiled.deciding | frozenset().union(*compiled.sources.values()) == compiled.used
    tables = {each: random_rows(rng, dict(r.columns), r.key) for each, r in RELATIONS.items()}
    before = run_text(text, tables)
    for relation, column in [(each, column) for each, r in RELATIONS.items() for column in r.columns]:
        if (relation, column) in compiled.deciding:
            continue
        other = [row | {column: rng.choice(VALUES.get(column, range(4)))} for row in tables[relation]]
        after = run_text(text, tables | {relation: other})
        free = [each for each, sources in compiled.sources.items() if (relation, column) not in sources]
        assert {each: after[each] for each in free} == {each: before[each] for each in free}, (relation, column)
