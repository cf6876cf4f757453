"""Commands that read what is published and explain it: show, explain, tables."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from ..formatting import escape_controls
from ..reading.query_model import COMMON_OPTIONS, FLAGS, NAMES, Engine, Question, view_table
from .app import Group, open_ledger, register_command
from .printing import (
    STANDARD_OUTPUT,
    Document,
    Format,
    Progress,
    err,
    out,
    output_format,
    print_rows,
    show_progress,
    tell_written,
    write_rows,
)

if TYPE_CHECKING:
    from ..reading.graph import Graph


View = StrEnum("View", {name: name for name in NAMES})  # type: ignore[misc]
MAX_TABLE_ROWS = 40  # the number of rows that a table shows


PublishedAt = Annotated[
    str | None,
    typer.Option(
        metavar="MOMENT",
        help="The moment whose newest revision is read, such as 2026-05-01T12:00 (UTC, or with a time zone).",
    ),
]
EngineOption = Annotated[
    Engine,
    typer.Option(help="The engine that computes the answer. auto: DuckDB in this process for little data, else Spark."),
]


def _views_help() -> str:
    """Return the table of views and options for the help."""
    lines = [f"- **{view}**: {about}" + (f" ({options})" if options else "") for view, about, options in view_table()]
    return "\n".join(lines)


_SHOW = f"""Show what is published (totals, vertices, edges, triangles, trusses, communities), or what has changed.

The views, and which options go with each:

{_views_help()}

All views take {", ".join(FLAGS[option] for option in COMMON_OPTIONS)}, --format and --output. Motifs are columns of
totals and vertices.

`altneu show totals --all-epochs --format json`

`altneu show edges --as-of 2004-05-15 --output edges.csv`

`altneu show vertices --top 10`   `altneu show edges --vertex 12 --where "trussness >= 5"`

`altneu show changes 2004-05-01 2004-05-15 --k 5` shows the edges that entered (1) or left (-1) the 5-truss.

`altneu show changes --since-revision 7` shows the changes from the frontier of revision 7 to that of the newest one. A
consumer that remembers the revision which the answer names follows every publication, corrections too, exactly once.
"""


def _open_graph(engine: Engine) -> Graph:
    """Open the graph of this call's home; Spark starts when it is needed."""
    from ..reading.graph import Graph

    ledger = open_ledger()

    def start_spark() -> Any:
        from ..storage.session import session_for

        return session_for(ledger)

    return Graph.for_ledger(ledger, start_spark, engine)


