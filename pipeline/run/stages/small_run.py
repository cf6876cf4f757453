"""A run of a small home, whose audit needs no Spark: all rows of its tables, in the memory of this process.

`checking.small_home` chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ...checking import small_home
from ...checking.duckdb_audit import Conditions
from ...storage.duckdb_tables import DuckTables, Query
from ...storage.table_schemas import hidden_condition
from ..run_context import RunContext


@dataclass(frozen=True)
class SmallRun:
    """All collections as a reader will see them once the run is published, the rows that the run has written, and the
    conditions of the settings for DuckDB.
    """

    rows: Mapping[str, pa.Table]
    delta: Mapping[str, pa.Table]
    conditions: Conditions


def read_small_run(run: RunContext) -> SmallRun | None:
    """Read the tables of a small run; return None where Spark audits it.

    Raises:
        UsageError: `[audit] engine = "duckdb"`, and only Spark can audit the run.
    """
    edges = run.warehouse.snapshot_size("edges", run.verified_snapshot("edges")).rows
    conditions = small_home.choose_duckdb(run.home, run.count_stored_rows(), edges)
    if conditions is None:
        return None
    tables, rows, delta = DuckTables(run.home), {}, {}
    for table in run.warehouse.collections:
        snapshot = run.verified_snapshot(table)
        stored = tables.read_snapshot(table, snapshot)
        rows[table] = tables.to_arrow(Query(f"SELECT * FROM ({stored.sql}) WHERE {hidden_condition(run.parent)}"))
        mine = pc.equal(rows[table]["revision"], run.revision)
        delta[table] = rows[table].slice(0, 0) if snapshot == run.base_snapshot(table) else rows[table].filter(mine)
    return SmallRun(rows, delta, conditions)
