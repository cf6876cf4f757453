"""`altneu`: the command line. It parses, calls one function, prints; it alone turns errors to text and exit codes.

Progress goes to standard error, results to standard output; Spark and the suites are imported only when needed. A
module per concept: `base` (the app and its options), `printing`, and the commands: `land`, `runs`, `decide`,
`status`, `incidents`, `read`, `checks`, `admin`.
"""

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
from ..file_names import format_name, is_text
from ..secret import has_secret
from ..tasks.base import release_session
from . import crash_report
from .app import LogFormat, app, setting
from .printing import err, failure, make_streams_printable, out

# their order is that of the commands in the help
from . import land, runs, approval, status, incidents, query, verify, admin  # noqa: F401  # isort: skip

__all__ = ["app", "err", "main", "out"]


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run `altneu` with these arguments (default: the process's); exit with its code."""
    gc.set_threshold(50_000)  # imports make many objects that all stay: looking through them took a tenth of the start
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
    """Freeze the garbage collector before exit: its last pass took a fifth of a short command. DuckDB calls that a
    leak."""
    if "duckdb" not in sys.modules:
        gc.freeze()


def _run_command(arguments: list[str] | None) -> int | str | None:
    """The exit code of a command. What it raises is told, but for what a signal has ended."""
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
    """Raise `UsageError` for an argument that is no UTF-8 text, but for the path of a file, which may be any bytes."""
    for argument in arguments:
        if not is_text(argument) and not os.path.lexists(argument):
            raise UsageError(f"the argument {format_name(argument)} is no UTF-8 text.", "altneu --help")


def _send_alerts() -> None:
    """Send what a command that writes has brought to light."""
    if setting.wrote is not None and has_secret("ALTNEU_ALERTS"):
        from ..run import alerts

        alerts.send_alerts(*setting.wrote)


def _end_after_signal(stop: BaseException) -> NoReturn:
    """Tell that a signal ended the command, and end it and every process of it at once."""
    interrupt.end_children()
    during = (stop.during if isinstance(stop, interrupt.Interrupted) else None) or setting.command or "its start"
    outcome = "the same command goes on"
    with contextlib.suppress(Exception):  # the database may be what was waited for
        outcome = setting.outcome()
    if setting.log is LogFormat.json:
        logging.disable(logging.NOTSET)
        events.log_event("command interrupted", logging.ERROR, during=during, outcome=outcome)
    else:
        failure.print(f"interrupted during {during}; {outcome}", markup=False)
    with contextlib.suppress(OSError):  # a reader that has gone
        sys.stderr.flush()
        sys.stdout.flush()
    os._exit(Exit.INTERRUPTED)  # not by way of threads and libraries that would wait for Spark


def _print_error(error: Exception) -> None:
    what, then = describe_error(error)
    if setting.log is LogFormat.json:
        events.log_event("command failed", logging.ERROR, error=what, next=then)
        return
    if setting.verbose:
        failure.print("".join(traceback.format_exception(error)).rstrip())
    failure.print("altneu:", style="bold red", end=" ")
    failure.print(what, markup=False)
    if then:
        failure.print(f"  next: {then}", markup=False)
    log = crash_report.write_crash_report(setting.home, error) if crash_report.is_unexpected(error) else None
    if log:
        failure.print(f"  details: {log}   (attach it to a report)", markup=False)
