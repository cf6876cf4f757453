"""The epochs that a revision has changed, with their totals before and after, from the SQL database alone.

An epoch has changed when the graph at it has changed: when a fingerprint of its edges, degrees, triangle counts,
trussness or motif counts differs from that of the revision before. Where the fingerprints are not known (in a home of
an earlier version), every epoch from the first one of the run on counts as changed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from ..state.fingerprint_sums import RunningFingerprint, subtract_fingerprints
from ..state.ledger import Ledger
from ..state.records import Revision, RunKind, is_landed
from ..state.totals import MEASURES, sum_totals, totals_at

Totals = dict[str, int]


class EpochChangeKind(StrEnum):
    """The kinds of changes of an epoch."""

    NEW = "new"  # the epoch had no batch before
    CORRECTED = "corrected"  # its batch was replaced, and the graph at the epoch has changed
    RESTATED = "restated"  # the batch of an earlier epoch, or the settings, have changed the graph at the epoch
    REMOVED = "removed"  # its batch was removed
    ROLLED_BACK = "rolled back"


@dataclass(frozen=True)
class EpochChange:
    """The change of one epoch, with its totals (`MEASURES`) before and after; None where it was not published."""

    epoch: int
    label: str
    kind: EpochChangeKind
    before: Totals | None
    after: Totals | None


def changed_epochs(ledger: Ledger, revision: int) -> list[EpochChange]:
    """Return the epochs with a batch that a revision has changed, in order.

    Raises:
        AltneuError: There is no such revision.
    """
    row, parent = ledger.revisions.get(revision), ledger.revisions.get(revision - 1)
    run = ledger.runs.get(row.run_id)
    old, new = ledger.outputs.published_batches(parent.revision), ledger.outputs.published_batches(revision)
    both = sorted({*old, *new})
    moved = _epochs_with_changed_graph(ledger, parent, row, both, run.epochs)
    kinds = {
        epoch: kind for epoch in both if (kind := _classify_change(epoch, old, new, moved, run.epochs)) is not None
    }
    if run.kind is RunKind.ROLLBACK:
        kinds = dict.fromkeys(kinds, EpochChangeKind.ROLLED_BACK)
    before, after = _epoch_totals(ledger, parent, kinds, old), _epoch_totals(ledger, row, kinds, new)
    return [
        EpochChange(epoch, ledger.home.schedule.format_label(epoch), kind, before.get(epoch), after.get(epoch))
        for epoch, kind in kinds.items()
    ]


def changed_since(ledger: Ledger, since: int, revision: int) -> list[EpochChange]:
    """Return the epochs that the revisions after `since` up to `revision` have changed, in order, each once.

    An epoch has its totals before the first of these revisions and after the last one, and the kind of its last change.

    Raises:
        AltneuError: There is no such revision.
    """
    changes_by_epoch: dict[int, EpochChange] = {}
    for number in range(since + 1, revision + 1):
        for change in changed_epochs(ledger, number):
            before = changes_by_epoch[change.epoch].before if change.epoch in changes_by_epoch else change.before
            changes = change.kind in (EpochChangeKind.CORRECTED, EpochChangeKind.RESTATED)
            kind = EpochChangeKind.NEW if changes and before is None else change.kind
            changes_by_epoch[change.epoch] = replace(change, kind=kind, before=before)
    return [changes_by_epoch[epoch] for epoch in sorted(changes_by_epoch)]


def _classify_change(
    epoch: int, old: Collection[int], new: Collection[int], moved: Collection[int], run: Collection[int]
) -> EpochChangeKind | None:
    if epoch not in old:
        return EpochChangeKind.NEW
    if epoch not in new:
        return EpochChangeKind.REMOVED
    if epoch not in moved:
        return None
    return EpochChangeKind.CORRECTED if epoch in run else EpochChangeKind.RESTATED


def _epochs_with_changed_graph(
    ledger: Ledger, parent: Revision, row: Revision, epochs: list[int], run: Collection[int]
) -> set[int]:
    """Return the epochs at which the graphs of two consecutive revisions differ."""
    known = ledger.outputs.fingerprints_at([parent.revision, row.revision])
    before, after = known[parent.revision], known[row.revision]
    tables = {table for table in row.collections if not is_landed(table)}
    first = parent.frontier is None
    if not tables <= {*after} or not (first or tables <= {*before}):
        start = min(run, default=None)
        return {epoch for epoch in epochs if start is None or epoch >= start}
    tables = {table for table in (*before, *after) if not is_landed(table)}
    apart = [RunningFingerprint(subtract_fingerprints(after[table], before.get(table, {}))) for table in tables]
    return {epoch for epoch in epochs if any(each.advance_to(epoch) for each in apart)}


def _epoch_totals(
    ledger: Ledger, row: Revision, epochs: Collection[int], published: Collection[int]
) -> dict[int, Totals]:
    if row.frontier is None:
        return {}
    wanted = sorted(epoch for epoch in epochs if epoch in published)
    points: Any = totals_at(sum_totals(ledger.outputs.total_diffs(row.revision), row.frontier), wanted)
    return {epoch: {name: points[epoch][name] for name in MEASURES} for epoch in wanted}
