"""What commands and pages ask of a long history: as many statements as of a short one, and only what has changed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from altneu.pipeline import report
from altneu.pipeline.home.home import Home
from altneu.pipeline.landing import epoch_states, local_landing
from altneu.pipeline.reading import views
from altneu.pipeline.run import planning
from altneu.pipeline.run.forecast import forecast_run
from altneu.pipeline.state import clock, incidents
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.tasks import airflow_page
from tests.long_history import fill_history

SHORT, LONG = 100, 1_000
INDEXES = ("INDEX ix_checks_failed", "COVERING INDEX ix_checks_suite_name")


class Statements:
    """The statements that databases have been sent, in SQL with their values, and how many there were."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, tuple[object, ...]]] = []

    @contextmanager
    def counted(self) -> Iterator[None]:
        def hear(connection: object, cursor: object, statement: str, values: tuple[object, ...], *_: object) -> None:
            self.sent.append((statement, values))

        sa.event.listen(sa.Engine, "before_cursor_execute", hear)
        try:
            yield
        finally:
            sa.event.remove(sa.Engine, "before_cursor_execute", hear)


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[Home, Ledger]]:
    """A short and a long history, a revision for each epoch; what has landed is known."""
    made = {epochs: fill_history(tmp_path_factory.mktemp(str(epochs)), epochs) for epochs in (SHORT, LONG)}
    for home, ledger in made.values():
        local_landing.read_landing(home, ledger)
        report.write_pages(home, ledger, [ledger.revisions.get().frontier or 0])
    return made


def plan(home: Home, ledger: Ledger) -> None:
    assert not forecast_run(
        home, ledger, planning.plan_run(home, ledger, planning.epochs_within(home, None, None))
    ).chosen


def show_totals(home: Home, ledger: Ledger) -> None:
    assert len(views.select_totals(home, ledger)) == 1


QUESTIONS: dict[str, Callable[[Home, Ledger], object]] = {
    "status": epoch_states.list_epoch_rows,
    "plan": plan,
    "all totals": lambda home, ledger: views.select_totals(home, ledger, all_epochs=True),
    "totals": show_totals,
    "the index": report.render_index,
    "a page": lambda home, ledger: report.render_page(home, ledger, 50),
    "pages after a run": lambda home, ledger: report.write_pages(home, ledger, [ledger.revisions.get().frontier or 0]),
    "Airflow's page": lambda home, ledger: airflow_page.overview_page(str(home.path), {}),
    "incidents": lambda home, ledger: incidents.list_incidents(ledger),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_sends_as_many_statements_to_a_long_history_as_to_a_short_one(
    histories: dict[int, tuple[Home, Ledger]], question: str
) -> None:
    counts = {}
    for epochs, (home, ledger) in histories.items():
        heard = Statements()
        with heard.counted():
            QUESTIONS[question](home, ledger)
        counts[epochs] = len(heard.sent)
    assert counts[SHORT] == counts[LONG] > 0


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_has_failed_is_looked_up(histories: dict[int, tuple[Home, Ledger]], question: str) -> None:
    """There are as many checks as of nothing else: a statement about failed ones reads the index of these alone."""
    home, ledger = histories[LONG]
    heard = Statements()
    with heard.counted():
        QUESTIONS[question](home, ledger)
    with ledger.database.engine.connect() as connection:
        for statement, values in heard.sent:
            if "checks" not in statement:
                continue
            steps = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()
            scans = {step.detail for step in steps if re.match(r"SCAN (checks|later|failed)\b", step.detail)}
            # the names of all checks are the distinct keys of an index
            assert scans <= {f"SCAN checks USING {index}" for index in INDEXES}, statement


def test_what_has_not_changed_is_not_opened(
    histories: dict[int, tuple[Home, Ledger]], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, ledger = histories[LONG]
    opened: list[str] = []
    list_names = os.listdir

    def listed(place: str) -> list[str]:
        opened.append(Path(place).name)
        return list_names(place)

    monkeypatch.setattr(local_landing.os, "listdir", listed)
    batches, digests, _ = local_landing.read_landing(home, ledger)
    assert (len(batches), opened) == (LONG, []) and batches[3].sealed == 4
    file = home.landing / "epoch=3" / "rows.csv"
    text = file.read_text()
    file.write_text(text + "8,9\n")  # in place: the folder's own stamp stays
    os.utime(file, (1, 1))
    again, changed, _ = local_landing.read_landing(home, ledger)
    assert opened == ["epoch=3"] and changed[3] != digests[3] and changed | {3: digests[3]} == digests
    assert again[3].sealed is None
    (file.parent / "more.csv").write_text("src,dst\n1,2\n")  # another file
    opened.clear()
    assert local_landing.read_landing(home, ledger)[1][3] not in (digests[3], changed[3]) and opened == ["epoch=3"]
    (file.parent / "more.csv").unlink()
    file.write_text(text)
    os.utime(file, (1, 1))
    assert local_landing.read_landing(home, ledger)[1] == digests


def test_a_few_epochs_open_their_folders_alone(
    histories: dict[int, tuple[Home, Ledger]], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, _ = histories[LONG]
    whole = local_landing.list_batches(home)
    opened: list[str] = []
    list_names = os.listdir
    monkeypatch.setattr(local_landing.os, "listdir", lambda place: opened.append(place) or list_names(place))
    assert local_landing.list_batches(home, {7, 9, -1}) == {epoch: whole[epoch] for epoch in (7, 9)}
    assert len(opened) == 2


def test_the_pages_of_a_run_list_the_landing_only_if_that_is_long_ago(
    histories: dict[int, tuple[Home, Ledger]], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, ledger = histories[SHORT]
    frontier = ledger.revisions.get().frontier or 0
    listed: list[Home] = []
    list_batches = local_landing.list_batches
    monkeypatch.setattr(
        local_landing,
        "list_batches",
        lambda home, *rest, **more: listed.append(home) or list_batches(home, *rest, **more),
    )
    local_landing.read_landing(home, ledger)
    report.write_run_pages(home, ledger, [frontier])
    assert len(listed) == 1
    report.write_pages(home, ledger, [frontier])  # no run: a person asks how it stands now
    assert len(listed) == 2
    late = clock.read_clock() + 2 * local_landing.RECENT
    monkeypatch.setattr(clock, "read_clock", lambda: late)
    report.write_run_pages(home, ledger, [frontier])
    assert len(listed) == 3
