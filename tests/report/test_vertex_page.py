"""The page of a vertex: well-formed, escaped, drawn in the same way; and in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from altneu.pipeline.report.html import formatting, render_vertex_page
from tests.browser import Visit
from tests.report.seed import HOSTILE
from tests.report.test_pages import Reader

AT = "2026-11-24T01:34:37.989+00:00"


def page(folder: Path, name: str, neighbours: int, epochs: int = 40) -> Path:
    """Of a star with some triangles."""
    drawn = min(neighbours, 40)
    found: dict[str, Any] = {
        "vertex": f"{name}0",
        "label": "2004-05-05",
        "revision": 7,
        "published_at": AT,
        "at": AT,
        "rows_page": "rows=2004-05-05.revision=7.html",
        "labels": [f"2004-05-{day:02d}" for day in range(1, epochs + 1)],
        "series": {measure: [day % 9 for day in range(epochs)] for measure in ("degree", "triangles", "trussness")},
        "now": {"degree": neighbours, "triangles": 3, "trussness": 4},
        "edges": [[f"{name}{other}", 2 + other % 3] for other in range(1, min(neighbours, 300) + 1)],
        "count": neighbours,
        "names": [f"{name}{each}" for each in range(drawn + 1)],
        "self": 0,
        "lines": [(0, each, 3) for each in range(1, drawn + 1)] + [(1, 2, 3)] * (drawn > 1),
        "command": "altneu show edges --vertex 0 --as-of 2004-05-05 --revision 7 --format csv",
    }
    path = folder / formatting.vertex_page(found["vertex"], found["label"], 7)
    near = formatting.vertex_page(f"{name}1", found["label"], 7)
    path.write_text(render_vertex_page(found, {near, found["rows_page"]}.__contains__), encoding="utf-8")
    return path


def test_it_is_well_formed_escaped_small_and_drawn_in_the_same_way(tmp_path: Path) -> None:
    path = page(tmp_path, HOSTILE, 500)
    first = path.read_text()
    read = Reader(first)
    assert "<script>alert" not in first and "onerror=alert(1)>" not in first and "img" not in read.tags
    assert len(read.ids) == len(set(read.ids)) and first.count('class="node') == 41 and first.count('"node it"') == 1
    assert "300 of 500: those of the greatest trussness" in first and "The 40 of 500 neighbours" in first
    assert first.count('href="vertex=') == 1 and 'href="rows=2004-05-05.revision=7.html"' in first
    assert page(tmp_path, HOSTILE, 500).read_text() == first and path.stat().st_size < 300_000
    assert "All 1 neighbour," in page(tmp_path, "v", 1, 1).read_text()
    nothing = page(tmp_path, "v", 0).read_text()  # it had edges once
    assert "Its neighbourhood" not in nothing and "All 0 edges." in nothing


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_it_is_for_everybody(tmp_path: Path, browser: Any, width: int, scheme: str) -> None:
    visit = Visit(browser, page(tmp_path, "v", 120), width, scheme)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    box = visit.page.locator(".box")
    assert box.evaluate("box => box.scrollHeight > box.clientHeight && box.clientHeight < 600")
    visit.require_accessible()
    visit.quiet()


def test_its_edges_are_searched_and_downloaded(tmp_path: Path, browser: Any) -> None:
    visit = Visit(browser, page(tmp_path, "v", 30))
    visit.page.get_by_role("searchbox").fill("v2")
    assert visit.page.locator(".box tbody tr:visible").count() == 11
    with visit.page.expect_download() as saved:
        visit.page.get_by_role("button", name="Download as CSV").click()
    lines = saved.value.path().read_text().splitlines()
    assert lines[0] == "neighbour,trussness" and len(lines) == 12 and "v2,4" in lines
    visit.context.close()
