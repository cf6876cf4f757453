"""Alerts inside Airflow: its notifiers as channels, what a task says that has failed, and epochs that are late.

`ALTNEU_NOTIFIERS` names notifiers of any provider, as JSON: the path of each class and its arguments, in which Jinja
knows `alert.title`, `alert.text` and `alert.severity` besides Airflow's context. Passwords stand in the connections
that they name. What is sent, and that it is sent once, is said in `pipeline.run.alerts`. The URLs of `ALTNEU_ALERTS`
are told as well. With neither nothing happens here.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..errors import AltneuError, UsageError
from ..home.home import Home
from ..secret import has_secret
from ..tasks import base, dag_epochs

if TYPE_CHECKING:
    from ..run.alerts import Channel, Message, Problem
    from ..state.ledger import Ledger
    from ..tasks.base import ApprovalRequest

log = logging.getLogger("altneu.tasks")
VARIABLE = "ALTNEU_NOTIFIERS"
RETRIES = 3600.0  # seconds within which Airflow may try a stage again that has failed
LINES = 15  # of a task's error
BEFORE = ("landed", "plan", "approve")  # tasks that fail without a run that has failed
AFTER = ("assets", "epochs", "warnings", "report")  # tasks that fail when the epoch is published


@dataclass(frozen=True)
class AirflowNotifier:
    """One of Airflow's notifiers, as a channel."""

    path: str
    arguments: dict[str, Any]
    context: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        text = json.dumps(self.arguments, sort_keys=True, default=str)
        return f"{self.path.rpartition('.')[2][:64]}:{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def send_message(self, message: Message) -> None:
        said = {"title": message.title, "text": message.text, "severity": message.severity or "over"}
        self.create_notifier()({**self.context, "alert": said})

    def create_notifier(self) -> Any:
        """Airflow's own object. Raises `UsageError` where there is no such class, or it takes no such arguments."""
        from airflow.sdk import BaseNotifier
        from airflow.sdk._shared.module_loading import import_string

        try:
            made = import_string(self.path)(**self.arguments)
        except (ImportError, TypeError, ValueError) as error:
            raise UsageError(f"{VARIABLE}: {self.path}: {error}.") from error
        if not isinstance(made, BaseNotifier):
            raise UsageError(f"{VARIABLE}: {self.path} is no notifier of Airflow.")
        return made


def configured_notifiers(context: dict[str, Any] | None = None) -> list[AirflowNotifier]:
    """What `ALTNEU_NOTIFIERS` names. Raises `UsageError` for what is not of its form."""
    text = os.environ.get(VARIABLE, "").strip()
    try:
        named = json.loads(text or "{}")
    except ValueError as error:
        raise UsageError(f"{VARIABLE} is not JSON: {error}.") from None
    if not isinstance(named, dict) or not all(isinstance(each, dict) for each in named.values()):
        raise UsageError(f"{VARIABLE} is no JSON object of classes and their arguments.")
    return [AirflowNotifier(path, arguments, dict(context or {})) for path, arguments in named.items()]


def send_alerts(
    path: str, context: dict[str, Any], problems: list[Problem] | None = None, patience: float = RETRIES
) -> None:
    """Send what is new. Never raises."""
    if not is_configured():
        return
    try:
        from ..run import alerts
        from .dag_builder import report_address

        def channels() -> list[Channel]:
            return [*alerts.alert_channels(), *configured_notifiers(context)]

        home, ledger = base.open_home(path)
        alerts.send_alerts(home, ledger, channels, report_address, problems or (), patience)
    except Exception:
        log.warning("alerts could not be sent", exc_info=True)


def is_configured() -> bool:
    """Is there anybody to be told?"""
    return bool(os.environ.get(VARIABLE) or has_secret("ALTNEU_ALERTS"))


def alert_task_failed(path: str, context: dict[str, Any], last: datetime | None = None) -> None:
    """A task has failed for good: send what is new, and the failure itself where no incident says it. Never raises.

    `last`: the last epoch of the schedule, if it has one.
    """
    if not is_configured():
        return
    problems: list[Problem] = []
    try:
        home, ledger = base.open_home(path)
        found = _failure_problem(home, ledger, context, last)
        problems += [found] if found else []
    except Exception:
        log.warning("the failure of a task could not be told", exc_info=True)
    send_alerts(path, context, problems, patience=0)


def alert_approval_needed(path: str, context: dict[str, Any], run_id: str, question: ApprovalRequest) -> None:
    """A held run waits for a person: send it, once for each run. Never raises."""
    if not is_configured():
        return
    from ..run import alerts
    from .dag_builder import report_address

    lines = [line for line in question["body"].splitlines() if line][:LINES]
    lines += [f"page: {report_address(question['page'])}"] if question["page"] else []
    lines.append(f"next: answer the task approve in Airflow; or altneu publish {run_id}, or altneu discard {run_id}")
    send_alerts(
        path, context, [alerts.task_problem(f"{context['ti'].dag_id}.approve", run_id, question["subject"], lines)]
    )


