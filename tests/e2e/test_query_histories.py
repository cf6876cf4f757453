"""Random histories of edges and of a declared relation on real tables: at every epoch the queries are DuckDB's.

Batches come late, are corrected and lose their files; the people of a batch change without its edges, and the other way
round. The reference is DuckDB over the batches, with the people in force made by plain Python.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from altneu.pipeline.checking.query_recount import recompute_published
from altneu.pipeline.home.home import Home
from altneu.pipeline.reading.graph import Graph
from altneu.pipeline.reading.query_results import published_queries
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers, seeds
from tests.algebra.test_queries import VERTICES, Batches, by_duckdb, random_batch
from tests.e2e.test_queries import (
    MUTUAL,
    assert_changes_lead_from,
    assert_consumers_have_all_rows,
    assert_pages,
    declare,
    rows_of,
    run_all,
    ways,
)

EPOCHS = 5
TOML = """[values]
amount = "long"
[relations.people]
key = { id = "vertex" }
values = { country = "string", age = "long" }
[publish]
tables = ["changes"]
"""
QUERIES = {
    "countries": """SELECT p.country AS a, q.country AS b, count(*) AS n, sum(l.amount) AS total FROM landed l
        JOIN people p ON p.id = l.src JOIN people q ON q.id = l.dst GROUP BY p.country, q.country""",
    "abroad": """SELECT ab.src AS a, ab.dst AS b, ac.dst AS c FROM edges ab JOIN edges ac ON ac.src = ab.src
        JOIN edges bc ON bc.src = ab.dst AND bc.dst = ac.dst JOIN people p ON p.id = ab.src
        JOIN people q ON q.id = ab.dst AND q.country <> p.country""",
    "unknown": """SELECT l.src, l.dst FROM landed l
        WHERE l.age < 2 AND NOT EXISTS (SELECT 1 FROM people p WHERE p.id = l.src)""",
    "ages": "SELECT id, age, age >= 3 AS adult FROM people WHERE country <> 'DE' OR country IS NULL",
    "mutual": MUTUAL,
    "pairs": "SELECT m.src, p.country, p.age FROM mutual m LEFT JOIN people p ON p.id = m.dst",
    "recommended": """SELECT a.src, b.dst, count(*) AS n FROM arcs a JOIN arcs b ON b.src = a.dst
        WHERE a.src <> b.dst AND NOT EXISTS (SELECT 1 FROM arcs x WHERE x.src = a.src AND x.dst = b.dst)
        GROUP BY a.src, b.dst""",
    "oldest": "SELECT country, min(age) AS youngest, max(age) AS oldest, count(*) AS n FROM people GROUP BY country",
    "named": "SELECT DISTINCT country FROM people p JOIN arcs a ON a.src = p.id",
    "hubs": """SELECT p.country, v.degree, v.triangles, count(*) AS n FROM vertices v JOIN people p ON p.id = v.vertex
        GROUP BY p.country, v.degree, v.triangles""",
    "eldest": """SELECT id, country, age FROM people WHERE age > 0
        QUALIFY rank() OVER (PARTITION BY country ORDER BY age DESC) <= 2""",
    "ends": "SELECT src AS v FROM arcs UNION SELECT id FROM people WHERE age > 2",
}
FEW = ("countries", "unknown", "mutual", "pairs", "hubs")
People = Mapping[int, list[tuple[int, str | None, int | None, str, int]]]


def random_people(rng: random.Random) -> list[tuple[int, str | None, int | None, str, int]]:
    def row() -> tuple[int, str | None, int | None, str, int]:
        country = rng.choice(["DE", "FR", None])
        age = None if rng.random() < 0.2 else rng.randrange(5)
        return rng.randrange(VERTICES), country, age, "delete" if rng.random() < 0.2 else "upsert", rng.randrange(2)

    return [row() for _ in range(rng.randrange(5))]


def put_people(home: Home, epoch: int, rows: list[tuple[int, str | None, int | None, str, int]]) -> None:
    """Land the people of an epoch beside its edges."""
    folder = home.landing / f"epoch={epoch}"
    shutil.rmtree(folder / "people", ignore_errors=True)
    if rows:
        (folder / "people").mkdir()
        lines = [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
        (folder / "people" / "all.csv").write_text("\n".join(["id,country,age,op,seq", *lines]) + "\n")
    (folder / "_SUCCESS").unlink()
    (folder / "_SUCCESS").touch()


def people_at(batches: People, epoch: int) -> str:
    """Write the people in force at an epoch as SQL: the last row of each; at equal seq a value, and the greatest."""
    last: dict[int, tuple[tuple[object, ...], tuple[str | None, int | None], str]] = {}
    for at, rows in batches.items():
        for id_, country, age, op, seq in rows if at <= epoch else ():
            rank = (at, seq, op == "upsert", country is not None, country or "", age is not None, age or 0)
            if id_ not in last or rank > last[id_][0]:
                last[id_] = rank, (country, age), op
    rows = [
        f"({id_}, {'NULL' if country is None else repr(country)}, {'NULL' if age is None else age})"
        for id_, (_, (country, age), op) in last.items()
        if op == "upsert"
    ]
    values = ", ".join([*rows, "(NULL, NULL, NULL)"])
    return f"""SELECT CAST(id AS BIGINT) AS id, CAST(country AS VARCHAR) AS country, CAST(age AS BIGINT) AS age
        FROM (VALUES {values}) AS t (id, country, age) WHERE id IS NOT NULL"""


def expected_rows(name: str, batches: Batches, people: People, epoch: int) -> Counter[tuple[object, ...]]:
    others = f", mutual AS ({MUTUAL})" if name == "pairs" else ""
    text = f"WITH people AS ({people_at(people, epoch)}){others} {QUERIES[name]}"
    return by_duckdb(text, batches, epoch)


class History:
    """A home with its batches, which change at random."""

    def __init__(self, path: Path, seed: int, names: tuple[str, ...]) -> None:
        self.rng, self.names = random.Random(seed), names
        self.home, self.ledger = home_helpers.make(path, TOML)
        self.batches: dict[int, list[tuple[int, int, int | None, str, int]]] = {}
        self.people: dict[int, list[tuple[int, str | None, int | None, str, int]]] = {}
        declare(self.home, **{name: QUERIES[name] for name in names})

    def change_epochs(self, count: int) -> None:
        """Land some epochs: late or again, with other edges, other people or both."""
        for epoch in self.rng.sample(range(EPOCHS), count):
            what = self.rng.randrange(3) if epoch in self.batches else 2
            if what != 0:
                self.batches[epoch] = random_batch(self.rng)
                home_helpers.put(self.home, epoch, self.batches[epoch])
            if what != 1:
                self.people[epoch] = random_people(self.rng)
            put_people(self.home, epoch, self.people[epoch])

    def expected_rows(self, name: str, epoch: int) -> Counter[tuple[object, ...]]:
        return expected_rows(name, self.batches, self.people, epoch)

    def check_all_rows(self) -> None:
        graph = Graph(self.home.path)
        for epoch in sorted(self.batches):
            for name in self.names:
                found = rows_of(graph, name, as_of=epoch)
                assert found == self.expected_rows(name, epoch), (name, epoch)

    def explain_some_rows(self) -> None:
        """Behind a row are as many combinations of rows as it counts, or as it has copies where nothing is grouped.

        Each of their rows has landed, or has a command that explains it.
        """
        graph = Graph(self.home.path)
        for name in (*self.names, "people"):
            for row in graph.arrow.query(name).to_pylist()[:3]:
                copies = row.pop("copies", 1)
                found = graph.explain_query(name, row)
                number = len(found["combinations"]) + found["combinations_not_listed"]
                assert found["copies"] == copies and number >= copies, (name, row)
                assert number == row.get("n", number), (name, row)
                for part in (part for parts in found["combinations"] for part in parts):
                    assert part["landed"] or part["next"].startswith("altneu explain "), (name, part)


def recount_differences(spark: SparkSession, ledger: Ledger, epochs: list[int]) -> list[dict[str, object]]:
    revision = ledger.revisions.get()
    differences, _ = recompute_published(
        Warehouse(spark, ledger.home), revision, published_queries(ledger, revision), epochs
    )
    return differences


@pytest.mark.law(3, 4)
@pytest.mark.dear("two runs with real tables, and the commits of their queries")
def test_a_history_with_people(spark: SparkSession, tmp_path: Path, unaudited: None) -> None:
    """After a correction of two epochs readers, pages and consumers have what DuckDB says, by way of what changed."""
    history = History(tmp_path / "home", seeds.one(31), FEW)
    home, ledger, graph = history.home, history.ledger, Graph(history.home.path)
    history.change_epochs(EPOCHS)
    assert ways(ledger, run_all(ledger)) == dict.fromkeys((*FEW, "people"), "anew")
    history.check_all_rows()
    before = {name: rows_of(graph, name) for name in FEW}
    history.change_epochs(2)
    assert "anew" not in ways(ledger, run_all(ledger)).values()
    history.check_all_rows()
    history.explain_some_rows()
    assert_pages(ledger, range(EPOCHS), FEW, history.expected_rows)
    assert_consumers_have_all_rows(home, graph, FEW, range(EPOCHS))
    assert_changes_lead_from(before, graph)
    assert not recount_differences(spark, ledger, sorted(history.batches))


@pytest.mark.slow
@pytest.mark.law(3, 4)
@pytest.mark.parametrize("seed", range(10))
def test_many_histories_of_twelve_queries(spark: SparkSession, tmp_path: Path, seed: int, unaudited: None) -> None:
    history = History(tmp_path / "home", seed, tuple(QUERIES))
    for count in (EPOCHS - 1, 2, 2):
        history.change_epochs(count)
        run_all(history.ledger)
        history.check_all_rows()
    history.explain_some_rows()
    assert not recount_differences(spark, history.ledger, sorted(history.batches))
