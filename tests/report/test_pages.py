"""The pages as text: escaped, self-contained, small, the same for the same state, and each fact where it belongs."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

import altneu.pipeline.report.page_writer
from altneu.pipeline.home.home import Home
from altneu.pipeline.report.html.charts import axis_ticks
from altneu.pipeline.state.ledger import Ledger
from tests.report.seed import DAY, HOSTILE, Seed, audit, check, write

VOID = {"meta", "link", "img", "input", "br", "hr"}


class Reader(HTMLParser):
    """The tags, links and ids of a page; fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        found = dict(attrs)
        self.links += [found[name] or "" for name in ("href", "src", "action", "srcset") if name in found]
        self.ids += [found["id"] or ""] if "id" in found else []
        assert not [name for name in found if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data


def pages(home: Path) -> dict[str, str]:
    """The pages, without when each was written."""
    return {path.name: unwritten(path) for path in sorted((home / "reports").glob("*.html"))}


def unwritten(path: Path) -> str:
    return re.sub(r"(Written|looked at) <time[^>]*>[^<]*</time>( at revision \d+)?", r"\1", path.read_text())


def test_every_page_is_well_formed_escaped_and_self_contained(states: Seed) -> None:
    found = pages(states.home.path)
    checks = [name for name in found if name.startswith("check=")]
    assert len(found) == 47 + len(checks) and "index.html" in found and len(checks) == 6
    for name, text in found.items():
        page = Reader(text)
        assert "<script>alert" not in text and "onerror=alert(1)>" not in text and "img" not in page.tags
        assert page.tags.count("script") == (3 if name == "index.html" else 1)
        assert not re.search(r"https?://|[\"'(]//|@import|url\(", text.replace(HOSTILE, ""))
        assert all(link.startswith("#") or link in found or link == "data:," for link in page.links), page.links
        assert len(page.ids) == len(set(page.ids))
        assert page.tags.count("h1") == 1 and page.tags.count("main") == 1


def test_failed_checks_are_named_with_rows_meaning_and_remedy(states: Seed) -> None:
    found = {name: Reader(text).text for name, text in pages(states.home.path).items()}
    warned, wrong, failed = (found[f"epoch=2004-08-{day}.html"] for day in (10, 11, 13))
    for said in ("rows as usual", "What rows as usual means.", "what to do about rows as usual", "90", "usual", "22"):
        assert said in warned
    assert "Quarantined rows" in warned and HOSTILE in warned and "not a number" in warned
    assert "Vertices that changed most" in warned
    assert f"edge {HOSTILE}" in wrong and "1 difference" in wrong and "altneu repair 2004-08-11" in wrong
    assert "The first row explained" in wrong and "maintained as 4, recomputed as 5" in wrong
    assert f"the upsert of a{HOSTILE}.csv line 3 makes the edge" in wrong
    assert "The first row explained" not in warned + failed
    assert "Not compared" not in failed and "No suite was run" not in failed  # nothing is published that could be
    assert "The run that failed" in failed and "copies" in failed and "what to do about edges are unique" in failed


def test_the_index_says_why_an_epoch_needs_somebody(states: Seed) -> None:
    text = Reader(pages(states.home.path)["index.html"]).text
    listed = text[text.index("What needs you") : text.index("The graph over time")]
    assert f"audit: 1 critical check(s) failed {HOSTILE}" in listed
    assert "trussness values of edges equal: 1 difference" in listed and "rows as usual: 3 of 10 rows" in listed


def test_nothing_is_to_do_only_where_the_landing_is_published(seed: Seed, monkeypatch: pytest.MonkeyPatch) -> None:
    seed.run({DAY: (9, 0)}, {}, audit(DAY))

    def text(**landed: list[str]) -> str:
        there = {"at": "2004-07-02T08:00:00+00:00", "missing": [], "changed": [], "gone": []} | landed
        monkeypatch.setattr(altneu.pipeline.report.page_writer, "inspect_landing", lambda *_: there)
        write(seed.ledger, [DAY])
        return Reader(pages(seed.home.path)["index.html"]).text

    assert "Nothing to do." in text()
    for state in ("missing", "changed", "gone"):
        assert "Nothing to do." not in text(**{state: ["2004-07-01"]})


def test_what_informs_is_no_failure(seed: Seed) -> None:
    seed.run({DAY: (9, 0)}, {}, [check(DAY, "no self-loops", False, severity="info"), check(DAY, "x"), *audit(DAY)])
    text = Reader(write(seed.ledger, [DAY])[1].read_text()).text
    assert "Nothing to do." in text and "1 other check passed." in text and "no self-loops" in text


def test_changes_have_a_sign_and_empty_columns_are_left_out(seed: Seed) -> None:
    moved = {"top_vertices": {str(DAY): [{"vertex": 7, "triangles": 361}, {"vertex": 8, "triangles": -2}]}}
    rows = [{"a": 1, "copies": 2, "foreign": None}, {"a": 3, "copies": None, "foreign": None}]
    seed.run(
        {DAY: (9, 0)},
        {DAY: {"edges": 3}},
        [check(DAY, "x", False, severity="warning", rows=rows)],
        {"triangles": moved},
    )
    text = Reader(write(seed.ledger, [DAY])[1].read_text()).text
    assert "+361" in text and "−2" in text and "copies" in text and "foreign" not in text


def test_the_order_of_the_returned_paths(seed: Seed) -> None:
    seed.good_days(5)
    written = write(seed.ledger, [DAY + 3, DAY + 1])
    assert [path.name for path in written] == ["index.html", "epoch=2004-07-02.html", "epoch=2004-07-04.html"]
    checks = {path.name for path in seed.home.reports.glob("check=*.html")}
    there = {path.name for path in seed.home.reports.glob("*.html")}
    assert there == {path.name for path in written} | checks and len(checks) == 4
    assert [path.name for path in write(seed.ledger, [])] == ["index.html"]
    index = written[0].read_text()
    assert 'href="epoch=2004-07-02.html"' in index and '<button class="c g" value="2004-07-03"' in index


def test_a_home_without_a_run_has_an_index(seed: Seed) -> None:
    (index,) = write(seed.ledger, [])
    assert "Nothing has been run yet." in Reader(index.read_text()).text


def test_the_same_state_gives_the_same_bytes(seed: Seed) -> None:
    seed.good_days(35)
    epochs = [DAY, DAY + 20, DAY + 34]
    first = [unwritten(path) for path in write(seed.ledger, epochs)]
    assert [unwritten(path) for path in write(seed.ledger, epochs)] == first


def test_any_past_epoch_is_the_same_from_a_copy_of_the_database(states: Seed, tmp_path: Path) -> None:
    shutil.copytree(states.home.path, tmp_path / "copy", ignore=shutil.ignore_patterns("reports"))
    home = Home.open(tmp_path / "copy")
    before, ledger, epochs = pages(states.home.path), Ledger(home), range(12_600, 12_646)
    write(ledger, list(epochs)[::-1])
    assert pages(home.path) == before
    for epoch in epochs[::3]:
        page = home.reports / f"epoch={home.schedule.format_label(epoch)}.html"
        page.unlink()
        assert write(ledger, [epoch])[1] == page
        assert unwritten(page) == before[page.name]


def test_an_epochs_page_does_not_change_with_what_is_published_after_it(seed: Seed) -> None:
    seed.good_days(10)
    before = unwritten(write(seed.ledger, [DAY + 5])[1])
    seed.good_days(5, DAY + 10)
    after = unwritten(write(seed.ledger, [DAY + 5])[1])
    assert before.replace("2004-07-10", "") == after.replace("2004-07-10", "")


def test_the_pages_of_three_thousand_epochs_are_below_300_kilobytes(seed: Seed) -> None:
    seed.good_days(3_000)
    index, last = write(seed.ledger, [DAY + 2_999])
    text = index.read_text()
    page = Reader(text)
    cells = text.count('class="c ')
    assert 340 < cells < 400 and page.tags.count("button") >= cells - 1  # the newest year; the script makes the others
    sizes = {file.name: file.stat().st_size for file in seed.home.reports.glob("*.html")}
    assert last.name in sizes and len(sizes) == 6 and max(sizes.values()) < 300_000, sizes


def test_schedules_of_hours_weeks_and_integers(tmp_path: Path) -> None:
    for every, first, group in (("6h", 50_000, "2004-03-23"), ("7d", 1_790, "2004"), (None, 95, "0 to 99")):
        seed = Seed(tmp_path / str(every), f'[epochs]\nevery = "{every}"\n' if every else "")
        seed.good_days(10, first)
        index, page = write(seed.ledger, [first + 9])
        assert f'aria-label="{group}"' in index.read_text()
        assert "Loaded well." in Reader(page.read_text()).text


def test_the_ticks_of_a_picture_are_few_whole_and_cover_it() -> None:
    assert (axis_ticks(7), axis_ticks(8231), axis_ticks(0)) == ([0, 3, 6, 9], [0, 3000, 6000, 9000], [0, 1])
    for top in [*range(1, 3_000), 10**9, 123_456_789_012]:
        found = axis_ticks(top)
        assert len(found) <= 4 and found[-1] >= top and all(tick == int(tick) for tick in found), (top, found)


def test_each_stage_shows_what_it_wrote_and_its_memory(seed: Seed) -> None:
    cost = {"rows": 6_518, "files": 2, "bytes": 19_277, "python": 222_765_056, "jvm": 1_147_129_856, "workers": 0}
    truss = {"methods": {"descend": 2, "none": 1}, "epochs": 3}
    seed.run({DAY: (9, 0)}, {}, facts={"triangles": {"rows": 3_995, "proposals": 18_360, "cost": cost}, "truss": truss})
    text = Reader(write(seed.ledger, [DAY])[1].read_text()).text
    assert "rows 3,995 · proposals 18,360" in text
    assert "h-index descent (deletions): 2 epochs · nothing to do: 1 epoch · rows 0 · epochs 3" in text
    assert "wrote 6,518 rows, 19 kB in 2 files · memory at most: Java 1.1 GB, Python 223 MB" in text


def test_data_docs_stand_beside_the_page_and_are_linked(seed: Seed) -> None:
    early = {"epoch": DAY, "landed_at": HOSTILE, "over_at": "then", "early": "1:30:00 before its end"}
    name = "the epoch was over when it landed"
    seed.run(
        {DAY: (9, 0)},
        {DAY: {"vertices": 4, "edges": 6}},
        [
            check(DAY, name, False, suite="volumes", severity="warning", rows=[early], observed=f"early {HOSTILE}"),
            check(DAY, "the batch is not empty", suite="volumes"),
            check(DAY, "a rule of an earlier version", False, suite="volumes"),
            check(DAY, "an edge is in the edge set once", suite="edges"),
        ],
    )
    page = write(seed.ledger, [DAY])[-1]
    assert "data-docs" not in page.read_text()
    write(seed.ledger, [DAY], data_docs=True)
    links = [link for link in Reader(page.read_text()).links if link.startswith("data-docs/")]
    docs = {Path(link).stem: (page.parent / link).read_text() for link in links}
    assert set(docs) == {"volumes", "edges"}
    assert "1:30:00 before its end" in docs["volumes"] and "before its end" not in docs["edges"]
    assert "50%" in docs["volumes"] and "100%" in docs["edges"]  # the share of checks that passed
    assert not any(HOSTILE in text for text in docs.values())
    assert write(seed.ledger, [DAY])[-1].read_text().count("data-docs/") == 2  # stays linked


def test_the_index_of_a_history_with_holes(seed: Seed) -> None:
    """An epoch between others in which nothing was landed is drawn as one without rows."""
    totals = {"vertices": 3, "edges": 3, "triangles": 1, "truss3": 3}
    seed.run({DAY: (3, 0)}, {DAY: totals})
    seed.run({DAY + 3: (5, 0)}, {DAY + 3: totals})
    index = write(seed.ledger, [DAY, DAY + 3])[0].read_text()
    assert "Landed rows over epochs" in index
