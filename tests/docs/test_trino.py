"""The statements for Trino: its dialect reads them, and translated to DuckDB they answer what the others do."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlglot
from sqlglot import exp

PAGE = (Path(__file__).parents[2] / "docs" / "engines.md").read_text()
STATEMENTS = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.M | re.S)
TRINO = [statement for statement in STATEMENTS if "altneu.graph." in statement]


def read_statement(text: str) -> Any:
    (statement,) = sqlglot.parse(text, read="trino")
    assert statement is not None
    return statement


def translate_to_duckdb(text: str) -> str:
    """Translate a statement, whose tables are then those of the database itself, in their newest state."""
    statement = read_statement(text)
    for table in statement.find_all(exp.Table):
        table.set("version", None)
        table.set("db", None)
        table.set("catalog", None)
    return statement.sql("duckdb")


@pytest.mark.parametrize("text", TRINO)
def test_the_dialect_of_trino_reads_it(text: str) -> None:
    statement = read_statement(text)
    (table,) = statement.find_all(exp.Table)
    assert (table.catalog, table.db) == ("altneu", "graph")
    assert ("FOR VERSION AS OF" in text) == (table.args.get("version") is not None)
    assert read_statement(statement.sql("trino")) == statement
    assert not statement.find(exp.Qualify), "Trino has no QUALIFY"


@pytest.fixture
def database() -> Iterator[Any]:
    import duckdb

    with duckdb.connect() as connection:
        yield connection


def test_the_edges_of_a_revision(database: Any) -> None:
    draw = random.Random(3)
    database.execute(
        "CREATE TABLE trussness (a BIGINT, b BIGINT, k BIGINT, epoch BIGINT, revision BIGINT, diff BIGINT)"
    )
    rows = [
        (a, b, k, e, r, 1) for a, b, k, e, r in ((draw.randrange(5), 9, 2, draw.randrange(4), 3) for _ in range(20))
    ]
    rows += [(*row[:4], draw.randrange(3, 9), -1) for row in draw.sample(rows, 8)]
    database.executemany("INSERT INTO trussness VALUES (?, ?, ?, ?, ?, ?)", rows)
    ran = 0
    for text in (each for each in TRINO if ".trussness" in each):
        last = 7 if "revision <= 7" in text else 99
        sums: dict[tuple[int, ...], int] = {}
        for *edge, epoch, revision, diff in rows:
            if epoch <= 2 and revision <= last:
                sums[tuple(edge)] = sums.get(tuple(edge), 0) + diff
        expected = sorted(edge for edge, number in sums.items() if number > 0)
        assert sorted(database.sql(translate_to_duckdb(text)).fetchall()) == expected
        ran += 1
    assert ran == 2


def test_the_state_that_the_changes_add_up_to(database: Any) -> None:
    draw = random.Random(4)
    database.execute(
        "CREATE TABLE changes (what TEXT, key TEXT, other TEXT, epoch BIGINT, revision BIGINT, after BIGINT)"
    )
    for revision in range(1, 40):
        key, epoch, after = draw.choice("abc"), 12_550 + draw.randrange(6), draw.choice([None, 0, 2, 3])
        row = (draw.choice(["trussness", "degree"]), key, "z", epoch, revision, after)
        database.execute("INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?)", row)
    (of_duckdb,) = (each for each in STATEMENTS if "QUALIFY" in each)
    (of_trino,) = (each for each in TRINO if ".changes" in each)
    rows = sorted(database.sql(of_duckdb).fetchall())
    assert rows and rows == sorted(database.sql(translate_to_duckdb(of_trino)).fetchall())
