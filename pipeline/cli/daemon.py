"""The commands that start and stop the daemon of a home, and show how it is: `altneu daemon`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from .app import Group, app, open_ledger, setting, with_common_options
from .printing import Document, out, show_progress

group = typer.Typer(invoke_without_command=True)
app.add_typer(group, name="daemon", rich_help_panel=Group.SETUP)


@group.callback()
@with_common_options
def daemon(context: typer.Context) -> None:
    """Keep Spark ready for the commands of this home, so that they begin their work at once.

    Without a subcommand it shows the state of the daemon.
    """
    if not context.invoked_subcommand:
        _print_status(Document.table)


@group.command("start")
@with_common_options
def start() -> None:
    """Start a process that keeps Spark ready for the commands and the tasks of this home.

    They use it by themselves, one after the other, except with `--no-daemon`. It ends after `[spark] idle_minutes`
    without a command.
    """
    from ..local.daemon import start_daemon

    home = open_ledger(create=True).home
    lines: list[str] = []
    with show_progress("daemon"):
        start_daemon(home, lines.append)
    for line in lines:
        out.print(line)


@group.command("stop")
@with_common_options
def stop() -> None:
    """Stop the daemon of this home. A command that it executes is interrupted, as Ctrl-C interrupts it."""
    from ..local.daemon import stop_daemon

    stopped = stop_daemon(setting.home)
    out.print("the daemon has ended" if stopped else "no daemon of this home is running")


@group.command("status")
@with_common_options
def status(format: Annotated[Document, typer.Option(help="The output format.")] = Document.table) -> None:
    """Show whether a daemon of this home is running, what it does, and how much memory it takes."""
    _print_status(format)


def _print_status(format: Document) -> None:
    from ..storage.daemon_client import format_status, read_status

    daemon_status = read_status(setting.home)
    if format is Document.json:
        print(json.dumps(daemon_status and asdict(daemon_status), indent=1))
        return
    if daemon_status is None:
        out.print("no daemon of this home is running")
        out.print("  next: altneu daemon start")
        return
    for line in format_status(daemon_status):
        out.print(line)
