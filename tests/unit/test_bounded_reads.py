"""What commands and pages ask of a long history: as many statements as of a short one, and only what has changed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
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
from altneu.pipeline.state.database_session import DatabaseSession
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import Row
from altneu.pipeline.tasks import airflow_page, dag_epochs
from tests.long_history import fill_history

SHORT, LONG, VERY_LONG = 100, 2_000, 20_000
INDEXES = ("INDEX ix_checks_failed", "COVERING INDEX ix_checks_suite_name")


class Statements:
    """The statements that databases have been sent, in SQL with their values, and how many rows they have returned."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, tuple[object, ...]]] = []
        self.rows = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        def hear(connection: object, cursor: object, statement: str, values: tuple[object, ...], *_: object) -> None:
            self.sent.append((statement, values))

        read_rows = DatabaseSession.read_rows

        def count_rows(session: DatabaseSession, statement: sa.Select[*tuple[object, ...]]) -> Sequence[Row]:
            rows = read_rows(session, statement)
            self.rows += len(rows)
            return rows

        sa.event.listen(sa.Engine, "before_cursor_execute", hear)
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(DatabaseSession, "read_rows", count_rows)
                yield
        finally:
            sa.event.remove(sa.Engine, "before_cursor_execute", hear)


def make_history(path: Path, epochs: int) -> tuple[Home, Ledger]:
    """Make a history, a revision for each epoch, of which it is known what has landed."""
    home, ledger = fill_history(path, epochs)
    local_landing.read_landing(ledger)
    report.write_pages(ledger, [ledger.revisions.get().frontier or 0])
    return home, ledger


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[Home, Ledger]]:
    """A short and a long history."""
    return {epochs: make_history(tmp_path_factory.mktemp(str(epochs)), epochs) for epochs in (SHORT, LONG)}


@pytest.fixture(scope="module")
def very_long_history(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, Ledger]:
    return make_history(tmp_path_factory.mktemp("very-long"), VERY_LONG)


def ask(question: str, history: tuple[Home, Ledger]) -> Statements:
    """Return what the database has been sent for a question."""
    heard = Statements()
    with heard.counted():
        QUESTIONS[question](history[1])
    return heard


def plan(ledger: Ledger) -> None:
    assert not forecast_run(
        ledger, planning.plan_run(ledger, planning.epochs_within(ledger.home, None, None))
    ).chosen_epochs


def show_totals(ledger: Ledger) -> None:
    assert len(views.select_totals(ledger)) == 1


QUESTIONS: dict[str, Callable[[Ledger], object]] = {
    "status": epoch_states.list_epoch_rows,
    "plan": plan,
    "all totals": lambda ledger: views.select_totals(ledger, all_epochs=True),
    "totals": show_totals,
    "the index": report.render_index,
    "a page": lambda ledger: report.render_page(ledger, 50),
    "pages after a run": lambda ledger: report.write_pages(ledger, [ledger.revisions.get().frontier or 0]),
    "Airflow's page": lambda ledger: airflow_page.overview_page(str(ledger.home.path), {}),
    "incidents": incidents.list_incidents,
}


