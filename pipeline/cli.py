"""`altneu`: the command line. It parses, calls one function, prints; it alone turns errors to text and exit codes.

Progress goes to standard error, results to standard output; Spark and the suites are imported only when needed.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from sqlalchemy.exc import SQLAlchemyError

from . import orchestration, telemetry
from .config import Home
from .errors import AltneuError, CheckFailed, Exit, UsageError, explained
from .ledger import Ledger, alive
from .runner import Plan

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
out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


class Format(StrEnum):
    table = "table"
    json = "json"
    csv = "csv"
    parquet = "parquet"


class Log(StrEnum):
    text = "text"
    json = "json"


class View(StrEnum):
    totals = "totals"
    vertices = "vertices"
    edges = "edges"
    changes = "changes"
    triangles = "triangles"
    support = "support"
    trusses = "trusses"
    communities = "communities"


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


def _open(create: bool = False) -> tuple[Home, Ledger]:
    home = Home.open(_home, create)
    return home, Ledger(home.database)


class Progress:
    """One line a stage on standard error: what it does, then its seconds and what came of it, and how long the rest
    will take where `expected` has the seconds of the stages."""

    def __init__(self, expected: dict[str, float] | None = None) -> None:
        self.started = time.time()
        self.expected = dict(expected or {})
        self.status = err.status("") if err.is_terminal else None

    def __call__(self, stage: str, text: str) -> None:
        if text.startswith("done"):
            if self.status:
                self.status.stop()
            self.expected.pop(stage, None)
            rest = sum(self.expected.values())
            left = f"; about {rest:,.0f} s left" if rest >= 5 else ""
            err.print(f"  [green]✓[/] {stage:<10} {time.time() - self.started:6.1f} s  [dim]{text[5:]}{left}[/]")
        elif not text:
            self.started = time.time()
            if self.status:
                self.status.update(stage)
                self.status.start()
        elif self.status:
            self.status.update(f"{stage}: {text}")
        else:
            err.print(f"    {stage}: {text}")

    def close(self) -> None:
        if self.status:
            self.status.stop()


@app.command()
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
    from . import landing

    home, _ = _open(create=True)
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


@app.command()
def plan(
    first: Annotated[str | None, typer.Argument(metavar="[FROM]", help="First epoch.")] = None,
    last: Annotated[str | None, typer.Argument(metavar="[TO]", help="Last epoch.")] = None,
    format: Annotated[Format, typer.Option(help="table or json.")] = Format.table,
) -> None:
    """What a backfill would do and about what it would cost: no side effects, no Spark."""
    from . import runner
    from .forecast import forecast

    home, ledger = _open()
    found = runner.plan(home, ledger, runner.within(home, first, last))
    words, needs = runner.changed_meaning(home, ledger)
    document = forecast(home, ledger, found, len(runner.parts(home, found)))
    if format is Format.json:
        print(json.dumps({**document, "settings_changed": words, "settings_need": needs}, indent=1))
        return
    _print_plan(home, document)
    if words:
        out.print(f"[yellow]the settings have changed[/]: {'; '.join(words)}")
        out.print(f"  a run will refuse until history is restated: {_RESTATE[needs]}")


_RESTATE = {
    "run": "",
    "rebuild": "altneu rebuild",
    "reload": "altneu rebuild --from-landing",
    "new": "needs a new home",
}


def _print_plan(home: Home, found: dict[str, Any]) -> None:
    label = home.schedule.label
    out.print(", ".join(f"{n:,} {state}" for state, n in found["counts"].items()) or "nothing is landed")
    if not found["epochs"]:
        out.print("nothing to run: every landed epoch is published as it is")
        return
    several = f"{found['revisions']} revisions from {found['revision']} on"
    where = several if found["revisions"] > 1 else f"revision {found['revision']}"
    out.print(f"would run {len(found['epochs']):,} epoch(s) as {where}: {_some([e['label'] for e in found['epochs']])}")
    size = sum(entry["bytes"] for entry in found["epochs"])
    out.print(f"  rows       about {found['rows']:,} ({decimal(size)} landed)")
    if found["late"]:
        out.print(f"  late       {len(found['late']):,} at or before the frontier: {_some(map(label, found['late']))}")
    if found["restated"]:
        restated = _some(map(label, found["restated"]))
        out.print(f"  restated   {len(found['restated']):,} published epoch(s) may change their results: {restated}")
    for stage, text in found["plans"].items():
        out.print(f"  {stage:<10} {text}")
    if found["seconds"] is None:
        out.print("  time       no estimate before the first published run")
    else:
        parts = ", ".join(f"{stage} {seconds:.0f}" for stage, seconds in found["stages"].items() if seconds >= 0.5)
        out.print(f"  time       about {found['seconds']:,.0f} s, and Spark's start ({parts})")


def _some(labels: Iterable[str]) -> str:
    shown = list(labels)
    return ", ".join(shown if len(shown) <= 8 else [*shown[:4], "…", *shown[-3:]])


@app.command()
def run(
    epochs: Annotated[list[str], typer.Argument(help="Epochs, as integers or labels.")],
    remove: Annotated[bool, typer.Option("--remove", help="Epochs whose folder is gone become empty batches.")] = False,
) -> None:
    """One revision over these epochs. An epoch run again replaces its batch; unchanged ones are skipped."""
    from . import runner

    home, ledger = _open()
    wanted = list(dict.fromkeys(home.schedule.epoch(text) for text in epochs))
    _execute(home, ledger, runner.plan_epochs(home, ledger, wanted, remove))


@app.command()
def backfill(
    first: Annotated[str | None, typer.Argument(metavar="[FROM]", help="First epoch.")] = None,
    last: Annotated[str | None, typer.Argument(metavar="[TO]", help="Last epoch.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every landed epoch.")] = False,
) -> None:
    """Every landed epoch in the range that is missing or changed, in one pass and one revision.

    More landed files than `[ingest] max_revision_mb` make several revisions; stopped in between, the same command goes
    on after the last published one.
    """
    from . import runner

    home, ledger = _open()
    if not all_ and (first is None or last is None):
        raise UsageError("say FROM and TO, or --all.", "altneu backfill --all")
    _execute(home, ledger, runner.plan(home, ledger, runner.within(home, first, last)))


@app.command()
def rebuild(
    from_landing: Annotated[
        bool, typer.Option("--from-landing", help="Read the landed files again, too, instead of the rows as stored.")
    ] = False,
) -> None:
    """Everything again, as one new revision: after other settings, or when a table's file is lost or wrong.

    Old revisions stay as they were. Needed after a change of `[edges] live_for` or `where`, or of `[motifs]`; with
    `--from-landing` also after one of `[values]`, or when the stored rows themselves are damaged.
    """
    from . import runner

    home, ledger = _open()
    _execute(home, ledger, runner.plan_rebuild(home, ledger, from_landing))


@app.command()
def rollback(revision: Annotated[int, typer.Argument(help="The revision to go back to.")]) -> None:
    """Publish the state of an old revision as a new one. Nothing is computed: it takes no time and no Spark.

    The landing stays as it is: what it holds beyond that state is missing or changed again, and the next backfill
    would publish it again. `altneu status` shows it.
    """
    from . import runner
    from .report import write

    home, ledger = _open()
    row, epochs = runner.rollback(home, ledger, revision)
    write(home, ledger, [epoch for epoch in epochs if epoch in ledger.batches()])
    out.print(
        f"published revision {row.revision}: the state of revision {revision}; {len(epochs):,} epoch(s) taken back"
    )
    _print_totals(home, ledger)
    if row.config_digest != home.config.digest():
        words, needs = runner.changed_meaning(home, ledger)
        out.print(f"[yellow]revision {revision} had other settings[/]: {'; '.join(words)} ({_RESTATE[needs]})")


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
    from .compact import compact as fold
    from .spark import session_for

    home, ledger = _open()
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
    first, last = facts["revisions"]
    answers = "all epochs" if facts["since"] is None else f"epochs from {home.schedule.label(facts['since'])} on"
    out.print(
        f"the tables answer for {answers}, at revisions {first} to {last}; {facts['expired_snapshots']} snapshots and "
        f"{facts['orphans']} orphaned files dropped ({time.time() - started:.1f} s)"
    )


def _execute(home: Home, ledger: Ledger, found: Plan) -> None:
    from . import runner
    from .forecast import forecast

    if not found.run and found.kind == "run":
        out.print(
            f"nothing new: {len(found.epochs)} epoch(s) are published as landed (revision {found.parent.revision})"
        )
        return
    for other in ledger.runs():
        if alive(other):
            err.print(
                f"[yellow]run {other.run_id} is at work[/] (sign of life {other.beat_at}): the first to publish wins"
            )
    parts = runner.parts(home, found) if found.kind == "run" else [found.run]
    size = {entry.epoch: entry.bytes for entry in found.epochs}
    total = sum(size.get(epoch, 0) for epoch in found.run)
    started, done = time.time(), 0
    for number, epochs in enumerate(parts):
        part = replace(found, run=epochs, parent=ledger.at())
        many = f" ({number + 1} of {len(parts)})" if len(parts) > 1 else ""
        guess = forecast(home, ledger, part, 1)
        time_ = f", about {guess['seconds']:,.0f} s and Spark's start" if guess["seconds"] else ""
        err.print(
            f"revision {part.parent.revision + 1}{many}: {len(epochs) or len(found.epochs):,} epoch(s), "
            f"about {guess['rows']:,} rows{time_}"
        )
        progress, began = Progress(guess["stages"]), time.time()
        try:
            revision = runner.run(home, ledger, part, progress)
        finally:
            progress.close()
        assert revision is not None
        mark = f", with a {revision.mark}" if revision.mark else ""
        seconds = time.time() - began
        rows = sum(ledger.facts(revision.run_id, "ingest")[name] for name in ("rows", "quarantined"))
        rate = f", {rows:,} rows ({rows / seconds:,.0f} a second)" if rows else ""
        out.print(
            f"published revision {revision.revision}{mark}: {len(epochs) or len(found.epochs):,} epoch(s){rate}, "
            f"{seconds:.1f} s"
        )
        done += sum(size.get(epoch, 0) for epoch in epochs)
        if done < total:
            left = (time.time() - started) * (total - done) / done
            err.print(f"  {decimal(done)} of {decimal(total)}, about {left:,.0f} s left")
    _print_totals(home, ledger)


def _print_totals(home: Home, ledger: Ledger) -> None:
    from . import views

    for row in views.totals(home, ledger):
        out.print(
            f"at {row['label']}: {row['vertices']:,} vertices, {row['edges']:,} edges, "
            f"{row['triangles']:,} triangles, greatest trussness {row['max_trussness']}"
            + "".join(f", {count:,} {name}" for name, count in row["motifs"].items())
        )


@app.command()
def status(format: Annotated[Format, typer.Option(help="table or json.")] = Format.table) -> None:
    """The grid of epochs: landed, changed, published, audited, failed. Reads only the database: no Spark."""
    from . import runner

    home, ledger = _open()
    parent, rows = runner.grid(home, ledger)
    sizes = ledger.sizes()
    readable = [row.revision for row in ledger.revisions() if row.snapshots]
    holes = _holes(home, [row["epoch"] for row in rows])
    if format is Format.json:
        document = {
            "revision": parent.revision,
            "frontier": parent.frontier,
            "mark": parent.mark,
            "since": parent.since,
            "readable_revisions": readable,
            "holes": holes,
            "tables": sizes,
            "epochs": rows,
        }
        print(json.dumps(document, indent=1))
        return
    label = "none" if parent.frontier is None else home.schedule.label(parent.frontier)
    out.print(f"revision {parent.revision}, frontier {label}, {len(rows):,} epochs")
    if readable:
        answers = "all epochs" if parent.since is None else f"epochs from {home.schedule.label(parent.since)} on"
        files, size = (sum(entry[unit] for entry in sizes.values()) for unit in ("files", "bytes"))
        out.print(
            f"the tables answer for {answers}, at revisions {_ranges(readable)}: {files:,} files, {decimal(size)}"
        )
        if files > MANY_FILES:
            out.print("[yellow]many small files slow every read down[/]; next: altneu compact")
    if holes:
        out.print(f"{len(holes):,} epoch(s) between the first and the last have nothing landed: {_some(holes)}")
    head = ("epoch", "state", "rows", "revision", "audited", "error")
    cells = [
        (
            entry["label"],
            entry["state"],
            f"{entry['rows']:,}",
            str(entry["revision"] or ""),
            {True: "equal", False: "differs", None: ""}[entry["audited"]],
            entry["error"] or "",
        )
        for entry in rows
    ]
    # rich measures every cell: seconds for thousands of them
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    for line in (head, *cells):
        print(
            "  ".join(
                cell.rjust(w) if n in (2, 3) else cell.ljust(w)
                for n, (cell, w) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
        )


MANY_FILES = 500


def _holes(home: Home, epochs: list[int]) -> list[str]:
    """Labels of the epochs of a schedule by time that lie between known ones and are not known."""
    if home.schedule.seconds is None or not epochs or max(epochs) - min(epochs) > 100_000:
        return []
    known = set(epochs)
    return [home.schedule.label(epoch) for epoch in range(min(epochs), max(epochs)) if epoch not in known]


def _ranges(numbers: list[int]) -> str:
    """[1, 2, 3, 7] → "1…3, 7"."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}…{high}" for low, high in spans)


