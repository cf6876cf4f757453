"""The HTML of the report pages: Jinja2 templates, style, scripts and pictures.

Templates escape all values, because ids, reasons and file names are untrusted. A page is one file: it fetches nothing,
and its content security policy forbids that. The same document always gives the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from altneu.expectations import volumes

from ...formatting import format_moment
from . import charts, formatting

if TYPE_CHECKING:
    import jinja2

Document = dict[str, Any]
OPEN_PARTS = 12  # parts of the index's grid (for example months) that are open, and the parts in one folded section
_TIMES = (Path(__file__).parent / "times.js").read_text(encoding="utf-8")
PAGES = (None, "new", "old")  # the states of a page in the index
LEVELS = 6  # areas in the chart of the k-trusses


@cache
def _template_environment() -> jinja2.Environment:
    import jinja2  # imported here because commands that make no page should not wait for it

    folder = Path(__file__).parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=formatting.format_number,
        signed=formatting.format_signed,
        duration=formatting.format_duration,
        share=formatting.format_share,
        words=formatting.spell_out,
        plan=formatting.plan_sentences,
        cost=formatting.cost_sentences,
        listed=formatting.join_words,
        vertex_page=formatting.vertex_page,
        whole=_unbroken_markup,
        moment=_moment_markup,
        quoted=quote,
    )
    environment.globals.update(
        STATES=formatting.STATES,
        KINDS=formatting.KINDS,
        plural=formatting.pluralize,
        line=charts.line_chart,
        bars=charts.bar_chart,
        flows=charts.flow_chart,
        graph=charts.graph_picture,
        style=Markup((folder / "style.css").read_text(encoding="utf-8")),
        script=Markup((folder / "index.js").read_text(encoding="utf-8")),
        times=Markup(_TIMES),
        times_hash=base64.b64encode(hashlib.sha256(_TIMES.encode()).digest()).decode(),
        tables=Markup((folder / "rows.js").read_text(encoding="utf-8")),
    )
    return environment


def _moment_markup(iso: str | None) -> Markup:
    """Return an instant in UTC; a script converts it to the reader's time zone and keeps UTC beside it."""
    said = format_moment(iso)
    return Markup('<time datetime="{}">{}</time>').format(iso, said) if iso else Markup(said)


def _unbroken_markup(text: str) -> Markup:
    """Return text in which dates do not break over lines."""
    return Markup(re.sub(r"\d{4}-\d\d-\d\d(T[\d-]+)?", r'<span class="whole">\g<0></span>', str(escape(text))))


def render_epoch_page(
    document: Document,
    has: Callable[[str], bool],
    checks: Mapping[tuple[str, str], str],
    docs: Sequence[str] = (),
    rows: str | None = None,
) -> str:
    """Render the page of one epoch.

    Args:
        document: The facts of the epoch (`epoch_page.describe_epoch`).
        has: A predicate that tells whether a page exists and may be linked.
        checks: The page of each check.
        docs: The pages of Data Docs.
        rows: The page of the epoch's rows, if there is one.
    """
    title = f"{document['weekday']}, {document['label']}" if document["weekday"] else f"Epoch {document['label']}"
    severities = []
    for name, meaning in _SEVERITIES.items():
        severity_checks = [check for check in document["checks"] if check["severity"] == name]
        severities.append({"name": name, "meaning": meaning, "checks": severity_checks})
    return _template_environment().get_template("epoch.html").render(
        d={"former": None, **document}, title=title, has=has, checks=checks, docs=docs, rows=rows,
        severities=severities, truss_picture=_truss_chart(document),
    )  # fmt: skip


_SEVERITIES = {
    "critical": "stops a run before it publishes",
    "warning": "is published with a mark: look at it",
    "info": "for your information",
}


def _truss_chart(document: Document) -> Document | None:
    """Return the chart of the k-trusses over the window, and its levels with their colours."""
    trend = document["trend"]
    ks = sorted({k for point in trend for k in point["trusses"]})
    ks = [k for k in range(3, max(ks, default=0) + 1)]
    if not ks or len(trend) < 2:
        return None
    if len(ks) > LEVELS:
        ks = sorted({ks[round(i * (len(ks) - 1) / (LEVELS - 1))] for i in range(LEVELS)})
    sizes = [
        (f"{k}-truss", [sum(n for trussness, n in point["trusses"].items() if trussness >= k) for point in trend])
        for k in ks
    ]
    labels = [point["label"] for point in trend]
    svg = charts.nested_area_chart("trusses", "Edges in the k-truss", labels, sizes)
    levels = [
        {"name": name, "shade": charts.shade_of_level(place, len(sizes))} for place, (name, _) in enumerate(sizes)
    ]
    return {"svg": svg, "levels": levels}


def render_difference_page(document: Document) -> str:
    """Render the page of a difference from its document with the first rows."""
    return _template_environment().get_template("difference.html").render(d=document)


def render_check_page(document: Document, has: Callable[[str], bool], sensitivity: volumes.Sensitivity) -> str:
    """Render the page of one check from its facts (`check_page.check_history`), with links to pages that exist."""
    points = [point for point in document["points"] if point["value"] is not None]
    labels = [point["label"] for point in points]
    drawn = [(point["value"], point["low"], point["high"], point["failed"]) for point in points]
    axis_title = {"rows": "Rows", "growth": "Growth, as a factor,", "wrong": "What was wrong"}[document["of"]]
    picture = charts.band_chart("epochs", axis_title, labels, drawn) if points else ""
    named = [f"revision {each['revision']}" for each in document["revisions"]]
    revisions = charts.bar_chart("revisions", "Failures", named, [each["failed"] for each in document["revisions"]])
    learned = {
        "window": volumes.WINDOW,
        "level": volumes.LEVEL,
        "spreads": f"{volumes.SPREADS:g}",
        "beyond": volumes.BEYOND,
        "settled": volumes.SETTLED,
        "seen": f"{math.exp(volumes.SEEN * volumes.WIDTH[sensitivity]):.2g}",
        "least": volumes.LEAST,
        "sensitivity": sensitivity,
    }
    return (
        _template_environment()
        .get_template("check.html")
        .render(d=document, has=has, picture=picture, learned=learned, revisions=revisions)
    )


