"""A rollback publishes an old revision again, as a new one.

It is done in SQL alone and computes nothing, unless the old revision shares its tables with later ones, after a
compaction or because it is not among the newest revisions. In that case its rows are written again, so that the
tables hold exactly what is published for every reader.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING

from altneu.algorithms.fingerprint import Fingerprint

from ..errors import UsageError, describe_error
from ..home.queries import Definitions, recorded_queries
from ..observability import openlineage
from ..report import refresh_pages
from ..run import change_log
from ..run.run_session import RunSession
from ..run.semantic_settings import changed_values
from ..state import fingerprint_sums
from ..state.ledger import Ledger
from ..state.records import SERVING_TABLES, Revision, RunKind, StagedBatch
from ..state.revisions import exact_revisions
from ..storage.refs_without_spark import open_branches

if TYPE_CHECKING:
    from ..storage.warehouse import Warehouse


def roll_back(
    ledger: Ledger, revision: int, say: Callable[[str], None] = lambda text: None
) -> tuple[Revision, list[int]]:
    """Publish the state of an old revision as a new one.

    The new revision pins the tables of the old one, or its rows written again. The landing does not change: batches
    that differ from the published state are shown as missing or changed again.

    Args:
        ledger: The ledger of the home.
        revision: The revision to publish again; 0 is the empty state.
        say: A function that takes lines about the progress.

    Returns:
        The new revision, and the epochs whose batches differ from those that were published before.

    Raises:
        UsageError: The revision does not exist, is published already, or cannot be read any more.
    """
    home = ledger.home
    if revision < 0:
        raise UsageError(f"there is no revision {revision} to roll back to.", "altneu status")
    parent, target = ledger.revisions.get(), ledger.revisions.get(revision)
    if revision == parent.revision or (parent.frontier is None and target.frontier is None):
        state = f"revision {revision}" if revision == parent.revision else f"empty, as revision {revision} is"
        raise UsageError(f"the published state is already {state}. Nothing was changed.", "altneu status")
    if not target.snapshots and target.frontier is not None:
        raise UsageError(
            f"revision {revision} cannot be read any more: a compaction kept only the newest ones.", "altneu status"
        )
    before, after = ledger.outputs.published_batches(parent.revision), ledger.outputs.published_batches(target.revision)
    epochs = [e for e in sorted({*before, *after}) if before.get(e) != after.get(e)]
    config = ledger.runs.get(target.run_id).config if target.revision else home.config.semantic_settings()
    with RunSession.begin_run(ledger, parent.revision, RunKind.ROLLBACK, epochs=epochs, config=config) as session:
        run_id, pins = session.run_id, target.snapshots
        if target.revision and target.revision not in exact_revisions(ledger.revisions.list_all()):
            say(f"revision {revision} shares its tables with later ones: writing its rows again")
            pins = rewrite_revision(ledger, run_id, target)
        published = _republish(ledger, run_id, parent, target, pins, epochs)
        if lacking := [table for table in home.config.publish.serving_tables if table not in pins and pins]:
            say(f"these tables are empty until the next run or altneu rebuild: {', '.join(lacking)}")
        try:
            open_branches(home).update_refs(ledger, run_id)
            ledger.runs.forget_branches([run_id])
            change_log.try_to_follow(ledger, lambda: _open_warehouse(ledger), say)
        except Exception as error:  # the revision is published; the next writer updates the tags and branches
            say(f"the next run, or altneu doctor, updates the tags in the tables ({describe_error(error)[0]})")
    openlineage.emit_run(ledger, run_id)
    refresh_pages(ledger, [epoch for epoch in epochs if epoch in after])
    return published, epochs


def _open_warehouse(ledger: Ledger, queries: Definitions = MappingProxyType({})) -> Warehouse:
    from ..storage.session import session_for
    from ..storage.warehouse import Warehouse

    return Warehouse(session_for(ledger), ledger.home, queries)


def rewrite_revision(ledger: Ledger, run_id: str, target: Revision) -> dict[str, int]:
    """Write the rows that a revision sees on a branch of the run, and verify them.

    Args:
        ledger: The ledger of the home.
        run_id: The run of the rollback.
        target: The revision that shares its tables with later ones.

    Returns:
        The new snapshot of each table.

    Raises:
        UsageError: The settings lack value columns that are stored.
        CheckFailed: The written rows do not have the fingerprints of the revision.
    """
    from ..run import serving_tables
    from . import compaction_verification
    from .compact import sort_into_files

    if words := changed_values(ledger):
        raise UsageError(
            f"the value columns in {ledger.home.path / 'altneu.toml'} differ from those that are stored: "
            f"{'; '.join(words)}. "
            f"Revision {target.revision} shares its tables with later ones, and writing them again would lose columns.",
            "restore the value columns, and repeat the command",
        )
    warehouse = _open_warehouse(ledger, recorded_queries(ledger.runs.get(target.run_id).config))
    with warehouse.size_plans(target):
        pins = {}
        for table, snapshot in target.snapshots.items():
            if table not in SERVING_TABLES:
                rows = warehouse.read_table(table, target)
            elif target.config_digest == ledger.home.config.semantic_digest():
                rows = serving_tables.serving_rows(
                    table, lambda name: warehouse.read_table(name, target), ledger, target
                )
            else:  # the settings have changed, so that the next run restates history and writes the table
                continue
            pins[table] = warehouse.rewrite_on_branch(
                table, run_id, snapshot, sort_into_files(table, rows, warehouse.snapshot_size(table, snapshot))
            )
        compaction_verification.verify_compaction(
            ledger,
            warehouse,
            row=target,
            pins=pins,
            since=target.since,
            revisions=[target.revision],
            live_for=ledger.runs.get(target.run_id).config.get("live_for"),
        )
    return pins


def _republish(
    ledger: Ledger, run_id: str, parent: Revision, target: Revision, pins: dict[str, int], epochs: list[int]
) -> Revision:
    after = ledger.outputs.published_batches(target.revision)
    ledger.outputs.put_batches(
        run_id, [after[e].to_staged() if e in after else StagedBatch.for_removed_epoch(e) for e in epochs]
    )
    sums: dict[tuple[str, int, int], int] = {}
    for measure, k, epoch, revision, diff in ledger.outputs.total_diffs(parent.revision):
        if revision > target.revision:
            sums[measure, k, epoch] = sums.get((measure, k, epoch), 0) - diff
    measures = {measure for measure, _, _ in sums}
    ledger.outputs.put_totals(run_id, measures, [(*key, diff) for key, diff in sums.items()])
    if steps := _restored_fingerprints(ledger, parent, target):
        ledger.outputs.put_fingerprints(run_id, steps)
    return ledger.publish_revision(
        run_id,
        parent.revision,
        frontier=target.frontier,
        snapshots=pins,
        digest=target.config_digest or ledger.home.config.semantic_digest(),
        mark=target.mark,
        since=target.since,
        again=target,
    )


def _restored_fingerprints(
    ledger: Ledger, parent: Revision, target: Revision
) -> dict[str, dict[int, Fingerprint] | None]:
    """Return the differences that turn the parent's fingerprints into the target's; the empty state has none."""
    known = ledger.outputs.fingerprints_at([parent.revision, target.revision])
    before = known[parent.revision]
    empty = target.frontier is None
    return fingerprint_sums.staged_difference(
        before, {table: {} for table in before} if empty else known[target.revision]
    )