def show(
    view: Annotated[View, typer.Argument(help="The view to show.")],
    span: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FROM TO]",
            help="The epochs, for changes, triangles, quarantine, checks, results; for query its name.",
        ),
    ] = None,
    as_of: Annotated[str | None, typer.Option(metavar="EPOCH", help="The epoch (default: the frontier).")] = None,
    revision: Annotated[int | None, typer.Option(help="The revision to read (default: the newest).")] = None,
    since_revision: Annotated[
        int | None, typer.Option(help="Show the changes since this revision (0: since the beginning).")
    ] = None,
    k: Annotated[int | None, typer.Option("--k", help="The k of the truss.")] = None,
    all_epochs: Annotated[
        bool, typer.Option("--all-epochs", help="Show every epoch, and changes with their epochs.")
    ] = False,
    vertices: Annotated[
        list[str] | None,
        typer.Option("--vertex", metavar="ID", help="Show the rows that touch this vertex; may be repeated."),
    ] = None,
    edge: Annotated[
        tuple[str, str] | None,
        typer.Option("--edge", metavar="A B", help="Show the rows that touch both of these vertices."),
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="Show the rows for which this condition holds.")
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option("--sort", metavar="COLUMN", help="Sort by this column; with a minus, the greatest first."),
    ] = None,
    top: Annotated[
        int | None, typer.Option("--top", metavar="N", help="Show the N rows with the greatest values of --sort.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", help="Show the first N rows (default: 40 in a table).")
    ] = None,
    format: Annotated[
        Format | None, typer.Option(help="The output format (default: a table, or that of the file's ending).")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write or replace this file (.csv, .json, .parquet, .txt; - is standard output).",
        ),
    ] = None,
    engine: EngineOption = Engine.auto,
    published_at: PublishedAt = None,
) -> None:
    from ..reading.query_executor import translate_condition_errors

    question = Question(
        view.value,
        tuple(span or ()),
        as_of,
        revision,
        since_revision,
        all_epochs,
        k,
        tuple(vertices or ()),
        edge,
        where,
        sort,
        top,
        limit,
        published_at,
    )
    reads_tables = question.view_form.reads  # raises for options that do not go with the view
    if not reads_tables and engine is not Engine.auto:
        raise UsageError(
            f"--engine cannot be combined with {view.value}, which the database answers.", "leave --engine out"
        )
    form = output_format(format, output)
    whole = form is not Format.table or output or question.row_limit is not None or question.view_form.shows_all_rows
    cut = None if whole else MAX_TABLE_ROWS
    with translate_condition_errors(where), Progress() as progress:
        progress(f"show {view.value}", "")
        answer = _open_graph(engine).ask(question)
        for note in answer.notes:
            err.print(note)
        schema = answer.arrow_schema() if form is Format.parquet else None
        if cut is None:
            if output is None or output == STANDARD_OUTPUT:  # the rows are printed as they come
                progress.close_display()
            number = write_rows(answer.iterate_rows(), answer.columns, form, output, schema, answer.table)
        else:
            rows = list(answer.iterate_rows(cut + 1))
            number = answer.count_rows() if len(rows) > cut else len(rows)
            progress.close_display()
            write_rows(rows[:cut], answer.columns, form, None)
    if output:
        tell_written(number, output)
    elif cut is not None and number > cut:
        err.print(f"(the first {cut} of {number:,} rows; more with --limit, all with --format csv or json)")
    elif not number and form is Format.table:
        err.print("no rows")


show.__doc__ = _SHOW
register_command(Group.READING)(show)


@register_command(Group.READING)
def queries(
    revision: Annotated[int | None, typer.Option(help="The revision to read (default: the newest).")] = None,
    format: Annotated[Document, typer.Option(help="The output format.")] = Document.table,
) -> None:
    """List the declared queries (`queries/NAME.sql` in the home) and how each of them stands.

    Their texts are checked as a run would check them. `altneu show query NAME` shows the rows of one, and `altneu plan`
    what a run would do for each.
    """
    from ..home.queries import read_queries
    from ..reading import query_results
    from ..run.query_changes import compare_queries

    ledger = open_ledger()
    row = ledger.revisions.get(revision)
    rows = query_results.list_queries(ledger, row)
    changes = compare_queries(ledger, ledger.revisions.get())
    if format is Document.json:
        print(json.dumps(rows, indent=1))
        return
    print_rows(rows)
    words = changes.describe_pending()
    if words:
        out.print(f"not published yet: {words}", markup=False)
        out.print("  next: altneu backfill --all")
    if dropped := query_results.list_dropped_queries(ledger):
        older = ", ".join(f"{name} (up to revision {last})" for name, last in dropped.items())
        out.print(f"dropped, but still in older revisions: {older}", markup=False)
        out.print("  altneu compact drops their tables when [retention] revisions keeps none of these", markup=False)
    if not rows and not words and not read_queries(ledger.home):
        out.print(
            f"there are no queries: write one SELECT into {ledger.home.path / 'queries' / 'NAME.sql'}", markup=False
        )


class Thing(StrEnum):
    vertex = "vertex"
    edge = "edge"
    triangle = "triangle"
    query = "query"


