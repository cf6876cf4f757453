"""The state from which a run goes on whose graph no task can hold (`algorithms.truss_local_update`): a cache, as `kept`
is.

It lies in a table of its own beside the home's, whose name begins as those of rounds do: no reader knows it. A run
appends what it changes to a branch of its own, made from the snapshot of the run that it builds on, or begins anew; the
facts of its truss stage say which snapshot it has left. So what a run has left that failed, or that was taken for dead,
is never read. Without the snapshot or one of its files, or after a rebuild, everything works in parts, more slowly. The
newest two runs' are kept. A home that is moved takes it along, if it is whole.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from algorithms.truss_local_update import RegionState, sum_state

from ..state.ledger import Ledger
from ..state.stage_results import SavedCheckpoint
from . import file_inventory, iceberg
from .branches import branch_of
from .table_schemas import CERTIFICATES
from .warehouse import Warehouse


def read_checkpoint(warehouse: Warehouse, certified: SavedCheckpoint | None) -> RegionState | None:
    """Return the stored checkpoint, or None where there is none or its files are gone."""
    if certified is None or CERTIFICATES not in warehouse.round_table_names():
        return None
    table = _find_table(warehouse)
    if (
        table is None
        or certified.snapshot not in table.snapshot_ids()
        or file_inventory.is_missing_files(table, {certified.snapshot})
    ):
        return None
    rows = warehouse.read_snapshot(CERTIFICATES, certified.snapshot)
    return RegionState(rows, certified.at, (certified.front, certified.back))


def read_labels(warehouse: Warehouse, certified: SavedCheckpoint | None) -> dict[int, DataFrame]:
    """Epoch → a, b, label: the order by which that epoch's trussness can be proved; none, if there is none."""
    state = read_checkpoint(warehouse, certified)
    return {} if state is None else {state.at: sum_state(state.rows)}


def append_checkpoint(warehouse: Warehouse, run_id: str, base: SavedCheckpoint | None, rows: DataFrame) -> int:
    """Append a run's rows to what it builds on, or begin anew; the snapshot."""
    if base is not None:
        return warehouse.write_to_branch(CERTIFICATES, run_id, base.snapshot, rows)
    if CERTIFICATES in warehouse.round_table_names():
        table = _find_table(warehouse)
        if table is None or file_inventory.is_missing_files(table, table.snapshot_ids()):
            warehouse.drop_table(CERTIFICATES, damaged=True)
    warehouse.create_table(CERTIFICATES, warehouse.columns_ddl(CERTIFICATES))
    warehouse.commit_change(
        CERTIFICATES, lambda metadata: metadata.commit_first_snapshot() if metadata.main_snapshot() is None else None
    )
    return warehouse.write_to_branch(CERTIFICATES, run_id, warehouse.first_snapshot(CERTIFICATES), rows)


def _find_table(warehouse: Warehouse) -> iceberg.IcebergTable | None:
    """Load the checkpoint table from the catalog. Return None where its metadata file is lost."""
    try:
        return warehouse.load_metadata(CERTIFICATES)
    except iceberg.MetadataLost:
        return None


def drop_other_checkpoints(warehouse: Warehouse, ledger: Ledger, *run_ids: str) -> None:
    """Drop what other runs have left that are over, from the table, which is there."""
    kept = {"main", *(branch_of(run_id) for run_id in (*run_ids, *ledger.list_active_runs()))}

    def drop_branches(metadata: iceberg.IcebergTable) -> None:
        metadata.commit_steps([("removeBranch", name) for name in sorted(metadata.ref_snapshots()) if name not in kept])

    def expire_snapshots(metadata: iceberg.IcebergTable) -> None:
        held = set(metadata.ref_snapshots().values())
        if gone := metadata.snapshot_ids() - held - {metadata.first_snapshot()}:
            metadata.expire_snapshots(gone)

    warehouse.commit_change(CERTIFICATES, drop_branches)
    warehouse.commit_change(CERTIFICATES, expire_snapshots)
