"""The rows that the audit of a run reads without Spark, in the memory of this process.

`checking.audit_engine` chooses, by the rows that the audit would hold. A run that is recomputed in full needs all
rows. One that is proved needs what its proof compares, which is little however long the history is: what the run has
written, the rows of the pairs that landed, and the share of the vertices that is recounted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from altneu.algorithms.graph.proof_records import COLLECTIONS, Proof

from ...checking import audit_engine
from ...checking.duckdb_audit import Conditions
from ...state.records import RunKind
from ...storage.duckdb_tables import DuckTables, Query
from ...storage.horizons import table_horizon
from ...storage.table_schemas import ALWAYS, hidden_condition
from ..choices.plan_choice import Strategy
from ..choices.plan_choices import EdgesChoice
from ..run_context import RunContext

PAIRS = {"upserts": ("least(src, dst)", "greatest(src, dst)"), "edges": ("a", "b")}  # tables that are compared by pair


@dataclass(frozen=True)
class HeldRows:
    """The rows of all collections that the audit needs, as a reader will see them once the run is published, the rows
    that the run has written, and the conditions of the settings for DuckDB.
    """

    rows: Mapping[str, pa.Table]
    delta: Mapping[str, pa.Table]
    conditions: Conditions


def read_held_rows(run: RunContext, *, first: int | None, recomputed: int) -> HeldRows | None:
    """Read the rows that the audit of a run holds; return None where Spark audits the run.

    Args:
        run: The run.
        first: The first epoch about which its proof states something. None: all rows are read, to recompute epochs.
        recomputed: How many epochs are recomputed.

    Raises:
        UsageError: `[audit] engine = "duckdb"`, and only Spark can audit the run.
    """
    rows, edges = count_held_rows(run, whole=first is None)
    conditions = audit_engine.choose_duckdb(run.home, rows, edges, recomputed)
    if conditions is None:
        return None
    reader = _Reader(run)
    delta = {table: reader.read_written_rows(table) for table in run.warehouse.collections}
    if first is None or not _is_proved_by_delta(run):
        return HeldRows({table: reader.read_rows(table, "true") for table in delta}, delta, conditions)
    return HeldRows(reader.read_compared_rows(delta, first), delta, conditions)


def count_held_rows(run: RunContext, *, whole: bool) -> tuple[int, int]:
    """Count about how many rows, and how many edge intervals of them, the audit holds; `whole`: all that are stored."""
    horizon = None if whole else run.horizon("edges")
    edges = run.warehouse.count_rows("edges", run.verified_snapshot("edges"), horizon)
    if whole or not _is_proved_by_delta(run):
        return run.count_stored_rows(), edges
    if _compares_all_pairs(run):
        return run.count_read_rows(), edges
    costs = [row.facts.cost for row in run.ledger.stages.select(run.run_id)]
    written = sum(cost.rows or 0 for cost in costs if cost is not None)
    share = _recounted_share(run)
    if share is None:
        return written, 0
    return written + run.count_read_rows() // share.scope.parts, edges // share.scope.parts


def _compares_all_pairs(run: RunContext) -> bool:
    """Tell whether the proof compares the rows of all pairs, not only of those that landed."""
    return run.choose(EdgesChoice).strategy is not Strategy.BROADCAST


def _recounted_share(run: RunContext) -> Proof | None:
    """Return the proof of a run that recounts a share of the vertices, or None where none is recounted."""
    proof = run.ledger.outputs.get_proof(run.run_id)
    return proof if proof is not None and proof.scope.parts else None


def _is_proved_by_delta(run: RunContext) -> bool:
    """Tell whether the proof builds on what is known of the state before, so that it does not read all rows."""
    known = {*run.fingerprinted_tables, *(() if run.parent.frontier is not None else run.warehouse.collections)}
    return run.kind is RunKind.RUN and known.issuperset(run.warehouse.collections)


class _Reader:
    """A reader of the tables of a run with DuckDB."""

    def __init__(self, run: RunContext) -> None:
        self.run, self.tables = run, DuckTables(run.home)

    def read_rows(self, table: str, condition: str, held: Mapping[str, pa.Table] | None = None) -> pa.Table:
        stored = self.tables.read_snapshot(table, self.run.verified_snapshot(table))
        visible = hidden_condition(self.run.parent)
        query = f"SELECT * FROM ({stored.sql}) WHERE {visible} AND ({condition})"
        return self.tables.to_arrow(Query(query, held or {}))

    def read_written_rows(self, table: str) -> pa.Table:
        """Read the rows that the run has written."""
        unchanged = self.run.verified_snapshot(table) == self.run.base_snapshot(table)
        return self.read_rows(table, "false" if unchanged else f"revision = {self.run.revision}")

    def read_compared_rows(self, delta: Mapping[str, pa.Table], first: int) -> dict[str, pa.Table]:
        """Read the rows that the proof of the epochs from `first` on compares."""
        share, everything = _recounted_share(self.run), _compares_all_pairs(self.run)
        rows = {}
        for table in delta:
            conditions = [f"revision = {self.run.revision}", *_share_conditions(table, share)]
            if table in PAIRS:
                conditions += ["true"] if everything else [_landed_condition(table)]
            if table == "upserts":
                conditions.append(f"epoch IN ({', '.join(map(str, self.run.epochs))})")
            horizon = table_horizon(table, first, self.run.home.config.edges.live_for) if table in PAIRS else None
            matters = "true" if horizon is None else horizon.condition
            rows[table] = self.read_rows(
                table, f"{matters} AND ({' OR '.join(conditions)})", {"landed": delta["upserts"]}
            )
        return rows


def _share_conditions(table: str, share: Proof | None) -> list[str]:
    if share is None or table not in (*PAIRS, *COLLECTIONS):
        return []
    vertex = PAIRS[table][0] if table in PAIRS else ALWAYS[table][0]
    return [f"{vertex} BETWEEN {share.between[0]} AND {share.between[1]}"]


def _landed_condition(table: str) -> str:
    a, b = PAIRS[table]
    return f"({a}, {b}) IN (SELECT (least(src, dst), greatest(src, dst)) FROM landed WHERE src <> dst)"