@app.command()
def show(
    view: Annotated[View, typer.Argument(help="What to show.")],
    span: Annotated[
        list[str] | None, typer.Argument(metavar="[FROM TO]", help="For changes and triangles: between two epochs.")
    ] = None,
    as_of: Annotated[str | None, typer.Option(help="The epoch (default: the frontier).")] = None,
    revision: Annotated[int | None, typer.Option(help="As published at this revision (default: the newest).")] = None,
    since_revision: Annotated[
        int | None,
        typer.Option(help="For changes: what a consumer who has this revision applies (0: who has nothing)."),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option("--k", help="For communities (default: the greatest), and changes of the k-truss.", min=2),
    ] = None,
    all_epochs: Annotated[
        bool, typer.Option("--all-epochs", help="Totals and trusses at every epoch; changes with their epochs.")
    ] = False,
    format: Annotated[Format, typer.Option(help="Output format.")] = Format.table,
    output: Annotated[Path | None, typer.Option(help="Write here (needed for parquet).")] = None,
) -> None:
    """What is published: totals, vertices, edges, triangles, trusses and communities, or what changed in between.

    Declared motifs (`[motifs]` in altneu.toml) are columns of totals and of vertices.

    `altneu show totals --all-epochs --format json`

    `altneu show edges --as-of 2004-05-15 --format csv --output edges.csv`

    `altneu show changes 2004-05-01 2004-05-15`: rows to add (diff 1) and to drop (diff -1)

    `altneu show changes 2004-05-01 2004-05-15 --k 5`: edges that entered (1) or left (-1) the 5-truss

    `altneu show support`: how many triangles each edge is in

    `altneu show trusses --all-epochs`: the size of every k-truss; `altneu show communities --k 5`: its communities

    `altneu show changes --since-revision 7`: the same between what revision 7 and the newest say of their frontiers, so
    that a consumer follows every publication, corrections too, exactly once; remember the revision that it names
    """
    from . import views

    home, ledger = _open()
    epoch = home.schedule.epoch(as_of) if as_of is not None else None
    row = ledger.at(revision)
    if row.frontier is None:
        raise AltneuError("nothing is published yet.", "altneu backfill --all")
    if epoch is not None and (view is not View.totals or epoch > row.frontier):
        views.answerable(home, row, epoch)
    if view is View.totals:
        rows = views.totals(home, ledger, revision=revision, as_of=epoch, all_epochs=all_epochs)
        keep = ("epoch", "label", "revision", "vertices", "edges", "triangles", "max_trussness", "transitivity")
        _emit([{key: point[key] for key in keep} | point["motifs"] for point in rows], format, output)
        return
    if view is View.trusses:
        _emit(views.trusses(home, ledger, revision, all_epochs), format, output)
        return
    follows = view is View.changes and since_revision is not None and not span
    if all_epochs and not follows:
        raise UsageError(f"--all-epochs goes with totals, not with {view}.", "altneu show totals --all-epochs")
    from .spark import session_for
    from .warehouse import Warehouse

    warehouse = Warehouse(session_for(home, ledger), home)
    between = [home.schedule.epoch(text) for text in span or ()]
    at = row.frontier if epoch is None else epoch
    if follows:
        frame = views.changes_since(warehouse, ledger.at(since_revision), row, all_epochs)
        err.print(f"from revision {since_revision} to revision {row.revision}")
    elif view is View.changes and len(between) == 2:
        frame = (
            views.truss_changes(warehouse, row, between[0], between[1], k)
            if k
            else views.changes(warehouse, row, *between)
        )
    elif view is View.communities and not between:
        greatest = views.totals(home, ledger, revision=revision, as_of=at)[0]["max_trussness"]
        frame = views.communities(warehouse, row, at, k or max(greatest, 2))
        if k is None:
            err.print(f"the communities of the {greatest}-truss, the densest; others with --k")
    elif view is View.triangles and len(between) in (0, 2):
        frame = views.triangles(warehouse, row, between[1] if between else at, between[0] if between else None)
    elif view is View.support and not between:
        frame = views.support(warehouse, row, at)
    elif view in (View.vertices, View.edges) and not between:
        frame = views.as_of(warehouse, row, view, at, ledger.motifs(row))
    else:
        as_of_alone = view in (View.vertices, View.edges, View.support)
        raise UsageError(
            f"{view} takes {'no epochs as words' if as_of_alone else 'two epochs'}.",
            f"altneu show {view} --as-of E   or   altneu show changes FROM TO   or   … --since-revision R",
        )
    if format is Format.parquet:
        if output is None:
            raise UsageError("parquet needs a place.", "add --output FOLDER")
        frame.write.mode("error").parquet(str(output))
        out.print(f"written to {output}")
        return
    limit = 40 if format is Format.table and output is None else None
    listed = (frame.limit(limit + 1) if limit else frame).toLocalIterator()
    _emit([item.asDict() for item in listed], format, output, limit)


