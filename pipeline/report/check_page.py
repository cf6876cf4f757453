"""The facts behind the page of a check, as a JSON document, from the SQL database alone.

They are its results over epochs and revisions, the usual values, and when it began to fail and what changed then. The
usual number of rows, or the usual growth, of an epoch is learned from the epochs that are published before it now, with
the present sensitivity. The results are those that were found at the time.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from altneu.expectations import volumes

from ..home.home import Home
from ..state.epoch_status import EpochStatuses, select_newest_landings
from ..state.incidents import Incident
from ..state.ledger import Ledger
from ..state.records import CheckRecord, Severity
from ..state.schema import batches, checks
from ..state.schema import ledger as ledger_rows
from .epoch_page import Document
from .html.formatting import format_observed

NEWEST = 60  # results of a check that its page shows
POINTS = 60  # epochs, and revisions, in its charts
BATCHES = 8  # batches that are shown of the run in which a check began to fail
Key = tuple[str, str]


def page_name(key: Key) -> str:
    """Return the file name of a check's page.

    >>> page_name(("volumes", "as many rows as usual"))
    'check=volumes.as-many-rows-as-usual.html'
    """
    return f"check={key[0]}.{re.sub(r'[^a-z0-9]+', '-', key[1].lower()).strip('-')}.html"


def known_checks(ledger: Ledger) -> dict[Key, str]:
    """Return every check that has a result, with the name of its page, in order."""
    rows = ledger.database.read_rows(
        sa.select(checks.c.suite, checks.c.name).distinct().order_by(checks.c.suite, checks.c.name)
    )
    return {(suite, name): page_name((suite, name)) for suite, name in map(tuple, rows)}


def checks_to_refresh(ledger: Ledger, keys: Iterable[Key]) -> set[Key]:
    """Select the checks whose pages may show something new after a run.

    These are the checks that have failed at some time, and those of a number that has bounds. The page of any other
    check says that it has never failed, as of the revision that the page names.
    """
    failed = sa.select(checks.c.suite, checks.c.name).where(sa.not_(checks.c.passed)).order_by(checks.c.id)
    once = {(suite, name) for suite, name in map(tuple, ledger.database.read_rows(failed))}
    return {key for key in keys if key in once or _measure_of(key) != "wrong"}


def check_history(ledger: Ledger, stand: EpochStatuses, every: Iterable[Incident], key: Key, at: str) -> Document:
    """Return the facts of one check.

    Args:
        ledger: The ledger of the home.
        stand: The status of every epoch.
        every: All incidents.
        key: The suite and the name of the check.
        at: The time now, as it is stored.

    Raises:
        LookupError: The check has no result.
    """
    home = ledger.home
    results = _newest_results(ledger, key)
    if not results:
        raise LookupError(key)
    newest, label = results[-1][0], home.schedule.format_label
    incidents = [incident for incident in every if (incident.first.suite, incident.first.name) == key]
    standing = {epoch for incident in incidents if incident.is_open for epoch in incident.epochs}
    by_epoch = {record.epoch: record for record, published in results if published}
    shown = sorted(by_epoch)[-POINTS:]
    by_revision: dict[int, Counter[bool]] = defaultdict(Counter)
    for record, _ in results:
        by_revision[record.revision][record.passed] += 1
    return {
        "suite": newest.suite,
        "name": newest.name,
        "severity": newest.severity,
        "meaning": newest.meaning,
        "remedy": newest.remedy,
        "of": _measure_of(key),
        "points": _chart_points(home, stand, key, [by_epoch[epoch] for epoch in shown], standing),
        "revisions": [
            {"revision": revision, "passed": ledger[True], "failed": ledger[False]}
            for revision, ledger in sorted(by_revision.items())[-POINTS:]
        ],
        "results": [
            _result_document(record, published=published, label=label(record.epoch))
            for record, published in reversed(results)
        ],
        "more": len(results) == NEWEST,
        "incidents": [incident_document(home, incident, at) for incident in incidents],
        "began": incident_origin(ledger, incidents[0], results) if incidents and incidents[0].is_open else None,
        "written": {"revision": stand.newest.revision, "at": at},
    }


def incident_document(home: Home, one: Incident, at: str) -> Document:
    """Return an incident as a JSON document, as pages and commands show it."""
    first, note, mute, label = one.first, one.acknowledgement, one.mute_at(at), home.schedule.format_label
    epochs = [label(epoch) for epoch in one.epochs]
    newest = one.open_failures[-1] if one.is_open else one.last
    return {
        "incident": one.identifier,
        "state": "closed" if not one.is_open else "muted" if mute else "acknowledged" if note else "open",
        "severity": one.severity,
        "suite": first.suite,
        "check": first.name,
        "opened_at": first.at,
        "revision": first.revision if first.published else None,
        "run": first.run_id,
        "epochs": epochs,
        "failures": len(one.failures),
        "observed": format_observed(newest.observed),
        "meaning": newest.meaning,
        "remedy": newest.remedy,
        "acknowledged": {"by": note.by, "because": note.because, "at": note.at} if note else None,
        "muted_until": mute.until if mute else None,
        "closed_at": None if one.is_open else one.last.ended,
        "closed_by": None if one.is_open else one.last.why,
        "report": f"epoch={epochs[-1]}.html" if epochs else None,
        "page": None if first.suite == "stages" else page_name((first.suite, first.name)),
    }


def incident_origin(ledger: Ledger, one: Incident, results: Sequence[tuple[CheckRecord, bool]]) -> Document:
    """Return when the check of an incident began to fail, and what that run had changed: kind, settings, batches."""
    first, label = one.first, ledger.home.schedule.format_label
    before = [record for record, _ in results if record.id < int(first.ident) and record.passed]
    run_id = first.run_id or ledger.revisions.get(first.revision).run_id
    run = ledger.runs.get(run_id)
    parent = ledger.revisions.get(run.parent)
    old = ledger.runs.get(parent.run_id).config if parent.revision else {}
    names = sorted({*old, *run.config}) if parent.revision else []
    settings = [
        {"setting": name, "before": _format_value(old.get(name)), "after": _format_value(run.config.get(name))}
        for name in names
        if old.get(name) != run.config.get(name)
    ]
    staged = sorted(ledger.outputs.staged_batches(run_id), key=lambda batch: (batch.epoch != first.epoch, -batch.epoch))
    wanted = batches.c.epoch.in_([batch.epoch for batch in staged[:BATCHES]])
    rows = ledger.database.read_rows(select_newest_landings(parent.revision, wanted))
    former = {row.epoch: row.rows for row in rows}
    return {
        "label": None if first.epoch is None else label(first.epoch),
        "at": first.at,
        "audit": first.run_id is None,
        "revision": first.revision,
        "published": first.published,
        "passed": {"revision": before[-1].revision, "label": label(before[-1].epoch), "at": before[-1].at}
        if before
        else None,
        "run": run_id,
        "kind": run.kind,
        "started_at": run.started_at,
        "settings": settings,
        "batches": [
            {"label": label(batch.epoch), "rows": batch.rows, "quarantined": batch.bad_rows,
             "before": former.get(batch.epoch)}
            for batch in staged[:BATCHES]
        ],
        "others": max(len(staged) - BATCHES, 0),
    }  # fmt: skip


def _format_value(value: Any) -> str:
    return "none" if value in (None, {}, []) else str(value)


def _newest_results(ledger: Ledger, key: Key) -> list[tuple[CheckRecord, bool]]:
    """Return the newest results of a check, the oldest first, each with whether it is about a published state."""
    published = (checks.c.run_id.is_(None) | ledger_rows.c.revision.is_not(None)).label("published")
    joined = checks.outerjoin(ledger_rows, ledger_rows.c.run_id == checks.c.run_id)
    mine = (checks.c.suite == key[0]) & (checks.c.name == key[1])
    statement = sa.select(*checks.c, published).select_from(joined).where(mine)
    rows = ledger.database.read_rows(statement.order_by(checks.c.id.desc()).limit(NEWEST))
    return [(CheckRecord.from_row(row), bool(row.published)) for row in reversed(rows)]


def _result_document(record: CheckRecord, *, published: bool, label: str) -> Document:
    return {
        "label": label,
        "revision": record.revision,
        "at": record.at,
        "passed": record.passed,
        "severity": record.severity,
        "observed": format_observed(record.observed),
        "published": published,
        "audit": record.run_id is None,
    }


# -- the chart over epochs ----------------------------------------------------------------------------------------


def _measure_of(key: Key) -> str:
    """Return what the chart shows: "rows", "growth", or "wrong" (the rows or differences that a result has found)."""
    if key == (volumes.SUITE, volumes.ROWS):
        return "rows"
    return "growth" if key[0] == volumes.SUITE and key[1] in volumes.GROWTH.values() else "wrong"


def count_wrong(record: CheckRecord) -> int:
    """Return how many rows or differences a result has found (`3 of 10 rows`), or 1 where it does not say so."""
    matched = re.match(r"([\d,]+) (of [\d,]+ row|difference)", record.observed)
    return 0 if record.passed else int(matched[1].replace(",", "")) if matched else 1


def _chart_points(
    home: Home, stand: EpochStatuses, key: Key, shown: list[CheckRecord], standing: set[int]
) -> list[Document]:
    """Return one point per epoch, with its present value, the usual values, and its newest result."""
    of = _measure_of(key)
    landed = [] if of == "wrong" else [(epoch, row.batch, row.sums) for epoch, row in stand.rows.items() if row.batch]
    place = {epoch: number for number, (epoch, _, _) in enumerate(landed)}
    numbers = [(epoch, batch.rows) for epoch, batch, _ in landed]
    measure = next((measure for measure, name in volumes.GROWTH.items() if name == key[1]), None)
    if of == "growth" and measure is not None:
        numbers = [(epoch, sums[measure]) for epoch, _, sums in landed]
    learned = (volumes.season_length(home.schedule.seconds), volumes.WIDTH[home.config.checks.sensitivity])
    points = []
    for record in shown:
        epoch = record.epoch
        value: float | None = count_wrong(record)
        low: float | None = 0
        high: float | None = 0
        if of != "wrong":
            value = low = high = None
            position = place.get(epoch)
            if position is not None and of == "rows":
                band = volumes.usual_rows(numbers[max(0, position - volumes.WINDOW) : position], epoch, *learned)
                value, (low, high) = numbers[position][1], band.row_bounds if band else (None, None)
            elif position:  # a growth needs an epoch before
                band = volumes.usual_growth(numbers[max(0, position - volumes.WINDOW - 1) : position], epoch, *learned)
                value = (1 + max(numbers[position][1], 0)) / (1 + max(numbers[position - 1][1], 0))
                low, high = (math.exp(band.low), math.exp(band.high)) if band else (None, None)
        failed = not record.passed and record.severity is not Severity.INFO
        points.append(
            {
                "label": home.schedule.format_label(epoch),
                "value": value,
                "low": low,
                "high": high,
                "failed": failed,
                "stands": epoch in standing,
            }
        )
    return points
