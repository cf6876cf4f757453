"""Messages about what is wrong: once when an incident opens, once when it is over, to every channel.

`send_alerts` looks at the incidents as they are now, and sends what a channel has not received. Any process may
therefore call it, as often as something has happened. A channel is whatever takes a message: the URLs of
`ALTNEU_ALERTS` here, the notifiers of Airflow in `altneu.pipeline.scheduling.alerts`. One message has all that is new.
The database records what was sent (`altneu.pipeline.state.alert_log`). An incident that somebody has acknowledged or
muted before it was sent is not sent. A channel that fails is logged, and the next call tries it again. Nothing here
makes a run fail.

Besides incidents there are two problems that no check finds: an epoch that is not published (`epoch_problem`), which is
over when the epoch is published, and a task of a scheduler that has failed for another reason (`task_problem`), whose
end is not reported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from ..errors import AltneuError, UsageError
from ..events import log
from ..formatting import count_epochs, format_moment
from ..home.home import Home
from ..optional_dependencies import require_extras
from ..report import incident_document
from ..secret import read_secret
from ..state import alert_log, clock
from ..state.alert_log import AlertKey, AlertKind
from ..state.incidents import STAGES, Incident, list_incidents
from ..state.ledger import Ledger
from ..state.records import Severity

VARIABLE = "ALTNEU_ALERTS"
EPOCH, TASK = "epoch", "task"  # the suites of problems that are no incidents
MAX_PROBLEMS = 10  # problems that one message describes

Pages = Callable[[str], str]  # the name of a page's file → its address


@dataclass(frozen=True)
class Message:
    """The title and the text that a channel receives. `severity` is None when every problem in it is over."""

    title: str
    text: str
    severity: Severity | None


class Channel(Protocol):
    """A receiver of messages. The database knows it by its `name`, which contains no password."""

    @property
    def name(self) -> str: ...

    def send_message(self, message: Message) -> None:
        """Send a message. Raise an error when it was not received."""


@dataclass(frozen=True)
class Problem:
    """A problem that has begun or is over, as one part of a message."""

    key: AlertKey
    kind: AlertKind
    title: str
    lines: tuple[str, ...]
    severity: Severity = Severity.CRITICAL
    epoch: int | None = None  # the epoch whose publication ends the problem

    def render_text(self) -> str:
        return "\n".join([self.title, *(f"  {line}" for line in self.lines if line)])


# -- channels outside Airflow -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AppriseChannel:
    """A receiver with a URL that apprise understands: `slack://…`, `mailto://…`, `json://…`, and a hundred others."""

    url: str

    @property
    def name(self) -> str:
        return f"{self.url.partition(':')[0].lower()[:32]}:{hashlib.sha256(self.url.encode()).hexdigest()[:12]}"

    def send_message(self, message: Message) -> None:
        from apprise import NotifyFormat, NotifyType

        kind = {None: NotifyType.SUCCESS, Severity.WARNING: NotifyType.WARNING}.get(
            message.severity, NotifyType.FAILURE
        )
        receiver = self.apprise_receiver()
        if receiver is None or not receiver.notify(
            body=message.text, title=message.title, notify_type=kind, body_format=NotifyFormat.TEXT
        ):
            raise AltneuError(f"{self.name} did not accept the message.")

    def apprise_receiver(self) -> Any:
        """Return apprise's object for the URL, or None when apprise does not understand the URL."""
        from apprise import Apprise, AppriseAsset

        return Apprise.instantiate(self.url, asset=AppriseAsset(async_mode=False, secure_logging=True))


def alert_channels() -> list[Channel]:
    """Return the receivers that `ALTNEU_ALERTS` names.

    Raises:
        UsageError: Apprise is not installed, or does not understand one of the URLs.
    """
    text = read_secret(VARIABLE) or ""
    if not text.strip():
        return []
    require_extras(f"sending alerts ({VARIABLE})", "alerts")
    from apprise.utils.parse import parse_urls

    channels = [AppriseChannel(url) for url in parse_urls(text)] or [AppriseChannel(text.strip())]
    wrong = [channel.name.partition(":")[0] for channel in channels if channel.apprise_receiver() is None]
    if wrong:
        raise UsageError(
            f"{VARIABLE}: URL(s) that apprise does not understand (they begin with {', '.join(wrong)}:).",
            "https://github.com/caronc/apprise/wiki lists the forms; altneu incidents send --test tries them",
        )
    return list(channels)


