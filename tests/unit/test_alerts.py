"""Alerts: what is sent when, to real receivers (HTTP, SMTP); once each, whoever sends. No Spark.

A story is a list of steps on a seeded home, after each of which whoever has worked tells what is new; it says what
arrived after each step: `!` and the check of what opened, `-` and that of what is over.
"""

from __future__ import annotations

import email
import re
import socket
import threading
from collections.abc import Callable, Iterator
from email.header import decode_header, make_header
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import altneu.pipeline.optional_dependencies
from altneu.pipeline import cli
from altneu.pipeline.errors import UsageError
from altneu.pipeline.observability import alerts
from altneu.pipeline.state import alert_log as rows
from altneu.pipeline.state import clock, incidents
from altneu.pipeline.state.alert_log import AlertKey, AlertKind
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import Severity
from altneu.pipeline.state.schema import alerts as table
from tests.receiver import Receiver, alerted, receiving
from tests.report.conftest import ticking
from tests.report.seed import DAILY, DAY, Seed, check

ROWS = {"suite": "volumes", "severity": "warning"}
WARNS, BROKEN = "as many rows as usual", "edges are unique"
Step = Callable[[Seed], object]


@pytest.fixture(autouse=True)
def ticking_clock() -> Iterator[None]:
    with ticking():
        yield


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with alerted(monkeypatch) as found:
        yield found


def lands(epoch: int, *results: dict[str, Any]) -> Step:
    return lambda seed: seed.run({DAY + epoch: (9, 0)}, {DAY + epoch: {"edges": 1}}, list(results))


def stops(epoch: int, *results: dict[str, Any]) -> Step:
    return lambda seed: seed.run({DAY + epoch: (9, 0)}, {}, list(results), error="audit: it failed")


def warns(epoch: int) -> dict[str, Any]:
    return check(DAY + epoch, WARNS, False, **ROWS)


def broken(epoch: int, passed: bool = False) -> dict[str, Any]:
    return check(DAY + epoch, BROKEN, passed)


def says(until: str | None = None) -> Step:
    def step(seed: Seed) -> None:
        (one,) = (one for one in incidents.list_incidents(seed.ledger) if one.is_open)
        incidents.record_note(seed.ledger, one, "ada", "known", until)

    return step


def nothing(seed: Seed) -> None:
    pass


def overcome(seed: Seed) -> None:
    """The failed run is tried again, and is at work now."""
    seed.ledger.runs.acquire_lease(seed.ledger.runs.list_all()[-1].run_id)


LATER, PAST = "2999-01-01T00:00:00.000+00:00", "2000-01-01T00:00:00.000+00:00"
FAILED = "the stage audit ends well"
STORIES: dict[str, list[tuple[Step, list[str]]]] = {
    "nothing fails": [(lands(0), [])],
    "a warning, once": [(lands(0, warns(0)), [f"! {WARNS}"]), (nothing, []), (lands(1), [])],
    "it is over": [(lands(0, warns(0)), [f"! {WARNS}"]), (lands(0), [f"- {WARNS}"]), (nothing, []), (lands(1), [])],
    "a failure that joins it": [(lands(0, warns(0)), [f"! {WARNS}"]), (lands(1, warns(1)), [])],
    "over only when all of it is": [
        (lands(0, warns(0)), [f"! {WARNS}"]),
        (lands(1, warns(1)), []),
        (lands(0), []),
        (lands(1), [f"- {WARNS}"]),
    ],
    "it comes again": [
        (lands(0, warns(0)), [f"! {WARNS}"]),
        (lands(0), [f"- {WARNS}"]),
        (lands(0, warns(0)), [f"! {WARNS}"]),
    ],
    "two at once": [(lands(0, warns(0), broken(0)), [f"! {BROKEN}", f"! {WARNS}"])],
    "one opens, another is over": [
        (lands(0, warns(0)), [f"! {WARNS}"]),
        (lands(0, broken(0)), [f"! {BROKEN}", f"- {WARNS}"]),
    ],
    "what stops a run, until it is published": [
        (stops(0, broken(0)), [f"! {BROKEN}"]),
        (stops(0, broken(0)), []),
        (lands(0), [f"- {BROKEN}"]),
    ],
    "a stage fails, is tried again, ends well": [
        (stops(0), ["! a run ends well"]),
        (overcome, ["- a run ends well"]),
        (nothing, []),
    ],
    "acknowledged before anybody was told": [
        (lambda seed: (lands(0, warns(0))(seed), says()(seed)), []),
        (lands(1, warns(1)), []),
        (lambda seed: (lands(0)(seed), lands(1)(seed)), []),
    ],
    "acknowledged after that: its end is told": [
        (lands(0, warns(0)), [f"! {WARNS}"]),
        (says(), []),
        (lands(1, warns(1)), []),
        (lambda seed: (lands(0)(seed), lands(1)(seed)), [f"- {WARNS}"]),
    ],
    "muted, its end too": [(lands(0, warns(0)), [f"! {WARNS}"]), (says(LATER), []), (lands(0), []), (nothing, [])],
    "the mute has ended": [(lambda seed: (lands(0, warns(0))(seed), says(PAST)(seed)), [f"! {WARNS}"])],
    "over before anybody was told": [(lambda seed: (lands(0, warns(0))(seed), lands(0)(seed)), [])],
}


