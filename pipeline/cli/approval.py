"""The commands with which a person decides about a held run: diff, publish, discard."""

from __future__ import annotations

import getpass
import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from .app import Group, open_ledger, register_command
from .printing import (
    Format,
    Progress,
    abbreviate_labels,
    err,
    out,
    output_format,
    print_rows,
    print_totals,
    show_progress,
    tell_written,
    write_rows,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from ..reading.revision_diff import RevisionDiff
    from ..state.ledger import Ledger


HeldRun = Annotated[str | None, typer.Argument(metavar="[RUN]", help="The id of the held run (default: the only one).")]
PersonOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="The person who decides (default: the user of this machine).")
]
ReasonOption = Annotated[str | None, typer.Option(metavar="TEXT", help="The reason, which the pages show.")]


MAX_TABLE_ROWS = 40  # the number of rows that a table shows


class View(StrEnum):
    vertices = "vertices"
    edges = "edges"


class DiffFormat(StrEnum):
    """The formats of a difference, or of its rows."""

    table = "table"
    json = "json"
    markdown = "markdown"
    csv = "csv"
    parquet = "parquet"


@register_command(Group.RUNS)
def diff(
    states: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN | REVISION REVISION]", help="A run, or two revisions (default: the only held run)."
        ),
    ] = None,
    other: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Compare with what is published in another home.")
    ] = None,
    published_at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MOMENT", help="Compare what was published at this moment with what is now, or at a second moment."
        ),
    ] = None,
    rows: Annotated[View | None, typer.Option(help="Print all rows of vertices, or of edges.")] = None,
    format: Annotated[
        DiffFormat | None, typer.Option(help="The output format (default: a table, or that of the file's ending).")
    ] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the rows to this file.")] = None,
    page: Annotated[bool, typer.Option("--page", help="Write a page with pictures, and print its path.")] = False,
) -> None:
    """Show what readers would see change: totals, trusses, motifs, checks, and rows of vertices and edges.

    A held run (default: the only one) is compared with the revision that it builds on, and so is a published run. Of
    two revisions, the first is compared with the second; with `--other DIR`, this home with that one; with
    `--published-at`, what readers saw at a moment with what they see now.

    A row is a span of epochs in which a vertex or an edge has other values, before and after (0: it does not exist).
    After the frontier of a state its last values stand: a new epoch is compared with the newest published one.
    """
    from ..reading.revision_diff import COLUMNS
    from ..run import diff_report
    from ..storage.session import session_for

    if rows is not None and format is DiffFormat.markdown:
        raise UsageError(
            "--format markdown shows first rows of both: it cannot be combined with --rows.", "--format csv"
        )
    if rows is None and (output or format in (DiffFormat.csv, DiffFormat.parquet)):
        raise UsageError("a file of rows needs --rows vertices or --rows edges.", "altneu diff --rows edges …")
    if page and rows:
        raise UsageError("--page shows first rows of both: it cannot be combined with --rows.", "altneu diff --help")
    if page and format:
        raise UsageError("--page writes a page: it cannot be combined with --format.", "altneu diff --help")
    as_markdown = format is DiffFormat.markdown
    form = output_format(None if format is None or as_markdown else Format(format.value), output)
    ledger = open_ledger()
    states = [*(states or []), *_revisions_at(ledger, published_at or [])]
    difference = _find_diff(ledger, states, other)
    with show_progress("diff") as say:
        say("comparing")
        spark = session_for(ledger)
        if rows is not None:
            frame = diff_report.label_epochs(ledger.home, difference.select_rows(spark, rows), rows)
            schema = _arrow_schema(frame) if form is Format.parquet else None
            whole = form is not Format.table or output
            shown = frame if whole else frame.persist().limit(MAX_TABLE_ROWS)
            number = write_rows((row.asDict() for row in shown.toLocalIterator()), COLUMNS[rows], form, output, schema)
            if not whole and number == MAX_TABLE_ROWS and (every := frame.count()) > MAX_TABLE_ROWS:
                err.print(f"(the first {MAX_TABLE_ROWS} of {every:,} rows; all with --format csv or json)")
            if output:
                tell_written(number, output)
            return
        document = diff_report.diff_document(ledger.home, difference, spark)
    if page:
        from ..report import refresh_pages, write_difference

        run = difference.after.run
        name = run.run_id if run else f"{difference.before.row.revision}-{difference.after.row.revision}"
        written = write_difference(ledger.home, f"{name}-other" if other else name, document)
        refresh_pages(ledger)  # the index links it
        out.print(written, markup=False)
    elif as_markdown:
        print(diff_report.diff_markdown(document))
    elif form is Format.json:
        print(json.dumps(document, indent=1, default=str))
    else:
        _print_diff(document)


def _revisions_at(ledger: Ledger, moments: list[str]) -> list[str]:
    """Return the revisions that were published at one or two moments, as two arguments of `altneu diff`."""
    from ..reading.published_moment import choose_revision

    revisions = [str(choose_revision(ledger, None, moment)) for moment in moments]
    return [*revisions, str(ledger.revisions.get().revision)] if len(revisions) == 1 else revisions