def _emit(rows: list[dict[str, Any]], format: Format, output: Path | None, limit: int | None = None) -> None:
    if format is Format.parquet:
        if output is None:
            raise UsageError("parquet needs a place.", "add --output FILE")
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(rows), output)
        return
    stream = output.open("w") if output else sys.stdout
    if format is Format.json:
        json.dump(rows, stream, indent=1)
        stream.write("\n")
    elif format is Format.csv:
        import csv

        writer = csv.DictWriter(stream, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)
    else:
        more = limit is not None and len(rows) > limit
        _print_rows(rows[:limit], Console(file=stream, highlight=False))
        if more:
            err.print(f"(the first {limit} rows; all of them with --format csv or json)")
    if output:
        stream.close()


def _print_rows(rows: list[dict[str, Any]], console: Console = out) -> None:
    table = Table(box=None, header_style="bold")
    for name in rows[0] if rows else ():
        table.add_column(name, justify="left" if name == "label" else "right")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    console.print(table)


@app.command()
def audit(
    epochs: Annotated[list[str] | None, typer.Argument(help="Epochs (default: all, first to frontier).")] = None,
    sample: Annotated[int, typer.Option(help="So many of the epochs, drawn at random; 0: all of them.", min=0)] = 0,
    third_party: Annotated[
        bool,
        typer.Option("--third-party", help="Triangles also by GraphFrames or GraphX: seconds to minutes an epoch."),
    ] = False,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Maintain and recompute the epochs side by side, and show what each costs.")
    ] = False,
) -> None:
    """Compare the published result with a full recomputation; exit 1 on any difference.

    `altneu audit --sample 5 --third-party`

    `altneu audit 2004-06-01 --shadow`   in a scratch home on the same landing; nothing is published.
    """
    from . import audit as auditing
    from .schedule import sample as draw
    from .shadow import shadow as side_by_side
    from .spark import session_for
    from .warehouse import Warehouse

    home, ledger = _open()
    row = ledger.at()
    if row.frontier is None:
        raise AltneuError("nothing is published yet.", "altneu backfill --all")
    if epochs:
        wanted = sorted({home.schedule.epoch(text) for text in epochs})
        late = [epoch for epoch in wanted if epoch > row.frontier]
        if late:
            raise UsageError(f"epoch {home.schedule.label(late[0])} is after the frontier: its state is not final.")
    else:
        wanted = [e for e in sorted(ledger.batches(row.revision)) if row.answers(e)]
    if sample:
        wanted = draw(wanted, sample, str(time.time_ns()))
    spark = session_for(home, ledger)
    warehouse = Warehouse(spark, home)
    started = time.time()
    progress = Progress()

    def say(text: str) -> None:
        progress("audit", text)

    try:
        if shadow:
            found = side_by_side(home, wanted, spark, say)
            progress.close()
            _print_rows(found)
            if any(entry["differences"] for entry in found):
                raise CheckFailed("maintained and recomputed differ in the scratch home.", "altneu audit")
            return
        results = auditing.audit_published(warehouse, row, wanted, say, third_party)
    finally:
        progress.close()
    ledger.put_checks(None, row.revision, results)
    failed = [result for result in results if not result["passed"]]
    if failed:
        for result in failed[:20]:
            err.print(f"[red]✗[/] {home.schedule.label(result['epoch'])}: {result['name']}: {result['observed']}")
            for line in result["rows"][0].get("why", ()) if result["rows"] else ():
                err.print(f"    {result['rows'][0]['key']}: {line}", markup=False)
        bad = {result["epoch"] for result in failed}
        raise CheckFailed(
            f"{len(bad)} of {len(wanted)} epochs differ from the recomputation.",
            f"altneu report {home.schedule.label(min(bad))}",
        )
    out.print(
        f"{len(wanted)} epoch(s) audited at revision {row.revision}: all equal to a full recomputation"
        f"{f' and to {auditing.reference(spark)}' if third_party else ''} "
        f"({len(results)} checks, {time.time() - started:.1f} s)"
    )