# -- what is sent -------------------------------------------------------------------------------------------------


def send_alerts(
    ledger: Ledger,
    to: Callable[[], Sequence[Channel]] = alert_channels,
    pages: Pages | None = None,
    problems: Iterable[Problem] = (),
    patience: float = 0,
) -> bool:
    """Send what is new to each channel. This function raises no error; failures are logged.

    Args:
        ledger: The ledger of the home.
        to: A function that returns the channels.
        pages: A function from the file name of a report page to its address; by default that of the local reports.
        problems: Problems that are sent besides the incidents.
        patience: A stage that failed less than this number of seconds ago is left out, because its scheduler may try
            it again.

    Returns:
        Whether every channel has received all of it.
    """
    every = True
    try:
        receivers = to()
        if not receivers:
            return True
        incidents, problems = list_incidents(ledger), list(problems)
    except Exception:
        log.warning("alerts could not be sent", exc_info=True)
        return False
    for channel in receivers:
        try:
            _send_to_channel(ledger, channel, incidents, problems, pages or _report_pages(ledger.home), patience)
        except Exception as error:  # a run must not fail because its alerts do
            every = False
            log.warning("alerts could not be sent to %s: %s", channel.name, error)
    return every


def _send_to_channel(
    ledger: Ledger, channel: Channel, incidents: list[Incident], problems: list[Problem], pages: Pages, patience: float
) -> None:
    home = ledger.home
    sent = alert_log.list_sent(ledger, channel.name)
    news = [
        _opened_problem(home, incident, pages) for incident in incidents if _is_due(home, incident, patience)
    ] + problems
    news += _closed_problems(ledger, incidents, sent, pages)
    claimed = [
        problem
        for problem in news
        if alert_log.is_claimable(sent.get((problem.key, problem.kind)))
        and alert_log.claim_message(ledger, channel.name, problem.key, problem.kind, problem.epoch, problem.title)
    ]
    if not claimed:
        return
    keys, received = [(problem.key, problem.kind) for problem in claimed], False
    try:
        channel.send_message(_compose_message(home, claimed))
        received = True
    finally:
        (alert_log.confirm_messages if received else alert_log.release_messages)(ledger, channel.name, keys)


def _compose_message(home: Home, news: list[Problem]) -> Message:
    opened = [problem for problem in news if problem.kind is AlertKind.OPENED]
    title = news[0].title
    if len(news) > 1:
        counts = [(len(opened), "new"), (len(news) - len(opened), "over")]
        title = f"{', '.join(f'{n} {word}' for n, word in counts if n)}: {title}, …"
    parts = [problem.render_text() for problem in news[:MAX_PROBLEMS]]
    if len(news) > MAX_PROBLEMS:
        parts.append(f"and {len(news) - MAX_PROBLEMS} more: altneu incidents --all")
    severity = min((problem.severity for problem in opened), key=tuple(Severity).index, default=None)
    return Message(f"altneu: {title}", "\n\n".join([*parts, f"home: {home.path}"]), severity)


def _is_due(home: Home, incident: Incident, patience: float) -> bool:
    """Tell whether an incident is to be sent."""
    if not incident.is_open or incident.acknowledgement or incident.mute_at(clock.timestamp()):
        return False
    if home.config.alerts.severity == "critical" and incident.severity is not Severity.CRITICAL:
        return False
    since = (clock.read_clock() - timedelta(seconds=patience)).isoformat(timespec="milliseconds")
    return not (patience and incident.first.suite == STAGES and incident.first.at > since)


