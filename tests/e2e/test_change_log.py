"""The table `changes`: who follows it by plain append scans has what is published, whatever is published."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from altneu.pipeline.home.home import Home
from altneu.pipeline.maintenance import rollback
from altneu.pipeline.maintenance.compact import compact
from altneu.pipeline.reading import external_access, views
from altneu.pipeline.reading.graph import Graph
from altneu.pipeline.run import change_log
from altneu.pipeline.state import home_identity
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage.relocate import relocate_home
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers, seeds
from tests.builders import draw_batch, make_clique
from tests.canonical import History
from tests.e2e.conftest import Altneu
from tests.ledger_only import LedgerOnly

REPO = Path(__file__).parents[2]
TOML = '[edges]\nlive_for = 3\n[publish]\ntables = ["changes"]\n[retention]\nrevisions = 3\n'
KINDS = ("trussness", "degree", "triangles", "total", "truss")
Step = tuple[str, str, str | None, int]


@pytest.fixture
def told_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what goes wrong fail the test, which is only told in a run."""

    def follow(ledger: Ledger, spark: Any, say: Any) -> None:
        if ledger.home.config.publish.logs_changes:
            change_log.follow_publications(ledger, spark)

    monkeypatch.setattr(change_log, "try_to_follow", follow)


class Consumer:
    """A program that knows the catalog, and remembers the steps and the snapshot up to which it has read."""

    def __init__(self, home: Home) -> None:
        self.home, self.steps = home, dict[Step, int]()
        self.seen: int | None = None
        self.revisions: list[int] = []

    def follow(self) -> None:
        identity = home_identity.require_identity(self.home)
        catalog = load_catalog(identity.catalog, type="sql", uri=self.home.database, warehouse=self.home.warehouse)
        table = catalog.load_table(("graph", "changes"))
        newest = table.current_snapshot()
        assert newest is not None
        if newest.snapshot_id == self.seen:
            return
        rows = table.incremental_append_scan(from_snapshot_id_exclusive=self.seen).to_arrow().to_pylist()
        self.seen = newest.snapshot_id
        for row in sorted(rows, key=lambda row: row["revision"]):
            step = (row["what"], row["key"], row["other"], row["epoch"])
            assert row["before"] == self.steps.get(step), row  # nothing is missing, and nothing comes twice
            assert row["kind"] == kind_of(row["before"], row["after"]), row
            self.revisions.append(row["revision"])
            if row["after"] is None:
                del self.steps[step]
            else:
                self.steps[step] = row["after"]

    def values(self, what: str, epoch: int) -> dict[Any, int]:
        last: dict[Any, tuple[int, int]] = {}
        for (kind, key, other, at), value in self.steps.items():
            name = key if other is None else (key, other)
            if kind == what and at <= epoch and at >= last.get(name, (at, 0))[0]:
                last[name] = at, value
        return {name: value for name, (_, value) in last.items() if value}


