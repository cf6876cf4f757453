"""A command that this process executes: its errors become text and exit codes, also after a signal."""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import os
import sys
import traceback
from typing import NoReturn

from .. import events, interrupt
from ..errors import AltneuError, Exit, UsageError, describe_error
from ..formatting import format_name, is_text
from ..secret import has_secret
from ..tasks.base import release_session
from . import crash_report
from .app import LogFormat, app, setting
from .printing import err, failure, make_streams_printable, out

from . import land, runs, approval, status, incidents, query, verify, admin, daemon  # isort: skip

__all__ = ["app", "err", "out", "run"]

# The commands in the help have this order of modules, whichever of them was imported first.
_MODULES = [module.__name__ for module in (land, runs, approval, status, incidents, query, verify, admin, daemon)]
app.registered_commands.sort(key=lambda command: _MODULES.index(command.callback.__module__))


def run(arguments: list[str] | None = None) -> NoReturn:
    """Run `altneu` with these arguments (default: the process's); exit with its code."""
    atexit.register(_skip_final_collection)
    make_streams_printable()
    with interrupt.handle_signals():
        try:
            code = _run_command(arguments)
            _send_alerts()
            sys.exit(code)
        except BaseException as error:
            stop = interrupt.interruption_of(error)
            if isinstance(stop, (interrupt.Interrupted, KeyboardInterrupt)):
                _end_after_signal(stop)
            raise
        finally:
            release_session()


def _skip_final_collection() -> None:
    """Freeze the garbage collector before the process exits.

    Its last pass would take a fifth of the time of a short command. It stays on with DuckDB, which would report a leak.
    """
    if "duckdb" not in sys.modules:
        gc.freeze()


def _run_command(arguments: list[str] | None) -> int | str | None:
    """Run a command and return its exit code.

    An exception is printed as an error, except the one that a signal has caused.
    """
    try:
        _require_text(sys.argv[1:] if arguments is None else arguments)
        app(arguments, prog_name="altneu")
        return Exit.OK
    except SystemExit as done:
        if isinstance(interrupt.interruption_of(), interrupt.Interrupted):
            raise
        return done.code
    except Exception as error:
        if isinstance(interrupt.interruption_of(error), (interrupt.Interrupted, KeyboardInterrupt)):
            raise
        if isinstance(error, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return Exit.OK
        _print_error(error)
        return error.exit if isinstance(error, AltneuError) else Exit.FAILED


def _require_text(arguments: list[str]) -> None:
    """Raise `UsageError` for an argument that is not UTF-8 text and not the path of a file.

    A path may consist of any bytes.
    """
    for argument in arguments:
        if not is_text(argument) and not os.path.lexists(argument):
            raise UsageError(f"the argument {format_name(argument)} is not UTF-8 text.", "altneu --help")


def _send_alerts() -> None:
    """Send the alerts about what a writing command has brought to light."""
    if setting.changed_ledger is not None and has_secret("ALTNEU_ALERTS"):
        from ..observability import alerts

        alerts.send_alerts(setting.changed_ledger)


def _end_after_signal(stop: BaseException) -> NoReturn:
    """Print that a signal ended the command, then end this process and its children at once."""
    interrupt.end_children()
    during = (stop.during if isinstance(stop, interrupt.Interrupted) else None) or setting.command or "its start"
    outcome = "run the same command to continue"
    with contextlib.suppress(Exception):  # the database may be what the command was waiting for
        outcome = setting.outcome()
    if setting.log is LogFormat.json:
        logging.disable(logging.NOTSET)
        events.log_event("command interrupted", logging.ERROR, during=during, outcome=outcome)
    else:
        failure.print(f"interrupted during {during}; {outcome}", markup=False)
    with contextlib.suppress(OSError):  # the reader of the pipe has closed it
        sys.stderr.flush()
        sys.stdout.flush()
    os._exit(Exit.INTERRUPTED)  # at once: threads and libraries would wait for Spark


def _print_error(error: Exception) -> None:
    what, next_command = describe_error(error)
    if setting.log is LogFormat.json:
        events.log_event("command failed", logging.ERROR, error=what, next=next_command)
        return
    if setting.verbose:
        failure.print("".join(traceback.format_exception(error)).rstrip())
    failure.print("altneu:", style="bold red", end=" ")
    failure.print(what, markup=False)
    if next_command:
        failure.print(f"  next: {next_command}", markup=False)
    log = crash_report.write_crash_report(setting.home, error) if crash_report.is_unexpected(error) else None
    if log:
        failure.print(f"  details: {log}   (attach it to a report)", markup=False)
