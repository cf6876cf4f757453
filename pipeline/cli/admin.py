"""Around the data: compact, relocate, airflow, connect, setup, doctor, demo."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.filesize import decimal
from rich.table import Table

from ..config import Home
from ..errors import Exit
from .base import app, home_path, opened
from .printing import Progress, err, out, ranges


@app.command()
def compact(
    grace: Annotated[
        float, typer.Option(help="Hours for which readers may go on reading what is let go.", min=0)
    ] = 1.0,
) -> None:
    """Fold history that is not kept, rewrite small files, drop what nobody can read. No answer that is kept changes.

    `[retention]` in altneu.toml says what is kept: `epochs` for the tables (default: all), `revisions` to look and roll
    back to (default: 20). Totals are kept for all epochs and revisions.
    """
    from ..compact import compact as fold
    from ..spark import session_for

    home, ledger = opened()
    progress = Progress()
    started = time.time()
    try:
        progress("compact", "")
        facts = fold(
            home,
            ledger,
            session_for(home, ledger),
            grace * 3600,
            lambda text: progress("compact", text),
        )
    finally:
        progress.close()
    table = Table("table", "files", "rows", "size", box=None, header_style="bold")
    for name, after in facts["tables"].items():
        before = facts["before"][name]
        table.add_row(
            name,
            f"{before['files']:,} → {after['files']:,}",
            f"{before['rows']:,} → {after['rows']:,}",
            f"{decimal(before['bytes'])} → {decimal(after['bytes'])}",
        )
    out.print(table)
    readable = ranges([row.revision for row in ledger.revisions() if row.snapshots])
    answers = "all epochs" if facts["since"] is None else f"epochs from {home.schedule.label(facts['since'])} on"
    out.print(
        f"the tables answer for {answers}, at revisions {readable}; {facts['expired_snapshots']} snapshots and "
        f"{facts['orphans']} orphaned files dropped ({time.time() - started:.1f} s)"
    )


@app.command()
def relocate(
    original_gone: Annotated[
        bool,
        typer.Option(
            "--original-gone", help="Nobody works with the former database any more: these tables are this one's now."
        ),
    ] = False,
) -> None:
    """Make a home work where it is now, after it was copied, moved or mounted elsewhere; takes no Spark.

    The tables' metadata name whole paths and are written anew with those of this place; no row is read or written, the
    original is not touched, and all revisions stay. Stopped in the middle, type it again.
    """
    from ..relocate import relocate as move

    home = Home.open(home_path())
    progress = Progress()
    try:
        progress("relocate", "")
        found = move(home, original_gone, lambda text: progress("relocate", text))
    finally:
        progress.close()
    if not found.tables:
        out.print(f"nothing to do: the tables of this home are where they were made ({found.new})")
        return
    out.print(
        f"{found.tables} tables from {found.old} are at home in {found.new} now ({found.files:,} files of metadata)"
    )
    out.print("next: altneu status")


@app.command()
def airflow(
    port: Annotated[int, typer.Option(help="Port of the web page.")] = 8080,
    connect: Annotated[
        bool, typer.Option("--connect", help="The tasks share one Spark (see altneu connect) and start none.")
    ] = False,
) -> None:
    """Start a local Airflow with the DAGs and the pool on this home; prints address and password, Ctrl-C stops it."""
    from ..airflow import standalone

    opened(create=True)
    standalone(home_path(), port=port, connect=connect, say=lambda text: out.print(text, markup=False))


@app.command()
def connect(
    host: Annotated[str, typer.Option(help="Address to listen at. Whoever reaches it may do what the server may.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port to listen at.")] = 15002,
) -> None:
    """One Spark for many short processes: a Spark Connect server with this home's settings; Ctrl-C stops it."""
    from ..connect import serve

    serve(opened(create=True)[0], host, port, lambda text: out.print(text, markup=False))


@app.command()
def setup() -> None:
    """What altneu needs beside its Python packages, once: Java, jars, a class-data archive, compiled kernels.

    It goes into the Python environment; a second call does nothing. JAVA_HOME chooses the Java.
    """
    from ..local.setup import set_up

    if not set_up(lambda text: err.print(text, markup=False, highlight=False)):
        out.print("everything is set up already")


@app.command()
def doctor(deep: Annotated[bool, typer.Option("--deep", help="Also start Spark and write a table.")] = False) -> None:
    """What is found on this machine: versions, Java, jars, memory, disk, database; and what to do about it."""
    from ..doctor import checks

    found = checks(home_path() if home_path().exists() else None, deep=deep)
    table = Table(box=None, header_style="bold")
    for name in ("", "what", "found", "remedy"):
        table.add_column(name)
    for check in found:
        mark = {True: "[green]✓[/]", False: "[red]✗[/]", None: "[yellow]![/]"}[check.ok]
        table.add_row(mark, check.name, check.found, check.remedy if check.ok is not True else "")
    out.print(table)
    if any(check.ok is False for check in found):
        raise typer.Exit(Exit.FAILED)


@app.command()
def demo() -> None:
    """Real messages, daily epochs, every stage, audited at every epoch; prints where to look."""
    from ..demo import demo as play

    play(home_path(), Progress(), out)
