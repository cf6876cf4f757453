"""Commands for maintenance and for the machine: compact, relocate, move, airflow, dags, connect, setup, doctor, init,
demo."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal
from rich.markup import escape

from ..errors import Exit
from ..optional_dependencies import require_extras
from .app import Group, app, open_ledger, register_command, setting, with_common_options
from .printing import Progress, err, format_ranges, out, print_rows, show_progress
from .runs import DryRun

if TYPE_CHECKING:
    from ..home.home import Home
    from ..state.ledger import Ledger


@register_command(Group.MAINTENANCE)
def compact(
    grace: Annotated[
        float,
        typer.Option(metavar="HOURS", help="The hours for which readers may go on reading what has expired.", min=0),
    ] = 1.0,
    dry_run: DryRun = False,
) -> None:
    """Fold history that is not kept, merge small files, and delete what nobody can read.

    No answer that is kept changes. `[retention]` in altneu.toml says what is kept: `epochs` for the tables (default:
    all), and `revisions` to read and to roll back to (default: 20). Totals are kept for all epochs and revisions.
    """
    from ..maintenance import compact
    from ..storage.session import session_for

    ledger = open_ledger(writes=not dry_run)
    if dry_run:
        _print_compaction(ledger)
        return
    started = time.time()
    with show_progress("compact") as say:
        facts = compact.compact(ledger, session_for(ledger), grace * 3600, say)
    rows = []
    for name, after in facts.tables.items():
        before = facts.before[name]
        rows.append(
            {
                "table": name,
                "files": f"{before.files:,} → {after.files:,}",
                "rows": f"{before.rows:,} → {after.rows:,}",
                "size": f"{decimal(before.bytes)} → {decimal(after.bytes)}",
            }
        )
    print_rows(rows)
    out.print("verified: the new tables have the fingerprints of the old ones at every kept epoch and revision")
    readable = format_ranges(ledger.revisions.list_readable())
    out.print(
        f"the tables answer for {_describe_answers(ledger.home, facts.since)}, at revisions {readable}; "
        f"{facts.expired_snapshots} snapshots and {facts.orphans} orphaned files deleted "
        f"({time.time() - started:.1f} s)"
    )
    if facts.dropped_tables:
        out.print(f"dropped, because no kept revision has their queries: {', '.join(facts.dropped_tables)}")


def _describe_answers(home: Home, since: int | None) -> str:
    return "all epochs" if since is None else f"epochs from {home.schedule.format_label(since)} on"


def _print_compaction(ledger: Ledger) -> None:
    from ..maintenance.compact import choose_retention

    row = ledger.revisions.require_published()
    since, _, dropped = choose_retention(ledger, row)
    kept = [
        revision.revision
        for revision in ledger.revisions.list_all()
        if revision.snapshots and revision.revision not in dropped
    ]
    sizes = ledger.stages.table_sizes().values()
    out.print(
        f"would rewrite {len(sizes)} tables ({sum(s.files for s in sizes):,} files now, "
        f"{decimal(sum(s.bytes for s in sizes))})"
    )
    out.print(f"  epochs     the tables answer for {_describe_answers(ledger.home, since)} afterwards")
    out.print(f"  revisions  {format_ranges(kept)} can be read afterwards; {format_ranges(dropped) or 'none'} expired")


@register_command(Group.MAINTENANCE)
def relocate(
    original_gone: Annotated[
        bool,
        typer.Option(
            "--original-gone",
            help="Take over the tables from the original home, whose database nobody uses any more.",
        ),
    ] = False,
) -> None:
    """Make a home work where it is now, after it was copied, moved or mounted elsewhere.

    It needs no Spark. The metadata of the tables name whole paths and are rewritten with those of this place; no row is
    read or written, the original is not touched, and all revisions stay. If the command is stopped halfway, type it
    again.
    """
    from ..home.home import Home
    from ..storage import relocate

    home = Home.open(setting.home)
    with show_progress("relocate") as say:
        relocated = relocate.relocate_home(home, original_gone=original_gone, say=say)
    if not relocated.tables:
        out.print(f"nothing to do: the tables of this home are where they were made ({relocated.new_warehouse})")
        return
    out.print(
        f"{relocated.tables} tables from {relocated.old_warehouse} now work in {relocated.new_warehouse} "
        f"({relocated.files:,} files of metadata rewritten)"
    )
    out.print("next: altneu status")


@register_command(Group.MAINTENANCE)
def move(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of the new home, which must not exist yet.")
    ],
    to: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PLACE",
            help="A place outside the folder, once for each: an object store for tables, landing, pages "
            "(s3://bucket/prefix), "
            "PostgreSQL for the database (postgresql+psycopg://user@host/database), a REST catalog "
            "(https://host/api?namespace=graph).",
        ),
    ] = None,
) -> None:
    """Copy a home with all its revisions to another folder, an object store, PostgreSQL, a REST catalog, or back to
    disk.

    The copy is proved by fingerprints at the end, and the original is not touched. If the command is stopped halfway,
    type it again: what is copied is not copied again. Passwords and keys come from the environment.
    """
    from ..home.home import Home
    from ..maintenance import move_target
    from ..maintenance.move import move_home

    target = move_target.parse_target(directory, to or [])
    setting.outcome = lambda: "the new home is not complete; run the same command to continue"
    started = time.time()
    with show_progress("move") as say:
        result = move_home(Home.open(setting.home), target, say)
    if result is None:
        out.print(f"{target.folder} is the new home already: the last move has ended", markup=False)
        return
    copied = result.copied
    out.print(
        f"{result.home.path} is the new home: {result.tables} tables, {result.batches.epochs:,} landed epochs, "
        f"{result.rows:,} rows of the database; {copied.files:,} files ({decimal(copied.bytes)}) copied, "
        f"{copied.existing_files:,} were there already ({time.time() - started:.1f} s)",
        markup=False,
    )
    if result.proved_tables:
        out.print(
            "proved: every table has the fingerprints of the original at revisions "
            f"{format_ranges([*result.proved_tables])}"
        )
    if result.batches.incomplete:
        incomplete = ", ".join(result.batches.incomplete)
        out.print(f"incomplete in the landing of both homes: {incomplete}", markup=False)
    if result.held_runs:
        out.print(
            "held runs were copied, too: publish or discard them in one of the two homes "
            f"({', '.join(result.held_runs)})"
        )
    out.print(f"the original, {setting.home}, is unchanged; let nobody land or run there any more, then delete it")
    out.print(f"next: altneu --home {directory} status", markup=False)


@register_command(Group.SETUP)
def setup(
    s3: Annotated[
        bool, typer.Option("--s3", help="Install what tables in S3 need, too: Amazon's library, 60 MB.")
    ] = False,
) -> None:
    """Install what altneu needs besides its Python packages: Java, jars, a class-data archive and compiled kernels.

    It goes into the Python environment; a second call does nothing. JAVA_HOME chooses the Java.
    """
    from ..local.setup import set_up

    with show_progress("setup"):
        changed = set_up(lambda text: err.print(text, markup=False, highlight=False), s3=s3)
    if not changed:
        out.print("everything is set up already")


@register_command(Group.SETUP)
def doctor(deep: Annotated[bool, typer.Option("--deep", help="Start Spark and write a table, too.")] = False) -> None:
    """Check this machine (versions, Java, jars, memory, disk, database), and say what to do about each problem."""
    from ..local.doctor import list_checks

    with show_progress("doctor"):
        checks = list_checks(setting.home if setting.home.exists() else None, deep=deep)
    longest = max(len(check.name) for check in checks)
    for check in checks:
        mark = {True: "[green]✓[/]", False: "[red]✗[/]", None: "[yellow]![/]"}[check.ok]
        out.print(f"{mark} {escape(check.name.ljust(longest))}  {escape(check.finding)}", markup=True)
        if check.ok is not True and check.remedy:
            out.print(f"  next: {check.remedy}")
    if any(check.ok is False for check in checks):
        raise typer.Exit(Exit.FAILED)


@register_command(Group.DATA)
def init() -> None:
    """Create an empty home whose settings are all commented out.

    Then type `altneu land`, or put files into its landing by hand.
    """
    from ..home.home import Home

    file = setting.home / "altneu.toml"
    existed = file.exists()
    home = Home.open(setting.home, create=True)
    if not home.landed_remotely:
        home.landing.mkdir(parents=True, exist_ok=True)
    out.print(f"{file} {'exists already: nothing was changed' if existed else 'written'}", markup=False)
    out.print(f"landing: {home.landed_at}/epoch=1/any.csv with the columns src,dst", markup=False)
    out.print("next: altneu land FILE --columns src,dst --epoch 1, or put files there and: altneu backfill --all")


@register_command(Group.SETUP)
def demo() -> None:
    """Run every stage on real messages with daily epochs, prove every epoch, and print where to look."""
    from ..local import demo

    require_extras("the demo", "demo", "quality")
    demo.run_demo(open_ledger(create=True, writes=True).home, setting.home, Progress(), out)


local_airflow = typer.Typer(invoke_without_command=True)
app.add_typer(local_airflow, name="airflow", rich_help_panel=Group.SETUP)


@local_airflow.callback()
@with_common_options
def airflow(
    context: typer.Context,
    port: Annotated[int, typer.Option(metavar="PORT", help="The port of the web page.")] = 8080,
    connect: Annotated[
        bool, typer.Option("--connect", help="Let all tasks share a Spark Connect server instead of the daemon.")
    ] = False,
) -> None:
    """Start a local Airflow with the DAGs and the pool on this home.

    It prints the address and the password; Ctrl-C stops it.
    """
    if context.invoked_subcommand:
        return
    from ..local.airflow import run_standalone

    open_ledger(create=True, writes=True)
    run_standalone(setting.home, port=port, connect=connect, say=lambda text: out.print(text, markup=False))


@local_airflow.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@with_common_options
def execute(
    arguments: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND…", help="The airflow command and its arguments.")
    ],
) -> None:
    """Run an `airflow` command with the settings of this home's Airflow, as it was last started.

    `altneu airflow exec -- backfill create --dag-id altneu_epoch --from-date 2004-04-15 --to-date 2004-05-14`
    """
    from ..local.airflow import exec_airflow

    exec_airflow(setting.home, arguments)


@register_command(Group.SETUP)
def dags(
    plugins: Annotated[bool, typer.Option("--plugins", help="Print the folder of the plugin instead.")] = False,
) -> None:
    """Print the folder of the DAG files, for an Airflow of your own.

    Set AIRFLOW__CORE__DAGS_FOLDER to this folder, and AIRFLOW__CORE__PLUGINS_FOLDER to that of `--plugins`. The command
    needs no Airflow.
    """
    from ..scheduling.dag_paths import dags_folder, plugins_folder

    print(plugins_folder() if plugins else dags_folder())


@register_command(Group.SETUP)
def connect(
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="The address to listen at. One that other machines reach needs SPARK_CONNECT_AUTHENTICATE_TOKEN.",
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", help="The port to listen at.")] = 15002,
) -> None:
    """Serve one Spark to many short processes: a Spark Connect server with the settings of this home.

    Ctrl-C stops it.
    """
    from ..local.connect import serve_connect

    serve_connect(open_ledger(create=True).home, host, port, lambda text: out.print(text, markup=False))
