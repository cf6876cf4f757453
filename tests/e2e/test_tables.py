"""The tables as other programs read them: `main` and the tags are what is published, and the recipes of docs/engines.md
answer what altneu answers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

import altneu.pipeline.state.process_identity
from altneu.pipeline.errors import AltneuError
from altneu.pipeline.home.home import Home
from altneu.pipeline.local.doctor import list_checks
from altneu.pipeline.maintenance import rollback
from altneu.pipeline.maintenance.compact import compact
from altneu.pipeline.reading import external_access
from altneu.pipeline.reading.graph import Graph
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage import refs_without_spark
from altneu.pipeline.storage.branches import Branches
from altneu.pipeline.storage.relocate import relocate_home
from tests import home_helpers
from tests.builders import make_clique
from tests.canonical import History

pytestmark = pytest.mark.usefixtures("tiny", "unaudited")

REPO = Path(__file__).parents[2]
TOML = "[edges]\nlive_for = 3\n[retention]\nrevisions = 3\n"
AS_OF = {
    "trussness": "SELECT a, b, k FROM {rows} GROUP BY a, b, k HAVING sum(diff) > 0",
    "edges": "SELECT a, b FROM {rows} WHERE epoch <= {at} AND until > {at} GROUP BY a, b HAVING sum(diff) > 0",
    "degrees": "SELECT vertex, sum(diff) FROM {rows} WHERE epoch <= {at} GROUP BY vertex HAVING sum(diff) > 0",
}
Rows = Counter[tuple[Any, ...]]


def recipe(program: str) -> str:
    section = (REPO / "docs" / "engines.md").read_text().split(f"\n## {program}\n")[1].split("\n## ")[0]
    (found,) = re.findall(r"^```python\n(.*?)^```$", section, re.M | re.S)
    return str(found)


def names(home: Home) -> dict[str, dict[str, int]]:
    """Table → its branches and tags, as the files say."""
    tables = refs_without_spark.open_branches(home)
    return {table: tables.load_metadata(table).ref_snapshots() for table in tables.tables}


class Others:
    """A reader that knows the catalog and nothing of the ledger: pyiceberg and DuckDB."""

    def __init__(self, ledger: Ledger) -> None:
        said = external_access.external_access(ledger)
        where = said.catalog
        self.catalog = load_catalog(where["name"], type="sql", uri=where["uri"], warehouse=where["warehouse"])
        self.frontier = said.frontier

    def rows(self, table: str, ref: str) -> Rows:
        import duckdb

        found = self.catalog.load_table(("graph", table))
        snapshot = found.snapshot_by_name(ref)
        assert snapshot is not None, (table, ref)
        rows = found.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        with duckdb.connect() as connection:
            connection.register("rows", rows)
            return Counter(connection.sql(AS_OF[table].format(rows="rows", at=self.frontier)).fetchall())


def published(home: Home, revision: int) -> dict[str, Rows]:
    """The same by altneu."""
    graph = Graph(home.path).arrow
    edges = graph.edges(revision=revision).to_pylist()
    vertices = graph.vertices(revision=revision).to_pylist()
    return {
        "trussness": Counter((row["src"], row["dst"], row["trussness"]) for row in edges),
        "edges": Counter((row["src"], row["dst"]) for row in edges),
        "degrees": Counter((row["vertex"], row["degree"]) for row in vertices),
    }


def check(ledger: Ledger, *tagged: int) -> None:
    """`main` is the newest revision and no more, and just these have a tag, in every table."""
    home = ledger.home
    newest, others, found = ledger.revisions.get(), Others(ledger), names(home)
    for table, refs in found.items():
        assert refs["main"] == newest.snapshots[table], table
        assert {name for name in refs if not name.startswith("going_")} == {"main", *(f"r{r}" for r in tagged)}, table
    expected = published(home, newest.revision)
    for table, rows in expected.items():
        assert rows and others.rows(table, "main") == rows == others.rows(table, f"r{newest.revision}"), table
        for revision in tagged:
            if ledger.revisions.get(revision).frontier == newest.frontier:
                assert others.rows(table, f"r{revision}") == published(home, revision)[table], (table, revision)
    assert external_access.external_access(ledger).tags == [f"r{revision}" for revision in tagged]


def test_main_and_tags_are_what_is_published_and_taken_back(
    numbers: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the process that takes back dies before the tags, in a moved home, and when all is taken back."""
    home, ledger = numbers.copy(tmp_path / "home")
    check(ledger, 1, 2)
    told: list[str] = []
    rollback.roll_back(ledger, 1, told.append)  # by SQL and metadata alone
    assert not told and ledger.revisions.get().snapshots == ledger.revisions.get(1).snapshots
    check(ledger, 1, 2, 3)
    with monkeypatch.context() as patch:  # it dies after the row of the ledger
        patch.setattr(Branches, "update_refs", lambda *_: exec("raise ConnectionRefusedError"))
        rollback.roll_back(ledger, 2, told.append)
    assert len(told) == 1 and "altneu doctor" in told[0] and "r4" not in names(home)["edges"]
    found = {each.name: each.finding for each in list_checks(home.path)}
    assert "brought up to date" in found["Tags"]
    check(ledger, 1, 2, 3, 4)
    shutil.copytree(home.path, tmp_path / "moved")
    moved = Home.open(tmp_path / "moved")
    relocate_home(moved)
    check(Ledger(moved), 1, 2, 3, 4)
    rollback.roll_back(ledger, 0)
    for table, refs in names(home).items():
        assert refs["main"] == refs["r5"] == refs_without_spark.open_branches(home).first_snapshot(table)


