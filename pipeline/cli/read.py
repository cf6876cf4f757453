"""What is published, and why: show, explain."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import AltneuError, UsageError
from .base import app, opened
from .printing import Format, emit, err, out


class View(StrEnum):
    totals = "totals"
    vertices = "vertices"
    edges = "edges"
    changes = "changes"
    triangles = "triangles"
    support = "support"
    trusses = "trusses"
    communities = "communities"


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
    from .. import views

    home, ledger = opened()
    epoch = home.schedule.epoch(as_of) if as_of is not None else None
    row = ledger.at(revision)
    if row.frontier is None:
        raise AltneuError("nothing is published yet.", "altneu backfill --all")
    if epoch is not None and (view is not View.totals or epoch > row.frontier):
        views.answerable(home, row, epoch)
    if view is View.totals:
        rows = views.totals(home, ledger, revision=revision, as_of=epoch, all_epochs=all_epochs)
        keep = ("epoch", "label", "revision", "vertices", "edges", "triangles", "max_trussness", "transitivity")
        emit([{key: point[key] for key in keep} | point["motifs"] for point in rows], format, output)
        return
    if view is View.trusses:
        emit(views.trusses(home, ledger, revision, all_epochs), format, output)
        return
    follows = view is View.changes and since_revision is not None and not span
    if all_epochs and not follows:
        raise UsageError(f"--all-epochs goes with totals, not with {view}.", "altneu show totals --all-epochs")
    from ..spark import session_for
    from ..warehouse import Warehouse

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
    emit([item.asDict() for item in listed], format, output, limit)


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
    from .. import explain as lineage
    from ..spark import session_for
    from ..warehouse import Warehouse

    home, ledger = opened()
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
