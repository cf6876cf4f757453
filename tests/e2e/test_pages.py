"""Pages after runs: a correction of the first epoch rewrites those of the later ones, with the numbers that a reader of
the tables gets, and none says `equal` of what was not compared since; a run that fails leaves its page.

Without Spark: `test_ledger_only.py` compares such pages with those of real runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from altneu.pipeline.errors import CheckFailed, RunFailed, UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.reading import views
from altneu.pipeline.reading.graph import Graph
from altneu.pipeline.report import epoch_document, write_vertex
from altneu.pipeline.report.html.formatting import vertex_page
from altneu.pipeline.report.rows_page import describe_rows, page_name
from altneu.pipeline.report.vertex_page import describe_vertex as vertex_of
from altneu.pipeline.state.ledger import Ledger
from tests import home_helpers
from tests.ledger_only import LedgerOnly
from tests.report.seed import DAILY, write
from tests.report.test_statements import history

TRIANGLE = [(1, 2), (2, 3), (1, 3)]


def land(home: Home, epoch: int, edges: list[tuple[int, int]]) -> None:
    home_helpers.put(home, epoch, [(a, b, None, "upsert", 0) for a, b in edges])


@pytest.mark.usefixtures("ledger_only", "pages")
def test_pages_of_later_epochs_follow_a_correction(tmp_path: Path) -> None:
    home, ledger = home_helpers.make(tmp_path / "home")
    for epoch, edges in ((1, TRIANGLE), (2, [(3, 4)]), (3, [(2, 4)])):
        land(home, epoch, edges)
    home_helpers.run(ledger, [1, 2, 3])
    assert "Equal to a full recomputation" in (home.reports / "epoch=3.html").read_text()
    land(home, 1, TRIANGLE[:2])
    home_helpers.run(ledger, [1])
    for row in views.select_totals(ledger, all_epochs=True):
        found, text = (
            epoch_document(ledger, row["epoch"]),
            (home.reports / f"epoch={row['label']}.html").read_text(),
        )
        for name in ("vertices", "edges", "triangles", "max_trussness"):
            assert found["graph"]["measures"][name]["value"] == row[name]
        assert ("Equal to a full recomputation" in text) == (found["audit"]["says"] == "equal")
        assert "at revision 2, from the database" in text
    assert epoch_document(ledger, 2)["audit"]["says"] != "equal"  # the run has compared its own epoch and the frontier
    assert "Corrected: 3 rows became 2." in (home.reports / "epoch=1.html").read_text()
    (home.landing / "epoch=4").mkdir()
    (home.landing / "epoch=4" / "rows.csv").write_text("src,dst\n" + "x,y\n" * 50)
    with pytest.raises((CheckFailed, RunFailed)):
        home_helpers.run(ledger, [4])
    failed = (home.reports / "epoch=4.html").read_text()
    assert "Not loaded. The run stopped" in failed and 'href="epoch=3.html"' in failed


def test_every_statement_has_a_source_on_postgresql(postgres: str, tmp_path: Path) -> None:
    history(tmp_path, 7, 6, DAILY + f'[storage]\ndatabase = "{postgres}"\n')


def of_a_vertex(ledger: Ledger, vertex: str, revision: int) -> None:
    """Its page says what `Graph` says of it, at every epoch."""
    graph, row = Graph(ledger.home.path).arrow, ledger.revisions.get(revision)
    found = vertex_of(ledger.home, row, 3, vertex, [1, 2, 3], "2026-11-24T01:34:37.989+00:00")
    for place, epoch in enumerate(("1", "2", "3")):
        mine = [each for each in graph.vertices(epoch, revision).to_pylist() if each["vertex"] == vertex]
        edges = [e for e in graph.edges(epoch, revision).to_pylist() if vertex in (e["src"], e["dst"])]
        expected = {
            "degree": mine[0]["degree"] if mine else 0,
            "triangles": mine[0]["triangles"] if mine else 0,
            "trussness": max((edge["trussness"] for edge in edges), default=0),
        }
        assert {name: values[place] for name, values in found["series"].items()} == expected, epoch
    ends = {edge["dst"] if edge["src"] == vertex else edge["src"]: edge["trussness"] for edge in edges}
    assert dict(map(tuple, found["edges"])) == ends and found["count"] == len(ends)
    assert set(found["names"]) == {vertex, *ends} and found["names"][found["self"]] == vertex
    among = {(e["src"], e["dst"]): e["trussness"] for e in graph.edges("3", revision).to_pylist()}
    drawn = {frozenset((found["names"][a], found["names"][b])): k for a, b, k in found["lines"]}
    assert drawn == {frozenset(pair): k for pair, k in among.items() if {*pair} <= {vertex, *ends}}
    assert Path(write_vertex(ledger, 3, vertex, row)).read_text().count("<tr>") == 1 + len(ends)


@pytest.mark.usefixtures("pages")
def test_the_page_of_rows_says_what_a_reader_gets(ledger_only: LedgerOnly, tmp_path: Path) -> None:
    """Its tables and drawn trusses are those of `Graph` at the revision in its name, also when a correction has come;
    a run writes it, and a table that cannot be read does not fail one."""
    home, ledger = home_helpers.make(tmp_path / "home", '[vertices]\nids = "string"\n')
    first = [(f"a{i}", f"a{j}") for i in range(5) for j in range(i)]
    second = [(f"b{i}", f"b{j}") for i in range(4) for j in range(i)] + [("a0", "b0")]
    joins = [(f"a{i}", f"b{j}") for i in range(2) for j in range(4)]
    for epoch, edges in ((1, first), (2, second), (3, joins)):
        home_helpers.put(home, epoch, [(a, b, None, "upsert", 0) for a, b in edges])
    home_helpers.run(ledger, [1, 2, 3])
    written = home.reports / page_name("3", 1)
    before, text = rows_of(ledger, 1), written.read_text()
    same_as_read(home, before, 1)
    steps = before["trusses"]["epochs"]
    assert before["trusses"]["k"] == 3 and [len(step["communities"]) for step in steps] == [1, 2, 1]
    assert steps[1]["entered"] == {"count": 4, "first": ["b0", "b1", "b2", "b3"]} and steps[1]["said"] == ["2 is new"]
    assert steps[2]["said"] == ["2 merged into 1"]
    assert 'href="rows=3.revision=1.html"' in (home.reports / "index.html").read_text()
    home_helpers.put(home, 2, [(a, b, None, "upsert", 0) for a, b in second[:3]])  # a triangle
    home_helpers.run(ledger, [2])
    same_as_read(home, rows_of(ledger, 2), 2)
    assert rows_of(ledger, 1) == before and written.read_text() == text
    newest = home.reports / page_name("3", 2)
    assert newest.exists() and newest.name in (home.reports / "epoch=3.html").read_text()
    for revision in (1, 2):
        of_a_vertex(ledger, "b0", revision)
    assert f'href="{vertex_page("b0", "3", 2)}"' in newest.read_text()
    with pytest.raises(UsageError, match="no vertex is called 'b9'"):
        write_vertex(ledger, 3, "b9", ledger.revisions.get())
    with pytest.raises(UsageError, match="no edge at any epoch up to 1"):
        write_vertex(ledger, 1, "b0", ledger.revisions.get())
    newest.unlink()
    ledger_only.catalog(home).rows["trussness"].clear()
    write(ledger, [3])
    assert not newest.exists() and newest.name not in (home.reports / "epoch=3.html").read_text()


def rows_of(ledger: Ledger, revision: int) -> dict[str, Any]:
    return describe_rows(ledger, ledger.revisions.get(revision), 3, [1, 2, 3], "")


def same_as_read(home: Home, found: dict[str, Any], revision: int) -> None:
    graph = Graph(home.path, engine="duckdb").arrow
    expected = {
        "vertices": graph.vertices(as_of="3", revision=revision),
        "edges": graph.edges(as_of="3", revision=revision),
        "changes": graph.changes("2", "3", revision=revision),
    }
    for table in found["tables"]:
        rows = [tuple(row.values()) for row in expected[table["view"]].to_pylist()]
        assert sorted(map(tuple, table["rows"])) == sorted(rows) and table["count"] == len(rows)
    inside = graph.edges(as_of="3", revision=revision, where=f"trussness >= {found['trusses']['k']}").to_pylist()
    known = {(*sorted((row["src"], row["dst"])), row["trussness"]) for row in inside}
    drawn = set()
    for one in found["trusses"]["drawn"]:
        drawn |= {(*sorted((one["names"][a], one["names"][b])), k) for a, b, k in one["lines"]}
    assert drawn == known and found["trusses"]["edges"] == len(known)