def run_recipe(home: Home, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Run what docs/engines.md says, and return the rows."""
    section = (REPO / "docs" / "engines.md").read_text().split("\n## Changes\n")[1].split("\n## ")[0]
    (recipe,) = re.findall(r"^```python\n(.*?)^```$", section, re.M | re.S)
    said = json.dumps(external_access.external_access(Ledger(home)).to_dict())
    given: dict[str, Any] = {}
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "check_output", lambda command: said)
        exec(recipe, given)
    return list(given["rows"].to_pylist())


def read_by_duckdb(home: Home, epochs: Iterable[int]) -> dict[int, set[tuple[str, Any, int]]]:
    """Read the values at some epochs as a program does that keeps nothing: with the statement of docs/engines.md."""
    with duckdb.connect() as database:
        database.register("changes", change_log.open_change_log(home).scan().to_arrow())
        statement = (
            "SELECT what, key, other, arg_max(after, epoch) AS n FROM (SELECT * FROM changes QUALIFY "
            "row_number() OVER (PARTITION BY what, key, other, epoch ORDER BY revision DESC) = 1) "
            "WHERE epoch <= ? AND after IS NOT NULL GROUP BY what, key, other HAVING n > 0"
        )
        rows = {epoch: database.execute(statement, [epoch]).fetchall() for epoch in epochs}
    return {
        epoch: {(what, key if other is None else (key, other), n) for what, key, other, n in found}
        for epoch, found in rows.items()
    }


def kind_of(before: int | None, after: int | None) -> str:
    return "insert" if before is None else "delete" if after is None else "update"


def assert_has_what_is_published(consumer: Consumer, ledger: Ledger, epochs: Iterable[int]) -> None:
    home, graph = consumer.home, Graph(consumer.home.path).arrow
    frontier = ledger.revisions.get().frontier
    if frontier is None:
        assert not consumer.steps
        return
    for epoch in epochs:
        if epoch > frontier:
            continue
        ends = tuple if home.config.vertices.ids == "integer" else sorted
        edges = {
            tuple(ends((str(row["src"]), str(row["dst"])))): row["trussness"]
            for row in graph.edges(as_of=epoch).to_pylist()
        }
        assert consumer.values("trussness", epoch) == edges, epoch
        vertices = {str(row["vertex"]): row for row in graph.vertices(as_of=epoch).to_pylist()}
        assert consumer.values("degree", epoch) == {name: row["degree"] for name, row in vertices.items()}
        triangles = {name: row["triangles"] for name, row in vertices.items() if row["triangles"]}
        assert consumer.values("triangles", epoch) == triangles
        (total,) = views.select_totals(ledger, as_of=epoch)
        shown = consumer.values("total", epoch)
        assert {name: shown.get(name, 0) for name in ("vertices", "edges", "triangles", "wedges")} == {
            name: total[name] for name in ("vertices", "edges", "triangles", "wedges")
        }
        assert consumer.values("truss", epoch) == {str(k): n for k, n in total["trusses"].items()}
    for epoch, found in read_by_duckdb(home, [epoch for epoch in epochs if epoch <= frontier]).items():
        assert found == {(what, *item) for what in KINDS for item in consumer.values(what, epoch).items()}, epoch


@pytest.mark.usefixtures("told_errors")
@pytest.mark.parametrize(
    ("ids", "publications"),
    [("string", 9), *(pytest.param(ids, 30, marks=pytest.mark.slow) for ids in ("integer", "string"))],
)
def test_a_consumer_follows_random_publications(
    ledger_only: LedgerOnly, tmp_path: Path, ids: str, publications: int
) -> None:
    """Corrections, late epochs, removed ones, rollbacks, and compactions; the consumer does not read after each."""
    rng = random.Random(seeds.one(7))
    home, ledger = home_helpers.make(tmp_path / "home", TOML + f'[vertices]\nids = "{ids}"\n')
    names = [1, 2, 3, 4, 5, 6] if ids == "integer" else ["ada", "b'ob", "cy", "zoë", "eve", "{fay}"]
    consumer = Consumer(home)
    for _ in range(publications):
        action = rng.random()
        newest = ledger.revisions.get().revision
        if action < 0.2 and newest > 1:
            rollback.roll_back(ledger, rng.choice([r for r in ledger.revisions.list_readable() if r < newest]))
        elif action < 0.3 and newest:
            compact(ledger, None, grace=0)  # type: ignore[arg-type]
        else:
            epoch = rng.randrange(1, 6)
            home_helpers.put(home, epoch, draw_batch(rng, names, rng.randrange(1, 9)))
            home_helpers.run(ledger, [epoch])
        if rng.random() < 0.7 and ledger.revisions.get().revision:
            consumer.follow()
            assert_has_what_is_published(consumer, ledger, range(1, 6))
    consumer.follow()
    assert_has_what_is_published(consumer, ledger, range(1, 6))
    assert consumer.revisions == sorted(consumer.revisions)


def test_what_a_killed_process_leaves_out_follows_and_a_late_start_has_the_whole_state(
    ledger_only: LedgerOnly, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", "[edges]\nlive_for = 3\n")
    home_helpers.put(home, 1, make_clique(1, 2, 3))
    home_helpers.run(ledger, [1])
    home, ledger = home_helpers.make(home.path, TOML)  # switched on
    home_helpers.put(home, 2, make_clique(1, 2, 3, 4))
    home_helpers.run(ledger, [2])
    consumer = Consumer(home)
    consumer.follow()
    assert set(consumer.revisions) == {2}
    assert_has_what_is_published(consumer, ledger, (1, 2))

    def die(*_: Any) -> None:
        raise ConnectionError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(change_log, "open_change_log", die)
        home_helpers.put(home, 1, make_clique(2, 3))
        home_helpers.run(ledger, [1])  # is published nevertheless
    assert ledger.revisions.get().revision == 3
    home_helpers.put(home, 3, make_clique(5, 6))
    home_helpers.run(ledger, [3])
    consumer.follow()
    assert set(consumer.revisions) == {2, 3, 4}
    assert_has_what_is_published(consumer, ledger, (1, 2, 3))
    appended = len(change_log.open_change_log(home).snapshots())
    change_log.follow_publications(ledger, lambda: pytest.fail("needs no Spark"))
    assert len(change_log.open_change_log(home).snapshots()) == appended == 3  # each revision once


def test_after_revisions_have_expired_the_table_itself_says_what_it_has(
    ledger_only: LedgerOnly, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", TOML)
    home_helpers.put(home, 1, make_clique(1, 2, 3))
    home_helpers.run(ledger, [1])
    with monkeypatch.context() as patch:
        patch.setattr(change_log, "try_to_follow", lambda *_: None)
        for size in (5, 6, 3):
            home_helpers.put(home, 1, make_clique(*range(1, size)))
            home_helpers.run(ledger, [1])
    ledger.revisions.repin("x", {}, [], None, [1, 2])  # as a compaction drops them
    change_log.follow_publications(ledger, lambda: pytest.fail("needs no Spark"))
    consumer = Consumer(home)
    consumer.follow()
    assert set(consumer.revisions) == {1, 3, 4} == {row["revision"] for row in run_recipe(home, monkeypatch)}
    assert_has_what_is_published(consumer, ledger, (1,))


@pytest.mark.usefixtures("tiny", "unaudited", "told_errors")
def test_a_home_with_real_tables(numbers: History, tmp_path: Path, altneu: Altneu, spark: SparkSession) -> None:
    """By real runs and a compaction, in a moved home, for Spark, too; and an audit finds a row that is lost."""
    home, _ = numbers.copy(tmp_path / "home")
    home, ledger = home_helpers.make(home.path, TOML)
    home_helpers.put(home, 2, make_clique(4, 5, 6, 7))
    home_helpers.run(ledger, [2])
    consumer = Consumer(home)
    consumer.follow()
    assert_has_what_is_published(consumer, ledger, (1, 2, 3))
    compact(ledger, spark, grace=0)
    rollback.roll_back(ledger, 2)
    consumer.follow()
    assert_has_what_is_published(consumer, ledger, (1, 2, 3))
    name = f"{home_identity.require_identity(home).catalog}.graph.changes"
    rows = change_log.open_change_log(home).scan().to_arrow()
    assert Warehouse(spark, home).spark.table(name).count() == rows.num_rows
    assert altneu("audit", "3", home=home.path).code == 0
    shutil.copytree(home.path, tmp_path / "moved")
    moved = Home.open(tmp_path / "moved")
    relocate_home(moved)
    table = change_log.open_change_log(moved)
    assert table.scan().to_arrow().num_rows == rows.num_rows
    table.append(rows.slice(0, 1), snapshot_properties={change_log.REVISION: str(ledger.revisions.get().revision)})
    (check,) = change_log.check_change_log(Ledger(moved), lambda: Warehouse(spark, moved))
    assert check["passed"]  # a row twice adds up to the same
    lost = rows.slice(0, 1).to_pylist()[0] | {"after": 7, "revision": 99}
    table.append(
        pa.Table.from_pylist([lost], schema=change_log.SCHEMA), snapshot_properties={change_log.REVISION: "99"}
    )
    (check,) = change_log.check_change_log(Ledger(moved), lambda: Warehouse(spark, moved))
    assert not check["passed"] and len(check["rows"]) == 1
