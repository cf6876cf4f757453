"""The page of rows: communities and what becomes of them against networkx and by hand, and the page in a browser."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from altneu.pipeline.report.html import render_rows_page
from altneu.pipeline.report.rows_page import (
    Edge,
    Group,
    _community_events,
    _community_flows,
    _drawn_community,
    _list_members,
    edge_communities,
    number_communities,
)
from tests.browser import Visit as Visited
from tests.report.seed import HOSTILE
from tests.report.test_pages import Reader


def clique(*vertices: int) -> set[Edge]:
    return set(combinations(sorted(vertices), 2))


@pytest.mark.parametrize("seed", range(20))
def test_communities_are_the_components_of_the_graph_of_triangles(seed: int) -> None:
    drawn = random.Random(seed)
    edges = {pair for pair in combinations(range(14), 2) if drawn.random() < 0.25}
    joined = nx.Graph()
    joined.add_nodes_from(edges)
    for a, b, c in combinations(range(14), 3):
        sides = [(a, b), (a, c), (b, c)]
        if all(side in edges for side in sides):
            joined.add_edges_from(combinations(sides, 2))
    expected = sorted(sorted(part) for part in nx.connected_components(joined))
    found = edge_communities(edges)
    by_vertices: dict[Group, list[Edge]] = {}
    for part in expected:  # those of the same vertices are shown as one
        by_vertices.setdefault(frozenset(end for edge in part for end in edge), []).extend(part)
    assert {group: sorted(mine) for group, mine in found.items()} == {g: sorted(m) for g, m in by_vertices.items()}
    assert [len(mine) for mine in found.values()] == sorted((len(mine) for mine in found.values()), reverse=True)


STORY = [
    clique(1, 2, 3, 4) | clique(11, 12, 13),
    clique(1, 2, 3, 4, 5) | clique(11, 12, 13) | clique(21, 22, 23),
    clique(1, 2, 3, 4, 5, 11, 12, 13) | clique(21, 22, 23),
    clique(1, 2, 3, 4, 5) | clique(11, 12, 13),
    set(),
]


def test_what_becomes_of_them() -> None:
    groups = [edge_communities(edges) for edges in STORY]
    numbers = number_communities(groups)
    assert numbers == [[1, 2], [1, 2, 3], [1, 3], [1, 4], []]
    said = [sorted(_community_events(groups, numbers, place)) for place in range(len(STORY))]
    assert said == [[], ["3 is new"], ["2 merged into 1"], ["3 is gone", "4 split from 1"], ["1 is gone", "4 is gone"]]


def page(folder: Path, story: list[set[Edge]], name: str, rows: int) -> Path:
    """The page of a made-up history, with rows and names as they may be."""
    called = {vertex: f"{name}{vertex}" for edges in story for edge in edges for vertex in edge}
    groups = [edge_communities(edges) for edges in story]
    numbers = number_communities(groups)
    steps: list[dict[str, Any]] = []
    for place, mine in enumerate(groups):
        now = {vertex for group in mine for vertex in group}
        then = {vertex for group in groups[max(place - 1, 0)] for vertex in group}
        steps.append(
            {
                "label": f"2004-05-{place + 1:02d}",
                "communities": [
                    {"number": number, "vertices": len(group), "edges": len(edges)}
                    for number, (group, edges) in zip(numbers[place], mine.items(), strict=True)
                ],
                "flows": _community_flows(groups[place - 1], mine) if place else [],
                "entered": _list_members(now - then, called),
                "left": _list_members(then - now, called),
                "said": list(_community_events(groups, numbers, place)),
            }
        )
    k_of = {edge: 3 + edge[0] % 3 for edges in story for edge in edges}
    drawn = [_drawn_community(n, mine, k_of, called) for n, mine in zip(numbers[-1], groups[-1].values(), strict=True)]
    table = {
        "view": "edges",
        "title": "Edges",
        "columns": ["src", "dst", "trussness"],
        "rows": [[f"{name}{place}", f"{name}{place + 1}", place % 7] for place in range(rows)],
        "count": 10 * rows,
        "which": "those of the greatest trussness",
        "command": "altneu show edges --as-of 2004-05-05 --revision 7 --format csv",
    }
    at = "2026-11-24T01:34:37.989+00:00"
    found = {
        "label": "2004-05-05",
        "before": "2004-05-04",
        "revision": 7,
        "published_at": at,
        "at": at,
        "why": None,
        "tables": [table],
        "trusses": {"k": 3, "edges": len(story[-1]), "epochs": steps, "drawn": drawn, "more": 0},
    }
    path = folder / "rows=2004-05-05.revision=7.html"
    path.write_text(render_rows_page(found, lambda name: False), encoding="utf-8")
    return path


def test_it_is_well_formed_escaped_small_and_drawn_in_the_same_way(tmp_path: Path) -> None:
    large = [*STORY[:-1], clique(*range(24)) | clique(*range(100, 112))]
    path = page(tmp_path, large, HOSTILE, 300)
    first = path.read_text()
    read = Reader(first)
    assert "<script>alert" not in first and "onerror=alert(1)>" not in first and "img" not in read.tags
    assert len(read.ids) == len(set(read.ids)) and read.tags.count("circle") == 24 + 12
    assert page(tmp_path, large, HOSTILE, 300).read_text() == first
    plain = page(tmp_path, [clique(*range(80))] * 3, "a person of some name ", 300)  # sixty of them are drawn
    assert Reader(plain.read_text()).tags.count("circle") == 60 and plain.stat().st_size < 300_000


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_it_is_for_everybody(tmp_path: Path, browser: Any, width: int, scheme: str) -> None:
    visit = Visited(browser, page(tmp_path, STORY[:-1], "v", 30), width, scheme)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    visit.require_accessible()
    visit.quiet()


def test_rows_are_searched_sorted_and_downloaded(tmp_path: Path, browser: Any) -> None:
    visit = Visited(browser, page(tmp_path, STORY[:-1], 'v, "', 30))
    shown = visit.page.locator("#h-edges ~ .box tbody tr:visible")
    assert shown.count() == 30
    visit.page.get_by_role("searchbox").fill('v, "2')
    assert shown.count() == 13  # 2, 20 to 29, and 1 and 19, whose other ends are 2 and 20
    visit.page.get_by_role("button", name="trussness").click()
    assert [each.split("\t")[2] for each in shown.all_inner_texts()][:2] == ["6", "6"]
    with visit.page.expect_download() as saved:
        visit.page.get_by_role("button", name="Download as CSV").click()
    lines = saved.value.path().read_text().splitlines()
    assert saved.value.suggested_filename == "edges-2004-05-05-revision-7.csv"
    assert lines[0] == "src,dst,trussness" and len(lines) == 14 and lines[1].startswith('"v, ""')
    assert not visit.errors
    visit.context.close()


def test_times_are_in_the_readers_zone(tmp_path: Path, browser: Any) -> None:
    context = browser.new_context(timezone_id="Europe/Berlin")
    there = context.new_page()
    there.goto(page(tmp_path, STORY, "v", 3).as_uri())
    assert there.locator("time").first.inner_text() == "2026-11-24 02:34 CET (01:34 UTC)"
    context.close()
