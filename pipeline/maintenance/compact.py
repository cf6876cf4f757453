"""Compaction merges old revisions and small files, so that fewer rows and files give the same answers (law 9).

`[retention]` sets two frontiers of time: revisions before the oldest kept one become that one, and epochs before
`since` become `since`. Then equal rows are summed, and rows whose sum is zero are dropped. The revisions that expire
are reported, and to ask for one of them is an error.

Every table is rewritten next to the old one, sorted by its key, and must have the same fingerprints
(`compaction_verification`). Then one SQL transaction lets the kept revisions read the new table, so that a reader sees
either the old or the new one as a whole. Revisions from before a rollback or a rebuild keep their snapshots. What
nobody can read any more is removed once it has been out of use for the grace period, so that active readers and runs
are not disturbed. A run that builds on the old snapshots is still right, and the next compaction includes its rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from altneu.algorithms.algebra.upserts import DELETE, winning_upserts
from altneu.algorithms.sql_text import quote_identifier

from ..errors import UsageError
from ..home.queries import is_query_table, is_relation_rows, recorded_queries
from ..landing.epoch_states import record_folded
from ..report import refresh_pages
from ..run import approval, serving_tables
from ..run.run_session import RunSession
from ..run.semantic_settings import changed_values
from ..state.ledger import Ledger
from ..state.records import OPEN_STATES, SERVING_TABLES, Revision, RunKind, RunState
from ..state.stage_results import CompactFacts, Size
from ..storage import bsp_round_tables, file_tiers, graph_cache
from ..storage.branches import GRACE
from ..storage.horizons import Horizon, next_horizon, split_at_horizon
from ..storage.table_schemas import INTERVALS, TIME, query_columns, query_inputs
from ..storage.warehouse import Warehouse, visible_rows
from . import compaction_verification

Say = Callable[[str], None]

FILE_BYTES = 128 * 2**20  # a table is cut into files of about this size
SPLIT_ROWS = 10_000  # a table of fewer rows is one file: reading them takes no longer than opening another
KEYS = {
    "upserts": ["src", "dst"],
    "quarantine": ["epoch"],
    "names": ["id"],
    "edges": ["a", "b"],
    "degrees": ["vertex"],
    "triangle_counts": ["vertex"],
    "trussness": ["a", "b"],
    "arcs": ["src", "dst"],
    "vertices": ["vertex"],
    "motif_edges": ["relation", "a", "b"],
    "motif_counts": ["motif", "vertex"],
    "vertex_history": ["vertex"],
    "edge_now": ["src", "dst"],
    "epoch_totals": ["epoch"],
}


def fold_rows(table: str, rows: DataFrame, since: int | None, oldest: int, live_for: int | None = None) -> DataFrame:
    """Fold a table's rows into fewer rows that give equal answers at every epoch >= `since` and revision >= `oldest`.

    The epochs of upserts do not change, because a window counts from the epoch of the upsert. Of the upserts before
    `since`, each key keeps the one that is in force at `since`. A key that has an upsert before `since` which was
    published after `oldest` keeps all its upserts.

    Args:
        table: The name of the table.
        rows: Its stored rows.
        since: The epoch before which history is folded; None keeps all epochs.
        oldest: The revision before which history is folded.
        live_for: For how many epochs an upsert makes an edge; None without a window.

    Returns:
        The folded rows, with the columns of `rows`.
    """
    data = [column for column in rows.columns if column not in ("revision", "diff")]
    revision = F.greatest("revision", F.lit(oldest).cast("bigint"))
    if since is None or table in ("names", "quarantine") or is_relation_rows(table):  # their epochs stay
        return _sum_diffs(rows.withColumn("revision", revision), data)
    begin = F.lit(since).cast("bigint")
    if table != "upserts":
        moved = rows.withColumn("revision", revision).withColumn("epoch", F.greatest("epoch", begin))
        if table in INTERVALS:
            moved = moved.withColumn("until", F.greatest("until", begin)).where("epoch < until")
        return _sum_diffs(moved, data)
    before = rows.where(F.col("epoch") < begin)
    key = ["src", "dst"]
    late = before.where(F.col("revision") > oldest).select(*key).distinct()
    whole = before.join(late, key, "left_semi").unionByName(rows.where(F.col("epoch") >= begin))
    settled = _sum_diffs(before.join(late, key, "left_anti").withColumn("revision", revision), data)
    values = [c for c in data if c not in (*key, "op", "seq", "file", "line", "epoch")]
    ordered = winning_upserts(settled, key, values)
    last = ordered.groupBy(*key).agg(F.max("epoch").alias("epoch"))
    in_force = ordered.join(last, [*key, "epoch"]).where(F.col("op") != DELETE)
    if live_for is not None:
        in_force = in_force.where(F.col("epoch") + live_for > begin)
    return _sum_diffs(whole.withColumn("revision", revision), data).unionByName(
        in_force.select(*data, "revision", "diff")
    )


def _sum_diffs(rows: DataFrame, data: list[str]) -> DataFrame:
    return rows.groupBy(*data, "revision").agg(F.sum("diff").alias("diff")).where("diff <> 0")


class Retention(NamedTuple):
    """What a compaction keeps."""

    since: int | None  # the epoch before which history is folded; None: all epochs are kept
    kept_revisions: list[int]  # the revisions that will read the new tables
    dropped_revisions: list[int]  # the revisions that expire


def choose_retention(ledger: Ledger, row: Revision) -> Retention:
    """Return what a compaction of revision `row` keeps.

    Revisions that are published later are not considered, because their rows are not in the new tables.
    """
    home = ledger.home
    newest = row.revision
    kinds = {run.run_id: run.kind for run in ledger.runs.list_all()}
    rows = [r for r in ledger.revisions.list_all() if r.revision <= newest]
    breaks = [r.revision for r in rows if kinds.get(r.run_id) not in (None, RunKind.RUN)]
    breaks.append(ledger.revisions.last_change_of_queries(row))
    oldest = newest - home.config.retention.revisions + 1
    kept = [r.revision for r in rows if r.revision >= max([oldest, *breaks]) and r.frontier is not None]
    dropped = [r.revision for r in rows if r.revision < oldest and r.snapshots]
    since = row.since
    if home.config.retention.epochs is not None and row.frontier is not None:
        first = min(ledger.outputs.published_batches(newest), default=row.frontier)
        wanted = row.frontier - home.config.retention.epochs + 1
        since = max([wanted, *([] if since is None else [since])]) if wanted > first else since
    return Retention(since, kept, dropped)


def compact(ledger: Ledger, spark: SparkSession, grace: float = GRACE, say: Say = lambda text: None) -> CompactFacts:
    """Fold the history, rewrite the tables, and remove what nobody can read. It may be repeated after a kill.

    Args:
        ledger: The ledger of the home.
        spark: A session with Iceberg.
        grace: For how many seconds something must have been out of use before it is removed.
        say: A function that takes lines about the progress.

    Returns:
        The facts of the compaction, with the sizes of the tables before and after.

    Raises:
        UsageError: The settings do not have the value columns that are stored; a compaction would lose them.
        CheckFailed: The new tables do not have the fingerprints of the old ones.
    """
    home = ledger.home
    row = ledger.revisions.require_published()
    if words := changed_values(ledger):
        raise UsageError(
            f"the value columns in {home.path / 'altneu.toml'} differ from those that are stored: {'; '.join(words)}. "
            "A compaction would lose the stored ones; nothing was changed.",
            "restore them, and altneu compact again; or altneu rebuild --from-landing, which publishes without them",
        )
    warehouse = Warehouse(spark, home, recorded_queries(ledger.runs.get(row.run_id).config))
    warehouse.ensure_tables()
    with warehouse.size_plans(row):
        facts = Compaction(ledger, warehouse, row, grace, say).execute()
    graph_cache.drop_other_graphs(
        home, graph_cache.cached_graph_key(ledger, row), graph_cache.cached_graph_key(ledger, ledger.revisions.get())
    )  # removes what killed runs have left behind
    bsp_round_tables.drop_abandoned_rounds(warehouse, ledger)
    record_folded(ledger)
    refresh_pages(ledger)
    return facts


class Compaction:
    """A compaction of revision `row`. `execute` carries out its steps; what a table is, only the other methods know."""

    def __init__(self, ledger: Ledger, warehouse: Warehouse, row: Revision, grace: float, say: Say) -> None:
        self.home, self.ledger, self.warehouse, self.row = ledger.home, ledger, warehouse, row
        self.grace, self.say = grace, say
        self.live_for = ledger.runs.get(row.run_id).config.get(
            "live_for"
        )  # as published, whatever altneu.toml says now
        self.sizes = self._table_sizes(row.snapshots)

    def execute(self) -> CompactFacts:
        """Write the new tables, verify them, let the kept revisions read them, and drop what nobody can read."""
        ledger, warehouse, row = self.ledger, self.warehouse, self.row
        approval.expire_held_runs(ledger)
        warehouse.discard_leftovers(ledger)
        retention = choose_retention(ledger, row)
        with RunSession.begin_run(ledger, row.revision, RunKind.COMPACT, epochs=[], config={}) as session:
            session.start_stage()
            pins = {table: self.rewrite_table(table, session.run_id, retention) for table in row.snapshots}
            self.verify_tables(pins, retention)
            ledger.revisions.repin(
                session.run_id, pins, retention.kept_revisions, retention.since, retention.dropped_revisions
            )
            after = self._table_sizes(pins)
            warehouse.update_refs(ledger, session.run_id)
            expired, orphans = self._drop_unreadable(session.run_id)
            dropped_tables = self.drop_unused_tables(session.run_id)
            facts = CompactFacts(
                since=retention.since,
                revisions=[retention.kept_revisions[0], retention.kept_revisions[-1]],
                dropped_revisions=len(retention.dropped_revisions),
                expired_snapshots=expired,
                orphans=orphans,
                tables=after,
                verified=True,
                dropped_tables=dropped_tables,
            )
            session.finish_stage(facts)
            ledger.runs.finish(session.run_id, RunState.DONE)
            ledger.runs.forget_branches([session.run_id])
        return replace(facts, before=self.sizes)

    def rewrite_table(self, table: str, run_id: str, retention: Retention) -> int:
        """Rewrite a table if that makes it smaller, and return its new snapshot; otherwise return its present one.

        Of a large table in which nothing is folded, only the newer rows are written again. A table that an earlier
        version of altneu has written is written again as a whole, once, so that runs skip what has ended.
        """
        warehouse, base, size, since = self.warehouse, self.row.snapshots[table], self.sizes[table], retention.since
        self.say(f"{table}: {size.files:,} files, {size.rows:,} rows")
        horizon = self._compaction_horizon(table) if size.rows > SPLIT_ROWS else None
        is_folded, files = since == self.row.since, wanted_files(size) + (horizon is not None)
        mixed = warehouse.count_unskippable_rows(table, base) if horizon is not None else 0
        is_compact = size.files <= files and not mixed and not warehouse.count_removed_rows(table, base)
        if not size.rows or (is_compact and is_folded):
            return base
        if mixed:
            self.say(f"{table}: what has ended gets files of its own, which runs skip")
        plan = None
        if table not in SERVING_TABLES:
            rows = visible_rows(warehouse.read_snapshot(table, base), self.row)
            if since is None and not self.row.hidden:
                summary = warehouse.load_metadata(table).snapshot_summary(base)
                plan = file_tiers.plan_compaction(summary, self.row.revision, files)
            if plan is not None:
                rows = rows.where(F.col("revision") > plan.kept_tiers[0].last_revision)
                size = Size(bytes=math.ceil(size.bytes * (1 - plan.kept_tiers[0].rows / size.rows)))
            rows = fold_rows(table, rows, since, retention.kept_revisions[0], self.live_for)
        elif serving_tables.declared_as_stored(warehouse, table, base):
            rows = serving_tables.fold_serving_table(warehouse, table, base, since)
        else:
            return base
        cut = sort_into_files(table, rows, size, horizon)
        return warehouse.rewrite_on_branch(table, run_id, base, cut, plan or file_tiers.REWRITE_ALL)

    def _compaction_horizon(self, table: str) -> Horizon | None:
        """Return the horizon of the next run, before which rows are written to files of their own."""
        if table in SERVING_TABLES or self.row.frontier is None:
            return None
        return next_horizon(table, self.row.frontier, self.live_for)

    def verify_tables(self, pins: dict[str, int], retention: Retention) -> None:
        """Raise `CheckFailed` unless the new tables give the answers of the old ones."""
        self.say("comparing fingerprints")
        compaction_verification.verify_compaction(
            self.ledger,
            self.warehouse,
            row=self.row,
            pins=pins,
            since=retention.since,
            revisions=retention.kept_revisions,
            live_for=self.live_for,
        )
        serving_tables.verify_folded(self.warehouse, self.row, pins, retention.since)

    def _table_sizes(self, snapshots: dict[str, int]) -> dict[str, Size]:
        return {table: self.warehouse.snapshot_size(table, snapshot) for table, snapshot in snapshots.items()}

    def _drop_unreadable(self, run_id: str) -> tuple[int, int]:
        """Drop what nobody can read; return the number of expired snapshots, and of files that no snapshot names."""
        expired, orphans = 0, 0
        for table in self.row.snapshots:
            self.say(f"{table}: dropping what nobody can read")
            expired += self.warehouse.expire_snapshots(table, self.ledger, run_id, self.grace)
            orphans += self.warehouse.remove_orphans(table)
        return expired, orphans

    def drop_unused_tables(self, run_id: str) -> list[str]:
        """Drop the tables of queries that no revision and no run has any more, with their files. Return their names.

        Like a snapshot, such a table first has to be out of use for the grace period.
        """
        needed, dropped = _tables_in_use(self.ledger), []
        for table in sorted({*self.warehouse.list_query_tables()} - needed):
            if self.warehouse.release_table(table, self.ledger, run_id, self.grace):
                self.warehouse.drop_table(table)
                self.say(f"{table}: dropped, because no revision that is kept has its query")
                dropped.append(table)
        return dropped


def _tables_in_use(ledger: Ledger) -> set[str]:
    """Return the tables that revisions pin, or that runs may write which can still be published."""
    newest = ledger.revisions.get().revision
    runs = [
        run for run in ledger.runs.list_all() if run.parent == newest and run.state in (*OPEN_STATES, RunState.HELD)
    ]
    definitions = [recorded_queries(run.config) for run in runs]
    written = {table for each in definitions for table in (*query_columns(each), *query_inputs(each))}
    return written | {*ledger.runs.pinned_snapshots()}


def wanted_files(size: Size) -> int:
    """Return the number of files of about `FILE_BYTES` for rows of a size."""
    return max(1, math.ceil(size.bytes / FILE_BYTES))


def sort_into_files(table: str, rows: DataFrame, size: Size, horizon: Horizon | None = None) -> DataFrame:
    """Sort a table's rows by its key into files of about `FILE_BYTES`, and those before the horizon into others.

    Of several files at most one has rows from both sides of the horizon.
    """
    files = wanted_files(size)
    key = _sort_key(table, rows)
    if files > 1:
        side = [] if horizon is None else [F.expr(horizon.condition)]
        cut = rows.repartitionByRange(files, *side, *key)
    else:
        cut = rows.coalesce(1) if horizon is None else split_at_horizon(rows, horizon, 1)
    return cut.sortWithinPartitions(*dict.fromkeys([*key, *(["epoch"] if "epoch" in rows.columns else [])]))


def _sort_key(table: str, rows: DataFrame) -> list[str]:
    """Return the columns by which a table is sorted; of a query's table, all data columns."""
    if not is_query_table(table):
        return KEYS[table]
    return [quote_identifier(name) for name in rows.columns if name not in TIME]
