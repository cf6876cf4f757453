"""`altneu land`: raw event files into epochs of the landing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from .base import command, opened
from .printing import err, out


@command
def land(
    files: Annotated[list[Path], typer.Argument(help="Raw event files: csv, txt, tsv (also .gz), jsonl, parquet.")],
    columns: Annotated[
        str, typer.Option(help="The file's columns in order, e.g. src,dst,rating,ts; _ leaves one out.")
    ],
    sep: Annotated[str | None, typer.Option(help="Separator; guessed from the first line when not given.")] = None,
    header: Annotated[bool, typer.Option("--header", help="The first line is a header; --columns renames it.")] = False,
    time_: Annotated[
        str | None, typer.Option("--time", help="The column that holds the event time (unix seconds).")
    ] = None,
    time_format: Annotated[
        str | None, typer.Option(help="Its form when it is text, e.g. '%Y-%m-%d %H:%M:%S' (UTC).")
    ] = None,
    every: Annotated[str | None, typer.Option(help="Length of an epoch: 1d, 12h, 7d, 15m.")] = None,
    epoch: Annotated[str | None, typer.Option(help="Land the files as this one epoch.")] = None,
    append: Annotated[
        bool, typer.Option("--append", help="Add to the epochs' batches instead of replacing them.")
    ] = False,
) -> None:
    """Split raw event files into epochs of the landing, or land files as one epoch.

    Landing an epoch again replaces its batch. Rows that cannot be read are kept aside and told.

    `altneu land messages.txt --columns src,dst,ts --time ts --every 1d`

    `altneu land edges.csv --header --columns src,dst --epoch 1`
    """
    from .. import landing

    home, _ = opened(create=True)
    if (time_ is None) == (epoch is None):
        raise UsageError("say either --time COLUMN (with --every) or --epoch E.", "altneu land --help")
    for file in files:
        if not file.is_file():
            raise UsageError(f"{file}: no such file.")
    if time_ is not None:
        if every is None and home.config.every is None:
            raise UsageError("--time needs the length of an epoch.", "add --every 1d")
        if every is not None and home.config.every not in (None, every):
            raise UsageError(f"this home has epochs of {home.config.every}, not {every}.", f"leave --every {every} out")
        if home.config.every is None and every is not None:
            home = home.declare(every=every)
    names = [name.strip() for name in columns.split(",")]
    known = {"src", "dst", "op", "seq", "_", time_, *home.config.values}
    values = {name: "long" for name in names if name not in known}
    if values:
        home = home.declare(values=landing.guess_types(files, names, list(values), sep, header))
        shown = ", ".join(f"{name} = {home.config.values[name]}" for name in values)
        err.print(f"declared in altneu.toml as value columns: {shown}")
    report = landing.land(
        home,
        files,
        names,
        separator={"\\t": "\t", "tab": "\t"}.get(sep or "", sep),
        header=header,
        time_column=time_,
        time_format=time_format,
        epoch=home.schedule.epoch(epoch) if epoch is not None else None,
        append=append,
    )
    labels = [home.schedule.label(e) for e in report.epochs]
    span = labels[0] if len(labels) == 1 else f"{labels[0]} … {labels[-1]}"
    out.print(f"landed {report.rows:,} rows in {len(labels)} epoch(s): {span}")
    if report.rejected:
        _, line, reason, _ = report.rejected[0]
        out.print(
            f"[yellow]{len(report.rejected)} line(s) could not be read[/] (the first: line {line}: {reason}); "
            f"they are kept in {report.rejected_file}"
        )
    out.print("next: altneu backfill --all")
