"""The truss checkpoint: each edge with its trussness and its certificate, stored for the next run.

A checkpoint is used where no task can hold the graph, or where tasks do not see the home's folder. After a peel in
partitions it is built by the same partitions, in about half of their time. A task that has peeled the graph writes its
own state as the checkpoint. Where trussness is maintained by region, the checkpoint changes with it. Its table is in
`storage.truss_checkpoint_table`.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from altneu.algorithms.graph import truss_bsp
from altneu.algorithms.graph.bsp import RoundStore
from altneu.algorithms.graph.kernels.level_sorted_graph import LABEL_GAP
from altneu.algorithms.graph.proof_records import COLLECTIONS
from altneu.algorithms.graph.proof_records import ProvedState as Counted
from altneu.algorithms.graph.truss_local_update import sum_state
from altneu.algorithms.graph.truss_plan import CheckpointChange, TrussCheckpoint

from ...home import memory_budget
from ...state.fingerprint_sums import RunningFingerprint
from ...state.stage_results import SavedCheckpoint
from ...state.totals import sum_totals, totals_at
from ...storage import graph_cache, truss_checkpoint_table
from ...storage.table_schemas import CERTIFICATES
from ..run_context import RunContext
from .proof_verification import is_known, published_counts

WORN = 2  # with more rows than this number times the edges, the table is written again


def parent_checkpoint(run: RunContext) -> SavedCheckpoint | None:
    """Return the place of the parent's truss checkpoint, or None where this run writes all edges again."""
    return graph_cache.saved_checkpoint(run.ledger, run.parent) if run.appends_to("edges") else None


def read_parent_checkpoint(run: RunContext) -> TrussCheckpoint | None:
    """Return the truss checkpoint of the parent revision, or None where it or one of its files is missing."""
    return truss_checkpoint_table.read_checkpoint(run.warehouse, parent_checkpoint(run))


def published_graph_counts(run: RunContext, at: int) -> Counted | None:
    """Return the fingerprints and counts of the published graph at an epoch, or None where not all are known."""
    known = run.known_fingerprints_since(at + 1)
    if not is_known(known):
        return None
    return Counted(
        {table: RunningFingerprint(known[table]).advance_to(at) for table in COLLECTIONS}, published_counts(run, at)
    )


def create_checkpoint(run: RunContext, place: RoundStore) -> SavedCheckpoint | None:
    """Create a checkpoint from the trussness at the frontier; EXECUTES.

    Return None where there are no edges, or where the trussness is wrong, which is reported as progress.
    """
    size = memory_budget.max_partition_edges(run.home.config)
    now = run.read_after("trussness").where(F.col("epoch") <= run.frontier).groupBy("a", "b", "k")
    edges = now.agg(F.sum("diff").alias("diff")).where("diff <> 0").select("a", "b", "k").persist()
    try:
        count = edges.count()
        if not count:
            return None
        run.say(f"building the truss checkpoint of {count:,} edges")
        rows = truss_bsp.build_checkpoint(edges, count, size, place, run.say)
    except ValueError as error:
        run.say(f"{error}: no truss checkpoint is written for the next run")
        return None
    finally:
        edges.unpersist()
    bounds = rows.agg(F.min("label").alias("front"), F.max("label").alias("back")).collect()[0]
    ends = bounds.front - LABEL_GAP, bounds.back + LABEL_GAP
    return _write_checkpoint(run, None, rows.withColumn("diff", F.lit(1).cast("bigint")), ends)


def save_checkpoint(run: RunContext, change: CheckpointChange) -> SavedCheckpoint:
    """Write the change of the parent's checkpoint, or a whole checkpoint, and return its place."""
    if change.anew:
        return _write_checkpoint(run, None, change.rows, change.ends)
    base, rows = parent_checkpoint(run), change.rows
    assert base is not None
    stored = run.warehouse.snapshot_size(CERTIFICATES, base.snapshot).rows
    diffs = run.total_diffs(run.frontier)
    edges = totals_at(sum_totals(diffs, run.frontier), [run.frontier])[run.frontier]["edges"]
    if stored > WORN * edges:
        old = truss_checkpoint_table.read_checkpoint(run.warehouse, base)
        assert old is not None
        rows, base = sum_state(old.rows.unionByName(rows)), None
    return _write_checkpoint(run, base, rows, change.ends)


def _write_checkpoint(
    run: RunContext, base: SavedCheckpoint | None, rows: DataFrame, ends: tuple[int, int]
) -> SavedCheckpoint:
    snapshot = truss_checkpoint_table.append_checkpoint(run.warehouse, run.run_id, base, rows)
    truss_checkpoint_table.drop_other_checkpoints(
        run.warehouse, run.ledger, run.run_id, graph_cache.producing_run(run.ledger, run.parent)
    )
    return SavedCheckpoint(snapshot=snapshot, at=run.frontier, front=ends[0], back=ends[1])