@register_command(Group.READING)
def explain(
    thing: Annotated[Thing, typer.Argument(help="The kind of thing to explain.")],
    vertices: Annotated[
        list[str],
        typer.Argument(
            help="One vertex, the two ends of an edge, the three corners, or the name of a query with columns of a "
            "row as COLUMN=VALUE."
        ),
    ],
    as_of: Annotated[str | None, typer.Option(metavar="EPOCH", help="The epoch (default: the frontier).")] = None,
    revision: Annotated[int | None, typer.Option(help="The revision to read (default: the newest).")] = None,
    format: Annotated[Document, typer.Option(help="The output format.")] = Document.table,
    engine: EngineOption = Engine.auto,
    published_at: PublishedAt = None,
) -> None:
    """Explain a vertex, an edge, a triangle or a row of a query by its landed rows, with their files, lines and epochs.

    `altneu explain edge 12 47 --as-of 2004-05-15`

    `altneu explain query repeat_pairs src=38 dst=475`
    """
    values = _read_values(vertices[1:]) if thing is Thing.query else {}
    with show_progress(f"explain {thing.value}"):
        graph = _open_graph(engine)
        if thing is Thing.query:
            facts = graph.explain_query(vertices[0], values, as_of=as_of, revision=revision, published_at=published_at)
        else:
            facts = graph.explain(thing.value, *vertices, as_of=as_of, revision=revision, published_at=published_at)
    if format is Document.json:
        print(json.dumps(facts, indent=1, default=str))
        return
    if thing is Thing.query:
        _print_query_row(facts)
        return
    where = f"at {facts['epoch']}, revision {facts['revision']}"
    if thing is Thing.vertex:
        motifs = "".join(f", {count} in {name}" for name, count in facts["motifs"].items())
        text = f"degree {facts['degree']}, {facts['triangles']} triangles{motifs}"
        out.print(f"vertex {_escape_value(facts['vertex'])} {where}: {text}", markup=False)
        diffs = {"degree": facts["degree_diffs"], "triangle": facts["triangle_diffs"], **facts["motif_diffs"]}
        for name, rows in diffs.items():
            steps = ", ".join(f"{d['diff']:+} at {d['epoch']} (r{d['revision']})" for d in rows)
            out.print(f"  {name} diffs: {steps or 'none'}", markup=False)
    elif thing is Thing.triangle:
        presence = "is there" if facts["there"] else "is not there"
        out.print(f"triangle {' '.join(map(_escape_value, facts['triangle']))} {presence} {where}", markup=False)
    for each in facts.get("edges", [facts]):
        _print_edge(each)
    if facts.get("edges_not_listed"):
        out.print(f"({facts['edges_not_listed']:,} more edges)")


def _read_values(words: list[str]) -> dict[str, str]:
    """Return the columns of a row with their values, as they are typed."""
    pairs = [word.partition("=") for word in words]
    if not pairs or any(not sign for _, sign, _ in pairs):
        odd = next((name for name, sign, _ in pairs if not sign), "no column")
        raise UsageError(
            f"{odd}: a row of a query is named by its columns.", "altneu explain query NAME src=38 dst=475"
        )
    return {name: value for name, _, value in pairs}


def _print_query_row(facts: dict[str, Any]) -> None:
    row, copies, number = facts["row"], facts["copies"], len(facts["combinations"]) + facts["combinations_not_listed"]
    presence = "is there" + (f" {copies:,} times" if copies > 1 else "") if copies else "is not there"
    made = "nothing makes it" if not number else "1 combination of rows" if number == 1 else f"{number:,} combinations"
    where = f"at {facts['epoch']}, revision {facts['revision']}"
    out.print(f"query {facts['query']} ({_list_values(row)}) {presence} {where}: {made}", markup=False)
    for parts in facts["combinations"]:
        for place, part in enumerate(parts):
            _print_part(part, "with " if place else "")
    if facts["combinations_not_listed"]:
        out.print(f"({facts['combinations_not_listed']:,} more combinations)")
    if facts["rows_not_explained"]:
        out.print(f"({facts['rows_not_explained']:,} more rows have these values: name more columns)")


