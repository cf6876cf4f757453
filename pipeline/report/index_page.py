"""The facts behind the index page.

They are every epoch in a few fields, what needs attention, trends, the newest runs, and the landing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import sqlalchemy as sa

from ..errors import AltneuError
from ..landing.epoch_states import EpochComparison, list_unpublished_epochs
from ..landing.local_landing import Listing, read_landing
from ..state import clock
from ..state.epoch_status import (
    FULL,
    EpochState,
    EpochStatuses,
    fold_epochs,
    is_relevant,
    judge_epoch,
    list_failures,
    select_newest_checks,
    select_newest_landings,
    select_total_diffs,
)
from ..state.failed_runs import Attempt, describe_attempt
from ..state.incidents import Incident
from ..state.ledger import Ledger
from ..state.records import CheckRecord, Revision, RunKind, RunRecord
from ..state.schema import batches, checks, runs
from ..state.schema import ledger as ledger_rows
from ..state.totals import MEASURES
from .check_page import incident_document, known_checks
from .epoch_page import SEVERITIES, Document, epoch_start, run_summary
from .html.formatting import STATES, format_number, format_observed, join_words, pluralize

GRID = 3_000  # the newest epochs, which are shown; older ones are found by name
RUNS = 10  # the newest runs
REVISIONS = 60  # the newest revisions, of which a reader may compare two
CLOSED_INCIDENTS = 5  # the incidents that were closed last
ORDER = {"open": 0, "acknowledged": 1, "muted": 2}  # the order of incidents that are not closed
DIFFERING_STATES = ("missing", "changed", "gone")  # states in which the landing differs from the database


def index_document(
    ledger: Ledger,
    stand: EpochStatuses,
    at: str,
    page: Callable[[int], str | None],
    landing: Document | None,
    every: Sequence[Incident] = (),
) -> Document:
    """Return the facts of the index.

    Args:
        ledger: The ledger of the home.
        stand: The status of every epoch.
        at: The time now, as it is stored.
        page: A function that returns the state of an epoch's page: `new`, `old` (out of date), or None.
        landing: What `inspect_landing` returns.
        every: All incidents.
    """
    home = ledger.home
    newest, label = stand.newest, home.schedule.format_label
    axis = stand.shown_epochs[-GRID:]
    failed, core = (
        list_failures(ledger, newest.revision),
        greatest_trussness_by_epoch(ledger, newest, axis[0] if axis else 0),
    )
    epochs: list[Document] = []
    reasons: dict[int, str | None] = {}
    for epoch in axis:
        row, tried = stand.status_of(epoch), stand.newest_unresolved(epoch)
        wrong = [check for check in failed.get(epoch, ()) if is_relevant(check, row.batch, stand.marks)]
        judged = judge_epoch(row.batch, tried, row.audit, [check.severity for check in wrong])
        reasons[epoch] = tried.error if judged is EpochState.FAILED and tried else _worst_check(wrong)
        final = newest.frontier is not None and epoch <= newest.frontier
        point: Document = {**row.sums, "max_trussness": core(epoch)} if final else {name: None for name in MEASURES}
        epochs.append(
            {
                "epoch": epoch,
                "label": label(epoch),
                "state": judged,
                "audit": row.audit.verdict if row.audit else "none",
                "rows": row.batch.rows if row.batch else None,
                "bad_rows": row.batch.bad_rows if row.batch else None,
                "page": page(epoch),
                **point,
            }
        )
    differing = _audit_findings(ledger, newest, [e["epoch"] for e in epochs if e["audit"] == "differs"])
    for entry in epochs:
        why = differing.get(entry["epoch"]) if entry["state"] == "wrong" else None
        why = why or reasons[entry["epoch"]] or "it stopped without saying why"
        entry["why"] = why if STATES[entry["state"]].attention else None
    count = {name: sum(1 for e in epochs if e["state"] == name) for name in STATES}
    audits = Counter(entry["audit"] for entry in epochs)
    older = len(stand.shown_epochs) - len(axis)
    published = sum(1 for row in stand.rows.values() if row.batch)
    return {
        "epochs": epochs,
        "older": older,
        "counts": {name: n for name, n in count.items() if n},
        "attention": [e for e in epochs if STATES[e["state"]].attention][::-1],
        "old_pages": sum(1 for e in epochs if e["page"] == "old"),
        "revision": newest.revision,
        "published_at": newest.published_at or None,
        "frontier": None if newest.frontier is None else label(newest.frontier),
        "seconds": home.schedule.seconds,
        "starts": {epoch: begin for epoch in axis if (begin := epoch_start(home, epoch)) is not None},
        "headline": _index_headline(published, count, audits, older, known=bool(axis or newest.revision)),
        "trend": [e | {"rows": e["rows"] or 0} for e in epochs if e["edges"] is not None],
        "runs": [run_summary(*one) for one in _newest_runs(ledger)],
        "revisions": _newest_revisions(ledger),
        "held_back": _deciding_rollbacks(ledger, newest),
        "landing": landing,
        "incidents": sorted(
            (incident_document(home, one, at) for one in every if one.is_open), key=lambda one: ORDER[one["state"]]
        ),
        "closed": [incident_document(home, one, at) for one in every if not one.is_open][:CLOSED_INCIDENTS],
        "checks": _check_links(ledger, every),
        "written": {"revision": newest.revision, "at": at},
    }


def greatest_trussness_by_epoch(ledger: Ledger, newest: Revision, low: int) -> Callable[[int], int]:
    """Return a function from an epoch, not before `low`, to its greatest trussness.

    Only the epochs are read at which the edges of some k come or go.
    """
    moved = select_total_diffs(newest).subquery()
    truss_diffs = (
        sa.select(moved.c.k, fold_epochs(moved.c.epoch, low), moved.c["diff"])
        .where(moved.c.measure == "truss")
        .subquery()
    )
    net = (
        sa.select(truss_diffs.c.k, truss_diffs.c.epoch, sa.func.sum(truss_diffs.c["diff"]).label("diff"))
        .group_by(truss_diffs.c.k, truss_diffs.c.epoch)
        .subquery()
    )
    edges = sa.func.sum(net.c["diff"]).over(partition_by=net.c.k, order_by=net.c.epoch)
    presence = sa.select(net.c.k, net.c.epoch, sa.case((edges > 0, 1), else_=0).label("there")).subquery()
    before = sa.func.lag(presence.c.there, 1, 0).over(partition_by=presence.c.k, order_by=presence.c.epoch)
    steps = sa.select(presence, before.label("before")).subquery()
    rows = ledger.database.read_rows(
        sa.select(steps.c.epoch, steps.c.k, steps.c.there)
        .where(steps.c.there != steps.c.before)
        .order_by(steps.c.epoch)
    )
    alive: set[int] = set()
    epochs: list[int] = []
    values: list[int] = []
    for epoch, k, comes in map(tuple, rows):
        (alive.add if comes else alive.discard)(k)
        epochs.append(epoch)
        values.append(max(alive, default=0))

    def greatest_at(epoch: int) -> int:
        place = bisect_right(epochs, epoch)
        return values[place - 1] if place else 0

    return greatest_at


def _newest_runs(ledger: Ledger) -> list[tuple[Attempt, int | None]]:
    joined = sa.select(runs, ledger_rows.c.revision).outerjoin(ledger_rows, ledger_rows.c.run_id == runs.c.run_id)
    rows = ledger.database.read_rows(joined.order_by(runs.c.started_at.desc()).limit(RUNS))
    return [(describe_attempt(RunRecord.from_row(row)), row.revision) for row in rows]


def _newest_revisions(ledger: Ledger) -> list[Document]:
    """Return the newest revisions, with the kind of run, the number of epochs, and the time."""
    joined = ledger_rows.join(runs, runs.c.run_id == ledger_rows.c.run_id)
    columns = (ledger_rows.c.revision, ledger_rows.c.published_at, runs.c.kind, runs.c.epochs)
    rows = ledger.database.read_rows(
        sa.select(*columns).select_from(joined).order_by(ledger_rows.c.revision.desc()).limit(REVISIONS)
    )
    return [
        {"revision": row.revision, "published_at": row.published_at, "kind": row.kind, "epochs": len(row.epochs or ())}
        for row in rows
    ]


def _check_links(ledger: Ledger, every: Sequence[Incident]) -> list[Document]:
    """Return every check with its page and whether it has an open incident."""
    failing = {(one.first.suite, one.first.name) for one in every if one.is_open}
    pages = known_checks(ledger).items()
    return [{"suite": key[0], "name": key[1], "page": page, "fails": key in failing} for key, page in pages]


def _deciding_rollbacks(ledger: Ledger, newest: Revision) -> list[Document]:
    """Return the rollbacks that determine the batches of some epochs, with the number and the range of these."""
    rollbacks = sa.select(runs.c.run_id).where(runs.c.kind == RunKind.ROLLBACK)
    taken_back = sa.select(batches.c.epoch).where(batches.c.run_id.in_(rollbacks))
    every = select_newest_landings(newest.revision, batches.c.epoch.in_(taken_back)).subquery()
    spans = (sa.func.count().label("epochs"), sa.func.min(every.c.epoch).label("first"), sa.func.max(every.c.epoch))
    grouped = sa.select(every.c.revision, *spans).where(every.c.run_id.in_(rollbacks))
    label = ledger.home.schedule.format_label
    rows = ledger.database.read_rows(grouped.group_by(every.c.revision).order_by(every.c.revision.desc()))
    return [
        {"revision": revision, "epochs": epochs, "first": label(first), "last": label(last)}
        for revision, epochs, first, last in map(tuple, rows)
    ]


def _worst_check(failed: list[CheckRecord]) -> str | None:
    """Describe the worst of some failed checks in one line."""
    worst = min(failed, key=lambda row: SEVERITIES.index(row.severity), default=None)
    return None if worst is None else f"{worst.name}: {format_observed(worst.observed)}"


def _audit_findings(ledger: Ledger, newest: Revision, epochs: list[int]) -> dict[int, str]:
    """Describe for each epoch in one line what its newest audit has found."""
    newest_audits = select_newest_checks(newest.revision, checks.c.suite == FULL, checks.c.epoch.in_(epochs))
    rows = [row for row in ledger.database.read_rows(newest_audits) if not row.passed] if epochs else []
    return {row.epoch: f"{row.name}: {row.observed}" for row in reversed(rows)}


def _index_headline(
    published: int, counts: dict[str, int], audits: Mapping[str, int], older: int, *, known: bool
) -> str:
    if not known:
        return "Nothing has been run yet."
    if not published:
        return "Nothing is published."
    parts = [
        f"{format_number(counts[name])} {STATES[name].short}" for name in ("failed", "wrong", "warning") if counts[name]
    ]
    done = f"{pluralize(published, 'epoch')} published"
    if older:
        done += f", the newest {format_number(GRID)} of all shown here"
    if parts:
        return f"{done}; {join_words(parts)}."
    if counts["unaudited"]:
        return f"{done}; {format_number(counts['unaudited'])} neither proved nor recomputed as they are now."
    these = "of these " if older else ""
    if not audits["proved"]:
        return f"{done}, each {these}equal to a full recomputation."
    more = f"; {format_number(audits['equal'])} equal to a full recomputation" if audits["equal"] else ""
    return f"{done}, each {these}proved{more}."


def inspect_landing(ledger: Ledger, stand: EpochStatuses, listing: Listing | None = None) -> Document | None:
    """Return where the landing differs from the database, with the time, or None where the landing cannot be read.

    Args:
        ledger: The ledger of the home.
        stand: The status of every epoch.
        listing: A listing of the landing (default: it is listed here).
    """
    try:
        listing = listing or read_landing(ledger)
        return describe_landing(
            list_unpublished_epochs(ledger.home, listing, stand), clock.store_moment(listing.listed_at)
        )
    except (AltneuError, OSError):
        return None


def describe_landing(states: Mapping[int, EpochComparison], at: str) -> Document:
    """Return where the landing differs from the database, by the states of those epochs, with the time."""
    return {
        "at": at,
        **{name: [each.label for each in states.values() if each.state == name] for name in DIFFERING_STATES},
    }
