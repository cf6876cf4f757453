"""The command that splits raw event files into epochs of the landing: `altneu land`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import AltneuError
from .app import Group, open_ledger, register_command, setting
from .printing import Progress, err, out

if TYPE_CHECKING:
    from ..home.home import Home
    from ..landing import LandReport, RawFormat


@register_command(Group.DATA)
def land(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="The raw event files: csv, txt, tsv, mtx, json, jsonl (also .gz) or parquet; - is standard input.",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="The columns of the file in order, such as src,dst,rating,ts; _ skips one (default: the header).",
        ),
    ] = None,
    sep: Annotated[
        str | None, typer.Option(metavar="CHAR", help="The separator of the columns (default: it is detected).")
    ] = None,
    header: Annotated[
        bool | None,
        typer.Option("--header/--no-header", help="The first line is a header, or is not (default: it is detected)."),
    ] = None,
    comment: Annotated[
        str | None,
        typer.Option(
            help="The text that begins a comment line before the first row, such as '#'; '' if there is none."
        ),
    ] = None,
    time_: Annotated[
        str | None,
        typer.Option(
            "--time", metavar="COLUMN", help="The column with the time of the event: a number, or ISO 8601 (UTC)."
        ),
    ] = None,
    time_format: Annotated[
        str | None,
        typer.Option(metavar="FORM", help="The form of a time that is not ISO 8601, such as '%d/%m/%Y %H:%M' (UTC)."),
    ] = None,
    time_unit: Annotated[
        str | None,
        typer.Option(
            metavar="UNIT",
            help="The unit of a time since 1970: s, ms, us or ns (default: it is detected). It allows any year.",
        ),
    ] = None,
    every: Annotated[
        str | None, typer.Option(metavar="LENGTH", help="The length of an epoch, such as 1d, 12h, 7d or 15m.")
    ] = None,
    epoch: Annotated[str | None, typer.Option(metavar="EPOCH", help="Land the files as this one epoch.")] = None,
    ids: Annotated[
        str | None, typer.Option(metavar="TYPE", help="The type of the vertices of a new home: integer or string.")
    ] = None,
    relation: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Land rows of this relation of [relations], for --epoch, and no edges."),
    ] = None,
    append: Annotated[
        bool, typer.Option("--append", help="Add to the epochs' batches instead of replacing them.")
    ] = False,
    empty: Annotated[bool, typer.Option("--empty", help="Land an empty batch for --epoch.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would happen, and change nothing.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask, and accept epochs that are 100 years from all others.")
    ] = False,
) -> None:
    """Split raw event files into epochs of the landing, or land files as one epoch.

    If an epoch is landed again, its batch is replaced. Malformed rows are set aside and reported. After an error, or
    when the command is killed, the settings and the landing are as before.

    `altneu land messages.txt --columns src,dst,ts --time ts --every 1d`

    `altneu land edges.csv --epoch 1`   lands a file whose header names src and dst.

    `altneu land people.csv --relation people --epoch 1`   lands rows of a declared relation beside the edges.

    `altneu land --empty --epoch 7`   says that nothing happened in epoch 7.
    """
    from .. import landing
    from ..home.home import Home
    from ..landing.epoch_states import REMEDY, describe_folded, record_folded

    options = landing.LandOptions(
        columns=tuple(name.strip() for name in columns.split(",")) if columns else (),
        separator=sep,
        header=header,
        comment=comment,
        time_column=time_,
        time_format=time_format,
        time_unit=time_unit,
        every=every,
        epoch=epoch,
        ids=ids,
        append=append,
        empty=empty,
        dry_run=dry_run,
        relation=relation,
        far=yes,
    )

    def confirm_form(form: RawFormat) -> bool:
        progress.pause_display()
        _print_form(form)
        ask = sys.stdin.isatty() and sys.stderr.isatty() and not (yes or dry_run)
        agreed = not ask or typer.confirm("Land it like this?", default=True, err=True)
        if agreed:
            progress("land", "")
        return agreed

    home = Home.draft_home(setting.home)
    before = landing_state(home)
    setting.outcome = lambda: describe_outcome(home, before)
    if (home.path / "altneu.toml").exists():
        open_ledger()
    with Progress() as progress:
        progress("land", "")
        report = landing.land(home, files or [], options, lambda text: err.print(text, markup=False), confirm_form)
    folded = [] if dry_run else record_folded(open_ledger(writes=True))
    _print_report(report, dry_run=dry_run, append=append)
    if folded:
        err.print(f"{describe_folded(folded)}\n  next: {REMEDY}", markup=False)


def landing_state(home: Home) -> tuple[dict[str, object], str | None]:
    """Return the batches in the landing and the text of the settings.

    A batch that has been placed since has another folder or other files.
    """
    from ..landing import list_batches

    folders: dict[str, object] = {}
    if home.landed_remotely:
        folders |= {batch.label: {file.location for file in batch.files} for batch in list_batches(home).values()}
    else:
        folders |= {path.name: path.stat().st_ino for path in home.landing.glob("epoch=*")}
    settings = home.path / "altneu.toml"
    return folders, settings.read_text(encoding="utf-8-sig") if settings.exists() else None


def describe_outcome(home: Home, before: tuple[dict[str, object], str | None]) -> str:
    """Describe the outcome of a land that a signal has ended."""
    try:
        if landing_state(home) == before:
            return "nothing was landed; run the same command to continue"
    except AltneuError as error:  # the object store does not answer
        return f"it is not known whether anything was landed ({error.what}); next: altneu status"
    return "everything is landed; next: altneu backfill --all"


def _print_form(form: RawFormat) -> None:
    for line in form.describe():
        err.print(line, markup=False)


def _print_report(report: LandReport, *, dry_run: bool, append: bool) -> None:
    label = report.home.schedule.format_label
    labels = [label(epoch) for epoch in report.epochs]
    span = labels[0] if len(labels) == 1 else f"{labels[0]} … {labels[-1]}"
    if report.declared:
        shown = [
            f"[{section}] {key} = {entries[key]}" for section, entries in report.declared.items() for key in entries
        ]
        err.print(f"{'to declare' if dry_run else 'declared'} in altneu.toml: {', '.join(shown)}", markup=False)
    if report.form and report.form.clock:
        err.print(f"the times are read as {report.form.clock}", markup=False)
    old = f"{report.replaced_epochs:,} landed epoch(s) of {report.replaced_rows:,} rows"
    what = "adds to" if append else "replaces"
    out.print(
        f"{'would land' if dry_run else 'landed'} {report.rows:,} rows in {len(labels):,} epoch(s): {span}"
        + (f"; {what} {old}" if report.replaced_epochs else "")
    )
    if report.comments:
        out.print(f"{report.comments:,} line(s) before the rows are comments", markup=False)
    if report.rejected:
        _, line, reason, _ = report.rejected[0]
        kept = f"; they are kept in {report.rejected_file}" if report.rejected_file else ""
        out.print(
            f"{len(report.rejected):,} line(s) could not be read (the first: line {line}: {reason}){kept}",
            style="yellow",
            markup=False,
        )
    if not dry_run:
        out.print("next: altneu backfill --all")