def arrived(receiver: Receiver) -> list[str]:
    """What came since the last look: each problem of each message, those that opened first."""
    found = []
    for body in receiver.bodies:
        for part in body["message"].split("\n\n"):
            title = part.splitlines()[0]
            if not title.startswith("home: "):
                over = title.startswith("over: ")
                found.append(f"{'-' if over else '!'} {title.rpartition(': ')[2]}")
    receiver.got.clear()
    return sorted(found)


@pytest.mark.parametrize("story", STORIES)
def test_stories(story: str, tmp_path: Path, receiver: Receiver) -> None:
    seed = Seed(tmp_path / "home")
    for number, (step, expected) in enumerate(STORIES[story]):
        step(seed)
        assert alerts.send_alerts(seed.ledger)
        assert arrived(receiver) == sorted(expected), f"step {number}"


def test_what_a_message_says(tmp_path: Path, receiver: Receiver) -> None:
    """Epoch, what is wrong, since when, where to look, what to type; one message for all that is new."""
    seed = Seed(tmp_path / "home", f'{DAILY}[alerts]\npages = "https://graph.example.com/reports/"\n')
    lands(0, warns(0), broken(0))(seed)
    alerts.send_alerts(seed.ledger)
    (body,) = receiver.bodies
    ident = next(one.identifier for one in incidents.list_incidents(seed.ledger) if one.first.name == WARNS)
    assert body["title"].startswith("altneu: 2 new: ") and body["type"] == "failure"
    part = next(part for part in body["message"].split("\n\n") if WARNS in part)
    title, where, observed, *rest = part.splitlines()
    assert title == f"warning: {WARNS}"
    assert re.fullmatch(rf"  epoch 2004-07-01, since \d{{4}}-\d\d-\d\d \d\d:\d\d UTC, incident {ident}", where)
    assert observed.strip() == warns(0)["observed"]
    assert "  page: https://graph.example.com/reports/epoch=2004-07-01.html" in rest
    assert any(line.startswith("  next: altneu report 2004-07-01; ") for line in rest)
    assert f"home: {seed.home.path}" in body["message"]

    lands(0)(seed)
    receiver.got.clear()
    alerts.send_alerts(seed.ledger)
    (body,) = receiver.bodies
    assert body["type"] == "success" and "revision 2 published the epoch" in body["message"]


def test_critical_alone_where_the_settings_say_so(tmp_path: Path, receiver: Receiver) -> None:
    seed = Seed(tmp_path / "home", f'{DAILY}[alerts]\nseverity = "critical"\n')
    lands(0, warns(0))(seed)
    alerts.send_alerts(seed.ledger)
    assert arrived(receiver) == []
    lands(1, broken(1))(seed)
    alerts.send_alerts(seed.ledger)
    assert arrived(receiver) == [f"! {BROKEN}"]


def test_many_at_once_are_one_message(tmp_path: Path, receiver: Receiver) -> None:
    seed = Seed(tmp_path / "home")
    seed.run({DAY: (9, 0)}, {}, [check(DAY, f"check {n}", False) for n in range(30)])
    alerts.send_alerts(seed.ledger)
    (body,) = receiver.bodies
    assert (
        body["message"].count("incident ") == alerts.MAX_PROBLEMS and "and 20 more: altneu incidents" in body["message"]
    )
    assert alerts.send_alerts(seed.ledger) and len(receiver.got) == 1