class Thing(StrEnum):
    vertex = "vertex"
    edge = "edge"
    triangle = "triangle"


@app.command()
def explain(
    thing: Annotated[Thing, typer.Argument(help="What to explain.")],
    vertices: Annotated[list[str], typer.Argument(help="One vertex, the two ends of an edge, or three corners.")],
    as_of: Annotated[str | None, typer.Option(help="The epoch (default: the frontier).")] = None,
    revision: Annotated[int | None, typer.Option(help="As published at this revision (default: the newest).")] = None,
    format: Annotated[Format, typer.Option(help="table or json.")] = Format.table,
) -> None:
    """Why is it so? The landed rows, with file, line and epoch, that make a vertex, an edge or a triangle what it is.

    `altneu explain edge 12 47 --as-of 2004-05-15`
    """
    from . import explain as lineage
    from .spark import session_for
    from .warehouse import Warehouse

    home, ledger = _open()
    row = ledger.at(revision)
    if row.frontier is None:
        raise AltneuError("nothing is published yet.", "altneu backfill --all")
    needed = {Thing.vertex: 1, Thing.edge: 2, Thing.triangle: 3}[thing]
    if len(set(vertices)) != needed or len(vertices) != needed:
        count = "one vertex" if needed == 1 else f"{needed} different vertices"
        raise UsageError(f"{thing} takes {count}, not {' '.join(vertices)}.", "altneu explain --help")
    epoch = home.schedule.epoch(as_of) if as_of is not None else row.frontier
    warehouse = Warehouse(session_for(home, ledger), home)
    found: dict[str, Any] = getattr(lineage, thing)(warehouse, row, epoch, vertices[0] if needed == 1 else vertices)
    if format is Format.json:
        print(json.dumps(found, indent=1, default=str))
        return
    where = f"at {found['epoch']}, revision {found['revision']}"
    if thing is Thing.vertex:
        motifs = "".join(f", {count} in {name}" for name, count in found["motifs"].items())
        text = f"degree {found['degree']}, {found['triangles']} triangles{motifs}"
        out.print(f"vertex {found['vertex']} {where}: {text}", markup=False)
        diffs = {"degree": found["degree_diffs"], "triangle": found["triangle_diffs"], **found["motif_diffs"]}
        for name, rows in diffs.items():
            steps = ", ".join(f"{d['diff']:+} at {d['epoch']} (r{d['revision']})" for d in rows)
            out.print(f"  {name} diffs: {steps or 'none'}", markup=False)
    elif thing is Thing.triangle:
        there = "is there" if found["there"] else "is not there"
        out.print(f"triangle {' '.join(map(str, found['triangle']))} {there} {where}", markup=False)
    for each in found.get("edges", [found]):
        _print_edge(each)
    if found.get("edges_not_listed"):
        out.print(f"({found['edges_not_listed']:,} more edges)")