def _find_diff(ledger: Ledger, states: list[str], other: Path | None) -> RevisionDiff:
    """Return the difference that the arguments name. Raise `UsageError` if they name none."""
    from ..home.home import Home
    from ..reading.revision_diff import DiffSide, RevisionDiff
    from ..run import approval, approval_numbers
    from ..state import home_identity

    if other is not None:
        if states:
            raise UsageError("--other compares what is published: name no run or revision.", "altneu diff --help")
        ledgers = ledger, home_identity.open_ledger(Home.open(other), writes=False)
        return RevisionDiff(*(DiffSide(each, each.revisions.require_published()) for each in ledgers))
    if len(states) == 2:
        if not all(each.isdecimal() for each in states):
            raise UsageError(f"{' '.join(states)}: two revisions have to be two numbers.", "altneu diff 1 2")
        return RevisionDiff(*(DiffSide(ledger, ledger.revisions.get(int(each))) for each in states))
    if len(states) > 2 or (states and states[0].isdecimal()):
        raise UsageError(f"{' '.join(states)}: name one run, or two revisions.", "altneu diff --help")
    after = ledger.revisions.published_by(states[0]) if states else None
    if after is not None:
        return RevisionDiff(DiffSide(ledger, ledger.revisions.get(after.parent)), DiffSide(ledger, after))
    return approval_numbers.diff_held_run(ledger, approval.require_held_run(ledger, states[0] if states else None))


def _arrow_schema(frame: DataFrame) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(frame.schema)


def _print_diff(document: dict[str, Any]) -> None:
    from ..run.diff_report import SHOWN_ROWS, VIEWS
    from ..state.totals import MEASURES

    before, after = document["before"], document["after"]
    out.print(f"from {before['name']} (up to {before['frontier']}) to {after['name']} (up to {after['frontier']})")
    if before["home"] != after["home"]:
        out.print(f"{before['home']} → {after['home']}", markup=False)
    if not document["totals"] and not document["queries"] and not any(document[view]["count"] for view in VIEWS):
        out.print("readers would see no difference")
    for each in document["totals"][:SHOWN_ROWS]:
        span = each["first"] if each["first"] == each["last"] else f"{each['first']} … {each['last']}"
        named = {name: each[name] for name in MEASURES} | each["motifs"]
        moved = (f"{name} {_format_step(both)}" for name, both in named.items() if both["before"] != both["after"])
        out.print(f"{span}: {', '.join(moved) or 'the trussness of edges'}", markup=False)
    if len(document["totals"]) > SHOWN_ROWS:
        out.print(f"({len(document['totals']) - SHOWN_ROWS:,} more spans of epochs; --format json lists all)")
    for each in document["trusses"]:
        if each["before"] != each["after"] or each["entered"] or each["left"]:
            edges = f"{each['entered']:,} entered, {each['left']:,} left"
            out.print(f"{each['k']}-truss at {document['last']}: {_format_step(each)} edges, {edges}")
    for each in document["checks"][:SHOWN_ROWS]:
        words = {None: "not made", True: "passed", False: "failed"}
        out.print(
            f"{each['epoch']}: {each['name']} ({each['severity']}): {words[each['before']]} → {words[each['after']]}: "
            f"{each['observed']}",
            markup=False,
        )
    for each in document["queries"]:
        rows = f"{each['came']:,} row(s) come, {each['went']:,} go"
        out.print(f"query {each['query']} at {document['last']}: {rows}; from {each['first']} on", markup=False)
    for view in VIEWS:
        number = document[view]["count"]
        if number:
            out.print(
                f"{number:,} span(s) of {view} with other values{', the largest' if number > SHOWN_ROWS else ''}:"
            )
            print_rows(document[view]["rows"], list(document[view]["rows"][0]))
            if number > SHOWN_ROWS:
                out.print(f"  all of them: --rows {view} --format csv")
    if document["next"]:
        out.print(f"  next: {document['next']}", markup=False)


def _format_step(both: dict[str, int]) -> str:
    return f"{both['before']:,} → {both['after']:,}"


@register_command(Group.RUNS)
def publish(run: HeldRun = None, by: PersonOption = None, because: ReasonOption = None) -> None:
    """Publish a held run: what it has computed and checked, on the revision that it was made from.

    The command refuses when another run has published in the meantime: then the epochs have to be computed again.
    """
    from ..run import approval, runner

    ledger = open_ledger(writes=True)
    wanted = approval.require_held_run(ledger, run)
    approval.require_publishable(ledger, wanted)
    changed = approval.relanded_labels(ledger, wanted)
    approval.approve_run(ledger, wanted, by or _user_name(), because)
    with Progress() as progress:
        revision = runner.publish_held_run(ledger, wanted.run_id, progress)
    mark = f", with a {revision.mark}" if revision.mark else ""
    epochs = len(wanted.epochs) or len(ledger.outputs.published_batches())
    out.print(f"published revision {revision.revision}{mark}: {epochs:,} epoch(s), as run {wanted.run_id} held them")
    if changed:
        err.print(
            f"[yellow]landed again since they were computed, so not up to date[/]: {abbreviate_labels(changed)}",
            markup=True,
        )
        err.print(f"  next: altneu run {' '.join(changed[:8])}", markup=False)
    print_totals(ledger)


@register_command(Group.RUNS)
def discard(run: HeldRun = None, by: PersonOption = None, because: ReasonOption = None) -> None:
    """Discard a held run: nothing of it is published, and its epochs may be run again.

    It takes no time and needs no Spark. The next run or compaction deletes the branches of the run.
    """
    from ..run import approval
    from ..state.stage_results import AuditFacts

    ledger = open_ledger(writes=True)
    wanted = approval.require_held_run(ledger, run)
    warned = ledger.stages.get_facts(wanted.run_id, AuditFacts).failed
    approval.reject_run(ledger, wanted, by or _user_name(), because)
    mark = f" ({warned} check(s) had warned)" if warned else ""
    out.print(f"discarded run {wanted.run_id}{mark}; nothing of it was published")
    out.print(f"  next: {approval.rerun_command(ledger.home, wanted).removesuffix(' --hold')}", markup=False)


def _user_name() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # the user of a container may have no name
        return None
