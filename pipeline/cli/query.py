"""What is published, and why: show, explain."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from ..reading.query_model import ANY, FLAGS, NAMES, Engine, Question, view_table
from ..terminal import escape_controls
from .app import open_home, register_command
from .printing import (
    STANDARD_OUTPUT,
    Document,
    Format,
    Progress,
    err,
    out,
    output_format,
    print_rows,
    tell_written,
    write_rows,
)

if TYPE_CHECKING:
    from ..reading.graph import Graph


View = StrEnum("View", {name: name for name in NAMES})  # type: ignore[misc]
SHOWN = 40  # rows of a table


EngineOption = Annotated[
    Engine, typer.Option(help="Who computes it: DuckDB, in this process, while little is stored; else Spark.")
]


def _views_help() -> str:
    """The table of views and options, for the help."""
    lines = [f"- **{view}**: {about}" + (f" ({options})" if options else "") for view, about, options in view_table()]
    return "\n".join(lines)


_SHOW = f"""What is published: totals, vertices, edges, triangles, trusses and communities, or what changed in between.

The views, and which options go with each:

{_views_help()}

All take {", ".join(FLAGS[option] for option in ANY)}, --format and --output. Motifs are columns of totals and vertices.

`altneu show totals --all-epochs --format json`

`altneu show edges --as-of 2004-05-15 --output edges.csv`

`altneu show vertices --top 10`   `altneu show edges --vertex 12 --where "trussness >= 5"`

`altneu show changes 2004-05-01 2004-05-15 --k 5`: edges that entered (1) or left (-1) the 5-truss

`altneu show changes --since-revision 7`: the same between what revision 7 and the newest say of their frontiers, so
that a consumer follows every publication, corrections too, exactly once; remember the revision that it names
"""


def _open_graph(engine: Engine) -> Graph:
    """The graph of this call's home; Spark starts when it is needed."""
    from ..reading.graph import Graph

    home, ledger = open_home()

    def start_spark() -> Any:
        from ..storage.session import session_for

        return session_for(home, ledger)

    return Graph.for_home(home, ledger, start_spark, engine)


def show(
    view: Annotated[View, typer.Argument(help="What to show.")],
    span: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FROM TO]", help="Epochs, for changes, triangles, quarantine, checks, results."),
    ] = None,
    as_of: Annotated[str | None, typer.Option(help="The epoch (default: the frontier).")] = None,
    revision: Annotated[int | None, typer.Option(help="As published at this revision (default: the newest).")] = None,
    since_revision: Annotated[
        int | None, typer.Option(help="What a consumer who has this revision applies (0: who has nothing).")
    ] = None,
    k: Annotated[int | None, typer.Option("--k", help="Which truss.")] = None,
    all_epochs: Annotated[
        bool, typer.Option("--all-epochs", help="At every epoch; changes with their epochs.")
    ] = False,
    vertices: Annotated[
        list[str] | None, typer.Option("--vertex", metavar="ID", help="Rows that touch this vertex; may be repeated.")
    ] = None,
    edge: Annotated[
        tuple[str, str] | None, typer.Option("--edge", metavar="A B", help="Rows that touch both of these vertices.")
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="Rows for which this condition over the columns holds.")
    ] = None,
    sort: Annotated[
        str | None, typer.Option("--sort", metavar="COLUMN", help="Order by a column; with a minus greatest first.")
    ] = None,
    top: Annotated[
        int | None, typer.Option("--top", metavar="N", help="The N rows with the greatest values of --sort.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", help="The first N rows (a table shows 40 by itself).")
    ] = None,
    format: Annotated[
        Format | None, typer.Option(help="Output format (default: a table, or as the file's ending says).")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Write this file (.csv, .json, .parquet, .txt; - is standard output). A file is replaced."),
    ] = None,
    engine: EngineOption = Engine.auto,
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
    )
    if (
        not question.view_form.reads and engine is not Engine.auto
    ):  # the first is an error for what does not go together
        raise UsageError(f"--engine does not go with {view.value}: the database answers.", "leave it out")
    form = output_format(format, output)
    whole = form is not Format.table or output or question.row_limit is not None or question.view_form.whole
    cut = None if whole else SHOWN
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
register_command(show)