def _opened_problem(home: Home, incident: Incident, pages: Pages) -> Problem:
    document = incident_document(home, incident, clock.timestamp())
    page = document["page"] or document["report"]
    report = f"altneu report {document['epochs'][-1]}; " if document["epochs"] else ""
    since = format_moment(incident.first.at)
    lines = (
        f"{_name_epochs(document['epochs'])}since {since}, incident {incident.identifier}",
        document["observed"],
        document["meaning"],
        f"page: {pages(document['report'] or page)}" if page else "",
        f"next: {report}{document['remedy']}",
        f"on it? altneu incidents ack {incident.identifier} --by NAME --because TEXT",
    )
    return Problem(
        alert_key(incident), AlertKind.OPENED, f"{incident.severity}: {incident.first.name}", lines, incident.severity
    )


def _closed_problems(
    ledger: Ledger, incidents: list[Incident], sent: dict[tuple[AlertKey, AlertKind], alert_log.SentAlert], pages: Pages
) -> list[Problem]:
    """Return the problems that were sent and are over now, except incidents that were muted when they closed."""
    known = {alert_key(incident): incident for incident in incidents}
    batches = ledger.outputs.published_batches()
    news = []
    for (key, kind), row in sent.items():
        if kind is not AlertKind.OPENED or row.sent_at is None:
            continue
        lines: tuple[str, ...] = ()
        if key.suite == EPOCH and row.epoch is not None and row.epoch in batches:
            publication = ledger.revisions.get(batches[row.epoch].revision)
            if publication.published_at > row.claimed_at:
                page = pages(f"epoch={ledger.home.schedule.format_label(row.epoch)}.html")
                lines = (
                    f"revision {publication.revision} has published it, {format_moment(publication.published_at)}",
                    f"page: {page}",
                )
        elif key.suite in (EPOCH, TASK):
            continue
        elif key not in known:
            lines = ("what had failed was tried again and ended well, or another run has taken its place",)
        elif not known[key].is_open:
            end = known[key].last
            if end.ended and known[key].mute_at(end.ended) is None:
                where = _name_epochs([ledger.home.schedule.format_label(epoch) for epoch in known[key].epochs])
                lines = (f"{where}from {format_moment(known[key].first.at)} to {format_moment(end.ended)}", end.why)
        if lines:
            news.append(Problem(key, AlertKind.CLOSED, f"over: {row.title}", lines, epoch=row.epoch))
    return news


def alert_key(one: Incident) -> AlertKey:
    """Return the key under which the database stores the alerts of an incident."""
    return AlertKey(one.first.suite, one.first.name, one.opened)


# -- problems that are no incidents -------------------------------------------------------------------------------


def epoch_problem(ledger: Ledger, epoch: int, title: str, lines: Iterable[str]) -> Problem | None:
    """Describe that an epoch is not published; this is one problem until the epoch is published.

    Returns:
        The problem, or None when an open incident already says that a run of the epoch has failed.
    """
    if any(
        epoch in failure.epochs
        for incident in list_incidents(ledger)
        for failure in incident.open_failures
        if not failure.published
    ):
        return None
    before = ledger.outputs.published_batches(epochs=[epoch]).get(epoch)
    since = f"after revision {before.revision if before else 0}"
    return Problem(AlertKey(EPOCH, str(epoch), since), AlertKind.OPENED, title, tuple(lines), epoch=epoch)


def task_problem(task: str, run: str, title: str, lines: Iterable[str]) -> Problem:
    """Describe that a task of a scheduler's run has failed."""
    return Problem(AlertKey(TASK, task[:256], run[-256:]), AlertKind.OPENED, title, tuple(lines))


def test_message(home: Home) -> Message:
    """Return a message to test a channel with."""
    text = f"This is how alerts of this home arrive. Nothing is wrong.\nhome: {home.path}"
    return Message("altneu: a test of the alerts", text, None)


def _name_epochs(labels: Sequence[str]) -> str:
    """Return the begin of a line that names the epochs of a problem, if it has any."""
    return f"{count_epochs(labels)}, " if labels else ""


def _report_pages(home: Home) -> Pages:
    """Return the addresses of the report pages outside Airflow."""
    base = (home.config.alerts.pages or home.reports_at).rstrip("/")
    return lambda name: f"{base}/{name}"
