"""The log of sent alerts, so that two processes, or a task that is tried again, send no message twice.

A process first claims a message, by a row whose key is the problem, the channel and the kind of message; of two
processes one gets the claim. A message that was not received is released, and the next process sends it. The claim of a
process that died while it was sending expires after `STALE` seconds. So a message is sent once or, after such a death,
perhaps twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

import sqlalchemy as sa

from . import clock
from .ledger import Ledger
from .schema import alerts

STALE = 600.0  # seconds after which a process that claimed a message counts as dead


class AlertKind(StrEnum):
    """The kinds of messages about a problem."""

    OPENED = "opened"
    CLOSED = "closed"


class AlertKey(NamedTuple):
    """The key of a problem. For an incident it is its check and what opened it; for others see
    `altneu.pipeline.observability.alerts`."""

    suite: str
    name: str
    opened: str


@dataclass(frozen=True)
class SentAlert:
    """One row of `alerts`. `sent_at` None: the message was claimed, but not received yet."""

    key: AlertKey
    kind: AlertKind
    epoch: int | None
    title: str
    claimed_at: str
    sent_at: str | None


def list_sent(ledger: Ledger, channel: str) -> dict[tuple[AlertKey, AlertKind], SentAlert]:
    """List the messages that were sent or claimed for a channel."""
    rows = ledger.database.read_rows(sa.select(alerts).where(alerts.c.channel == channel).order_by(alerts.c.claimed_at))
    listed = (
        SentAlert(
            AlertKey(row.suite, row.name, row.opened),
            AlertKind(row.said),
            row.epoch,
            row.title,
            row.claimed_at,
            row.sent_at,
        )
        for row in rows
    )
    return {(each.key, each.kind): each for each in listed}


def is_claimable(row: SentAlert | None) -> bool:
    """Tell whether a message with this row may be claimed; None: it has no row yet."""
    return row is None or (row.sent_at is None and row.claimed_at < _seconds_ago(STALE))


def claim_message(ledger: Ledger, channel: str, key: AlertKey, said: AlertKind, epoch: int | None, title: str) -> bool:
    """Claim a message. Return False where another process has claimed it, or it was sent."""
    now = clock.timestamp()
    row = {"channel": channel, "said": said, "epoch": epoch, "title": title, "claimed_at": now, **key._asdict()}
    try:
        with ledger.database.engine.begin() as connection:
            connection.execute(alerts.insert().values(**row))
        return True
    except sa.exc.IntegrityError:
        old = (
            _match_message(channel, key, said)
            & alerts.c.sent_at.is_(None)
            & (alerts.c.claimed_at < _seconds_ago(STALE))
        )
        with ledger.database.engine.begin() as connection:
            return bool(connection.execute(alerts.update().where(old).values(claimed_at=now)).rowcount)


def confirm_messages(ledger: Ledger, channel: str, messages: Iterable[tuple[AlertKey, AlertKind]]) -> None:
    """Record that claimed messages were received."""
    with ledger.database.engine.begin() as connection:
        for key, said in messages:
            connection.execute(
                alerts.update().where(_match_message(channel, key, said)).values(sent_at=clock.timestamp())
            )


def release_messages(ledger: Ledger, channel: str, messages: Iterable[tuple[AlertKey, AlertKind]]) -> None:
    """Give up claimed messages that were not received, so that the next process sends them."""
    with ledger.database.engine.begin() as connection:
        for key, said in messages:
            connection.execute(alerts.delete().where(_match_message(channel, key, said), alerts.c.sent_at.is_(None)))


def _match_message(channel: str, key: AlertKey, said: AlertKind) -> sa.ColumnElement[bool]:
    mine = [alerts.c[name] == value for name, value in key._asdict().items()]
    return sa.and_(alerts.c.channel == channel, alerts.c.said == said, *mine)


def _seconds_ago(seconds: float) -> str:
    return (clock.read_clock() - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")