def _failure_problem(home: Home, ledger: Ledger, context: dict[str, Any], last: datetime | None) -> Problem | None:
    from ..run import alerts

    ti = context["ti"]
    if ti.task_id not in BEFORE and _is_incident(ledger, ti.start_date):
        return None
    error = str(context.get("exception") or "it was killed, or has reported nothing").splitlines()[:LINES]
    lines = [*error, f"log: {getattr(ti, 'log_url', None) or 'in Airflow'}"]
    name = f"{ti.dag_id}.{ti.task_id}"
    epoch = None if ti.task_id in AFTER else _epoch_of_task(home, context, last)
    if epoch is None:
        return alerts.task_problem(name, ti.run_id, f"{name} failed, run {ti.run_id}", lines)
    return alerts.epoch_problem(home, ledger, epoch, f"epoch {home.schedule.format_label(epoch)}: {name} failed", lines)


def _is_incident(ledger: Ledger, since: datetime | None) -> bool:
    """Is there an open incident that this task, begun then, has opened or joined?"""
    from ..state.incidents import list_incidents

    if since is None:
        return False
    standing = (failure for one in list_incidents(ledger) for failure in one.open_failures)
    return any(datetime.fromisoformat(failure.at) >= since - timedelta(seconds=1) for failure in standing)


def _epoch_of_task(home: Home, context: dict[str, Any], last: datetime | None) -> int | None:
    """The epoch of a task's run; None: it has no single one."""
    asked = context.get("params") or {}
    if "epoch" not in asked:
        return None
    manual = context["dag_run"].run_type not in ("scheduled", "backfill")
    dates = context.get("logical_date"), context.get("data_interval_start")
    try:
        return dag_epochs.epoch_of(str(home.path), asked["epoch"], *dates, manual, last)
    except AltneuError:
        return None


# -- late epochs --------------------------------------------------------------------------------------------------


async def alert_late(context: dict[str, Any], home: str, prefix: str = base.PREFIX) -> None:
    """The callback of a missed deadline, in the triggerer: the epoch of a scheduled run is not published in time.

    A run that was begun after its deadline is catching up, and tells nothing.
    """
    from asgiref.sync import sync_to_async  # so that connections may be asked for from the other thread

    from .sites import Site, acting_site

    with acting_site(Site(home, prefix)):
        await sync_to_async(send_late_alert, thread_sensitive=False)(context, home)


late = alert_late  # the path that Airflow's database has of deadlines which an earlier version set


def send_late_alert(context: dict[str, Any], path: str) -> None:
    """Send the alert of a late epoch and wait for the receivers. Errors of the home or of a receiver are logged."""
    if not is_configured():
        return
    run, missed = context["dag_run"], _parse_instant(context["deadline"]["deadline_time"])
    began, start = (
        _parse_instant(run.get("queued_at") or run.get("start_date")),
        _parse_instant(run.get("data_interval_start")),
    )
    if run["run_type"] != "scheduled" or missed is None or start is None or (began and began >= missed):
        return
    try:
        home, ledger = base.open_home(path)
        found = _late_problem(home, ledger, home.schedule.epoch_of(start), missed)
    except Exception:
        log.warning("a late epoch could not be told", exc_info=True)
        return
    if found:
        send_alerts(path, context, [found])


def _late_problem(home: Home, ledger: Ledger, epoch: int, missed: datetime) -> Problem | None:
    """Describe why an epoch is late and what to type. None: it is published, or an incident says why it is not."""
    from ..landing import list_batches
    from ..run import alerts
    from .dag_builder import report_address

    if epoch in ledger.published_batches():
        return None
    label, there = home.schedule.format_label(epoch), list_batches(home).get(epoch)
    held = [run for run in ledger.list_held() if epoch in run.epochs]
    if held:
        why, then = f"run {held[-1].run_id} is held", f"altneu diff {held[-1].run_id}, then altneu publish or discard"
    elif there is None:
        why, then = f"{home.landed_at}/epoch={label} is not there", f"altneu land FILE … for epoch {label}"
    elif there.incomplete:
        why, then = there.incomplete, "finish the files, and write _SUCCESS"
    else:
        why, then = "it is landed, and its run has not ended", f"altneu status; the runs of altneu_epoch for {label}"
    lines = (
        why,
        f"it was due until {alerts.format_minute(missed.isoformat())}",
        f"page: {report_address('index.html')}",
    )
    return alerts.epoch_problem(home, ledger, epoch, f"epoch {label} is late", (*lines, f"next: {then}"))


def _parse_instant(given: Any) -> datetime | None:
    return datetime.fromisoformat(given) if isinstance(given, str) else given