def test_without_a_publication_there_is_nothing_to_name(tmp_path: Path) -> None:
    _, ledger = home_helpers.make(tmp_path / "home", TOML)
    with pytest.raises(AltneuError, match="nothing is published"):
        external_access.external_access(ledger)


@pytest.mark.slow
def test_main_and_tags_are_what_is_published_over_compactions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", TOML)
    home_helpers.put(home, 1, make_clique(1, 2, 3, 4))
    home_helpers.put(home, 3, make_clique(4, 5, 6))
    home_helpers.run(ledger, [1, 3])
    home_helpers.put(home, 2, make_clique(2, 3, 5, 7))
    home_helpers.run(ledger, [2])
    check(ledger, 1, 2)
    told: list[str] = []
    rollback.roll_back(ledger, 1, told.append)  # by SQL and metadata alone
    assert (
        not told
        and ledger.revisions.get().snapshots == ledger.revisions.get(1).snapshots != ledger.revisions.get(2).snapshots
    )
    check(ledger, 1, 2, 3)
    home_helpers.run(ledger, [2])
    home_helpers.put(home, 1, make_clique(1, 2, 3))
    home_helpers.run(ledger, [1])
    # a compaction lets 3, 4 and 5 share their tables: the newest alone has a tag
    compact(ledger, spark, grace=0)
    assert ledger.revisions.get(4).snapshots == ledger.revisions.get(5).snapshots
    check(ledger, 5)
    with monkeypatch.context() as patch:  # it dies after the row of the ledger
        patch.setattr(Branches, "update_refs", lambda *_: exec("raise ConnectionRefusedError"))
        rollback.roll_back(ledger, 4, told.append)
    assert len(told) == 2 and "revision 4 shares its tables with later ones" in told[0] and "altneu doctor" in told[1]
    assert {refs["main"] for refs in names(home).values()} == set(ledger.revisions.get(5).snapshots.values())
    assert "r6" not in names(home)["edges"]
    found = {each.name: each.finding for each in list_checks(home.path)}
    assert "brought up to date" in found["Tags"]
    assert "are up to date" in {each.name: each.finding for each in list_checks(home.path)}["Tags"]
    assert ledger.revisions.get().hidden and published(home, 6) == published(home, 4) != published(home, 5)
    assert {name for name in names(home)["edges"] if name.startswith("run_")} <= {
        f"run_{ledger.revisions.get().run_id}"
    }
    monkeypatch.setattr(altneu.pipeline.state.process_identity, "SILENCE", 0)  # until now it may have been at it still
    home_helpers.run(ledger, [1])  # on from there, and the branches of the one that died go
    check(ledger, 5, 6, 7)
    # a moved home
    shutil.copytree(home.path, tmp_path / "moved")
    moved = Home.open(tmp_path / "moved")
    relocate_home(moved)
    check(Ledger(moved), 5, 6, 7)
    # revisions that a compaction drops, and the empty state
    home_helpers.put(home, 4, make_clique(1, 2, 3))
    home_helpers.run(ledger, [4])
    compact(ledger, spark, grace=0)
    check(ledger, 8)
    rollback.roll_back(ledger, 0)
    for table, refs in names(home).items():
        assert refs["main"] == refs["r9"] == refs_without_spark.open_branches(home).first_snapshot(table)


