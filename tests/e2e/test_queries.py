"""Declared queries on real tables: after every run, at every epoch, what DuckDB makes of the text over the batches.

One home goes through late, corrected and removed batches, and through new, changed and dropped queries. The reference
is that of `tests/algebra/test_queries.py`: it knows the batches alone.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from altneu.algorithms import maintained_query
from altneu.pipeline.errors import CheckFailed, RunFailed, UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.maintenance import rollback
from altneu.pipeline.reading.graph import Graph
from altneu.pipeline.report import epoch_document
from altneu.pipeline.run import planning, runner
from altneu.pipeline.run.stages import queries
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import Revision
from altneu.pipeline.state.stage_results import QueriesFacts
from tests import home_helpers
from tests.algebra.test_queries import Batches, by_duckdb, random_batch
from tests.e2e.test_change_log import Consumer

EPOCHS = range(4)
MUTUAL = "SELECT a.src, a.dst FROM arcs a JOIN arcs b ON b.src = a.dst AND b.dst = a.src WHERE a.src < a.dst"
PAIRS = "SELECT src, dst, count(*) AS n, sum(amount) AS s, avg(amount) AS m FROM landed WHERE age < 2 GROUP BY src, dst"
ANSWERED = "SELECT m.src, m.dst, p.n FROM mutual m LEFT JOIN pairs p ON p.src = m.dst AND p.dst = m.src"
HUBS = """SELECT v.vertex, v.degree, v.triangles, count(a.dst) AS contacts FROM vertices v
    LEFT JOIN arcs a ON a.src = v.vertex AND a.dst = 1 GROUP BY v.vertex, v.degree, v.triangles"""
REACHED = """WITH RECURSIVE walks AS (
        SELECT src, dst FROM arcs UNION SELECT w.src, a.dst FROM walks w JOIN arcs a ON a.src = w.dst
    ) SELECT src, count(*) AS reached FROM walks GROUP BY src"""
KINDS = "SELECT DISTINCT amount, op FROM landed"


def declare(home: Home, **texts: str) -> None:
    """Have these queries in the home, and no others. Their texts may name others of them."""
    folder = home.path / "queries"
    folder.mkdir(exist_ok=True)
    for file in folder.glob("*.sql"):
        file.unlink()
    for name, text in texts.items():
        (folder / f"{name}.sql").write_text(text)


def rows_of(graph: Graph, name: str, **when: Any) -> Counter[tuple[object, ...]]:
    rows: Counter[tuple[object, ...]] = Counter()
    for row in graph.arrow.query(name, **when).to_pylist():
        copies = row.pop("copies", 1)
        rows[tuple(row.values())] += copies
    return rows


def assert_all_rows(home: Home, batches: Batches, **texts: str) -> None:
    graph = Graph(home.path)
    for name, text in texts.items():
        others = [f"{other} AS ({texts[other]})" for other in texts if re.search(rf"\b{other} [mp]\b", text)]
        whole = f"WITH {', '.join(others)} {text}" if others else text
        for epoch in batches:
            assert rows_of(graph, name, as_of=epoch) == by_duckdb(whole, batches, epoch), (name, epoch)


def run_all(ledger: Ledger) -> Revision:
    """Run what has landed or changed, as `altneu backfill --all` does."""
    plan = planning.plan_run(ledger, lambda epoch: True)
    revision = runner.execute_run(ledger, plan)
    assert isinstance(revision, Revision)
    return revision


def ways(ledger: Ledger, revision: Revision) -> dict[str, str]:
    facts = ledger.stages.get_facts(revision.run_id, QueriesFacts)
    return {name: each.way for name, each in facts.queries.items()}


def make_home(path: Path, batches: Batches, **texts: str) -> tuple[Home, Ledger]:
    recomputed = '[queries]\nrecompute = ["reached"]\n' if "reached" in texts else ""
    home, ledger = home_helpers.make(path, f'[values]\namount = "long"\n[publish]\ntables = ["changes"]\n{recomputed}')
    for epoch, rows in batches.items():
        home_helpers.put(home, epoch, rows)
    declare(home, **texts)
    return home, ledger


@pytest.mark.slow  # test_query_histories.py says the same of a home with people in the default tier
@pytest.mark.law(3, 4)
def test_a_correction_changes_the_results_at_every_epoch_and_consumers_follow(
    spark: SparkSession, tmp_path: Path, unaudited: None
) -> None:
    rng = random.Random(7)
    batches = {epoch: random_batch(rng) for epoch in EPOCHS}
    texts = {"answered": ANSWERED, "hubs": HUBS, "mutual": MUTUAL, "pairs": PAIRS, "reached": REACHED}
    home, ledger = make_home(tmp_path / "home", batches, **texts)
    first = run_all(ledger)
    assert_all_rows(home, batches, **texts)
    assert ways(ledger, first) == dict.fromkeys(texts, "anew")
    graph = Graph(home.path)
    assert_explained(graph)
    shown = {"mutual": MUTUAL, "pairs": PAIRS}
    assert_pages(ledger, batches, shown, lambda name, epoch: by_duckdb(shown[name], batches, epoch))
    before = {name: rows_of(graph, name) for name in ("mutual", "pairs")}
    batches[1] = random_batch(rng)
    home_helpers.put(home, 1, batches[1])
    second = run_all(ledger)
    assert_all_rows(home, batches, **texts)
    assert "anew" not in ways(ledger, second).values() and ways(ledger, second)["reached"] == "recomputed"
    assert_consumers_have_all_rows(home, graph, texts, EPOCHS)
    assert_changes_lead_from(before, graph)


def assert_changes_lead_from(before: Mapping[str, Counter[tuple[object, ...]]], graph: Graph) -> None:
    """Assert that the changes since revision 1 make of its rows those of now."""
    for name, old in before.items():
        followed = old.copy()
        for row in graph.arrow.query(name, since_revision=1).to_pylist():
            diff = row.pop("diff")
            followed[tuple(row.values())] += diff
        assert +followed == rows_of(graph, name) and rows_of(graph, name, revision=1) == old, name


def assert_consumers_have_all_rows(home: Home, graph: Graph, names: Iterable[str], epochs: Iterable[int]) -> None:
    """Assert that a program which follows the table `changes` by append scans has the results at every epoch."""
    consumer = Consumer(home)
    consumer.follow()
    for name, epoch in itertools.product(names, epochs):
        copies = consumer.values("query", epoch)
        found = {tuple(json.loads(row).values()): n for (query, row), n in copies.items() if query == name}
        assert found == dict(rows_of(graph, name, as_of=epoch)), (name, epoch)


def assert_explained(graph: Graph) -> None:
    """Behind each row are the landed rows that make it: as many as its count says, and an arc in either direction."""
    for row in graph.arrow.query("pairs").to_pylist()[:5]:
        found = graph.explain_query("pairs", row)
        assert (found["copies"], len(found["combinations"])) == (1, row["n"])
        landed = [each for parts in found["combinations"] for part in parts for each in part["landed"]]
        assert len({(each["file"], each["line"]) for each in landed}) == row["n"]
        assert sum(each["amount"] or 0 for each in landed) == (row["s"] or 0)
    for row in graph.arrow.query("mutual").to_pylist()[:5]:
        ((one, other),) = graph.explain_query("mutual", {"src": row["src"], "dst": row["dst"]})["combinations"]
        assert [(part["row"]["src"], part["row"]["dst"]) for part in (one, other)] == [
            (row["src"], row["dst"]),
            (row["dst"], row["src"]),
        ]
        assert all([each["fate"] for each in part["landed"]].count("in force") == 1 for part in (one, other))
    absent = graph.explain_query("mutual", {"src": 1, "dst": 1})
    assert (absent["copies"], absent["combinations"]) == (0, [])
    with pytest.raises(UsageError, match="has no column 'sum'; it has src, dst, n, s, m"):
        graph.explain_query("pairs", {"sum": 1})


def assert_pages(
    ledger: Ledger,
    epochs: Iterable[int],
    names: Iterable[str],
    rows_at: Callable[[str, int], Counter[tuple[object, ...]]],
) -> None:
    """Assert that the page of each epoch has the rows that came and went there, and the sizes up to there."""
    sizes: dict[str, list[int]] = {name: [] for name in names}
    for epoch in epochs:
        shown = {each["query"]: each for each in epoch_document(ledger, epoch)["queries"]}
        for name in names:
            now, then = rows_at(name, epoch), rows_at(name, epoch - 1)
            sizes[name].append(now.total())
            assert (shown[name]["came"], shown[name]["went"]) == ((now - then).total(), (then - now).total())
            assert (shown[name]["rows"], shown[name]["sizes"]) == (now.total(), sizes[name])


@pytest.mark.slow
@pytest.mark.law(3)
def test_queries_come_change_and_go_and_a_fault_stops_the_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(8)
    batches = {epoch: random_batch(rng) for epoch in EPOCHS}
    home, ledger = make_home(tmp_path / "home", batches, answered=ANSWERED, mutual=MUTUAL, pairs=PAIRS)
    first, graph = run_all(ledger), Graph(home.path)
    pairs = rows_of(graph, "pairs")
    wider = PAIRS.replace("< 2", "< 3")
    declare(home, mutual=f"-- who answers\n{MUTUAL.lower()}", pairs=wider, kinds=KINDS, answered=ANSWERED)
    assert dict(planning.plan_run(ledger, lambda epoch: True).queries.anew)["answered"] == "it reads pairs"
    second = run_all(ledger)
    assert ways(ledger, second) == {"mutual": "nothing", "pairs": "anew", "kinds": "anew", "answered": "anew"}
    assert_all_rows(home, batches, mutual=MUTUAL, pairs=wider, kinds=KINDS, answered=ANSWERED)
    by_spark = Counter(tuple(row) for row in Graph(home.path, spark).query("pairs").collect())
    assert by_spark == rows_of(graph, "pairs")
    assert second.snapshots["edges"] == first.snapshots["edges"]
    assert rows_of(graph, "pairs", revision=1) == pairs
    assert planning.plan_run(ledger, lambda epoch: True).is_idle
    declare(home, kinds=KINDS)
    assert planning.plan_run(ledger, lambda epoch: True).queries.dropped == ("mutual", "pairs", "answered")
    rollback.roll_back(ledger, 1)
    assert rows_of(graph, "pairs") == pairs
    with (
        monkeypatch.context() as patch,
        pytest.raises(RunFailed, match=r"query far would look at \d+ pairs of rows, .*edges.dst = \d"),
    ):
        declare(home, far="SELECT e.src, f.dst FROM edges e JOIN edges f ON f.src = e.dst")
        patch.setattr(queries, "MOST_PAIRS", 0)
        run_all(ledger)
    declare(home, kinds=KINDS)
    lose_a_row(monkeypatch)
    fault = (
        r"query kinds has the row \(amount .*\) 0 times, and 1 times when it is recomputed; .* landed at 0: .* line \d"
    )
    with pytest.raises(CheckFailed, match=fault):
        run_all(ledger)
    assert ledger.revisions.get().revision == 3


def lose_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a fault: the last step of a query leaves out what is new at the first epoch."""
    select = maintained_query.select_result

    def lossy(*args: Any) -> Any:
        rows = select(*args)
        return type(rows)(rows.df.where("epoch > 0"), rows.time)

    monkeypatch.setattr(maintained_query, "select_result", lossy)