class Thing(StrEnum):
    vertex = "vertex"
    edge = "edge"
    triangle = "triangle"


@register_command
def explain(
    thing: Annotated[Thing, typer.Argument(help="What to explain.")],
    vertices: Annotated[list[str], typer.Argument(help="One vertex, the two ends of an edge, or three corners.")],
    as_of: Annotated[str | None, typer.Option(help="The epoch (default: the frontier).")] = None,
    revision: Annotated[int | None, typer.Option(help="As published at this revision (default: the newest).")] = None,
    format: Annotated[Document, typer.Option(help="Output format.")] = Document.table,
    engine: EngineOption = Engine.auto,
) -> None:
    """Why is it so? The landed rows, with file, line and epoch, that make a vertex, an edge or a triangle what it is.

    `altneu explain edge 12 47 --as-of 2004-05-15`
    """
    with Progress() as progress:
        progress(f"explain {thing.value}", "")
        found = _open_graph(engine).explain(thing.value, *vertices, as_of=as_of, revision=revision)
    if format is Document.json:
        print(json.dumps(found, indent=1, default=str))
        return
    where = f"at {found['epoch']}, revision {found['revision']}"
    if thing is Thing.vertex:
        motifs = "".join(f", {count} in {name}" for name, count in found["motifs"].items())
        text = f"degree {found['degree']}, {found['triangles']} triangles{motifs}"
        out.print(f"vertex {_escape_value(found['vertex'])} {where}: {text}", markup=False)
        diffs = {"degree": found["degree_diffs"], "triangle": found["triangle_diffs"], **found["motif_diffs"]}
        for name, rows in diffs.items():
            steps = ", ".join(f"{d['diff']:+} at {d['epoch']} (r{d['revision']})" for d in rows)
            out.print(f"  {name} diffs: {steps or 'none'}", markup=False)
    elif thing is Thing.triangle:
        there = "is there" if found["there"] else "is not there"
        out.print(f"triangle {' '.join(map(_escape_value, found['triangle']))} {there} {where}", markup=False)
    for each in found.get("edges", [found]):
        _print_edge(each)
    if found.get("edges_not_listed"):
        out.print(f"({found['edges_not_listed']:,} more edges)")


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
        shown = ("src", "dst", "file", "line", "epoch", "fate", "op")
        values = ", ".join(f"{name} {_escape_value(value)}" for name, value in row.items() if name not in shown)
        text = f"{row['epoch']}  {row['op']} {_escape_value(row['src'])} → {_escape_value(row['dst'])} ({values})"
        text += f"  {_escape_value(row['file'])} line {row['line']}: {_escape_value(row['fate'])}"
        out.print(f"    {text}", markup=False)


def _escape_value(value: Any) -> str:
    """Escape a name or a value within a line."""
    return escape_controls(str(value))


@register_command
def tables(
    revision: Annotated[int | None, typer.Option(help="As published in this revision (default: the newest).")] = None,
    format: Annotated[Document, typer.Option(help="table or json.")] = Document.table,
) -> None:
    """What DuckDB, Spark, Trino and other programs need to read what is published: catalog, tables, and a tag.

    In every table the tag r7 holds the rows of revision 7 and no others, and `main` those of the newest revision.
    docs/engines.md has a recipe for each program.
    """
    from ..reading import external_access

    if revision is not None and revision < 1:
        raise UsageError(f"--revision {revision}: at least 1.", "altneu status")
    home, ledger = open_home()
    found = external_access.external_access(home, ledger, revision)
    if format is Document.json:
        print(json.dumps(found.to_dict(), indent=2))
        return
    for name, value in found.catalog.items():
        out.print(f"{name:<10} {value}", markup=False)
    out.print(f"{'namespace':<10} {found.namespace}")
    shares = "none: a compaction lets it share its tables with later revisions; read it with altneu show --revision"
    out.print(f"{'revision':<10} {found.revision}, tag {found.tag or shares}")
    out.print(f"{'frontier':<10} {found.frontier}: epochs after it are not final")
    print_rows([{"table": table, "metadata": where} for table, where in found.tables.items()])
    lacking = [table for table in home.config.publish.tables if table not in found.tables]
    if lacking:
        out.print(
            f"not in this revision: {', '.join(lacking)}; the next run that publishes writes it, or altneu rebuild"
        )