# The rows that a question reads of each epoch of the history: one of each kind that is named here, and no more.
BATCH, SUMS, PROOF, FOLDER, FILE, STORED_TOTALS = 1, 1, 1, 1, 1, 6
WINDOWS = 50  # rows of windows over epochs and revisions, which a short history does not fill
ROWS_OF_AN_EPOCH = {
    "status": BATCH + SUMS + PROOF + FOLDER + FILE,
    "plan": BATCH + FOLDER + FILE,
    "all totals": STORED_TOTALS,
    "totals": 0,
    "the index": BATCH + SUMS + PROOF + FOLDER + FILE,
    "a page": 0,
    "pages after a run": BATCH + SUMS + PROOF + FOLDER + FILE,
    "Airflow's page": BATCH + SUMS + PROOF + FOLDER + FILE,
    "incidents": 0,
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_sends_as_many_statements_to_a_long_history_as_to_a_short_one(
    histories: dict[int, tuple[Home, Ledger]], question: str
) -> None:
    short, long = ask(question, histories[SHORT]), ask(question, histories[LONG])
    assert len(short.sent) == len(long.sent) > 0
    assert abs(long.rows - short.rows - (LONG - SHORT) * ROWS_OF_AN_EPOCH[question]) < WINDOWS


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_sends_as_many_statements_to_a_very_long_history(
    histories: dict[int, tuple[Home, Ledger]], very_long_history: tuple[Home, Ledger], question: str
) -> None:
    long, very_long = ask(question, histories[LONG]), ask(question, very_long_history)
    assert len(long.sent) == len(very_long.sent) > 0
    assert very_long.rows - long.rows < (VERY_LONG - LONG) * ROWS_OF_AN_EPOCH[question] + WINDOWS


def test_the_stages_of_a_run_read_the_batches_of_its_parent_once(histories: dict[int, tuple[Home, Ledger]]) -> None:
    home, ledger = histories[SHORT]
    newest, fresh = ledger.revisions.get().revision, Ledger(home)
    heard = Statements()
    with heard.counted():
        answers = [fresh.outputs.published_batches(newest) for _ in range(3)]
    assert heard.rows == len(answers[0]) == SHORT and answers[1:] == answers[:1] * 2
    assert fresh.outputs.published_batches() == answers[0]
    assert fresh.outputs.published_batches(newest - 1) == {epoch: answers[0][epoch] for epoch in range(SHORT - 1)}


def test_batches_are_read_again_once_a_revision_is_published(tmp_path: Path) -> None:
    _, ledger = fill_history(tmp_path, 1)
    before = ledger.outputs.published_batches(2)  # a run asks what will be published with its revision
    fill_history(tmp_path, 1, first=1, revision=2)
    assert [*before, *ledger.outputs.published_batches(2)] == [0, 0, 1]


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_has_failed_is_looked_up(histories: dict[int, tuple[Home, Ledger]], question: str) -> None:
    """There are as many checks as of nothing else: a statement about failed ones reads the index of these alone."""
    _, ledger = histories[LONG]
    heard = ask(question, histories[LONG])
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
    batches, digests, _ = local_landing.read_landing(ledger)
    assert (len(batches), opened) == (LONG, []) and batches[3].sealed == 4
    file = home.landing / "epoch=3" / "rows.csv"
    text = file.read_text()
    file.write_text(text + "8,9\n")  # in place: the folder's own stamp stays
    os.utime(file, (1, 1))
    again, changed, _ = local_landing.read_landing(ledger)
    assert opened == ["epoch=3"] and changed[3] != digests[3] and changed | {3: digests[3]} == digests
    assert again[3].sealed is None
    (file.parent / "more.csv").write_text("src,dst\n1,2\n")  # another file
    opened.clear()
    assert local_landing.read_landing(ledger)[1][3] not in (digests[3], changed[3]) and opened == ["epoch=3"]
    (file.parent / "more.csv").unlink()
    file.write_text(text)
    os.utime(file, (1, 1))
    assert local_landing.read_landing(ledger)[1] == digests


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
    state = dag_epochs.check_landing(str(home.path), 7, patience=timedelta(hours=1), manual=False)
    assert state.state == "landed" and len(opened) == 3


def test_the_pages_of_a_run_list_the_landing_only_if_that_is_long_ago(
    histories: dict[int, tuple[Home, Ledger]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, ledger = histories[SHORT]
    frontier = ledger.revisions.get().frontier or 0
    listed: list[Home] = []
    list_batches = local_landing.list_batches
    monkeypatch.setattr(
        local_landing,
        "list_batches",
        lambda home, *rest, **more: listed.append(home) or list_batches(home, *rest, **more),
    )
    local_landing.read_landing(ledger)
    report.write_run_pages(ledger, [frontier])
    assert len(listed) == 1
    report.write_pages(ledger, [frontier])  # no run: a person asks how it stands now
    assert len(listed) == 2
    late = clock.read_clock() + 2 * local_landing.RECENT
    monkeypatch.setattr(clock, "read_clock", lambda: late)
    report.write_run_pages(ledger, [frontier])
    assert len(listed) == 3