def _print_edge(edge: dict[str, Any]) -> None:
    a, b = edge["edge"]
    text = f"edge {a} – {b}: {'there' if edge['there'] else 'not there'}"
    if edge.get("trussness") is not None:
        text += f", trussness {edge['trussness']}"
    if "support" in edge:
        shown = " ".join(map(str, edge["triangles_with"][:20]))
        text += f", {edge['support']} triangles" + (f" (with {shown})" if shown else "")
    out.print(text, markup=False)
    for row in edge["rows"]:
        values = ", ".join(f"{k} {v}" for k, v in row.items() if k not in ("file", "line", "epoch", "fate", "op"))
        out.print(
            f"    {row['epoch']}  {row['op']} ({values})  {row['file']} line {row['line']}: {row['fate']}", markup=False
        )


@app.command()
def repair(
    epochs: Annotated[list[str] | None, typer.Argument(help="Epochs to look at (default: all).")] = None,
) -> None:
    """Audit epochs and, when the maintained result differs, publish a revision that replaces what differs.

    The differing rows stay on record with the revision that had them. Landed rows that are themselves lost or wrong
    need `altneu rebuild --from-landing`.
    """
    from . import runner

    try:
        audit(epochs)
        return
    except CheckFailed as failed:
        err.print(f"[yellow]{failed.what}[/] They are computed again from the landed rows.")
    home, ledger = _open()
    _execute(home, ledger, runner.plan_rebuild(home, ledger, from_landing=False))
    audit(epochs)


