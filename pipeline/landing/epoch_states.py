"""The landing compared with the ledger: the state of every epoch that is landed or published.

`compare_with_ledger` shows what a run would take up, and `list_epoch_rows` what `altneu status` and the pages show.
`record_folded` reports the epochs that have landed before the history that a compaction has kept, so that no run can
take them up: each is a failed check, and so an incident, until its files are as they were, or until everything is read
again from the landing. Nothing here needs Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from altneu.expectations.model import Check

from ..home.home import Home
from ..state.epoch_status import AuditVerdict, EpochStatuses, list_epoch_statuses
from ..state.incidents import list_incidents
from ..state.ledger import Ledger
from ..state.records import Batch, Revision
from . import local_landing
from .local_landing import BatchFiles, Listing

SUITE, NAME = "landing", "what has landed can be published"
REMEDY = "altneu rebuild --from-landing   (computes everything again), or put the former files back"
_NONE: frozenset[str] = frozenset()
_MEANING = "What has landed for an epoch is published, unless a compaction has folded the history before it."


class EpochComparison(NamedTuple):
    """The state of one epoch in the landing and in the ledger.

    The states are missing, changed and published; gone (published, and its folder does not exist any more); folded (it
    has landed, or landed again, but a compaction has folded the history before `since`, so that no run can take it up);
    and incomplete (its folder is not a batch yet). `why` is the reason for the last two.
    """

    epoch: int
    label: str
    state: str
    digest: str | None = None
    files: int = 0
    revision: int | None = None
    rows: int = 0
    bytes: int = 0
    why: str | None = None
    relations: frozenset[str] = frozenset()  # those of which files have landed


def compare_with_ledger(ledger: Ledger) -> tuple[Revision, dict[int, EpochComparison]]:
    """Return the newest revision, and the state of every landed or published epoch."""
    parent, listing = ledger.revisions.get(), local_landing.read_landing(ledger)
    return parent, _compare(ledger.home, listing, parent, ledger.outputs.published_batches(parent.revision))


def _compare(
    home: Home, listing: Listing, parent: Revision, published: Mapping[int, Batch], epochs: Iterable[int] | None = None
) -> dict[int, EpochComparison]:
    """Return the state of some epochs (default: of each that is landed, or published up to a revision)."""
    landed, digests, _ = listing
    states = {}
    for epoch in sorted({*landed, *published} if epochs is None else epochs):
        batch, files, digest = published.get(epoch), landed.get(epoch), digests.get(epoch)
        state = _judge_landing(files, digest, batch, is_folded=parent.since is not None and epoch < parent.since)
        why = files.incomplete if files else None
        if state == "folded":
            assert parent.since is not None
            why = f"a compaction has folded the history before epoch {home.schedule.format_label(parent.since)}"
        states[epoch] = EpochComparison(
            epoch,
            home.schedule.format_label(epoch),
            state,
            digest,
            len(files.all_files) if files else 0,
            batch.revision if batch else None,
            batch.rows if batch else 0,
            files.bytes if files else 0,
            why,
            _relations_of(files) if files else _NONE,
        )
    return states


def _judge_landing(files: BatchFiles | None, digest: str | None, batch: Batch | None, *, is_folded: bool) -> str:
    """Return the state of an epoch by its landed files, their digest where they are complete, and its batch."""
    is_emptied = batch is not None and batch.digest == local_landing.EMPTY_DIGEST
    if files is None:
        return "published" if is_emptied else "gone"
    if files.incomplete is not None:
        return "published" if is_emptied and not files.all_files else "incomplete"
    if batch is not None and batch.digest == digest:
        return "published"
    if is_folded:
        return "folded"
    return "changed" if batch else "missing"


def _relations_of(files: BatchFiles) -> frozenset[str]:
    return frozenset(file.name.partition("/")[0] for file in files.relation_files) if files.relation_files else _NONE


IS_AUDIT_PASSED = {
    AuditVerdict.EQUAL: True,
    AuditVerdict.PROVED: True,
    AuditVerdict.DIFFERS: False,
    AuditVerdict.STALE: None,
}


def compare_statuses(ledger: Ledger) -> tuple[EpochStatuses, dict[int, EpochComparison]]:
    """Return the status of every epoch in the database, and the state of every landed or published epoch."""
    statuses = list_epoch_statuses(ledger, ledger.revisions.get())
    return statuses, _compare_with_statuses(ledger.home, local_landing.read_landing(ledger), statuses)


def _compare_with_statuses(home: Home, listing: Listing, statuses: EpochStatuses) -> dict[int, EpochComparison]:
    published = {epoch: row.batch for epoch, row in statuses.rows.items() if row.batch}
    return _compare(home, listing, statuses.newest, published)


def list_unpublished_epochs(home: Home, listing: Listing, statuses: EpochStatuses) -> dict[int, EpochComparison]:
    """Return the state of each epoch whose landed files are not those that are published."""
    published = {epoch: row.batch for epoch, row in statuses.rows.items() if row.batch}
    same = {epoch for epoch, batch in published.items() if listing.digests.get(epoch) == batch.digest}
    return _compare(home, listing, statuses.newest, published, {*listing.batches, *published} - same)


def list_epoch_rows(ledger: Ledger) -> tuple[Revision, list[dict[str, Any]]]:
    """Return the newest revision, and a row for every epoch, for `status` and the page in Airflow."""
    statuses, states = compare_statuses(ledger)
    return statuses.newest, describe_epochs(statuses, states)


def describe_epochs(statuses: EpochStatuses, states: Mapping[int, EpochComparison]) -> list[dict[str, Any]]:
    """Describe every epoch in a row.

    The states are those of `compare_with_ledger`, and running, failed and interrupted. A run that another one has
    overtaken is not shown: its epoch is as the other run left it.
    """
    rows = []
    for entry in states.values():
        open_ = entry.state in ("missing", "changed")
        attempt = statuses.newest_unresolved(entry.epoch) if open_ else None
        unready = entry.why if entry.state in ("incomplete", "folded") else None
        audit = statuses.status_of(entry.epoch).audit
        rows.append(
            {
                "epoch": entry.epoch,
                "label": entry.label,
                "state": attempt.state if attempt else entry.state,
                "files": entry.files,
                "rows": entry.rows,
                "revision": entry.revision,
                "audited": IS_AUDIT_PASSED[audit.verdict] if audit else None,
                "audit": audit.describe() if audit else None,
                "error": attempt.error if attempt else unready,
            }
        )
    return rows


def record_folded(ledger: Ledger) -> list[EpochComparison]:
    """Return the landed epochs that a compaction has folded.

    Each new one is recorded as a failed check, and each that is not folded any more as a passed one.
    """
    if ledger.revisions.get().since is None:
        return []
    parent, states = compare_with_ledger(ledger)
    folded = {entry.epoch: entry for entry in states.values() if entry.state == "folded"}
    failing = {
        failure.epoch
        for incident in list_incidents(ledger)
        for failure in incident.open_failures
        if (failure.suite, failure.name) == (SUITE, NAME) and failure.epoch is not None
    }
    new = [_build_check(epoch, str(entry.why), passed=False) for epoch, entry in folded.items() if epoch not in failing]
    over = [_build_check(epoch, "it is as it was published", passed=True) for epoch in sorted(failing - set(folded))]
    if new or over:
        ledger.checks.put(None, parent.revision, [*new, *over])
    return list(folded.values())


def describe_folded(epochs: Iterable[EpochComparison]) -> str:
    """Describe in one line which epochs a compaction has folded."""
    listed = list(epochs)
    shown = ", ".join(entry.label for entry in listed[:5]) + (" …" if len(listed) > 5 else "")
    return f"{len(listed):,} landed epoch(s) cannot be published ({shown}): {listed[0].why}"


def _build_check(epoch: int, observed: str, *, passed: bool) -> Check:
    return {
        "epoch": epoch,
        "suite": SUITE,
        "name": NAME,
        "severity": "warning",
        "passed": passed,
        "meaning": _MEANING,
        "remedy": REMEDY,
        "observed": observed,
        "rows": [],
    }
