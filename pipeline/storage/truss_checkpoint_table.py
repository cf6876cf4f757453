"""The truss checkpoint: the state from which a run continues whose graph is too large for one task.

It is a cache, like the graph cache, in a table of its own, whose name begins like those of rounds: no reader knows it
(see `altneu.algorithms.graph.truss_local_update`). A run appends its changes to a branch of its own, which starts at
the snapshot of the run on which it builds, or is new. The facts of its truss stage name the snapshot that it has left.
So a checkpoint of a run that failed or counted as dead is never read. Without the snapshot or one of its files, and
after a rebuild, runs work by partitions, more slowly. The checkpoints of the newest two runs are kept. `altneu move`
copies the table with the home, if it is complete.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from altneu.algorithms.graph.truss_local_update import sum_state
from altneu.algorithms.graph.truss_plan import TrussCheckpoint

from ..state.ledger import Ledger
from ..state.stage_results import SavedCheckpoint
from . import file_inventory, iceberg
from .branches import branch_of
from .table_schemas import CERTIFICATES
from .warehouse import Warehouse


def read_checkpoint(warehouse: Warehouse, certified: SavedCheckpoint | None) -> TrussCheckpoint | None:
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
    return TrussCheckpoint(rows, certified.at, (certified.front, certified.back))


def read_labels(warehouse: Warehouse, certified: SavedCheckpoint | None) -> dict[int, DataFrame]:
    """Return the edge order that proves the trussness of the checkpoint's epoch: epoch → (a, b, label). It may be
    empty."""
    state = read_checkpoint(warehouse, certified)
    return {} if state is None else {state.epoch: sum_state(state.rows)}


def append_checkpoint(warehouse: Warehouse, run_id: str, base: SavedCheckpoint | None, rows: DataFrame) -> int:
    """Append the rows of a run to the checkpoint `base`, or begin a new one. Return the snapshot."""
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
    """Drop the checkpoints of runs that are over, except those of `run_ids`. The table has to exist."""
    kept = {"main", *(branch_of(run_id) for run_id in (*run_ids, *ledger.runs.list_active()))}

    def drop_branches(metadata: iceberg.IcebergTable) -> None:
        metadata.commit_steps([("removeBranch", name) for name in sorted(metadata.ref_snapshots()) if name not in kept])

    def expire_snapshots(metadata: iceberg.IcebergTable) -> None:
        held = set(metadata.ref_snapshots().values())
        if gone := metadata.snapshot_ids() - held - {metadata.first_snapshot()}:
            metadata.expire_snapshots(gone)

    warehouse.commit_change(CERTIFICATES, drop_branches)
    warehouse.commit_change(CERTIFICATES, expire_snapshots)
