"""Alerts inside Airflow: its notifiers as channels, the failure of a task, and late epochs.

`ALTNEU_NOTIFIERS` names notifiers of any provider, as JSON: the path of each class and its arguments, in which Jinja
knows `alert.title`, `alert.text` and `alert.severity` besides Airflow's context. Passwords belong into the connections
that the arguments name. `altneu.pipeline.observability.alerts` explains what is sent, and that it is sent once. The
URLs of `ALTNEU_ALERTS` get the alerts, too. If neither is set, nothing happens here.
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
from ..formatting import format_moment
from ..home.home import Home
from ..secret import has_secret
from ..tasks import base, dag_epochs

if TYPE_CHECKING:
    from ..observability.alerts import Channel, Message, Problem
    from ..state.ledger import Ledger
    from ..tasks.base import ApprovalRequest

log = logging.getLogger("altneu.tasks")
VARIABLE = "ALTNEU_NOTIFIERS"
RETRIES = 3600.0  # seconds within which Airflow may retry a failed stage
LINES = 15  # the number of lines of a task's error that an alert shows
TASKS_BEFORE_RUN = ("landed", "plan", "approve")  # tasks that fail without a run that has failed
TASKS_AFTER_PUBLISH = ("assets", "epochs", "warnings", "report")  # tasks that can fail although the epoch is published


@dataclass(frozen=True)
class AirflowNotifier:
    """One notifier of Airflow, as a channel for alerts."""

    path: str
    arguments: dict[str, Any]
    context: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        text = json.dumps(self.arguments, sort_keys=True, default=str)
        return f"{self.path.rpartition('.')[2][:64]}:{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def send_message(self, message: Message) -> None:
        alert = {"title": message.title, "text": message.text, "severity": message.severity or "over"}
        self.create_notifier()({**self.context, "alert": alert})

    def create_notifier(self) -> Any:
        """Create Airflow's own notifier. Raise `UsageError` if there is no such class, or it does not take the
        arguments."""
        from airflow.sdk import BaseNotifier
        from airflow.sdk._shared.module_loading import import_string

        try:
            notifier = import_string(self.path)(**self.arguments)
        except (ImportError, TypeError, ValueError) as error:
            raise UsageError(f"{VARIABLE}: {self.path}: {error}.") from error
        if not isinstance(notifier, BaseNotifier):
            raise UsageError(f"{VARIABLE}: {self.path} is not a notifier of Airflow.")
        return notifier


def configured_notifiers(context: dict[str, Any] | None = None) -> list[AirflowNotifier]:
    """Return the notifiers that `ALTNEU_NOTIFIERS` names. Raise `UsageError` if it has another form."""
    text = os.environ.get(VARIABLE, "").strip()
    try:
        named = json.loads(text or "{}")
    except ValueError as error:
        raise UsageError(f"{VARIABLE} is not JSON: {error}.") from None
    if not isinstance(named, dict) or not all(isinstance(arguments, dict) for arguments in named.values()):
        raise UsageError(f"{VARIABLE} is not a JSON object of classes and their arguments.")
    return [AirflowNotifier(path, arguments, dict(context or {})) for path, arguments in named.items()]


def send_alerts(
    path: str, context: dict[str, Any], problems: list[Problem] | None = None, patience: float = RETRIES
) -> None:
    """Send the new alerts. Never raise an error.

    Args:
        path: The folder of the home.
        context: The context of the Airflow task, for the notifiers.
        problems: Problems besides those of the ledger.
        patience: The seconds for which a failure that Airflow may retry is not sent yet.
    """
    if not is_configured():
        return
    try:
        from ..observability import alerts
        from .task_support import report_address

        def channels() -> list[Channel]:
            return [*alerts.alert_channels(), *configured_notifiers(context)]

        ledger = base.open_ledger(path)
        alerts.send_alerts(ledger, channels, report_address, problems or (), patience)
    except Exception:
        log.warning("alerts could not be sent", exc_info=True)


def is_configured() -> bool:
    """Tell whether alerts have any receiver."""
    return bool(os.environ.get(VARIABLE) or has_secret("ALTNEU_ALERTS"))


def alert_task_failed(path: str, context: dict[str, Any], last: datetime | None = None) -> None:
    """Send the new alerts after a task has failed for good, and the failure itself if no incident covers it.

    Never raise an error. `last` is the start of the last epoch of the schedule, if the schedule ends.
    """
    if not is_configured():
        return
    problems: list[Problem] = []
    try:
        ledger = base.open_ledger(path)
        problem = _failure_problem(ledger, context, last)
        problems += [problem] if problem else []
    except Exception:
        log.warning("the alert of a failed task could not be made", exc_info=True)
    send_alerts(path, context, problems, patience=0)


def alert_approval_needed(path: str, context: dict[str, Any], run_id: str, question: ApprovalRequest) -> None:
    """Send an alert that a held run waits for a person, once for each run. Never raise an error."""
    if not is_configured():
        return
    from ..observability import alerts
    from .task_support import report_address

    lines = [line for line in question["body"].splitlines() if line][:LINES]
    lines += [f"page: {report_address(question['page'])}"] if question["page"] else []
    lines.append(f"next: answer the task approve in Airflow; or altneu publish {run_id}, or altneu discard {run_id}")
    send_alerts(
        path, context, [alerts.task_problem(f"{context['ti'].dag_id}.approve", run_id, question["subject"], lines)]
    )


def _failure_problem(ledger: Ledger, context: dict[str, Any], last: datetime | None) -> Problem | None:
    from ..observability import alerts

    ti = context["ti"]
    if ti.task_id not in TASKS_BEFORE_RUN and _is_incident(ledger, ti.start_date):
        return None
    error = str(context.get("exception") or "the task was killed, or it has reported nothing").splitlines()[:LINES]
    lines = [*error, f"log: {getattr(ti, 'log_url', None) or 'in Airflow'}"]
    name = f"{ti.dag_id}.{ti.task_id}"
    epoch = None if ti.task_id in TASKS_AFTER_PUBLISH else _epoch_of_task(ledger.home, context, last)
    if epoch is None:
        return alerts.task_problem(name, ti.run_id, f"{name} failed, run {ti.run_id}", lines)
    return alerts.epoch_problem(
        ledger, epoch, f"epoch {ledger.home.schedule.format_label(epoch)}: {name} failed", lines
    )


def _is_incident(ledger: Ledger, since: datetime | None) -> bool:
    """Tell whether an open incident has a failure since the task began at `since`."""
    from ..state.incidents import list_incidents

    if since is None:
        return False
    failures = (failure for incident in list_incidents(ledger) for failure in incident.open_failures)
    return any(datetime.fromisoformat(failure.at) >= since - timedelta(seconds=1) for failure in failures)


def _epoch_of_task(home: Home, context: dict[str, Any], last: datetime | None) -> int | None:
    """Return the epoch of a task's run, or None if it has no single one."""
    params = context.get("params") or {}
    if "epoch" not in params:
        return None
    manual = context["dag_run"].run_type not in ("scheduled", "backfill")
    dates = context.get("logical_date"), context.get("data_interval_start")
    try:
        return dag_epochs.epoch_of(str(home.path), params["epoch"], *dates, manual, last)
    except AltneuError:
        return None