def render_rows_page(document: Document, has: Callable[[str], bool]) -> str:
    """Render the page of an epoch's rows from its facts (`rows_page.describe_rows`), with links to pages that exist."""
    return _template_environment().get_template("rows.html").render(d=document, has=has)


def render_vertex_page(document: Document, has: Callable[[str], bool]) -> str:
    """Render the page of a vertex from its facts (`vertex_page.describe_vertex`), with links to pages that exist."""
    return _template_environment().get_template("vertex.html").render(d=document, has=has)


def render_outdated_page(label: str, revision: int, at: str) -> str:
    """Render the page that replaces an outdated one, with the command that writes it again."""
    return _template_environment().get_template("outdated.html").render(label=label, revision=revision, at=at)


def render_error_page(what: str, then: str | None) -> str:
    """Render the page that replaces one that cannot be made, with what happened and the next command."""
    return _template_environment().get_template("error.html").render(what=what, next=then)


def render_index_page(
    document: Document, has: Callable[[str], bool], inside: Document | None = None, base: str = ""
) -> str:
    """Render the index over all epochs. For an epoch without a page it shows the command that writes the page.

    Args:
        document: The facts of the index (`index_page.index_document`).
        has: A predicate that tells whether a page exists and may be linked.
        inside: What the page in Airflow shows in addition (`airflow.html`), or None outside Airflow.
        base: The address of the pages.
    """
    order = list(formatting.STATES)
    rows = [
        [e["label"], order.index(e["state"]), PAGES.index(e["page"]), e["rows"], e["bad_rows"], e["vertices"],
         e["edges"], e["triangles"], e["max_trussness"]]
        for e in reversed(document["epochs"])
    ]  # fmt: skip
    states = [[state.mark, state.symbol, state.short] for state in formatting.STATES.values()]
    groups = _group_epochs(document["epochs"], document["seconds"], document["starts"])
    shown, folds = groups[:OPEN_PARTS], _fold_groups(groups[OPEN_PARTS:])
    older = [[_pack_group(group) for group in fold["groups"]] for fold in folds]
    data = {"rows": rows, "states": states, "base": base, "folds": older, "differences": document["differences"]}
    names = [group["name"] for group in groups]
    template = _template_environment().get_template("index.html" if inside is None else "airflow.html")
    return template.render(
        d=document, has=has, groups=shown, folds=folds, names=names, data=data, base=base, inside=inside
    )


def _pack_group(group: Document) -> Document:
    """Pack a part of the grid for the script, which makes its cells from the rows.

    The part has the index of the first row, the number of cells, and their texts where these are neither days nor the
    labels of epochs.
    """
    cells = group["cells"]
    packed = {name: group[name] for name in ("name", "lead", "days", "first")} | {"count": len(cells)}
    plain = group["days"] or all(cell["cell"] == cell["label"] for cell in cells)
    return packed if plain else packed | {"cells": [cell["cell"] for cell in cells]}


def _fold_groups(groups: list[Document]) -> list[Document]:
    """Fold older parts of the grid into sections of `OPEN_PARTS` parts, each with the states of its epochs."""
    folds = []
    for begin in range(0, len(groups), OPEN_PARTS):
        part = groups[begin : begin + OPEN_PARTS]
        states = [cell["state"] for group in part for cell in group["cells"]]
        counts = [
            f"{formatting.format_number(states.count(name))} {state.short}"
            for name, state in formatting.STATES.items()
            if name in states
        ]
        name = part[0]["name"] if len(part) == 1 else f"{part[-1]['name']} to {part[0]['name']}"
        folds.append({"name": name, "said": ", ".join(counts), "groups": part})
    return folds


def _group_epochs(epochs: list[Document], seconds: int | None, starts: dict[int, datetime]) -> list[Document]:
    """Group epochs into the parts of the grid, the newest first.

    The parts are months of days, days of hours, years of weeks, or hundreds of integers.
    """
    groups: dict[str, Document] = {}
    for place, entry in enumerate(epochs):
        start = starts.get(entry["epoch"])
        lead, spoken = 0, entry["label"]
        if start is None or seconds is None:
            name = f"{entry['epoch'] // 100 * 100} to {entry['epoch'] // 100 * 100 + 99}"
            cell = entry["label"]
        elif seconds == 86_400:
            name, cell, lead = f"{start:%B %Y}", str(start.day), start.weekday()
            spoken = f"{cell} {name}"
        elif seconds < 86_400:
            name, cell = f"{start:%Y-%m-%d}", f"{start:%H:%M}"
            spoken = f"{name} {cell}"
        else:
            name, cell = f"{start:%Y}", f"{start:%m-%d}"
        group = groups.setdefault(
            name, {"name": name, "lead": lead, "days": seconds == 86_400, "first": place, "cells": []}
        )
        group["cells"].append({**entry, "cell": cell, "said": spoken})
    return list(groups.values())[::-1]
