"""What the page inside Airflow shows, from SQL and the landing's listing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import AltneuError, UsageError
from ..state.totals import Measure
from .base import opened

SHOWN: tuple[Measure, ...] = ("edges", "triangles", "max_trussness")
NEWEST = 100  # epochs whose runs the page inside Airflow lists


def grid(path: str) -> dict[str, Any]:
    """Every landed or published epoch with its state, totals, audit and report, from SQL and the landing's
    listing."""
    from .. import report

    home, ledger = opened(path, writes=False)
    from ..landing import survey

    revision, rows = survey.grid(home, ledger)
    totals = report.totals(ledger, revision, min((row["epoch"] for row in rows), default=0))
    names = ledger.motifs(revision)
    for row in rows:
        point = totals(row["epoch"]) if row["revision"] else None
        for name in SHOWN:
            row[name] = point[name] if point else None
        row["motifs"] = {name: point["motifs"].get(place, 0) for place, name in enumerate(names)} if point else {}
        row["report"] = report.page_name(home, row["epoch"])
    says = "nothing is published yet"
    if revision.frontier is not None:
        frontier = home.schedule.label(revision.frontier)
        says = f"revision {revision.revision}, frontier {frontier}, {len(rows)} epochs"
        again = [row["label"] for row in rows if row["revision"] and row["state"] == "changed"]
        if again:
            says += f"; {len(again)} landed again and not published so: altneu_backfill from {again[0]} to {again[-1]}"
    return {"says": says, "epochs": rows}


def overview_page(path: str, runs: Mapping[int, str]) -> str:
    """The reports' index, as the page inside Airflow: with its epochs' runs there; `runs`: epoch → address."""
    from .. import report

    home, ledger = opened(path, writes=False)
    found = grid(path)
    rows = found["epochs"][-NEWEST:]
    known = [row for row in rows if row["motifs"]]
    motifs = [
        {"name": name, "labels": [row["label"] for row in known], "points": [row["motifs"][name] for row in known]}
        for name in (known[-1]["motifs"] if len(known) > 1 else ())
    ]
    epochs = [{**row, "run": runs.get(row["epoch"])} for row in reversed(rows)]
    return report.index(home, ledger, {"says": found["says"], "epochs": epochs, "motifs": motifs}, "reports/")


def error_page(error: AltneuError) -> str:
    """In place of a page of a home that cannot be read."""
    from .. import report

    return report.error_page(error.what, error.next)


def report_page(path: str, name: str) -> str | None:
    """A report's page on request by the name of its file: `index.html`, that of an epoch or of a check, or of a
    difference that was written. None: there is none."""
    from .. import report

    home, ledger = opened(path, writes=False)
    if name == "index.html":
        return report.index(home, ledger)
    if name.startswith("diff-") and name.endswith(".html") and "/" not in name and (home.reports / name).is_file():
        return (home.reports / name).read_text(encoding="utf-8")
    if name.startswith("check="):
        return report.check(home, ledger, name)
    label = name.removeprefix("epoch=").removesuffix(".html")
    try:
        epoch = home.schedule.epoch(label)
    except UsageError:
        return None
    return report.page(home, ledger, epoch) if name == report.page_name(home, epoch) else None