# -- late epochs --------------------------------------------------------------------------------------------------


async def alert_late(context: dict[str, Any], home: str, prefix: str = base.PREFIX) -> None:
    """Handle a missed deadline in the triggerer: the epoch of a scheduled run is not published in time.

    A run that began after its deadline is catching up, and no alert is sent for it.
    """
    from asgiref.sync import sync_to_async  # so that the other thread can read connections

    from .sites import Site, acting_site

    with acting_site(Site(home, prefix)):
        await sync_to_async(send_late_alert, thread_sensitive=False)(context, home)


late = alert_late  # Airflow's database names this path in deadlines that an earlier version has set


def send_late_alert(context: dict[str, Any], path: str) -> None:
    """Send the alert of a late epoch and wait for the receivers. Log errors of the home or of a receiver."""
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
        ledger = base.open_ledger(path)
        problem = _late_problem(ledger, ledger.home.schedule.epoch_of(start), missed)
    except Exception:
        log.warning("the alert of a late epoch could not be made", exc_info=True)
        return
    if problem:
        send_alerts(path, context, [problem])


def _late_problem(ledger: Ledger, epoch: int, missed: datetime) -> Problem | None:
    """Describe why an epoch is late and what to type; return None if it is published."""
    from ..landing import list_batches
    from ..observability import alerts
    from .task_support import report_address

    home = ledger.home
    if epoch in ledger.outputs.published_batches(epochs=[epoch]):
        return None
    label, batch = home.schedule.format_label(epoch), list_batches(home, {epoch}).get(epoch)
    held = [run for run in ledger.runs.list_held() if epoch in run.epochs]
    if held:
        why, remedy = f"run {held[-1].run_id} is held", f"altneu diff {held[-1].run_id}, then altneu publish or discard"
    elif batch is None:
        why, remedy = f"{home.landed_at}/epoch={label} does not exist", f"altneu land FILE … for epoch {label}"
    elif batch.incomplete:
        why, remedy = batch.incomplete, "finish the files, and write _SUCCESS"
    else:
        why, remedy = (
            "it is landed, and its run has not ended",
            f"altneu status; the runs of altneu_epoch for {label}",
        )
    lines = (
        why,
        f"it was due at {format_moment(missed.isoformat())}",
        f"page: {report_address('index.html')}",
    )
    return alerts.epoch_problem(ledger, epoch, f"epoch {label} is late", (*lines, f"next: {remedy}"))


def _parse_instant(value: Any) -> datetime | None:
    return datetime.fromisoformat(value) if isinstance(value, str) else value
