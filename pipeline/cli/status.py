"""`altneu status`: the grid of epochs."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.filesize import decimal

from ..config import Home
from .base import app, opened
from .printing import Format, out, ranges, some

MANY_FILES = 500


@app.command()
def status(format: Annotated[Format, typer.Option(help="table or json.")] = Format.table) -> None:
    """The grid of epochs: landed, changed, published, audited, failed. Reads only the database: no Spark."""
    from .. import runner

    home, ledger = opened()
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
        out.print(f"the tables answer for {answers}, at revisions {ranges(readable)}: {files:,} files, {decimal(size)}")
        if files > MANY_FILES:
            out.print("[yellow]many small files slow every read down[/]; next: altneu compact")
    if holes:
        out.print(f"{len(holes):,} epoch(s) between the first and the last have nothing landed: {some(holes)}")
    head = ("epoch", "state", "rows", "revision", "audited", "error")
    cells = [
        (
            entry["label"],
            entry["state"],
            f"{entry['rows']:,}",
            str(entry["revision"] or ""),
            entry["audit"] or "",
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


def _holes(home: Home, epochs: list[int]) -> list[str]:
    """Labels of the epochs of a schedule by time that lie between known ones and are not known."""
    if home.schedule.seconds is None or not epochs or max(epochs) - min(epochs) > 100_000:
        return []
    known = set(epochs)
    return [home.schedule.label(epoch) for epoch in range(min(epochs), max(epochs)) if epoch not in known]
