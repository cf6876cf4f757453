"""What was known at a moment: the revision that was the newest then, whatever clocks, rollbacks and compactions do."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from altneu.pipeline.cli import approval
from altneu.pipeline.errors import AltneuError, UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.maintenance import rollback
from altneu.pipeline.reading.graph import Graph
from altneu.pipeline.reading.published_moment import choose_revision, parse_moment
from altneu.pipeline.state import clock
from altneu.pipeline.state.ledger import Ledger
from tests import home_helpers
from tests.builders import make_clique
from tests.e2e.conftest import Altneu
from tests.ledger_only import LedgerOnly

DAY = datetime(2026, 5, 1, tzinfo=UTC)
HOURS = (10.0, 11.0, 12.0, 11.5, 13.0)  # when the revisions are published: before the fourth the clock goes back
SIZES = (6, 3, 6, 10, 3)  # the edges that each shows


@pytest.fixture
def published(ledger_only: LedgerOnly, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Home, Ledger]:
    home, ledger = home_helpers.make(tmp_path / "home")

    def publish(number: int, vertices: int) -> None:
        now = DAY + timedelta(hours=HOURS[number - 1])
        monkeypatch.setattr(clock, "read_clock", lambda: now)
        home_helpers.put(home, 1, make_clique(*range(vertices)))
        home_helpers.run(ledger, [1])
        assert ledger.revisions.get().revision == number

    publish(1, 4)
    publish(2, 3)
    monkeypatch.setattr(clock, "read_clock", lambda: DAY + timedelta(hours=HOURS[2]))
    rollback.roll_back(ledger, 1)
    publish(4, 5)
    publish(5, 3)
    monkeypatch.setattr(clock, "read_clock", lambda: DAY + timedelta(hours=20))
    return home, ledger


MOMENTS = {
    "2026-05-01T10:00": 1,
    "2026-05-01T10:59:59.999": 1,
    "2026-05-01T13:00:00+02:00": 2,  # 11:00 in UTC
    "2026-05-01T11:15": 2,  # it was rolled back later
    "2026-05-01T11:45": 4,  # the clock went back from 12:00 to 11:30
    "2026-05-01T12:30": 4,
    "2026-05-01T06:00-07:00": 5,
    "2026-05-01T20:00:59": 5,  # the clock of a reader may be ahead a little
}


def test_a_moment_names_the_last_revision_before_it(published: tuple[Home, Ledger], typed: Altneu) -> None:
    home, ledger = published
    graph = Graph(home.path)
    for moment, revision in MOMENTS.items():
        assert choose_revision(ledger, None, moment) == graph.revision(published_at=moment).revision == revision, moment
        assert graph.arrow.edges(published_at=moment).num_rows == SIZES[revision - 1]
        (point,) = json.loads(typed("show", "totals", "--published-at", moment, "--format", "json").out)
        assert point["edges"] == SIZES[revision - 1]


def test_what_was_published_at_a_moment_is_compared_and_published_again(
    published: tuple[Home, Ledger], typed: Altneu
) -> None:
    home, ledger = published
    for moments, revisions in (
        (["2026-05-01T11:15"], (2, 5)),  # with what is published now
        (["2026-05-01T10:00", "2026-05-01T12:30"], (1, 4)),
    ):
        difference = approval._find_diff(ledger, approval._revisions_at(ledger, moments), None)
        assert (difference.before.row.revision, difference.after.row.revision) == revisions
    for wrong in (
        ["1", "--published-at", "2026-05-01T10:00"],
        ["--other", str(home.path), "--published-at", "2026-05-01"],
    ):
        assert typed("diff", *wrong).code in (1, 2), wrong
    assert typed("rollback").code == 2 == typed("rollback", "1", "--published-at", "2026-05-01T10:00").code
    assert typed("rollback", "--published-at", "2026-05-01T12:30").code == 0
    assert Graph(home.path).arrow.edges().num_rows == SIZES[3]


def test_moments_of_programs() -> None:
    home = DAY.astimezone(timezone(timedelta(hours=-3)))
    assert parse_moment(home.isoformat()) == parse_moment("2026-05-01") == DAY
    with pytest.raises(UsageError, match="'noon' is not a moment"):
        parse_moment("noon")


def test_what_no_moment_names(published: tuple[Home, Ledger], typed: Altneu) -> None:
    home, ledger = published
    before = typed("show", "edges", "--published-at", "2026-05-01T09:59")
    assert before.code == 1 and "nothing was published at 2026-05-01T09:59:00+00:00: revision 1 is of" in before.err
    for wrong in (("--published-at", "2027-01-01"), ("--published-at", "2026-05-01T10:00", "--revision", "1")):
        assert typed("show", "edges", *wrong).code == 2, wrong
    assert typed("show", "checks", "--published-at", "2026-05-01T10:00").code == 2
    with pytest.raises(UsageError, match="published_at=5"):
        Graph(home.path).arrow.edges(published_at=5)  # type: ignore[arg-type]
    ledger.revisions.repin("x", {}, [], None, [1])  # as a compaction drops it
    expired = typed("show", "edges", "--published-at", "2026-05-01T10:30")
    assert expired.code == 1 and "revision 1 cannot be read any more" in expired.err
    assert typed("show", "totals", "--published-at", "2026-05-01T10:30").code == 0


def test_every_command_with_revisions_takes_moments(published: tuple[Home, Ledger], typed: Altneu) -> None:
    moment = "2026-05-01T10:30"
    assert "there, trussness 4" in typed("explain", "edge", "0", "3", "--published-at", moment).out
    assert "not there" in typed("explain", "edge", "0", "3", "--published-at", "2026-05-01T11:20").out
    page = typed("report", "--published-at", moment)
    assert page.code == 0 and page.out.strip().endswith("epoch=1.revision=1.html")
    certified = typed("certify", "--published-at", moment)
    assert certified.code == 0 and "certificate-r1" in certified.out
    graph = Graph(published[0].path)
    assert graph.explain("edge", 0, 3, published_at=datetime(2026, 5, 1, 10, 30))["trussness"] == 4


def test_an_empty_home_was_never_published(ledger_only: LedgerOnly, tmp_path: Path) -> None:
    _, ledger = home_helpers.make(tmp_path / "home")
    with pytest.raises(AltneuError, match="nothing is published yet"):
        choose_revision(ledger, None, "2020-01-01")
