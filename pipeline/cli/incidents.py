"""The commands about incidents: what is wrong now, since when, and who works on it (`altneu incidents`)."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ..errors import AltneuError, RunFailed, UsageError
from .app import Group, app, open_ledger, with_common_options
from .printing import Document, err, format_moment, out, print_rows

group = typer.Typer(invoke_without_command=True)
app.add_typer(group, name="incidents", rich_help_panel=Group.CHECKING)

_COLUMNS = ("incident", "state", "severity", "check", "epochs", "since", "observed")


@group.callback()
@with_common_options
def incidents(
    context: typer.Context,
    all_: Annotated[bool, typer.Option("--all", help="List the closed incidents, too.")] = False,
    format: Annotated[Document, typer.Option(help="The output format.")] = Document.table,
) -> None:
    """List what is wrong now: the checks and stages that fail, since when, and who works on them.

    It needs no Spark.

    `altneu incidents ack 57 --by Ada --because "the source sends it again tonight"`
    """
    if context.invoked_subcommand:
        if all_ or format is not Document.table:
            raise UsageError("--all and --format go only with the list.", "altneu incidents --help")
        return
    from ..report import incident_document
    from ..state import clock
    from ..state import incidents as incident_log

    ledger = open_ledger()
    now = clock.timestamp()
    shown = [
        incident_document(ledger.home, incident, now)
        for incident in incident_log.list_incidents(ledger)
        if incident.is_open or all_
    ]
    if format is Document.json:
        print(json.dumps(shown, indent=1))
        return
    if not shown:
        out.print("no incident" if all_ else "no open incident")
        return
    rows = []
    for incident in shown:
        epochs = incident["epochs"]
        where = "" if not epochs else epochs[0] if len(epochs) == 1 else f"{len(epochs)}: {epochs[0]} … {epochs[-1]}"
        rows.append({**incident, "epochs": where, "since": format_moment(incident["opened_at"])})
    print_rows(rows, _COLUMNS)
    for incident in shown:
        name, note = incident["incident"], incident["acknowledged"]
        if note:
            out.print(f"{name}: {note['by']} is on it: {note['because']}", markup=False)
        if incident["muted_until"]:
            out.print(f"{name}: muted until {incident['muted_until'][:10]}", markup=False)
        if incident["closed_at"]:
            out.print(f"{name}: closed {format_moment(incident['closed_at'])}: {incident['closed_by']}", markup=False)
    first = next((incident for incident in shown if incident["state"] == "open"), None)
    if first is not None:
        report = f"altneu report {first['epochs'][-1]}; " if first["epochs"] else ""
        out.print(f"  next, for {first['incident']}: {report}{first['remedy']}", markup=False)


@group.command()
@with_common_options
def ack(
    incident: Annotated[str, typer.Argument(help="The incident, as `altneu incidents` names it.")],
    by: Annotated[str, typer.Option(metavar="NAME", help="The person who works on it.")],
    because: Annotated[str, typer.Option(metavar="TEXT", help="What is known or being done, in a sentence.")],
) -> None:
    """Record who works on an incident, and why.

    Earlier acknowledgements stay on record.
    """
    from ..state import incidents as incident_log

    ledger = open_ledger(writes=True)
    noted = incident_log.acknowledge_incident(ledger, incident, by, because)
    out.print(f"{noted.identifier} ({noted.first.name}): {by.strip()} is on it", markup=False)


@group.command()
@with_common_options
def mute(
    incident: Annotated[str, typer.Argument(help="The incident, as `altneu incidents` names it.")],
    until: Annotated[
        str, typer.Option(metavar="DATE", help="The day (UTC) from which the incident counts again, if it is open.")
    ],
    by: Annotated[str | None, typer.Option(metavar="NAME", help="The person who mutes it.")] = None,
    because: Annotated[str | None, typer.Option(metavar="TEXT", help="The reason.")] = None,
) -> None:
    """Mute the alerts of an incident until a day.

    What fails goes on failing, and its pages say so.
    """
    from ..state import incidents as incident_log

    ledger = open_ledger(writes=True)
    muted = incident_log.mute_incident(ledger, incident, until, by, because)
    out.print(f"{muted.identifier} ({muted.first.name}): muted until {until}", markup=False)
    if not muted.acknowledgement:
        err.print(f"nobody is on it; next: altneu incidents ack {muted.identifier} --by NAME --because TEXT")


@group.command()
@with_common_options
def send(
    test: Annotated[bool, typer.Option("--test", help="Send each receiver a test message instead.")] = (False),
) -> None:
    """Send new alerts to the receivers that ALTNEU_ALERTS names.

    Each incident is sent to every receiver once when it opens and once when it is over. Commands that write to the home
    send alerts by themselves.
    """
    from ..observability import alerts

    receivers = alerts.alert_channels()
    if not receivers:
        raise UsageError(
            f"{alerts.VARIABLE} names no receiver of alerts.",
            f"{alerts.VARIABLE}='mailto://user:password@host?to=oncall@example.com' altneu incidents send --test",
        )
    ledger = open_ledger(writes=not test)
    if not test:
        if not alerts.send_alerts(ledger, lambda: receivers):
            raise RunFailed("not every receiver took the new alerts.", "altneu incidents send --test")
        out.print("the new alerts are sent")
        return
    failed = []
    for receiver in receivers:
        try:
            receiver.send_message(alerts.test_message(ledger.home))
            out.print(f"{receiver.name}: received", markup=False)
        except AltneuError as error:
            failed.append(error.what)
    if failed:
        raise RunFailed(" ".join(failed), f"correct {alerts.VARIABLE}, then: altneu incidents send --test")