def test_all_problems_of_all_files_are_named_before_anything_starts(tmp_path: Path) -> None:
    home, ledger = home_helpers.make(tmp_path / "home")
    declare(home, fine="SELECT src FROM arcs", wrong="SELECT srx FROM arcs", Shouting="SELECT 1", edges="SELECT 1")
    with pytest.raises(UsageError) as error:
        planning.plan_run(ledger, lambda epoch: True)
    text = str(error.value)
    assert "queries/wrong.sql line 1, column 8: there is no column srx; arcs has src, dst. Did you mean src?" in text
    assert "queries/Shouting.sql a query's name" in text and "queries/edges.sql a query's name" in text
    assert "fine" not in text


def test_queries_that_read_each_other_are_named_with_those_that_read_them(tmp_path: Path) -> None:
    home, ledger = home_helpers.make(tmp_path / "home")
    declare(home, a="SELECT src FROM b", b="SELECT src FROM a", c="SELECT src FROM b", fine="SELECT src FROM arcs")
    with pytest.raises(UsageError) as error:
        planning.plan_run(ledger, lambda epoch: True)
    text = str(error.value)
    assert "queries/a.sql reads its own result: queries/a.sql, queries/b.sql read each other" in text
    assert "queries/c.sql reads b, which cannot be maintained" in text and "fine" not in text
    declare(home, alone="SELECT src FROM alone")
    with pytest.raises(UsageError, match=r"alone\.sql reads its own result"):
        planning.plan_run(ledger, lambda epoch: True)
    declare(home, twice="SELECT src FROM mutul", mutual=MUTUAL)
    with pytest.raises(UsageError, match=r"there is no relation mutul; .* Did you mean mutual"):
        planning.plan_run(ledger, lambda epoch: True)
