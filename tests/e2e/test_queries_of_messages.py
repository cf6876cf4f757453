"""Declared queries on the demo's messages: the numbers are DuckDB's over the raw file, and the audit runs the texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from altneu.pipeline import landing
from altneu.pipeline.checking import audit
from altneu.pipeline.home.home import Home
from altneu.pipeline.local import demo
from altneu.pipeline.reading.graph import Graph
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers
from tests.docs.pages import blocks, read
from tests.docs.test_queries import name_queries
from tests.e2e.test_queries import declare, run_all

BLOCKS = list(blocks(read("docs/queries.md")))
PAGE = [block.text for block in BLOCKS if block.language == "sql"]
DECLARED = "\n".join(block.text for block in BLOCKS if block.language == "toml")
TRIANGLES = """SELECT ab.src AS a, ab.dst AS b, ac.dst AS c
    FROM edges ab JOIN edges ac ON ac.src = ab.src JOIN edges bc ON bc.src = ab.dst AND bc.dst = ac.dst"""
WHOLE = {"repeat_pairs": PAGE[0], "mutual": PAGE[2], "quick_rings": PAGE[3], "triangles": TRIANGLES, "week": PAGE[1]}
EXPECTED = {"repeat_pairs": 1008, "mutual": 6458, "triangles": 14319}  # of all messages, where nothing expires


def messages_home(path: Path, toml: str) -> tuple[Home, Ledger, list[int]]:
    home, ledger = home_helpers.make(path, toml)
    return home, ledger, demo.land_messages(home).epochs


def land_people(home: Home, epochs: list[int]) -> None:
    """Land a country for everybody, other ones later for some, and a watch list."""
    folder = home.landing.parent
    for at, epoch in ((0, epochs[0]), (1, epochs[29])):
        rows = [f"{id_},{('DE', 'FR', 'PL')[(id_ + at) % 3]},{id_ // 3}@here" for id_ in range(1, 1900, 1 + 9 * at)]
        (folder / "people.csv").write_text("\n".join(["id,country,email", *rows]) + "\n")
        (folder / "watched.csv").write_text("\n".join(["id", *map(str, range(1 + at, 500 * (1 + at)))]) + "\n")
        for name in ("people", "watched"):
            options = landing.LandOptions(epoch=epoch, relation=name, far=True)
            landing.land(home, [folder / f"{name}.csv"], options)


def count(graph: Graph, name: str, **when: Any) -> int:
    return sum(row.get("copies", 1) for row in graph.arrow.query(name, **when).to_pylist())


def audited(spark: SparkSession, ledger: Ledger, epochs: list[int]) -> list[bool]:
    """Whether all queries equal their texts, at each of the epochs."""
    checks = audit.audit_published(Warehouse(spark, ledger.home), ledger.revisions.get(), epochs, lambda text: None)
    return [check["passed"] for check in checks if check["name"].startswith("rows of queries")]


@pytest.mark.slow
@pytest.mark.law(4)
def test_the_numbers_of_all_messages_before_and_after_a_correction(spark: SparkSession, tmp_path: Path) -> None:
    home, ledger, epochs = messages_home(tmp_path / "home", '[epochs]\nevery = "1d"\n')
    declare(home, **WHOLE)
    run_all(ledger)
    graph, some = Graph(home.path), [epochs[15], epochs[30], epochs[-1]]
    assert {name: count(graph, name) for name in EXPECTED} == EXPECTED
    assert audited(spark, ledger, some) == [True] * 3
    home_helpers.put(home, epochs[30], [])
    run_all(ledger)
    assert audited(spark, ledger, some) == [True] * 3
    before, after = count(graph, "repeat_pairs", revision=1), count(graph, "repeat_pairs")
    diffs = [row["diff"] for row in graph.arrow.query("repeat_pairs", since_revision=1).to_pylist()]
    assert before == EXPECTED["repeat_pairs"] and after == before + sum(diffs) and {*diffs} == {1, -1}


@pytest.mark.slow
@pytest.mark.law(4)
def test_the_queries_of_the_page_equal_their_texts_on_thirty_days(spark: SparkSession, tmp_path: Path) -> None:
    toml = f'[epochs]\nevery = "1d"\n[edges]\nlive_for = 7\n{DECLARED}'
    home, ledger, epochs = messages_home(tmp_path / "home", toml)
    land_people(home, epochs)
    texts = name_queries(PAGE)
    declare(home, **texts)
    home_helpers.run(ledger, epochs[:29])
    home_helpers.run(ledger, epochs[29:30])
    assert audited(spark, ledger, [epochs[10], epochs[29]]) == [True] * 2
    graph = Graph(home.path)
    assert all(count(graph, name) for name in texts)
