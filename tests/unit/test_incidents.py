"""Incidents: what opens one, what joins it, what closes it, what people say; and the command. No Spark.

A story is a list of steps on a seeded home; it says which incidents there are then: check, open or closed, epochs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from altneu.pipeline import cli, report
from altneu.pipeline.errors import UsageError
from altneu.pipeline.state import clock
from altneu.pipeline.state import incidents as by
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.schema import notes
from tests.report.conftest import ticking
from tests.report.seed import DAILY, DAY, Seed, audit, check


@pytest.fixture(autouse=True)
def ticking_clock() -> Iterator[None]:
    with ticking():
        yield


ROWS = {"suite": "volumes", "severity": "warning"}  # of a batch
Step = Callable[[Seed], object]
Shown = list[tuple[str, bool, list[int]]]


def rows(epoch: int, passed: bool) -> dict[str, Any]:
    return check(DAY + epoch, "as many rows as usual", passed, **ROWS)


def lands(epoch: int, *results: dict[str, Any]) -> Step:
    return lambda seed: seed.run({DAY + epoch: (9, 0)}, {DAY + epoch: {"edges": 1}}, list(results))


def stopped(epoch: int, *results: dict[str, Any]) -> Step:
    return lambda seed: seed.run({DAY + epoch: (9, 0)}, {}, list(results), error="audit: it failed")


def audited(epoch: int, wrong: str | None = None) -> Step:
    return lambda seed: seed.audit(audit(DAY + epoch, wrong))


def rebuilt(seed: Seed) -> None:
    seed.run({}, {}, [], kind="rebuild")


def broken(epoch: int, passed: bool = False, **other: Any) -> dict[str, Any]:
    return check(DAY + epoch, "edges are unique", passed, **other)


STORIES: dict[str, tuple[list[Step], Shown]] = {
    "nothing fails": ([lands(0, rows(0, True)), audited(0)], []),
    "what informs opens none": ([lands(0, broken(0, severity="info"))], []),
    "a warning of a batch": ([lands(0, rows(0, False))], [("as many rows as usual", True, [0])]),
    "another batch closes it": (
        [lands(0, rows(0, False)), lands(0, rows(0, True))],
        [("as many rows as usual", False, [0])],
    ),
    "another batch closes it also when nobody looked again": (
        [lands(0, rows(0, False)), lands(0)],
        [("as many rows as usual", False, [0])],
    ),
    "a batch of another epoch does not": (
        [lands(0, rows(0, False)), lands(1, rows(1, True))],
        [("as many rows as usual", True, [0])],
    ),
    "the same failure joins it": (
        [lands(0, rows(0, False)), lands(1, rows(1, False)), lands(2, rows(2, True))],
        [("as many rows as usual", True, [0, 1])],
    ),
    "one of two is over": (
        [lands(0, rows(0, False)), lands(1, rows(1, False)), lands(0, rows(0, True))],
        [("as many rows as usual", True, [1])],
    ),
    "after a closed one a new one": (
        [lands(0, rows(0, False)), lands(0, rows(0, True)), lands(1, rows(1, False))],
        [("as many rows as usual", True, [1]), ("as many rows as usual", False, [0])],
    ),
    "another check is another incident": (
        [lands(0, rows(0, False), broken(0, severity="warning"))],
        [("as many rows as usual", True, [0]), ("edges are unique", True, [0])],
    ),
    "a warning of the graph survives another batch": (
        [lands(0, broken(0, severity="warning")), lands(0)],
        [("edges are unique", True, [0])],
    ),
    "a rebuild closes it": (
        [lands(0, broken(0, severity="warning")), rebuilt],
        [("edges are unique", False, [0])],
    ),
    "a rebuild says nothing of a batch": (
        [lands(0, rows(0, False)), rebuilt],
        [("as many rows as usual", True, [0])],
    ),
    "an audit that finds a difference": (
        [lands(0), audited(0, "edge totals")],
        [("edge totals equal", True, [0])],
    ),
    "the next audit does not": (
        [lands(0), audited(0, "edge totals"), audited(0)],
        [("edge totals equal", False, [0])],
    ),
    "a later revision is no audit": (
        [lands(0), audited(0, "edge totals"), lands(0)],
        [("edge totals equal", True, [0])],
    ),
    "a critical check stops a run": ([lands(0), stopped(1, broken(1))], [("edges are unique", True, [1])]),
    "and the run of another epoch takes nothing back": (
        [lands(0), stopped(1, broken(1)), lands(2)],
        [("edges are unique", True, [1])],
    ),
    "it fails again": (
        [lands(0), stopped(1, broken(1)), stopped(1, broken(1))],
        [("edges are unique", True, [1])],
    ),
    "it is published at last": (
        [lands(0), stopped(1, broken(1)), stopped(1, broken(1)), lands(1, broken(1, True))],
        [("edges are unique", False, [1])],
    ),
    "a warning of a run that was stopped is none": (
        [lands(0), stopped(1, rows(1, False), broken(1))],
        [("edges are unique", True, [1])],
    ),
    "a run that passes it and publishes nothing does not heal what is published": (
        [lands(0, broken(0, severity="warning")), stopped(0, broken(0, True, severity="warning"))],
        [("a run ends well", True, [0]), ("edges are unique", True, [0])],
    ),
    "a run without checks that fails": ([lands(0), stopped(1)], [("a run ends well", True, [1])]),
    "another one publishes its epoch": ([lands(0), stopped(1), lands(1)], [("a run ends well", False, [1])]),
    "a rollback takes the batch back": (
        [lands(0), lands(1, rows(1, False)), lambda seed: seed.rollback(1)],
        [("as many rows as usual", False, [1])],
    ),
}


def shown(ledger: Ledger) -> Shown:
    found = by.list_incidents(ledger)
    return sorted((one.first.name, one.is_open, [epoch - DAY for epoch in one.epochs]) for one in found)


@pytest.mark.parametrize("story", STORIES)
def test_what_opens_joins_and_closes(tmp_path: Path, story: str) -> None:
    steps, wanted = STORIES[story]
    seed = Seed(tmp_path / "home")
    for step in steps:
        step(seed)
    assert shown(seed.ledger) == sorted(wanted)
    for one in by.list_incidents(seed.ledger):
        assert one.is_open or (one.last.why and one.last.ended and one.last.ended >= one.first.at)


def test_what_people_say_stays_with_the_incident(tmp_path: Path) -> None:
    seed = Seed(tmp_path / "home")
    stopped(0, broken(0))(seed)
    (one,) = by.list_incidents(seed.ledger)
    by.record_note(seed.ledger, one, "Ada", "the source sends it again")
    seed.ledger.checks.put("run0001", 1, [broken(0)])  # the stage is tried again, and replaces its results
    (again,) = by.list_incidents(seed.ledger)
    assert again.acknowledgement and again.acknowledgement.by == "Ada"
    lands(0, broken(0, True))(seed)
    stopped(1, broken(1))(seed)
    newest, closed = by.list_incidents(seed.ledger)
    assert newest.is_open and newest.acknowledgement is None  # another incident: nobody has said anything of it
    assert not closed.is_open and closed.acknowledgement
    with pytest.raises(UsageError, match="has been closed since"):
        by.find_incident(seed.ledger, closed.identifier)


def test_a_mute_ends(tmp_path: Path) -> None:
    seed = Seed(tmp_path / "home")
    lands(0, rows(0, False))(seed)
    by.record_note(seed.ledger, by.list_incidents(seed.ledger)[0], None, None, "2100-01-01T00:00:00.000+00:00")
    (one,) = by.list_incidents(seed.ledger)
    assert one.mute_at(clock.timestamp()) and not one.mute_at("2100-01-01T00:00:00.000+00:00")
    assert report.incident_document(seed.home, one, clock.timestamp())["state"] == "muted"
    assert report.incident_document(seed.home, one, "2101")["state"] == "open"
    by.record_note(seed.ledger, one, None, None, "2000-01-01T00:00:00.000+00:00")  # the newest word counts
    assert by.list_incidents(seed.ledger)[0].mute_at(clock.timestamp()) is None


def test_a_database_of_before_has_its_incidents(tmp_path: Path) -> None:
    seed = Seed(tmp_path / "home")
    lands(0, rows(0, False))(seed)
    with seed.ledger.database.engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE notes"))
        connection.execute(sa.text("UPDATE altneu_version SET version_num = 'v0006'"))
    reader = Ledger(seed.home)
    assert shown(reader) == [("as many rows as usual", True, [0])]
    assert not sa.inspect(reader.database.engine).has_table(notes.name)


# -- the command --------------------------------------------------------------------------------------------------


@pytest.fixture
def altneu(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("COLUMNS", "240")

    def call(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        code = 0
        try:
            cli.main(["--home", str(tmp_path / "home"), *arguments])
        except SystemExit as ended:
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return call


def test_the_command(tmp_path: Path, altneu: Any) -> None:
    seed = Seed(tmp_path / "home")
    seed.good_days(2)
    assert altneu("incidents") == (0, "no open incident\n")
    lands(2, rows(2, False))(seed)
    code, text = altneu("incidents")
    assert code == 0 and "as many rows as usual" in text and "2004-07-03" in text and "open" in text
    (one,) = json.loads(altneu("incidents", "--format", "json")[1])
    assert (one["check"], one["epochs"], one["state"]) == ("as many rows as usual", ["2004-07-03"], "open")
    ident = one["incident"]
    assert altneu("incidents", "ack", ident, "--by", "Ada", "--because", "looking")[0] == 0
    assert altneu("incidents", "mute", ident, "--until", "2100-01-01")[0] == 0
    text = altneu("incidents")[1]
    assert "muted" in text and "Ada is on it: looking" in text and "muted until 2100-01-01" in text
    lands(2, rows(2, True))(seed)
    assert altneu("incidents")[1] == "no open incident\n"
    text = altneu("incidents", "--all")[1]
    assert "closed" in text and "Ada is on it" in text
    code, text = altneu("show", "results", "--where", "name = 'as many rows as usual'", "--format", "json")
    assert code == 0 and [row["result"] for row in json.loads(text)] == ["passed", "warns"]


WRONG = {
    "no such incident": ("ack 999999 --by Ada --because x", "there is no incident 999999. Open: "),
    "no name": ("ack {id} --because x", "--by"),
    "no sentence": ("ack {id} --by Ada", "--because"),
    "blanks": ("ack {id} --by ' ' --because x", "must not be empty"),
    "a name that is none": (f"ack {{id}} --by {'x' * 200} --because x", "longer than 128 characters"),
    "a day that is none": ("mute {id} --until soon", "until soon: expected a day, such as"),
    "a day that was": ("mute {id} --until 2004-07-01", "this day is not in the future"),
    "no day": ("mute {id}", "--until"),
    "an option that would be ignored": ("--all ack {id} --by Ada --because x", "go only with the list"),
    "no such command": ("close {id}", "close"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_wrong_use(tmp_path: Path, altneu: Any, mistake: str) -> None:
    import shlex

    seed = Seed(tmp_path / "home")
    lands(0, rows(0, False))(seed)
    command, says = WRONG[mistake]
    (one,) = by.list_incidents(seed.ledger)
    code, text = altneu("incidents", *shlex.split(command.format(id=one.identifier)))
    assert code == 2 and says in text, text
    assert not by.list_incidents(seed.ledger)[0].notes


def test_on_postgresql(postgres: str, tmp_path: Path) -> None:
    """The same statements there, those of the pages as well."""
    seed = Seed(tmp_path / "home", f'{DAILY}[storage]\ndatabase = "{postgres}"\n')
    for step in (lands(0, rows(0, False)), stopped(1, broken(1)), audited(0, "edge totals"), stopped(2)):
        step(seed)
    wanted = [("a run ends well", True, [2]), ("as many rows as usual", True, [0]), ("edge totals equal", True, [0])]
    assert shown(seed.ledger) == sorted([*wanted, ("edges are unique", True, [1])])
    by.record_note(
        seed.ledger, by.find_incident(seed.ledger, by.list_incidents(seed.ledger)[0].identifier), "Ada", "looking"
    )
    text = report.render_index(seed.ledger)
    assert "4 open incidents" in text and "Ada: looking" in text
    page = report.render_check(seed.ledger, "check=volumes.as-many-rows-as-usual.html")
    assert page is not None and "It has failed since" in page
    lands(0, rows(0, True))(seed)
    assert ("as many rows as usual", False, [0]) in shown(seed.ledger)
