"""The Typer app, the options that every command takes before or after its name, and the home that they name."""

from __future__ import annotations

import inspect
import logging
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from .. import events
from ..errors import UsageError
from ..storage.daemon_client import caller
from .printing import err

if TYPE_CHECKING:
    from ..state.ledger import Ledger

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Keep the triangles and the trussness of a graph up to date, epoch by epoch, as its edges arrive in files.

To see an example, type `altneu demo`. For data of your own, type `altneu land`, then `altneu backfill --all`, then
`altneu show totals`.

Exit codes: 0 fine, 1 a check or a run failed, 2 wrong use or configuration, 130 interrupted.""",
)


class Group(StrEnum):
    """The groups of commands in the help, in their order there."""

    DATA = "Data"
    RUNS = "Runs"
    READING = "Reading"
    CHECKING = "Checking"
    MAINTENANCE = "Maintenance"
    SETUP = "Set-up and services"


class LogFormat(StrEnum):
    text = "text"
    json = "json"


UNCHANGED = "nothing was changed; run the same command to continue"


@dataclass
class CallOptions:
    """The common options of the current call, and what the command has opened so far."""

    home: Path = Path(".altneu")
    log: LogFormat = LogFormat.text
    quiet: bool = False
    verbose: bool = False
    command: str | None = None
    outcome: Callable[[], str] = lambda: UNCHANGED  # what is said when a signal ends the command
    changed_ledger: Ledger | None = None  # of the home that this command may have changed


setting = CallOptions()

_EVERYWHERE = "Everywhere"
HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home",
        help="The folder of the home (default: ALTNEU_HOME, or .altneu).",
        metavar="DIR",
        rich_help_panel=_EVERYWHERE,
    ),
]
LogOption = Annotated[
    LogFormat | None,
    typer.Option(
        "--log-format",
        help="Write standard error as text or as JSON lines (default: ALTNEU_LOG_FORMAT, or text).",
        rich_help_panel=_EVERYWHERE,
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print results and errors, but no progress.", rich_help_panel=_EVERYWHERE)
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="Print every event, and the whole trace of an error.", rich_help_panel=_EVERYWHERE
    ),
]
NoDaemonOption = Annotated[
    bool,
    typer.Option(
        "--no-daemon", help="Start a Spark of its own, beside that of `altneu daemon`.", rich_help_panel=_EVERYWHERE
    ),
]
Wait = Annotated[
    float | None,
    typer.Option(
        "--wait",
        metavar="SECONDS",
        min=0,
        help="Start a Spark of its own where that of `altneu daemon` is busy for so long (default: wait for it).",
        rich_help_panel=_EVERYWHERE,
    ),
]


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        print(f"altneu {metadata.version('altneu')}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    home: HomeOption = None,
    log_format: LogOption = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    no_daemon: NoDaemonOption = False,
    wait: Wait = None,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    setting.home, setting.quiet, setting.verbose = Path(os.environ.get("ALTNEU_HOME") or ".altneu"), False, False
    setting.command, setting.outcome, setting.changed_ledger = context.invoked_subcommand, CallOptions.outcome, None
    form = os.environ.get("ALTNEU_LOG_FORMAT") or LogFormat.text
    if form not in set(LogFormat):
        raise UsageError(f"ALTNEU_LOG_FORMAT = {form!r} is not allowed: it has to be {' or '.join(LogFormat)}.")
    setting.log = LogFormat(form)
    caller.name = f"altneu {context.invoked_subcommand}"
    _apply_options(home, log_format, quiet, verbose, no_daemon, wait)


def _apply_options(
    home: Path | None,
    log_format: LogFormat | None,
    quiet: bool,
    verbose: bool,
    no_daemon: bool,
    wait: float | None,
) -> None:
    setting.home = (home or setting.home).expanduser()
    setting.log = log_format or setting.log
    setting.quiet |= quiet
    setting.verbose |= verbose
    err.quiet = setting.quiet or setting.log is LogFormat.json
    caller.uses_daemon = caller.uses_daemon and not no_daemon
    caller.wait = caller.wait if wait is None else wait
    caller.show_line = partial(err.print, markup=False)
    if setting.log is LogFormat.json:
        events.log_json_lines(sys.stderr)
    elif setting.verbose:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(events.TextLine("%(asctime)s %(message)s"))
        logging.basicConfig(handlers=[handler], force=True)
        events.log.setLevel(logging.INFO)
    else:
        events.log_text_lines(sys.stderr)


Command = TypeVar("Command", bound=Callable[..., None])


class SignedCommand(TyperCommand):
    """A command for which an argument such as -5 is a vertex or an epoch, not an option."""

    def make_parser(self, ctx: Any) -> Any:
        parser = super().make_parser(ctx)
        read_option = getattr(
            parser, "_process_opts", None
        )  # where Typer lacks it, `--` has to stand before such arguments

        def read_option_or_number(text: str, state: Any) -> None:
            if re.match(r"-\d", text):
                state.largs.append(text)
            else:
                assert read_option is not None
                read_option(text, state)

        if read_option is not None:
            parser._process_opts = read_option_or_number  # type: ignore[assignment]
        return parser


def register_command(group: Group) -> Callable[[Command], Command]:
    """Return a decorator that registers a function as a command of a group of the help, with the common options."""

    def register(function: Command) -> Command:
        app.command(cls=SignedCommand, rich_help_panel=group)(with_common_options(function))
        return function

    return register


def with_common_options(function: Command) -> Command:
    """Return the function as one that takes the common options, too."""
    parameters = inspect.signature(function, eval_str=True).parameters
    also = {
        name: parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(_common_options, eval_str=True).parameters.items()
    }

    @wraps(function)
    def call_with_options(**values: Any) -> None:
        _apply_options(*(values.pop(name) for name in also))
        function(**values)

    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters.values()]
    call_with_options.__signature__ = inspect.Signature([*keywords, *also.values()])  # type: ignore[attr-defined]
    call_with_options.__annotations__ = {
        name: parameter.annotation for name, parameter in {**parameters, **also}.items()
    }
    return call_with_options  # type: ignore[return-value]


def _common_options(
    home: HomeOption = None,
    log_format: LogOption = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    no_daemon: NoDaemonOption = False,
    wait: Wait = None,
) -> None:
    """Declare the options that every command takes."""


def open_ledger(create: bool = False, writes: bool = False) -> Ledger:
    """Open the ledger of this call's home.

    Args:
        create: Make the home if it does not exist.
        writes: The command may write to the home, so that alerts are sent after it.
    """
    from ..home.home import Home
    from ..state import home_identity

    ledger = home_identity.open_ledger(Home.open(setting.home, create=create), writes=writes)
    if writes:
        setting.changed_ledger = ledger
    if setting.outcome is CallOptions.outcome:
        before = ledger.revisions.get().revision
        setting.outcome = lambda: _published_since(ledger, before)
    return ledger


_ANEW = ("rebuild", "repair", "rollback")  # a second call of these commands publishes again


def _published_since(ledger: Ledger, before: int) -> str:
    newest = ledger.revisions.get().revision
    if newest == before:
        return "nothing was published; run the same command to continue"
    again = "see altneu status" if setting.command in _ANEW else "run the same command to continue"
    return f"revision {newest} is published; {again}"
