"""The app, the options before every command, and the home that they name."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .. import place, telemetry
from ..config import Home
from ..ledger import Ledger
from .printing import err

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Incremental graph analytics: edge upserts in, triangles and trussness out, epoch by epoch.

Start with `altneu demo`. With data of your own: `altneu land`, then `altneu backfill --all`, then `altneu show totals`.

Exit codes: 0 fine, 1 a check or a run failed, 2 wrong use or configuration.""",
)


class Log(StrEnum):
    text = "text"
    json = "json"


_home: Path = Path(".altneu")


@app.callback()
def options(
    home: Annotated[
        Path, typer.Option("--home", envvar="ALTNEU_HOME", help="Home directory: settings, landing, tables, reports.")
    ] = Path(".altneu"),
    log_format: Annotated[
        Log,
        typer.Option(envvar="ALTNEU_LOG_FORMAT", help="What standard error gets: text, or one line of JSON per event."),
    ] = Log.text,
) -> None:
    global _home
    _home = home
    err.quiet = log_format is Log.json
    if err.quiet:
        telemetry.json_lines(sys.stderr)


def home_path() -> Path:
    """The home directory as it was given; it need not be there."""
    return _home


def opened(create: bool = False) -> tuple[Home, Ledger]:
    home = Home.open(_home, create)
    return home, place.opened(home)
