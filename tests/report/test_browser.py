"""The pages in a browser: filter, search, offending rows, narrow screens, dark mode, accessibility (axe-core), and that
they make no request and no error."""

from __future__ import annotations

from typing import Any

import pytest

from altneu.pipeline.report import epoch_document
from tests.browser import Visit
from tests.report.seed import DAY, HOSTILE, Seed, check, write


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("name", ["index", *(f"epoch=2004-08-{day:02d}" for day in (9, 10, 11, 13))])
def test_no_scroll_to_the_side_no_request_no_error(states: Seed, browser: Any, name: str, width: int) -> None:
    visit = Visit(browser, states.home.reports / f"{name}.html", width)
    visit.page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    visit.quiet()


def test_filter_and_search(states: Seed, browser: Any) -> None:
    visit = Visit(browser, states.home.reports / "index.html")
    page = visit.page
    assert page.locator(".c:visible").count() == 45
    page.get_by_label("correct 40").uncheck()
    assert page.locator(".c:visible").count() == 5
    assert page.locator("#found").inner_text() == "5 of 45 epochs"
    page.get_by_label("Search").fill("08-11")
    assert page.locator(".c:visible").count() == 1
    assert "≠ wrong" in page.locator("#list tbody tr").inner_text()
    page.locator(".c:visible").click()
    assert page.locator("h1").inner_text() == "Wednesday, 2004-08-11"


def test_an_epoch_without_a_page_says_the_command(seed: Seed, browser: Any) -> None:
    seed.good_days(30)
    visit = Visit(browser, write(seed.ledger, [DAY])[0])
    visit.page.get_by_role("button", name="3 July 2004: correct", exact=True).click()
    assert "altneu report 2004-07-03" in visit.page.locator("#hint").inner_text()
    visit.page.get_by_role("button", name="Show more").click()
    assert visit.page.locator("#list tbody tr").count() == 30
    visit.quiet()


