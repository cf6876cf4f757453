"""The landing compared with the ledger: every epoch that is landed or published, and how the one stands to the other.

What a run would take up (`compare_with_ledger`), and what `altneu status` and the pages show of it (`list_epoch_rows`).
Without Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..home.home import Home
from ..state.epoch_status import AuditVerdict, list_epoch_statuses
from ..state.ledger import Ledger
from ..state.records import Revision
from . import local_landing


@dataclass(frozen=True)
class EpochState:
    """One epoch as the landing and the ledger have it.

    States: missing, changed, published; gone (published, and its folder is not there any more); folded (it has landed,
    or landed again, but a compaction has folded the history before `since`, so that no run can take it up); incomplete
    (its folder is no batch yet). `why` says it of the last two.
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


def compare_with_ledger(home: Home, ledger: Ledger) -> tuple[Revision, dict[int, EpochState]]:
    """Every landed or published epoch with its state."""
    parent = ledger.get_revision()
    landed = local_landing.list_batches(home)
    digests = local_landing.digest_batches(ledger, [there for there in landed.values() if there.incomplete is None])
    published = ledger.published_batches(parent.revision)
    found = {}
    for epoch in sorted(set(landed) | set(published)):
        batch, there = published.get(epoch), landed.get(epoch)
        if there is None:
            state = "published" if batch and batch.digest == local_landing.EMPTY_DIGEST else "gone"
        elif there.incomplete is not None:
            emptied = not there.files and batch is not None and batch.digest == local_landing.EMPTY_DIGEST
            state = "published" if emptied else "incomplete"
        elif batch is not None and batch.digest == digests[epoch]:
            state = "published"
        elif parent.since is not None and epoch < parent.since:
            state = "folded"
        else:
            state = "changed" if batch else "missing"
        why = there.incomplete if there else None
        if state == "folded":
            assert parent.since is not None
            why = f"a compaction has folded the history before epoch {home.schedule.format_label(parent.since)}"
        found[epoch] = EpochState(
            epoch,
            home.schedule.format_label(epoch),
            state,
            digests.get(epoch),
            len(there.files) if there else 0,
            batch.revision if batch else None,
            batch.rows if batch else 0,
            there.bytes if there else 0,
            why,
        )
    return parent, found


AUDITED = {AuditVerdict.EQUAL: True, AuditVerdict.PROVED: True, AuditVerdict.DIFFERS: False, AuditVerdict.STALE: None}


def list_epoch_rows(home: Home, ledger: Ledger) -> tuple[Revision, list[dict[str, Any]]]:
    """Every epoch for `status` and the page in Airflow: the states of `compare_with_ledger`, and running, failed and
    interrupted. A run that another one overtook is not shown: its epoch is as the other left it."""
    parent, found = compare_with_ledger(home, ledger)
    stand = list_epoch_statuses(ledger, parent)
    rows = []
    for entry in found.values():
        open_ = entry.state in ("missing", "changed")
        said = stand.newest_unresolved(entry.epoch) if open_ else None
        unready = entry.why if entry.state in ("incomplete", "folded") else None
        audit = stand.status_of(entry.epoch).audit
        rows.append(
            {
                "epoch": entry.epoch,
                "label": entry.label,
                "state": said.state if said else entry.state,
                "files": entry.files,
                "rows": entry.rows,
                "revision": entry.revision,
                "audited": AUDITED[audit.verdict] if audit else None,
                "audit": audit.describe() if audit else None,
                "error": said.error if said else unready,
            }
        )
    return parent, rows