def test_a_receiver_that_fails_gets_it_the_next_time_and_the_others_not_again(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seed = Seed(tmp_path / "home")
    with receiving() as other:
        monkeypatch.setenv("ALTNEU_ALERTS", f"json://127.0.0.1:{receiver.port}/a json://127.0.0.1:{other.port}/b")
        lands(0, warns(0))(seed)
        other.status = 500
        assert not alerts.send_alerts(seed.ledger)
        assert "could not be sent" in caplog.text and "127.0.0.1" not in caplog.text
        assert (arrived(receiver), arrived(other)) == ([f"! {WARNS}"], [f"! {WARNS}"])
        other.status = 200
        assert alerts.send_alerts(seed.ledger)
        assert (arrived(receiver), arrived(other)) == ([], [f"! {WARNS}"])
        lands(0)(seed)
        assert alerts.send_alerts(seed.ledger)
        assert (arrived(receiver), arrived(other)) == ([f"- {WARNS}"], [f"- {WARNS}"])


def test_a_receiver_that_never_got_it_hears_nothing_of_its_end(tmp_path: Path, receiver: Receiver) -> None:
    seed = Seed(tmp_path / "home")
    receiver.status = 500
    lands(0, warns(0))(seed)
    assert not alerts.send_alerts(seed.ledger)
    receiver.status, _ = 200, receiver.got.clear()
    lands(0)(seed)
    assert alerts.send_alerts(seed.ledger) and receiver.got == []


def test_of_many_who_tell_at_once_one_does(tmp_path: Path, receiver: Receiver) -> None:
    seed = Seed(tmp_path / "home")
    lands(0, warns(0), broken(0))(seed)
    start = threading.Barrier(6)

    def one() -> None:
        start.wait()
        alerts.send_alerts(Ledger(seed.home))

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert arrived(receiver) == sorted([f"! {BROKEN}", f"! {WARNS}"])


def test_what_a_process_that_died_had_claimed_is_sent_after_a_while(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = Seed(tmp_path / "home")
    lands(0, warns(0))(seed)
    (one,) = incidents.list_incidents(seed.ledger)
    (channel,) = alerts.alert_channels()
    assert rows.claim_message(seed.ledger, channel.name, alerts.alert_key(one), AlertKind.OPENED, None, "") is True
    assert rows.claim_message(seed.ledger, channel.name, alerts.alert_key(one), AlertKind.OPENED, None, "") is False
    alerts.send_alerts(seed.ledger)
    assert receiver.got == []
    old = (clock.read_clock().replace(year=2000)).isoformat(timespec="milliseconds")
    with seed.ledger.database.engine.begin() as connection:
        connection.execute(sa.update(table).values(claimed_at=old))
    alerts.send_alerts(seed.ledger)
    assert arrived(receiver) == [f"! {WARNS}"]


def test_a_stage_that_may_be_tried_again_is_left_to_its_scheduler(tmp_path: Path, receiver: Receiver) -> None:
    seed = Seed(tmp_path / "home")
    stops(0)(seed)
    lands(1, warns(1))(seed)
    alerts.send_alerts(seed.ledger, patience=1e6)
    assert arrived(receiver) == [f"! {WARNS}"]
    alerts.send_alerts(seed.ledger)
    assert arrived(receiver) == ["! a run ends well"]


def test_an_epoch_that_is_not_published_until_it_is(tmp_path: Path, receiver: Receiver) -> None:
    seed = Seed(tmp_path / "home")

    def late() -> list[alerts.Problem]:
        found = alerts.epoch_problem(seed.ledger, DAY, "epoch 2004-07-01 is late", ["it is not there"])
        return [found] if found else []

    alerts.send_alerts(seed.ledger, problems=late())
    assert arrived(receiver) == ["! epoch 2004-07-01 is late"]
    alerts.send_alerts(seed.ledger, problems=late())
    lands(1)(seed)
    alerts.send_alerts(seed.ledger)
    assert arrived(receiver) == []
    lands(0)(seed)
    alerts.send_alerts(seed.ledger)
    assert arrived(receiver) == ["- epoch 2004-07-01 is late"]
    stops(2)(seed)
    assert alerts.epoch_problem(seed.ledger, DAY + 2, "epoch 2004-07-03 is late", []) is None  # an incident is


def test_by_mail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from aiosmtpd.controller import Controller

    got: list[Any] = []

    class Handler:
        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
            got.append(envelope)
            return "250 taken"

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    post = Controller(Handler(), hostname="127.0.0.1", port=port)
    post.start()
    try:
        address = f"mailto://127.0.0.1:{port}?from=altneu@example.com&to=oncall@example.com"
        monkeypatch.setenv("ALTNEU_ALERTS", address)
        seed = Seed(tmp_path / "home")
        lands(0, warns(0))(seed)
        assert alerts.send_alerts(seed.ledger)
    finally:
        post.stop()
    (envelope,) = got
    mail = email.message_from_bytes(envelope.content)
    assert envelope.rcpt_tos == ["oncall@example.com"]
    assert str(make_header(decode_header(mail["Subject"]))) == f"altneu: warning: {WARNS}"
    parts = [part.get_payload(decode=True).decode() for part in mail.walk() if part.get_content_maintype() == "text"]
    assert any("epoch 2004-07-01" in part and "altneu incidents ack" in part for part in parts)


def run(home: Path, *words: str) -> object:
    with pytest.raises(SystemExit) as done:
        cli.main(["--home", str(home), *words])
    return done.value.code


COMMANDS: dict[str, tuple[str, str | None, object, str]] = {
    "nobody to be told": ("incidents send", None, 2, "ALTNEU_ALERTS names no receiver"),
    "no URL": ("incidents send", "somebody", 2, "apprise does not understand"),
    "an unknown one": ("incidents send --test", "pigeon://roof", 2, "(they begin with pigeon:)"),
    "a test": ("incidents send --test", "json://127.0.0.1:{port}", 0, "json:"),
    "what is new": ("incidents send", "json://127.0.0.1:{port}", 0, "the new alerts are sent"),
    "a test that nobody takes": ("incidents send --test", "json://127.0.0.1:9", 1, "did not accept the message"),
    "what is new, and nobody takes it": ("incidents send", "json://127.0.0.1:9", 1, "not every receiver"),
    "a list with --all": ("incidents --all send", "json://127.0.0.1:{port}", 2, "go only with the list"),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_the_command(
    case: str, tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, urls, code, shown = COMMANDS[case]
    seed = Seed(tmp_path / "home")
    lands(0, warns(0))(seed)
    monkeypatch.delenv("ALTNEU_ALERTS")
    if urls is not None:
        monkeypatch.setenv("ALTNEU_ALERTS", urls.format(port=receiver.port))
    assert run(seed.home.path, *words.split()) == code
    said = capsys.readouterr()
    assert shown in said.out + said.err
    expected = {"a test": 1, "what is new": 1}.get(case, 0)
    assert len(receiver.got) == expected
    if case == "a test":
        assert "Nothing is wrong" in receiver.bodies[0]["message"]
        assert rows.list_sent(seed.ledger, alerts.alert_channels()[0].name) == {}


def test_a_command_that_writes_tells_by_itself_and_never_fails_by_it(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = Seed(tmp_path / "home")
    lands(0, warns(0), check(DAY, "degrees are those of the edges", False))(seed)
    one = next(one for one in incidents.list_incidents(seed.ledger) if one.first.name == WARNS)
    acknowledged = ("incidents", "ack", one.identifier, "--by", "ada", "--because", "known")
    assert run(seed.home.path, "status") == 0
    assert receiver.got == [], "a reader tells nobody"
    with receiving() as dead:
        dead.status = 500
        monkeypatch.setenv("ALTNEU_ALERTS", f"json://127.0.0.1:{dead.port}")
        assert run(seed.home.path, *acknowledged) == 0
        assert "alerts could not be sent" in capsys.readouterr().err
    monkeypatch.setenv("ALTNEU_ALERTS", "pigeon://roof")
    assert run(seed.home.path, "run", "2004-07-09") == 2
    monkeypatch.setenv("ALTNEU_ALERTS", f"json://127.0.0.1:{receiver.port}")
    lands(1, broken(1))(seed)
    assert run(seed.home.path, "run", "2004-07-09") == 2, "a command that fails tells, too"
    assert arrived(receiver) == ["! degrees are those of the edges", f"! {BROKEN}"]


def test_two_receivers_of_one_kind_are_two_and_no_password_is_stored() -> None:
    one, two = (alerts.AppriseChannel(f"mailto://user:secret@host?to={name}@example.com") for name in "ab")
    assert one.name != two.name and one.name.startswith("mailto:")
    assert not any("secret" in each.name or "user" in each.name for each in (one, two))


def test_without_apprise_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALTNEU_ALERTS", "json://127.0.0.1:9")
    monkeypatch.setattr(altneu.pipeline.optional_dependencies, "is_installed", lambda extra: False)
    with pytest.raises(UsageError, match="apprise") as told:
        alerts.alert_channels()
    assert told.value.next == "pip install 'altneu[alerts]'"


def test_a_task_is_named_by_its_run() -> None:
    long = "x" * 400
    found = alerts.task_problem(long, long, "it failed", ["why"])
    assert found.key == AlertKey("task", long[:256], long[-256:]) and found.severity is Severity.CRITICAL
