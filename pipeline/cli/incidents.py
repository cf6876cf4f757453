"""What is wrong now, since when, and who is on it: `altneu incidents`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ..errors import AltneuError, RunFailed, UsageError
from .app import app, open_home, with_common_options
from .printing import Document, err, format_moment, out, print_rows

group = typer.Typer(invoke_without_command=True)
app.add_typer(group, name="incidents")

_COLUMNS = ("incident", "state", "severity", "check", "epochs", "since", "observed")


@group.callback()
@with_common_options
def incidents(
    context: typer.Context,
    all_: Annotated[bool, typer.Option("--all", help="Those that are closed, too.")] = False,
    format: Annotated[Document, typer.Option(help="Output format.")] = Document.table,
) -> None:
    """What is wrong now: the checks and stages that fail, since when, where, and who is on it; no Spark.

    Example: altneu incidents ack 57 --by Ada --because "the source sends it again tonight"
    """
    if context.invoked_subcommand:
        if all_ or format is not Document.table:
            raise UsageError("--all and --format go with the list alone.", "altneu incidents --help")
        return
    from ..report import incident_document
    from ..state import incidents as found_by
    from ..state import lease

    home, ledger = open_home()
    now = lease.timestamp()
    shown = [incident_document(home, one, now) for one in found_by.list_incidents(ledger) if one.is_open or all_]
    if format is Document.json:
        print(json.dumps(shown, indent=1))
        return
    if not shown:
        out.print("no incident" if all_ else "no open incident")
        return
    rows = []
    for one in shown:
        epochs = one["epochs"]
        where = "" if not epochs else epochs[0] if len(epochs) == 1 else f"{len(epochs)}: {epochs[0]} … {epochs[-1]}"
        rows.append({**one, "epochs": where, "since": format_moment(one["opened_at"])})
    print_rows(rows, _COLUMNS)
    for one in shown:
        if one["acknowledged"]:
            said = one["acknowledged"]
            out.print(f"{one['incident']}: {said['by']} is on it: {said['because']}", markup=False)
        if one["muted_until"]:
            out.print(f"{one['incident']}: muted until {one['muted_until'][:10]}", markup=False)
        if one["closed_at"]:
            out.print(f"{one['incident']}: closed {format_moment(one['closed_at'])}: {one['closed_by']}", markup=False)
    first = next((one for one in shown if one["state"] == "open"), None)
    if first is not None:
        report = f"altneu report {first['epochs'][-1]}; " if first["epochs"] else ""
        out.print(f"  next, of {first['incident']}: {report}{first['remedy']}", markup=False)


@group.command()
@with_common_options
def ack(
    incident: Annotated[str, typer.Argument(help="The incident, as `altneu incidents` names it.")],
    by: Annotated[str, typer.Option(help="Who is on it.")],
    because: Annotated[str, typer.Option(help="What is known, or being done, in a sentence.")],
) -> None:
    """Say who is on an incident, and why; what was said before stays on record."""
    from ..state import incidents as found_by

    _, ledger = open_home(writes=True)
    one = found_by.acknowledge_incident(ledger, incident, by, because)
    out.print(f"{one.identifier} ({one.first.name}): {by.strip()} is on it", markup=False)


@group.command()
@with_common_options
def mute(
    incident: Annotated[str, typer.Argument(help="The incident, as `altneu incidents` names it.")],
    until: Annotated[str, typer.Option(metavar="DATE", help="From this day (UTC) on it counts again, if it is open.")],
    by: Annotated[str | None, typer.Option(help="Who says so.")] = None,
    because: Annotated[str | None, typer.Option(help="Why.")] = None,
) -> None:
    """Hear nothing of an incident until a day; what fails goes on failing, and its pages say so."""
    from ..state import incidents as found_by

    _, ledger = open_home(writes=True)
    one = found_by.mute_incident(ledger, incident, until, by, because)
    out.print(f"{one.identifier} ({one.first.name}): muted until {until}", markup=False)
    if not one.acknowledgement:
        err.print(f"nobody is on it: altneu incidents ack {one.identifier} --by NAME --because TEXT")


@group.command()
@with_common_options
def send(
    test: Annotated[bool, typer.Option("--test", help="A message that nothing is wrong instead, to each receiver.")] = (
        False
    ),
) -> None:
    """Send what is new to the receivers that ALTNEU_ALERTS names; commands that write do it by themselves.

    Each incident is sent once when it opens and once when it is over, to every receiver.
    """
    from ..run import alerts

    receivers = alerts.alert_channels()
    if not receivers:
        raise UsageError(
            f"{alerts.VARIABLE} names no receiver.",
            f"{alerts.VARIABLE}='mailto://user:password@host?to=oncall@example.com' altneu incidents send --test",
        )
    home, ledger = open_home(writes=not test)
    if not test:
        if not alerts.send_alerts(home, ledger, lambda: receivers):
            raise RunFailed("not every receiver took what is new.", "altneu incidents send --test")
        out.print("sent what was new")
        return
    failed = []
    for each in receivers:
        try:
            each.send_message(alerts.test_message(home))
            out.print(f"{each.name}: received", markup=False)
        except AltneuError as error:
            failed.append(error.what)
    if failed:
        raise RunFailed(" ".join(failed), f"correct {alerts.VARIABLE}, then: altneu incidents send --test")
