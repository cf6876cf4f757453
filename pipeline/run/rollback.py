"""Taking revisions back: an old one is published again. SQL alone; nothing is computed."""

from __future__ import annotations

import contextlib

import sqlalchemy as sa

from algorithms.fingerprint import Fingerprint

from ..errors import LeaseLost, UsageError, explained
from ..home.directory import Home
from ..interrupt import asked
from ..report import refresh
from ..state import prints
from ..state.lease import held
from ..state.ledger import Ledger
from ..state.records import Revision, RunKind, RunState, StagedBatch, new_run_id


def rollback(home: Home, ledger: Ledger, revision: int) -> tuple[Revision, list[int]]:
    """Publish the state of an old revision as a new one; return it, and the epochs whose batches it takes back.
    Revision 0 is the empty state.

    The new ledger row pins the old one's tables, so nothing is computed and nothing is written but SQL. The landing is
    as it was: what it holds beyond that state shows as missing or changed again.
    """
    if revision < 0:
        raise UsageError(f"there is no revision {revision} to go back to.", "altneu status")
    parent, target = ledger.at(), ledger.at(revision)
    if revision == parent.revision or (parent.frontier is None and target.frontier is None):
        state = f"revision {revision}" if revision == parent.revision else f"empty, as of revision {revision}"
        raise UsageError(f"what is published is {state} already. Nothing was changed.", "altneu status")
    if not target.snapshots and target.frontier is not None:
        raise UsageError(
            f"revision {revision} cannot be read any more: a compaction kept only the newest ones.", "altneu status"
        )
    before, after = ledger.batches(parent.revision), ledger.batches(target.revision)
    epochs = [e for e in sorted({*before, *after}) if before.get(e) != after.get(e)]
    run_id = new_run_id()
    config = ledger.run(target.run_id).config if target.revision else home.config.semantic()
    ledger.begin(run_id, parent.revision, epochs, config, RunKind.ROLLBACK)
    with held(ledger, run_id):
        try:
            published = _publish_again(home, ledger, run_id, parent, target, epochs)
        except BaseException as error:
            state, why = (
                (RunState.INTERRUPTED, "interrupted during rollback")
                if asked(error)
                else (RunState.FAILED, explained(error)[0])
            )
            with contextlib.suppress(sa.exc.SQLAlchemyError, LeaseLost):
                ledger.finish(run_id, state, why)
            raise
    refresh(home, ledger, [epoch for epoch in epochs if epoch in after])
    return published, epochs


def _publish_again(
    home: Home, ledger: Ledger, run_id: str, parent: Revision, target: Revision, epochs: list[int]
) -> Revision:
    after = ledger.batches(target.revision)
    ledger.put_batches(run_id, [after[e].staged() if e in after else StagedBatch.taken_back(e) for e in epochs])
    sums: dict[tuple[str, int, int], int] = {}
    for measure, k, epoch, at, diff in ledger.total_diffs(parent.revision):
        if at > target.revision:
            sums[measure, k, epoch] = sums.get((measure, k, epoch), 0) - diff
    measures = {measure for measure, _, _ in sums}
    ledger.put_totals(run_id, measures, [(*key, diff) for key, diff in sums.items()])
    if steps := _fingerprints(ledger, parent, target):
        ledger.put_fingerprints(run_id, steps)
    return ledger.publish(
        run_id,
        parent.revision,
        target.frontier,
        target.snapshots,
        target.config_digest or home.config.digest(),
        target.mark,
        target.since,
        again=target,
    )


def _fingerprints(ledger: Ledger, parent: Revision, target: Revision) -> dict[str, dict[int, Fingerprint] | None]:
    """What makes the tables' fingerprints those of the target; of the empty state all are known."""
    known = ledger.fingerprints_at([parent.revision, target.revision])
    before = known[parent.revision]
    empty = target.frontier is None
    return prints.step(before, {table: {} for table in before} if empty else known[target.revision])