@app.command()
def report(
    epoch: Annotated[str | None, typer.Argument(help="The epoch (default: the newest).")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the facts behind the page instead.")] = False,
    data_docs: Annotated[
        bool, typer.Option("--data-docs", help="Also Great Expectations' Data Docs of the epoch's checks, linked.")
    ] = False,
) -> None:
    """Write the report page of an epoch and the index; print where they are. Reads only the database: no Spark."""
    from .report import document, write

    home, ledger = _open()
    row = ledger.at()
    wanted = [home.schedule.epoch(epoch)] if epoch else [] if row.frontier is None else [row.frontier]
    if json_:
        if not wanted:
            raise AltneuError("nothing is published yet.", "altneu backfill --all")
        print(json.dumps(document(home, ledger, wanted[0]), indent=1, default=str))
        return
    for page in write(home, ledger, wanted, data_docs):
        out.print(str(page))


@app.command()
def airflow(
    port: Annotated[int, typer.Option(help="Port of the web page.")] = 8080,
    connect: Annotated[
        bool, typer.Option("--connect", help="The tasks share one Spark (see altneu connect) and start none.")
    ] = False,
) -> None:
    """Start a local Airflow with the DAGs and the pool on this home; prints address and password, Ctrl-C stops it."""
    from .airflow import standalone

    standalone(_home, port=port, connect=connect, say=lambda text: out.print(text, markup=False))


@app.command()
def connect(
    host: Annotated[str, typer.Option(help="Address to listen at. Whoever reaches it may do what the server may.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port to listen at.")] = 15002,
) -> None:
    """One Spark for many short processes: a Spark Connect server with this home's settings; Ctrl-C stops it."""
    from .connect import serve

    serve(Home.open(_home, create=True), host, port, lambda text: out.print(text, markup=False))


@app.command()
def doctor(deep: Annotated[bool, typer.Option("--deep", help="Also start Spark and write a table.")] = False) -> None:
    """What is found on this machine: versions, Java, jars, memory, disk, database; and what to do about it."""
    from .doctor import checks

    found = checks(_home if _home.exists() else None, deep=deep)
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
    from .demo import demo as play

    play(_home, Progress(), out)


_FOREIGN = ("py4j", "pyspark")  # what they raise speaks of tables and files, not of a mistake in the program


def main(arguments: list[str] | None = None) -> int:
    """Run `altneu` with these arguments (default: the process's); exit with its code."""
    try:
        app(arguments, standalone_mode=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Exit.OK)
    except KeyboardInterrupt:
        err.print("interrupted; what was published is untouched")
        sys.exit(130)
    except Exception as error:
        if (
            not isinstance(error, (AltneuError, SQLAlchemyError))
            and type(error).__module__.split(".")[0] not in _FOREIGN
        ):
            raise  # a mistake of ours: its trace says more than a line
        what, then = explained(error)
        if err.quiet:
            telemetry.event("command failed", logging.ERROR, error=what, next=then)
        err.print("altneu:", style="bold red", end=" ")
        err.print(what, markup=False)
        if then:
            err.print(f"  next: {then}", markup=False)
        sys.exit(error.exit if isinstance(error, AltneuError) else Exit.FAILED)
    finally:
        orchestration.release()
    return Exit.OK


if __name__ == "__main__":
    main()
