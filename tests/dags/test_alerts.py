"""Alerts in Airflow: its own notifiers by a connection, one message for a failing epoch, deadlines that are missed."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from altneu.pipeline.errors import CheckFailed, RunFailed
from altneu.pipeline.home.home import Home
from altneu.pipeline.local.doctor import list_checks
from altneu.pipeline.run.run_context import RunContext
from altneu.pipeline.run.stages import audit as audit_stage
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.tasks.base import ApprovalRequest
from tests import home_helpers
from tests.receiver import Receiver, alerted, receiving

from . import test_epoch
from .real import Airflow
from .test_epoch import DAY, Load, states, up

tiny = test_epoch.tiny  # a fixture
SMTP = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"
MAIL = {"to": "oncall@example.com", "subject": "{{ alert.title }}", "html_content": "<pre>{{ alert.text | e }}</pre>"}


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with alerted(monkeypatch) as found:
        yield found


def fails(monkeypatch: pytest.MonkeyPatch, error: Exception, check: dict[str, Any] | None = None) -> None:
    """The audit stage of the next runs fails, with a check that says why."""

    def audit(run: RunContext) -> Any:
        if check:
            run.ledger.checks.put(run.run_id, 1, [check])
        raise error

    monkeypatch.setattr(audit_stage, "audit_run", audit)


def critical(epoch: int) -> dict[str, Any]:
    words = {
        "suite": "edges",
        "name": "edges are unique",
        "severity": "critical",
        "meaning": "Each edge is stored once.",
    }
    told = {"remedy": "altneu audit 2004-04-15", "observed": "1 of 3 rows", "rows": [{"a": 1, "b": 2}]}
    return {"epoch": epoch, "passed": False, **words, **told}


def titles(receiver: Receiver) -> list[str]:
    found = [body["title"] for body in receiver.bodies]
    receiver.got.clear()
    return found


def assert_stopped_before_publish(run: Any, ledger: Ledger, called: list[dict[str, Any]]) -> None:
    """What a critical failure leaves: a report, and a call that says what to do."""
    assert run.state == "failed"
    done = states(run)
    assert (done["truss"], done["audit"]) == ("success", "failed")
    assert {done[name] for name in ("publish", "assets", "warnings")} == {"upstream_failed"}
    assert done["report"] == "success" and (ledger.home.reports / "epoch=2004-04-15.html").is_file()
    assert ledger.revisions.get().revision == 0
    assert [(call["dag"], call["task"]) for call in called] == [("altneu_epoch", "audit")]
    address = "/altneu/reports/epoch=2004-04-15.html"
    parts = ("2004-04-15: edges are unique", "{'a': 1, 'b': 2}", "next: altneu report 2004-04-15", address)
    assert [part for part in parts if part not in called[0]["error"]] == []


@pytest.mark.usefixtures("ledger_only", "pages", "airflow")
def test_a_failing_epoch_is_told_once_and_its_end_too(
    load: Load,
    tiny: tuple[Home, Ledger, int],
    monkeypatch: pytest.MonkeyPatch,
    receiver: Receiver,
) -> None:
    home, ledger, first = tiny
    called: list[dict[str, Any]] = []
    hook = ModuleType("pager")
    hook.call = called.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pager", hook)
    with monkeypatch.context() as patch:
        fails(patch, CheckFailed("1 critical check(s) failed.", "altneu report 2004-04-15"), critical(first))
        run = load(home.path, ALTNEU_ON_FAILURE="pager:call")["altneu_epoch"].test(logical_date=DAY)
        assert_stopped_before_publish(run, ledger, called)
        (body,) = receiver.bodies
        assert body["title"] == "altneu: critical: edges are unique"
        assert "/altneu/reports/epoch=2004-04-15.html" in body["message"]
        assert "next: altneu report 2004-04-15; altneu audit 2004-04-15" in body["message"]
        titles(receiver)
        assert load(home.path)["altneu_epoch"].test(logical_date=DAY).state == "failed"  # cleared, and fails again
        assert titles(receiver) == []
    assert load(home.path)["altneu_epoch"].test(logical_date=DAY).state == "success"
    assert titles(receiver) == ["altneu: over: critical: edges are unique"]
    assert ledger.revisions.get().revision == 1


@pytest.mark.usefixtures("ledger_only", "airflow")
def test_a_task_that_fails_without_an_incident_says_so_itself(
    load: Load,
    tiny: tuple[Home, Ledger, int],
    monkeypatch: pytest.MonkeyPatch,
    receiver: Receiver,
) -> None:
    home, ledger, _ = tiny
    dag = load(home.path, ALTNEU_WAIT_HOURS="0")["altneu_epoch"]
    run = dag.test(logical_date=DAY + timedelta(days=2))
    assert (run.state, states(run)["landed"], states(run)["plan"]) == ("failed", "failed", "upstream_failed")
    assert ledger.revisions.get().revision == 0
    (body,) = receiver.bodies
    assert body["title"] == "altneu: epoch 2004-04-17: altneu_epoch.landed failed"
    assert "waiting for epoch 2004-04-17" in body["message"] and "next: land it" in body["message"]
    titles(receiver)
    assert dag.test(logical_date=DAY + timedelta(days=2)).state == "failed"
    assert titles(receiver) == [], "the same epoch, still not published"
    home_helpers.put(home, home.schedule.parse_epoch("2004-04-17"), up((7, 8)))
    assert load(home.path)["altneu_epoch"].test(logical_date=DAY + timedelta(days=2)).state == "success"
    assert titles(receiver) == ["altneu: over: epoch 2004-04-17: altneu_epoch.landed failed"]


@pytest.mark.slow
@pytest.mark.usefixtures("ledger_only", "airflow")
def test_a_backfill_that_fails_without_an_incident_says_so_itself(
    load: Load, tiny: tuple[Home, Ledger, int], receiver: Receiver
) -> None:
    home, _, _ = tiny
    run = load(home.path)["altneu_backfill"].test(logical_date=None, run_conf={"first": "2004-05-01"})
    assert run.state == "failed"
    assert titles(receiver) == [f"altneu: altneu_backfill.plan failed, run {run.run_id}"]


@pytest.mark.usefixtures("ledger_only", "airflow")
def test_by_a_notifier_of_airflow_with_a_connection(
    load: Load,
    tiny: tuple[Home, Ledger, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import email

    from aiosmtpd.controller import Controller

    home, _, first = tiny
    got: list[Any] = []

    class Handler:
        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
            got.append(email.message_from_bytes(envelope.content))
            return "250 taken"

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    extra = {"disable_ssl": True, "disable_tls": True, "from_email": "altneu@example.com"}
    connection = {"conn_type": "smtp", "host": "127.0.0.1", "port": port, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(connection))
    fails(monkeypatch, RunFailed("no room."), critical(first))
    post = Controller(Handler(), hostname="127.0.0.1", port=port)
    post.start()
    try:
        dag = load(home.path, ALTNEU_NOTIFIERS=json.dumps({SMTP: MAIL}))["altneu_epoch"]
        assert dag.test(logical_date=DAY).state == "failed"
    finally:
        post.stop()
    (mail,) = got
    assert (mail["Subject"], mail["To"]) == ("altneu: critical: edges are unique", "oncall@example.com")
    text = "".join(part.get_payload(decode=True).decode() for part in mail.walk() if not part.is_multipart())
    assert "epoch 2004-04-15, since" in text and "altneu incidents ack" in text


WRONG = {
    "no JSON": ("slack", "is not JSON"),
    "no object": ('["SlackNotifier"]', "not a JSON object"),
    "no arguments": ('{"a.B": 1}', "not a JSON object"),
    "no such class": ('{"airflow.nowhere.Notifier": {}}', "airflow.nowhere"),
    "no notifier": ('{"datetime.timedelta": {}}', "not a notifier of Airflow"),
    "other arguments": (json.dumps({SMTP: {"recipient": "x"}}), "argument: 'to'"),
}


def test_a_run_that_waits_for_a_person_is_told_once(tmp_path: Path, receiver: Receiver) -> None:
    from altneu.pipeline.scheduling import alerts

    home, _ = home_helpers.make(tmp_path, '[epochs]\nevery = "1d"\n')
    context = {"ti": SimpleNamespace(dag_id="altneu_epoch", task_id="approve")}
    question: ApprovalRequest = {
        "subject": "Publish epoch 2004-04-15?",
        "body": "Run `a` is held.",
        "page": "diff=a.html",
    }
    for run in ("a", "a", "b"):
        alerts.alert_approval_needed(str(home.path), context, run, question)
    text = str(receiver.bodies)
    assert "altneu publish a" in text and "diff=a.html" in text
    assert titles(receiver) == ["altneu: Publish epoch 2004-04-15?"] * 2


@pytest.mark.parametrize("case", WRONG)
def test_wrong_notifiers_are_told_by_doctor_and_fail_no_run(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from altneu.pipeline.scheduling import alerts

    text, says = WRONG[case]
    home, ledger = home_helpers.make(tmp_path / "home")
    monkeypatch.setenv("ALTNEU_NOTIFIERS", text)
    (found,) = (check for check in list_checks() if check.name == "Alerts")
    assert found.ok is False and says in found.finding and found.remedy
    ledger.runs.create("run_1", 0, epochs=[1], config={})
    ledger.runs.finish("run_1", "failed", "no room")
    alerts.send_alerts(str(home.path), {}, patience=0)
    assert "could not be sent" in caplog.text


def test_doctor_names_who_is_told(monkeypatch: pytest.MonkeyPatch, receiver: Receiver) -> None:
    monkeypatch.setenv("ALTNEU_NOTIFIERS", json.dumps({SMTP: MAIL}))
    one, two = (check.finding for check in list_checks() if check.name == "Alerts")
    assert one.startswith("ALTNEU_ALERTS: json:") and two == "ALTNEU_NOTIFIERS: SmtpNotifier"
    monkeypatch.setenv("ALTNEU_ALERTS", "pigeon://roof")
    assert [check.ok for check in list_checks() if check.name == "Alerts"] == [False, True]
    assert receiver.got == []


# -- deadlines ----------------------------------------------------------------------------------------------------


def test_an_epoch_has_a_deadline_where_one_is_set(load: Load, tmp_path: Path) -> None:
    home_helpers.make(tmp_path, '[epochs]\nevery = "12h"\n')
    assert not load(tmp_path)["altneu_epoch"].deadline
    dag = load(tmp_path, ALTNEU_LATE_HOURS="1.5")["altneu_epoch"]
    (deadline,) = dag.deadline
    assert deadline.interval == timedelta(hours=13.5)
    assert deadline.callback.path == "altneu.pipeline.scheduling.alerts.alert_late"
    home_helpers.make(tmp_path, "")  # integer epochs have no schedule
    assert not load(tmp_path, ALTNEU_LATE_HOURS="1.5")["altneu_epoch"].deadline


def missed(day: int = 2, kind: str = "scheduled", began: float = 0.0) -> dict[str, Any]:
    """What Airflow hands to the callback: of the epoch so many days after `DAY`; `began`: hours after its end."""
    start = DAY + timedelta(days=day)
    run = {
        "dag_run_id": "r",
        "run_type": kind,
        "data_interval_start": start.isoformat().replace("+00:00", "Z"),
        "queued_at": (start + timedelta(hours=24 + began)).isoformat(),
    }
    return {"dag_run": run, "deadline": {"id": "d", "deadline_time": start + timedelta(hours=30)}}


def incomplete(ledger: Ledger) -> None:
    (ledger.home.landing / "epoch=2004-04-17").mkdir()


def landed(ledger: Ledger) -> None:
    home_helpers.put(ledger.home, ledger.home.schedule.parse_epoch("2004-04-17"), up((7, 8)))


def published(ledger: Ledger) -> None:
    landed(ledger)
    home_helpers.run(ledger, [ledger.home.schedule.parse_epoch("2004-04-17")])


def failed(ledger: Ledger) -> None:
    ledger.runs.create("run_1", 0, epochs=[ledger.home.schedule.parse_epoch("2004-04-17")], config={})
    ledger.runs.finish("run_1", "failed", "no room")


LATE: dict[str, tuple[Callable[[Ledger], None] | None, dict[str, Any], str | None]] = {
    "it is not landed": (None, {}, "epoch=2004-04-17 does not exist"),
    "its folder is no batch": (incomplete, {}, "write _SUCCESS"),
    "it is landed and not run": (landed, {}, "it is landed, and its run has not ended"),
    "it is published": (published, {}, None),
    "an incident says it": (failed, {}, "no room"),
    "the run is catching up": (None, {"began": 7.0}, None),
    "a run by hand": (None, {"kind": "manual"}, None),
    "a backfill": (None, {"kind": "backfill"}, None),
}


@pytest.mark.usefixtures("ledger_only")
@pytest.mark.parametrize("case", LATE)
def test_a_late_epoch(case: str, tiny: tuple[Home, Ledger, int], receiver: Receiver) -> None:
    from altneu.pipeline.scheduling import alerts

    home, ledger, _ = tiny
    before, how, says = LATE[case]
    if before:
        before(ledger)
    for _ in range(2):  # a scheduler that dies may ask twice
        asyncio.run(alerts.alert_late(missed(**how), str(home.path)))
    if says is None or case == "an incident says it":
        assert receiver.got == []
        return
    (body,) = receiver.bodies
    assert body["title"] == "altneu: epoch 2004-04-17 is late" and says in body["message"]
    assert "it was due at 2004-04-18 06:00 UTC" in body["message"] and "next: " in body["message"]


def test_a_late_epoch_of_a_broken_home_raises_nothing(tmp_path: Path, receiver: Receiver) -> None:
    from altneu.pipeline.scheduling import alerts

    asyncio.run(alerts.alert_late(missed(), str(tmp_path / "none")))
    assert receiver.got == []


@pytest.mark.backend("airflow")
def test_one_message_for_a_late_epoch_and_one_for_a_failing_one(tmp_path: Path) -> None:
    """In a real Airflow: nothing lands for a minute's epoch in time; then its batch is broken, then it is right."""
    home, ledger = home_helpers.make(tmp_path / "home", '[epochs]\nevery = "1m"\n[ingest]\nmax_bad_share = 0.0\n')
    with receiving() as receiver:
        environment = {
            "ALTNEU_ALERTS": f"json://127.0.0.1:{receiver.port}",
            "ALTNEU_LATE_HOURS": "0.02",
            "ALTNEU_START": "",  # a schedule from now on, with no end
            "ALTNEU_END": "",
        }
        home_helpers.put(home, home.schedule.epoch_of(datetime.now(UTC)) - 60, up((1, 2)))  # so that no demo is landed
        with Airflow(home, environment=environment) as airflow:
            airflow.until(lambda: airflow.call("/api/v2/dags/altneu_epoch"), 120, "the DAG")
            airflow.unpause("altneu_epoch")
            run = airflow.until(lambda: airflow.runs("altneu_epoch"), 180, "a run")[0]
            label = home.schedule.format_label(home.schedule.epoch_of(datetime.fromisoformat(run["logical_date"])))

            def came(title: str) -> bool:  # the epochs after it are late as well: other messages
                return any(title in body["message"] for body in receiver.bodies)

            airflow.until(lambda: came(f"epoch {label} is late"), 300, f"{label} is late")
            folder = home.landing / f"epoch={label}"
            folder.mkdir()
            (folder / "rows.csv").write_text("src,dst\n1,2\nno,number\n")
            (folder / "_SUCCESS").touch()
            airflow.until(lambda: came("critical: the stage ingest ends well"), 400, "it has failed")
            home_helpers.put(home, home.schedule.parse_epoch(label), up((1, 2)))
            failed = airflow.runs("altneu_epoch")[0]["dag_run_id"]
            airflow.call(f"/api/v2/dags/altneu_epoch/dagRuns/{failed}/clear", {"dry_run": False})
            airflow.until(lambda: ledger.revisions.get().revision == 1, 600, "it is published")
            airflow.until(lambda: came(f"over: epoch {label} is late"), 120, "its end is told")
            told = [part.splitlines()[0] for body in receiver.bodies for part in body["message"].split("\n\n")]
            mine = [title for title in told if label in title or "ingest" in title]
    late, failing = f"epoch {label} is late", "critical: the stage ingest ends well"
    assert sorted(mine) == sorted([late, failing, f"over: {late}", f"over: {failing}"]), receiver.bodies