def _print_part(part: dict[str, Any], word: str) -> None:
    """Print a row of a relation with its landed rows; a row of `landed` is one of them."""
    called = part["relation"] + (f" {part['alias']}" if part["alias"] != part["relation"] else "")
    if part["relation"] == "landed":
        out.print(f"  {word}{called}", markup=False)
    else:
        out.print(f"  {word}{called}: {_list_values(part['row'])}", markup=False)
    for landed in part["landed"]:
        _print_landed_row(landed, with_fate=part["relation"] != "landed")
    if "next" in part:
        out.print(f"    {escape_controls(part['next'])}", markup=False)


_KEY = ("src", "dst", "op", "fate")
_SOURCE_COLUMNS = ("file", "line", "epoch")  # columns of a landed row that are shown apart


def _list_values(row: dict[str, Any]) -> str:
    return ", ".join(f"{name} {'null' if value is None else _escape_value(value)}" for name, value in row.items())


def _print_edge(edge: dict[str, Any]) -> None:
    a, b = map(_escape_value, edge["edge"])
    text = f"edge {a} – {b}: {'there' if edge['there'] else 'not there'}"
    if edge.get("trussness") is not None:
        text += f", trussness {edge['trussness']}"
    if "support" in edge and edge["there"]:
        listed, more = edge["triangles_with"], edge["triangles_not_listed"]
        triangles = "1 triangle" if edge["support"] == 1 else f"{edge['support']:,} triangles"
        text += f", {triangles}" + (f" (with {' '.join(map(_escape_value, listed))}" if listed else "")
        text += (f" and {more:,} more)" if more else ")") if listed else ""
    out.print(text, markup=False)
    for row in edge["rows"]:
        _print_landed_row(row)


def _print_landed_row(row: dict[str, Any], *, with_fate: bool = True) -> None:
    """Print a landed row with its place, and what has become of it where that is known."""
    ends = f" {_escape_value(row['src'])} → {_escape_value(row['dst'])}" if "src" in row else ""
    values = _list_values({name: value for name, value in row.items() if name not in (*_SOURCE_COLUMNS, *_KEY)})
    text = f"{row['epoch']}  {row['op']}{ends} ({values})  {_escape_value(row['file'])} line {row['line']}"
    out.print(f"    {text}{': ' + _escape_value(row['fate']) if with_fate else ''}", markup=False)


def _escape_value(value: Any) -> str:
    """Escape a name or a value within a line."""
    return escape_controls(str(value))


@register_command(Group.READING)
def tables(
    revision: Annotated[int | None, typer.Option(help="The revision to read (default: the newest).")] = None,
    format: Annotated[Document, typer.Option(help="The output format.")] = Document.table,
    published_at: PublishedAt = None,
) -> None:
    """Print what other programs need to read the tables: the catalog, the names of the tables, and a tag.

    In every table the tag r7 holds the rows of revision 7 and no others, and `main` those of the newest revision. The
    JSON also has the snapshots and the condition by which every revision can be read that is not expired.
    docs/engines.md has a recipe for DuckDB, Spark, Trino and other programs.
    """
    from ..reading import external_access
    from ..reading.published_moment import choose_revision

    if revision is not None and revision < 1:
        raise UsageError(f"--revision {revision}: it has to be at least 1.", "altneu status")
    ledger = open_ledger()
    access = external_access.external_access(ledger, choose_revision(ledger, revision, published_at))
    if format is Document.json:
        print(json.dumps(access.to_dict(), indent=2))
        return
    for name, value in access.catalog.items():
        out.print(f"{name:<10} {value}", markup=False)
    out.print(f"{'namespace':<10} {access.namespace}")
    shares = "none: a compaction lets it share its tables with later revisions; read it with altneu show --revision"
    out.print(f"{'revision':<10} {access.revision}, tag {access.tag or shares}")
    out.print(f"{'published':<10} {access.published_at}")
    out.print(f"{'frontier':<10} {access.frontier}: epochs after it are not final")
    print_rows([{"table": table, "metadata": where} for table, where in access.tables.items()])
    lacking = [table for table in ledger.home.config.publish.serving_tables if table not in access.tables]
    if lacking:
        out.print(
            f"not in this revision: {', '.join(lacking)}; the next run that publishes writes them, or altneu rebuild"
        )
