"""What a former revision said of an epoch is what its page says later, under a name of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from altneu.pipeline.errors import AltneuError
from altneu.pipeline.report import epoch_document
from altneu.pipeline.report.rows_page import page_name
from altneu.pipeline.tasks import airflow_page
from tests.report.seed import DAY, Seed, audit, check, write, write_former
from tests.report.test_pages import Reader


def said(found: dict[str, Any]) -> str:
    """A document without when it was written, and that a later one is there."""
    kept = {name: value for name, value in found.items() if name not in ("former", "written")}
    return json.dumps(kept, sort_keys=True, default=str)


def test_a_former_revision_is_as_it_was(seed: Seed) -> None:
    """Over a correction, a failure, an audit that finds a difference, a new epoch, a rebuild and a rollback."""
    then: dict[tuple[int, int], str] = {}

    def remember() -> None:
        revision = seed.ledger.revisions.get().revision
        for epoch in seed.ledger.outputs.published_batches():
            then[revision, epoch] = said(epoch_document(seed.ledger, epoch))

    seed.good_days(6)
    remember()
    seed.run({DAY + 2: (7, 1)}, {DAY + 2: {"edges": -3, "truss2": -3}}, audit(DAY + 2))
    remember()
    seed.run({DAY + 3: (3, 0)}, {}, [check(DAY + 3, "edges are unique", False)], error="audit: 1 critical check failed")
    seed.run({DAY + 6: (9, 0)}, {DAY + 6: {"edges": 4, "truss2": 4}}, audit(DAY + 6))
    remember()
    seed.audit(audit(DAY + 2, "edge totals", observed="1 difference"))
    then.update({(3, DAY + 2): said(epoch_document(seed.ledger, DAY + 2))})
    seed.run({}, {}, audit(DAY + 2), kind="rebuild")
    remember()
    seed.rollback(2)
    assert len(then) == 6 + 6 + 7 + 7
    for (revision, epoch), before in then.items():
        assert said(epoch_document(seed.ledger, epoch, revision)) == before, (revision, epoch)


def test_its_page_names_the_revision_and_leads_to_the_newest(seed: Seed) -> None:
    seed.run({DAY: (9, 0), DAY + 1: (4, 0)}, {DAY: {"edges": 8, "truss2": 8}}, audit(DAY))
    write(seed.ledger, [DAY, DAY + 1])
    seed.run({DAY: (5, 0)}, {DAY: {"edges": -3, "truss2": -3}}, audit(DAY))
    write(seed.ledger, [DAY])
    path = write_former(seed.ledger, DAY, 1)
    assert path.name == "epoch=2004-07-01.revision=1.html"
    page, newest = Reader(path.read_text()), Reader((seed.home.reports / "epoch=2004-07-01.html").read_text())
    assert (
        "This is what revision 1 said about the epoch, and not what is published now. Now revision 2 is published"
        in page.text
    )
    assert "epoch=2004-07-01.html" in page.links and "what revision" not in newest.text
    before = path.read_bytes()
    write(seed.ledger, [DAY])  # the pages of the newest revision leave it alone
    assert path.read_bytes() == before
    with pytest.raises(AltneuError, match="3"):
        write_former(seed.ledger, DAY, 3)


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("epoch=2004-07-01.html", "5 rows"),
        ("epoch=2004-07-01.revision=1.html", "This is what revision 1 said about the epoch"),
        ("epoch=2004-07-01.revision=2.html", "5 rows"),  # the newest
        ("epoch=2004-07-01.revision=3.html", None),
        ("epoch=2004-07-01.revision=01.html", None),
        ("epoch=2004-07-02.revision=1.html", None),  # not published then
        ("rows=2004-07-01.revision=2.html", "its rows"),
        ("rows=2004-07-01.revision=1.html", None),
        ("rows=/../index.html", None),
    ],
)
def test_the_page_inside_airflow_has_them_by_the_same_names(seed: Seed, name: str, there: str | None) -> None:
    seed.run({DAY: (9, 0)}, {DAY: {"edges": 8, "truss2": 8}}, audit(DAY))
    seed.run({DAY: (5, 0)}, {DAY: {"edges": -3, "truss2": -3}}, audit(DAY))
    seed.home.reports.mkdir(exist_ok=True)
    (seed.home.reports / page_name("2004-07-01", 2)).write_text("its rows")
    found = airflow_page.report_page(str(seed.home.path), name)
    assert found is None if there is None else found is not None and there in found


def test_pages_of_rows_are_linked_while_they_are_right_and_the_newest_are_kept(
    seed: Seed, monkeypatch: pytest.MonkeyPatch
) -> None:
    from altneu.pipeline.report import page_writer

    seed.run({DAY: (9, 0)}, {DAY: {"edges": 8, "truss2": 8}}, audit(DAY))
    index, page = write(seed.ledger, [DAY])
    rows = seed.home.reports / page_name("2004-07-01", 1)
    assert not rows.exists() and rows.name not in Reader(page.read_text()).links  # this home has no tables
    rows.write_text("a page of rows")
    write(seed.ledger, [])  # the epoch's page follows what is there
    assert rows.name in Reader(page.read_text()).links and rows.name in Reader(index.read_text()).links
    seed.run({DAY + 1: (5, 0)}, {DAY + 1: {"edges": 1, "truss2": 1}}, audit(DAY + 1))
    write(seed.ledger, [DAY + 1])
    assert rows.name in Reader(page.read_text()).links and rows.name not in Reader(index.read_text()).links
    seed.run({DAY: (5, 0)}, {DAY: {"edges": -3, "truss2": -3}}, audit(DAY))
    write(seed.ledger, [])
    assert rows.name not in Reader(page.read_text()).links and rows.exists()
    monkeypatch.setattr(page_writer, "KEPT_ROWS_PAGES", 0)
    beside = write_former(seed.ledger, DAY, 1)
    assert rows.name in Reader(beside.read_text()).links
    write(seed.ledger, [])
    assert rows.exists()  # the page of its revision leads to it
    beside.unlink()
    write(seed.ledger, [])
    assert not rows.exists()
