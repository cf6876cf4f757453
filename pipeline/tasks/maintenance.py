"""Audits and maintenance as tasks: compare what is published with a recomputation and with the landing, and compact."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..errors import CheckFailed, UsageError
from ..home.schedule import sample_epochs
from ..state.epoch_status import list_epoch_statuses
from ..state.stage_results import stage_fields
from .base import MANY_CHECKS, PREFIX, Say, format_failures, ignore_message, open_ledger

if TYPE_CHECKING:
    from ..home.home import Home
    from ..state.records import Revision

RANGE = re.compile(r"(.+?)\s*(?:\.\.|…)\s*(.+)")  # 2004-04-15..2004-05-01


def named_epochs(home: Home, revision: Revision, known: list[int], named: Iterable[str | int]) -> list[int]:
    """Return the epochs that a person has listed: single epochs, or ranges of known ones.

    Args:
        revision: The revision that has to answer for the epochs.
        known: The epochs of which a range takes those inside.
        named: Epochs or ranges, such as 2004-04-15..2004-05-01.

    Raises:
        UsageError: An epoch is not final, is folded, or a range is empty.
    """
    wanted: set[int] = set()
    for text in (str(name).strip() for name in named):
        match = RANGE.fullmatch(text)
        low, high = (home.schedule.parse_epoch(end) for end in (match.groups() if match else (text, text)))
        inside = [epoch for epoch in known if low <= epoch <= high] if match else [low]
        if not inside:
            raise UsageError(f"no epoch is published in the range {text}.", "altneu status")
        if revision.frontier is None or inside[-1] > revision.frontier:
            raise UsageError(f"epoch {text} is after the frontier: its state is not final.", "altneu status")
        if not revision.knows_epoch(inside[0]):
            raise UsageError(f"epoch {text} is before what is kept: a compaction has folded it.", "altneu status")
        wanted.update(inside)
    return sorted(wanted)


def full_audit(
    path: str, how_many: int, seed: str, say: Say = ignore_message, named: Iterable[str | int] = ()
) -> dict[str, Any]:
    """Compare published epochs with a full recomputation, and every table with its fingerprints, and record the
    results.

    Args:
        path: The folder of the home.
        how_many: The number of epochs to draw, if none are named; 0 for all.
        seed: The seed of the draw.
        say: A function that gets lines for the log.
        named: Epochs or ranges.

    Raises:
        CheckFailed: Rows or tables differ; the message has them.
    """
    from ..checking import audit, fingerprint_check
    from ..observability import openlineage
    from ..report import refresh_pages
    from ..storage.session import session_for
    from ..storage.warehouse import Warehouse

    ledger = open_ledger(path)
    home = ledger.home
    revision, named = ledger.revisions.get(), list(named)
    known = audit.auditable_epochs(ledger, revision)
    if revision.frontier is None and not named:
        say("nothing is published yet")
        return {"epochs": 0, "checks": 0}
    epochs = named_epochs(home, revision, known, named) if named else sample_epochs(known, how_many, seed)
    drawn = "" if named else f" (seed {seed!r})"
    say(f"auditing {len(epochs)} epoch(s) at revision {revision.revision}{drawn}")
    warehouse = Warehouse(session_for(ledger), home)
    results = audit.audit_published(warehouse, revision, epochs, say)
    ledger.checks.put(None, revision.revision, results)
    openlineage.emit_audit(ledger, results)
    failed = [result for result in results if not result["passed"]]
    refresh_pages(ledger, {result["epoch"] for result in failed})
    if failed:
        raise CheckFailed(
            f"{len({result['epoch'] for result in failed})} of {len(epochs)} audited epochs differ from "
            f"the full "
            f"recomputation at revision {revision.revision}:\n" + format_failures(home, failed),
            f"altneu report {home.schedule.format_label(min(result['epoch'] for result in failed))}",
        )
    say(f"{len(epochs)} epoch(s), {len(results)} checks: all equal to a full recomputation")
    done = {"epochs": len(epochs), "checks": len(results), "revision": revision.revision}
    recorded = ledger.outputs.fingerprints_of(revision.revision)
    if not recorded:  # an earlier version has published it: the next run records fingerprints
        return done
    comparison = fingerprint_check.compare_fingerprints(warehouse, revision, recorded)
    if comparison.differences:
        for difference in comparison.differences:
            say(difference.describe(home.schedule.format_label(difference.epoch)))
        raise comparison.to_error()
    say(f"{len(comparison.compared)} tables hold what was published, at every epoch")
    return {**done, "tables": len(comparison.compared)}


def check_relanded(path: str, say: Say = ignore_message, prefix: str = PREFIX) -> dict[str, Any]:
    """Raise `CheckFailed` if published epochs have landed again and the new batch is not published.

    The error names these epochs. It is raised for landed epochs that a compaction has folded, too.
    """

    ledger = open_ledger(path)
    from ..landing import epoch_states
    from ..landing.epoch_states import REMEDY, describe_folded, record_folded

    _, rows = epoch_states.list_epoch_rows(ledger)
    changed = [row["label"] for row in rows if row["revision"] and row["state"] in ("changed", "failed")]
    folded = record_folded(ledger)
    if folded and not changed:
        raise CheckFailed(f"{describe_folded(folded)}.", REMEDY)
    if changed:
        if folded:
            say(f"{describe_folded(folded)}\nnext: {REMEDY}")
        raise CheckFailed(
            f"{len(changed)} published epoch(s) have landed again, and the new batch is not published: "
            f"{', '.join(changed[:MANY_CHECKS])}{' …' if len(changed) > MANY_CHECKS else ''}.",
            f"trigger {prefix}_backfill (first {changed[0]}, last {changed[-1]}), or: "
            f"altneu backfill {changed[0]} {changed[-1]}",
        )
    say(f"{len(rows)} epochs: what is published is what is landed")
    return {"epochs": len(rows)}


def list_corrected(path: str) -> dict[str, str]:
    """Return the digests by label of the published epochs that have landed again.

    Epochs whose run has failed or is running are left out.
    """
    ledger = open_ledger(path, writes=False)
    from ..landing import epoch_states

    revision, states = epoch_states.compare_with_ledger(ledger)
    statuses = list_epoch_statuses(ledger, revision)
    changed = (
        entry
        for entry in states.values()
        if entry.state == "changed" and statuses.newest_unresolved(entry.epoch) is None
    )
    return {entry.label: str(entry.digest) for entry in changed}


def compact_home(path: str, grace_hours: float, say: Say = ignore_message) -> dict[str, Any]:
    """Compact the home, as `altneu compact` does, and return the facts without the sizes.

    It does nothing before anything is published.
    """
    from rich.filesize import decimal

    from ..maintenance.compact import compact
    from ..storage.session import session_for

    ledger = open_ledger(path)
    if ledger.revisions.get().frontier is None:
        say("nothing is published yet")
        return {"revisions": []}
    facts = compact(ledger, session_for(ledger), grace_hours * 3600, say)
    files, size = (
        tuple(sum(getattr(table, unit) for table in tables.values()) for tables in (facts.before, facts.tables))
        for unit in ("files", "bytes")
    )
    say(f"{files[0]:,} files became {files[1]:,}, {decimal(size[0])} {decimal(size[1])}")
    return {name: value for name, value in stage_fields(facts).items() if name not in ("before", "tables")}