def test_dark_mode_follows_the_reader(states: Seed, browser: Any) -> None:
    colours = []
    for scheme in ("light", "dark"):
        visit = Visit(browser, states.home.reports / "epoch=2004-08-10.html", scheme=scheme)
        colours.append(visit.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        visit.quiet()
    light, dark = (sum(int(part) for part in colour[4:-1].split(",")) for colour in colours)
    assert light > 700 and dark < 100


def test_the_keyboard_reaches_the_content_and_the_grid(states: Seed, browser: Any) -> None:
    visit = Visit(browser, states.home.reports / "index.html")
    visit.page.keyboard.press("Tab")
    assert visit.page.evaluate("document.activeElement.className") == "skip"
    visit.page.locator(".c").first.focus()
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_url("**/epoch=*.html")


def test_two_thousand_epochs_filter_at_once(seed: Seed, browser: Any) -> None:
    seed.good_days(2_000)
    visit = Visit(browser, write(seed.ledger, [])[0], 400)
    assert 300 < visit.page.locator(".c:visible").count() < 400  # twelve months; the others on demand
    visit.page.get_by_label("Search").fill("2006-12-3")
    assert visit.page.locator(".c:visible").count() == 2
    visit.page.get_by_label("Search").fill("")
    assert 300 < visit.page.locator(".c:visible").count() < 400  # what the search has opened is folded again
    summaries = visit.page.locator("details.older > summary")
    assert summaries.first.inner_text() == "January 2008 to December 2008: 366 correct"
    visit.page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert visit.page.locator(".c:visible").count() == 2_000
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 400
    visit.quiet()


def test_the_grid_of_three_thousand_epochs(seed: Seed, browser: Any) -> None:
    """A light page; a month is gone to, also one that is folded; the arrows move from day to day."""
    seed.good_days(3_000)
    seed.ledger.checks.put(None, 1, [check(DAY + 700, "edges are unique", False)])
    index = write(seed.ledger, [DAY + 2_999])[0]
    assert {file.name for file in seed.home.reports.glob("*.html") if file.stat().st_size > 300_000} == set()
    visit = Visit(browser, index)
    page = visit.page
    page.get_by_label("Go to").select_option("June 2006")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "1 June 2006: wrong"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "9 June 2006: correct"
    page.get_by_label("correct 2,999").uncheck()
    assert page.locator(".c:visible").count() == 1
    assert page.locator("#found").inner_text() == "1 of 3,000 epochs"
    visit.quiet()


def test_the_list_is_sorted_and_downloaded(seed: Seed, browser: Any) -> None:
    seed.good_days(30)
    visit = Visit(browser, write(seed.ledger, [DAY])[0])
    page = visit.page
    first = page.locator("#list tbody tr").first
    assert first.inner_text().startswith("2004-07-30")
    page.get_by_role("button", name="Rows", exact=True).click()
    assert first.inner_text().split()[3] == "24"
    page.get_by_role("button", name="Rows", exact=True).click()
    assert first.inner_text().split()[3] == "20"
    page.get_by_label("Search").fill("07-0")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download as CSV").click()
    lines = saved.value.path().read_text().splitlines()
    assert lines[0].startswith("epoch,state,rows") and len(lines) == 10
    assert lines[1].split(",")[1:3] == ["correct", "20"]
    assert not visit.errors
    visit.context.close()


def test_two_epochs_are_compared_and_the_address_names_them(seed: Seed, browser: Any) -> None:
    seed.good_days(20)
    index = write(seed.ledger, [DAY])[0]
    visit = Visit(browser, index)
    page = visit.page
    assert page.locator("#difference").is_hidden()
    page.get_by_role("textbox", name="From", exact=True).fill("2004-07-03")
    page.get_by_role("textbox", name="To", exact=True).fill("2004-07-99")
    assert page.locator("#compared").inner_text() == "Not among the epochs of this page: 2004-07-99"
    page.get_by_role("textbox", name="To", exact=True).fill("2004-07-10")
    edges = page.locator("#difference tbody tr", has_text="Edges").inner_text().split()
    then, now = (epoch_document(seed.ledger, DAY + day)["graph"]["measures"]["edges"]["value"] for day in (2, 9))
    assert now > then and edges == ["Edges", str(then), str(now), f"+{now - then}"]
    assert page.url.endswith("#compare=2004-07-03,2004-07-10")
    again = browser.new_page()
    again.goto(page.url)
    assert again.locator("#difference tbody tr", has_text="Edges").inner_text().split() == edges
    again.close()
    visit.quiet()


def test_two_revisions_are_compared_by_the_page_or_the_command(seed: Seed, browser: Any) -> None:
    seed.good_days(3)
    seed.run({DAY: (3, 0)}, {DAY: {"edges": 1}})
    seed.run({DAY: (4, 0)}, {DAY: {"edges": 1}})
    (seed.home.reports).mkdir(exist_ok=True)
    (seed.home.reports / "diff-1-3.html").write_text("what has changed")
    index = write(seed.ledger, [DAY])[0]
    visit = Visit(browser, index, 400)
    page = visit.page
    assert page.locator("#differ code").inner_text() == "altneu diff 2 3 --page"
    page.locator("#old").select_option("1")
    assert page.locator("#differ a").get_attribute("href") == "diff-1-3.html"
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    again = browser.new_page()
    again.goto(page.url)  # #revisions=1,3
    again.locator("#differ a").click()
    assert again.locator("body").inner_text() == "what has changed"
    again.close()
    page.locator("#new").select_option("1")
    assert page.locator("#differ").inner_text() == "These are the same revision."
    visit.quiet()


def test_the_history_of_a_check(states: Seed, browser: Any) -> None:
    visit = Visit(browser, states.home.reports / "check=volumes.rows-as-usual.html", 400)
    page = visit.page
    assert "It has failed since" in page.locator(".headline").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.get_by_role("link", name="2004-08-10").first.click()
    page.locator("a.check-name", has_text="rows as usual").first.click()
    assert page.locator("h1").inner_text() == "rows as usual"
    assert not visit.errors
    visit.context.close()


def test_great_numbers_fit_a_narrow_screen(seed: Seed, browser: Any) -> None:
    big = {"vertices": 98_765_432, "edges": 1_234_567_890, "triangles": 98_765_432_109, "truss2": 1_234_567_890}
    seed.run({DAY: (123_456_789, 1_234_567), DAY + 1: (1, 0)}, {DAY: big, DAY + 1: {"truss150": 7_654_321}})
    for file in write(seed.ledger, [DAY + 1]):
        visit = Visit(browser, file, 400)
        visit.page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 400
        visit.quiet()


@pytest.mark.parametrize("width", [400, 1280])
def test_the_offending_rows_are_there_to_see(states: Seed, browser: Any, width: int) -> None:
    visit = Visit(browser, states.home.reports / "epoch=2004-08-11.html", width)
    failed = visit.page.locator(".check", has_text="trussness values of edges equal")
    cells = failed.locator("td:visible")
    assert [cells.nth(place).inner_text() for place in range(cells.count())] == [f"edge {HOSTILE}", "4", "5"]
    assert failed.get_by_text("What trussness values of edges equal means.").is_visible()
    assert failed.get_by_text("what to do about trussness values of edges equal").is_visible()
    visit.quiet()


CHECKS = ["check=volumes.rows-as-usual", "check=edges.edges-are-unique"]
OTHER_LOOKS = [(1280, "dark"), (400, "light")]


@pytest.mark.parametrize(
    ("width", "scheme"),
    [(1280, "light"), (400, "dark"), *(pytest.param(*each, marks=pytest.mark.slow) for each in OTHER_LOOKS)],
)
@pytest.mark.parametrize("name", ["index", *CHECKS, *(f"epoch=2004-08-{day:02d}" for day in range(9, 16))])
def test_nothing_that_axe_finds_keeps_a_reader_out(
    states: Seed, browser: Any, name: str, width: int, scheme: str
) -> None:
    visit = Visit(browser, states.home.reports / f"{name}.html", width, scheme)
    visit.page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    visit.require_accessible()
    visit.quiet()
