"""Queries that are recomputed: what they may be, and how their result becomes differences."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from altneu.algorithms.recomputed_query import depends_on_age, describe_recomputation
from altneu.algorithms.sql_query import QueryError, Relation
from altneu.pipeline.errors import UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.home.queries import read_queries
from altneu.pipeline.run import planning
from altneu.pipeline.run.stages.recomputed_queries import find_result_changes
from altneu.pipeline.state.ledger import Ledger
from tests import home_helpers, seeds
from tests.e2e.test_queries import declare

RELATIONS = {
    "landed": Relation(dict.fromkeys(("src", "dst", "amount", "seq", "epoch", "age"), "bigint") | {"op": "string"}),
    "arcs": Relation(dict.fromkeys(("src", "dst", "amount"), "bigint"), key=("src", "dst")),
}
WALKS = """WITH RECURSIVE walks AS (
    SELECT src, dst FROM arcs UNION SELECT w.src, a.dst FROM walks w JOIN arcs a ON a.src = w.dst
) SELECT src, count(*) AS reached FROM walks GROUP BY src"""
TAKEN = {  # text → the types of its result
    WALKS: {"src": "bigint", "reached": "bigint"},
    "SELECT count(*) AS n FROM arcs": {"n": "bigint"},
    "SELECT src, median(amount) AS m FROM arcs GROUP BY src": {"src": "bigint", "m": "double"},
    "SELECT src FROM arcs EXCEPT SELECT dst FROM arcs": {"src": "bigint"},
    "SELECT src FROM arcs ORDER BY src LIMIT 3": {"src": "bigint"},
    "SELECT op, row_number() OVER (ORDER BY seq, src, dst) AS place FROM landed": {"op": "string", "place": "bigint"},
    "SELECT src FROM arcs WHERE dst IN (SELECT src FROM arcs)": {"src": "bigint"},
}
REFUSED = {
    "SELECT srx FROM arcs": 'Referenced column "srx" not found',
    "SELECT src FROM\narcz": "line 2, column 1: there is no relation arcz; there are landed, arcs. Did you mean arcs?",
    "SELECT src, now() AS t FROM arcs": "it has another value on the next run",
    "SELECT src, random() AS t FROM arcs": "it has another value on the next run",
    "SELECT src FROM arcs USING SAMPLE 3": "a sample is another one on the next run",
    "SELECT src FROM arcs WHERE dst = ?": "a parameter has no value",
    "SELECT src FROM arcs ORDER BY src": "a result has no order",
    "SELECT * FROM read_csv('a.csv')": "is no relation; there are landed, arcs",
    "SELECT * FROM 'a.csv'": "there is no relation a.csv",
    "SELECT src FROM other.arcs": "other.arcs is no relation",
    "SELECT 1 AS one": "a query reads a relation: FROM landed or arcs",
    "SELECT src + 1 FROM arcs": "cannot be called (src + 1)",
    "SELECT src AS epoch FROM arcs": "cannot be called epoch",
    "SELECT 0.5 * amount AS half FROM arcs": "half is of type DECIMAL(21,1): CAST it AS double",
    "WITH arcs AS (SELECT * FROM landed) SELECT src FROM arcs": "WITH arcs: a relation has this name",
    "DELETE FROM arcs": "a query is one SELECT",
    "SELECT src FROM arcs; SELECT dst FROM arcs": "a query is one SELECT",
}


@pytest.mark.parametrize("text", TAKEN)
def test_whatever_is_decided_by_relations_can_be_recomputed(text: str) -> None:
    assert dict(describe_recomputation(text, RELATIONS).types) == TAKEN[text]


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_decided_by_relations_is_refused(text: str) -> None:
    with pytest.raises(QueryError) as error:
        describe_recomputation(text, RELATIONS)
    assert REFUSED[text] in str(error.value)


def test_comments_blanks_and_capitals_mean_nothing() -> None:
    one, other = (describe_recomputation(text, RELATIONS) for text in (WALKS, f"-- walks\n{WALKS.upper()}"))
    assert one.normal_form == other.normal_form and one.relations == ("arcs",)


def test_a_star_contains_the_age() -> None:
    assert depends_on_age("SELECT src FROM landed WHERE age < 7 OR op = 'delete'")
    assert depends_on_age("WITH all_rows AS (SELECT * FROM landed) SELECT src FROM all_rows")
    assert not depends_on_age("SELECT src, count(*) AS n FROM landed GROUP BY src")


def test_vertices_with_names_are_known_through_recursion_and_are_no_numbers() -> None:
    named = {"arcs": Relation({"src": "vertex", "dst": "vertex", "amount": "bigint"}, key=("src", "dst"))}
    walks = describe_recomputation(WALKS, named)
    assert dict(walks.types) == {"src": "bigint", "reached": "bigint"} and walks.vertices == ("src",)
    either = describe_recomputation(
        "SELECT coalesce(a.src, b.dst) AS who FROM arcs a FULL JOIN arcs b USING (src)", named
    )
    assert either.vertices == ("who",)
    with pytest.raises(QueryError):
        describe_recomputation("SELECT src + 1 AS next FROM arcs", named)


Rows = Counter[tuple[int | None, str | None]]


def as_table(rows: Rows) -> pa.Table:
    listed = list(rows.elements())
    return pa.table(
        {"a": pa.array([row[0] for row in listed], pa.int64()), "b": pa.array([row[1] for row in listed], pa.string())}
    )


def state_at(diffs: Mapping[tuple[int | None, str | None, int], int], epoch: int) -> Rows:
    rows: Rows = Counter()
    for (a, b, at), diff in diffs.items():
        rows[a, b] += diff if at <= epoch else 0
    return Counter({row: number for row, number in rows.items() if number})


def test_the_differences_lead_from_what_is_stored_to_what_is_recomputed() -> None:
    rng = random.Random(seeds.one(3))

    def random_rows() -> Rows:
        return Counter((rng.choice([0, 1, None]), rng.choice(["x", None])) for _ in range(rng.randrange(5)))

    for _ in range(30):
        first = rng.randrange(4)
        epochs = sorted({first, *rng.sample(range(first, 8), 3)})
        old = {epoch: random_rows() for epoch in range(8)}
        stored: Counter[tuple[int | None, str | None, int]] = Counter()
        for epoch in old:
            for row in {*old[epoch], *old.get(epoch - 1, Rows())}:
                stored[*row, epoch] = old[epoch][row] - old.get(epoch - 1, Rows())[row]
        new = {epoch: random_rows() for epoch in epochs}
        listed = [(*key, diff) for key, diff in stored.items() if diff]
        names, types = ("a", "b", "epoch", "diff"), (pa.int64(), pa.string(), pa.int64(), pa.int64())
        before = pa.table(
            {
                name: pa.array([row[i] for row in listed], type_)
                for i, (name, type_) in enumerate(zip(names, types, strict=True))
            }
        )
        changes = find_result_changes(["a", "b"], before, [(epoch, as_table(rows)) for epoch, rows in new.items()])
        after = stored.copy()
        for row in changes.to_pylist():
            assert row["diff"] and row["epoch"] >= first
            after[row["a"], row["b"], row["epoch"]] += row["diff"]
        for epoch in range(8):
            last = max((each for each in epochs if each <= epoch), default=None)
            assert state_at(after, epoch) == (old[epoch] if last is None else new[last]), (epochs, epoch)


def reopen(home: Home, toml: str) -> tuple[Home, Ledger]:
    (home.path / "altneu.toml").write_text(toml)
    home = Home.open(home.path)
    return home, Ledger(home)


def test_a_query_that_cannot_be_maintained_names_the_setting(tmp_path: Path) -> None:
    home, ledger = home_helpers.make(tmp_path / "home")
    declare(home, walks=WALKS, wrong="SELECT srx FROM arcs")
    with pytest.raises(UsageError) as error:
        planning.plan_run(ledger, lambda epoch: True)
    walks, wrong = (line for line in str(error.value).splitlines() if "queries/" in line)
    assert 'It can be recomputed by every run, which takes longer: [queries] recompute = ["walks"]' in walks
    assert "Did you mean src?" in wrong and "recompute" not in wrong
    home, ledger = reopen(home, '[queries]\nrecompute = ["walks"]\n')
    declare(home, walks=WALKS, over="SELECT src FROM walks WHERE reached > 2")
    definitions = read_queries(home)
    assert definitions["walks"].is_recomputed and not definitions["over"].is_recomputed
    changes = planning.plan_run(ledger, lambda epoch: True).queries
    assert changes.recomputed == ("walks",) and dict(changes.anew)["walks"] == "it is new"


def test_wrong_settings_are_named(tmp_path: Path) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", '[queries]\nrecompute = ["ghost"]\n')
    with pytest.raises(UsageError, match=r"queries/ghost\.sql is not there, but \[queries\] recompute names it"):
        planning.plan_run(ledger, lambda epoch: True)
    home, _ = reopen(home, '[queries]\nrecompute = ["walks"]\n[retention]\nepochs = 3\n')
    declare(home, walks="SELECT count(*) AS n FROM landed")
    with pytest.raises(UsageError, match="reads landed, but"):
        read_queries(home)
