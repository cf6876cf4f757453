"""The content of the page inside Airflow, from SQL and the listing of the landing."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from ..errors import AltneuError
from ..formatting import count_epochs
from ..state.totals import Measure
from .base import PREFIX, open_ledger

if TYPE_CHECKING:
    from ..home.home import Home
    from ..state.ledger import Ledger
    from ..state.records import Revision

SHOWN_MEASURES: tuple[Measure, ...] = ("edges", "triangles", "max_trussness")
NEWEST = 100  # the number of epochs whose runs the page lists
OPEN_STATES = ("missing", "changed", "failed", "interrupted", "rejected")  # states of epochs that a run would take
GAPS = 20  # the number of ranges of absent epochs that the page lists


class AirflowRun(TypedDict):
    """A run of Airflow: its id, and whether it is queued or running."""

    run_id: str
    waits: bool


def epoch_grid(path: str, prefix: str = PREFIX) -> dict[str, Any]:
    """Return every landed or published epoch with its state, totals, audit and report, from SQL and the landing's
    listing."""

    from ..landing import epoch_states

    ledger = open_ledger(path, writes=False)
    revision, rows = epoch_states.list_epoch_rows(ledger)
    _add_totals(ledger, revision, rows)
    return {"says": _describe_home(ledger.home, revision, rows, prefix), "epochs": rows}


def _add_totals(ledger: Ledger, revision: Revision, rows: list[dict[str, Any]]) -> None:
    """Add the totals and the page of each epoch to the rows of successive epochs."""
    from .. import report

    totals = report.totals_by_epoch(ledger, revision, min((row["epoch"] for row in rows), default=0))
    names = ledger.runs.list_motifs(revision)
    for row in rows:
        point = totals(row["epoch"]) if row["revision"] else None
        for name in SHOWN_MEASURES:
            row[name] = point[name] if point else None
        row["motifs"] = {name: point["motifs"].get(place, 0) for place, name in enumerate(names)} if point else {}
        row["report"] = report.page_name(ledger.home, row["epoch"])


def _describe_home(home: Home, revision: Revision, rows: list[dict[str, Any]], prefix: str) -> str:
    """Describe in one line what is published, and what has landed again since."""
    from ..report.html.formatting import pluralize

    if revision.frontier is None:
        return "nothing is published yet"
    frontier = home.schedule.format_label(revision.frontier)
    says = f"revision {revision.revision}, frontier {frontier}, {pluralize(len(rows), 'epoch')}"
    again = [row["label"] for row in rows if row["revision"] and row["state"] == "changed"]
    if again:
        says += f"; {len(again)} landed again and not published yet: {prefix}_backfill from {again[0]} to {again[-1]}"
    return says


def overview_page(
    path: str,
    runs: Mapping[int, AirflowRun],
    prefix: str = PREFIX,
    root: str = "../",
    *,
    may_run: bool = False,
    sites: Sequence[str] = (),
) -> str:
    """Return the index of the reports for the page inside Airflow, with the runs of its epochs and buttons for what to
    do.

    Args:
        path: The folder of the home.
        runs: The runs of Airflow by epoch.
        prefix: The prefix of the DAGs of this home.
        root: The relative address from the page to that of Airflow.
        may_run: The user may trigger the DAGs, and so sees the buttons.
        sites: The prefixes of other homes.
    """
    from .. import report
    from ..landing import epoch_states

    ledger = open_ledger(path, writes=False)
    statuses, states = epoch_states.compare_statuses(ledger)
    every = epoch_states.describe_epochs(statuses, states)
    rows = every[-NEWEST:]
    _add_totals(ledger, statuses.newest, rows)
    known = [row for row in rows if row["motifs"]]
    motifs = [
        {"name": name, "labels": [row["label"] for row in known], "points": [row["motifs"][name] for row in known]}
        for name in (known[-1]["motifs"] if len(known) > 1 else ())
    ]
    epochs = [{**row, "run": runs.get(row["epoch"]), "open": row["state"] in OPEN_STATES} for row in reversed(rows)]
    label = ledger.home.schedule.format_label
    known_epochs = {row["epoch"] for row in every}
    open_ = [row["label"] for row in every if row["state"] in OPEN_STATES]
    inside = {
        "says": _describe_home(ledger.home, statuses.newest, every, prefix),
        "epochs": epochs,
        "motifs": motifs,
        "prefix": prefix,
        "root": root,
        "may_run": may_run,
        "sites": list(sites),
        "awaited": [
            {"label": label(epoch), "run": run}
            for epoch, run in sorted(runs.items())
            if run["waits"] and epoch not in known_epochs
        ],
        "absent": [
            f"{label(low)}" if low == high else f"{label(low)} to {label(high)}"
            for low, high in epoch_gaps(known_epochs)
        ],
        "held": [
            {"run_id": run.run_id, "labels": count_epochs([label(epoch) for epoch in run.epochs])}
            for run in ledger.runs.list_held()
        ],
        "open": {"first": open_[0], "last": open_[-1], "many": len(open_)} if open_ else None,
    }
    return report.render_index(ledger, inside, "reports/", (statuses, states))


def epoch_gaps(epochs: Collection[int]) -> list[tuple[int, int]]:
    """Return the ranges without any epoch between the first and the last epoch, the newest `GAPS` of them."""
    gaps = []
    for before, after in itertools.pairwise(sorted(epochs)):
        if after > before + 1:
            gaps.append((before + 1, after - 1))
    return gaps[-GAPS:]


def acknowledge_incident(path: str, ident: str, by: str, because: str) -> None:
    """Acknowledge an incident, as `altneu incidents ack` does. Raise `UsageError` for an unknown one."""
    from ..state import incidents

    ledger = open_ledger(path)
    incidents.acknowledge_incident(ledger, ident, by, because)


def mute_incident(path: str, ident: str, until: str, by: str, because: str | None) -> None:
    """Mute an incident, as `altneu incidents mute` does. Raise `UsageError` for an unknown one or a wrong day."""
    from ..state import incidents

    ledger = open_ledger(path)
    incidents.mute_incident(ledger, ident, until, by, because)


def error_page(error: AltneuError) -> str:
    """Return the page that replaces a page of a home that cannot be read."""
    from .. import report

    return report.render_error_page(error.what, error.next)


def report_page(path: str, name: str) -> str | None:
    """Return a page of the reports by the name of its file, or None if there is no such page.

    It is the index, the page of an epoch (also as a revision published it) or of a check, rendered on request; or a
    page of rows, of a vertex or of a difference that was written.
    """
    from .. import report

    ledger = open_ledger(path, writes=False)
    if name == "index.html":
        return report.render_index(ledger)
    if (text := report.read_written_page(ledger.home, name)) is not None:
        return text
    if name.startswith("check="):
        return report.render_check(ledger, name)
    label, _, of = name.removeprefix("epoch=").removesuffix(".html").partition(".revision=")
    try:
        epoch, revision = ledger.home.schedule.parse_epoch(label), int(of) if of.isdecimal() else None
        if name != report.page_name(ledger.home, epoch, revision):
            return None
        if revision is not None and epoch not in ledger.outputs.published_batches(
            ledger.revisions.get(revision).revision
        ):
            return None
    except AltneuError:
        return None
    return report.render_page(ledger, epoch, revision)