def test_the_recipes_answer_what_altneu_answers(
    numbers: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they stand on the page, and `altneu tables` as they call it."""
    home, _ = numbers.copy(tmp_path / "home")
    program = home.path / "bin" / "altneu"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m altneu.pipeline.cli "$@"\n')
    program.chmod(0o755)
    variables = {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(REPO)}
    for name, value in (variables | {"ALTNEU_HOME": str(home.path)}).items():
        monkeypatch.setenv(name, value)
    edges = Graph(home.path).arrow.edges(as_of="2").to_pylist()
    expected = {(row["src"], row["dst"], row["trussness"]) for row in edges}
    assert expected and len(expected) != Graph(home.path).arrow.edges().num_rows
    for engine in ("pyiceberg", "DuckDB", "Spark"):
        given: dict[str, Any] = {}
        exec(recipe(engine), given)
        answer = given["answer"]
        if engine == "pyiceberg":
            rows = [row for row in answer.to_pylist() if row["diff_sum"]]
            assert {(row["a"], row["b"], row["k"]) for row in rows} == expected
        else:
            assert {tuple(row) for row in answer} == expected, engine
    said = json.loads(subprocess.check_output(["altneu", "tables", "--format", "json"]))
    assert (said["revision"], said["tag"], said["frontier"], said["tags"]) == (2, "r2", 3, ["r1", "r2"])
    old = json.loads(subprocess.check_output(["altneu", "tables", "--revision", "1", "--format", "json"]))
    assert (old["tag"], old["frontier"]) == ("r1", 2)
    section = (REPO / "docs" / "engines.md").read_text().split("\n## Two times\n")[1].split("\n## ")[0]
    for block in re.findall(r"^```python\n(.*?)^```$", section, re.M | re.S):  # `given` has the Spark of the recipe
        assert "2026-05-01T12:00" in block or "VERSION AS OF" in block
        exec(block.replace("2026-05-01T12:00", old["published_at"]), given)
        found = {tuple(row) for row in given["answer"]}
        first = Graph(home.path).arrow.edges(as_of="2", published_at=old["published_at"]).to_pylist()
        assert found == {(row["src"], row["dst"], row["trussness"]) for row in first} != set()
        assert given["said"]["revision"] == 1
    text = subprocess.check_output(["altneu", "tables"], text=True)
    assert said["catalog"]["name"] in text and "revision   2, tag r2" in text and "trussness" in text
    wrong = subprocess.run(["altneu", "tables", "--revision", "9"], capture_output=True, text=True)
    assert wrong.returncode != 0 and "revision 9 was not published" in wrong.stderr


def test_a_commit_without_spark_is_refused_when_another_was_first(
    spark: SparkSession, numbers: History, tmp_path: Path
) -> None:
    """And it changes the names of a table, and nothing else of its metadata."""
    from altneu.pipeline.state import filesystem
    from altneu.pipeline.storage import iceberg
    from altneu.pipeline.storage.warehouse import Warehouse

    home, ledger = numbers.copy(tmp_path / "home")
    tables = refs_without_spark.open_branches(home)
    pin = ledger.revisions.get(1).snapshots["edges"]
    early, late = tables.load_metadata("edges"), tables.load_metadata("edges")
    before = json.loads(filesystem.read_file(early.metadata_location))
    early.commit_steps([("createTag", "mine", pin)])
    with pytest.raises(iceberg.CommitConflict):
        late.commit_steps([("createTag", "yours", pin)])
    after = json.loads(filesystem.read_file(tables.load_metadata("edges").metadata_location))
    assert after["refs"] == before["refs"] | {"mine": {"snapshot-id": pin, "type": "tag"}}
    may = {"refs", "metadata-log", "last-updated-ms"}
    assert {name for name in before.keys() | after if after.get(name) != before.get(name)} <= may
    folder = Path(filesystem.normalize_location(early.metadata_location)).parent
    assert len([*folder.glob("*.metadata.json")]) <= 11  # as the table's properties say
    through_spark = Warehouse(spark, home).load_metadata("edges")  # Iceberg goes on from it
    through_spark.commit_steps([("removeTag", "mine")])
    assert names(home)["edges"] == {name: ref["snapshot-id"] for name, ref in before["refs"].items()}
