"""A run of a small home, whose audit needs no Spark: all rows of its tables, in the memory of this process.

`read_small_run` chooses: little is stored, on a disk of this machine, and DuckDB certainly understands the conditions
of the settings as Spark does. `[audit] engine` decides otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ...checking.duckdb_audit import Conditions
from ...errors import UsageError
from ...home import memory_budget
from ...state import filesystem
from ...storage.condition_errors import Refused, UncertainCondition
from ...storage.duckdb_tables import DuckTables, Query
from ...storage.session import FEW_ROWS
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
    engine = run.home.config.audit.engine
    if engine == "spark" or (engine == "auto" and run.count_stored_rows() > FEW_ROWS):
        return None
    conditions, why = None, _unreachable_reason(run)
    try:
        conditions = Conditions(run.home)
    except (UncertainCondition, Refused) as error:
        why = f"only Spark can evaluate a condition with {error}"
    if conditions is None or why is not None:
        if engine == "duckdb":
            raise UsageError(f"DuckDB cannot audit this run: {why}.", 'set [audit] engine = "auto"')
        return None
    tables, rows, delta = DuckTables(run.home), {}, {}
    for table in run.warehouse.collections:
        snapshot = run.verified_snapshot(table)
        stored = tables.read_snapshot(table, snapshot)
        rows[table] = tables.to_arrow(Query(f"SELECT * FROM ({stored.sql}) WHERE {hidden_condition(run.parent)}"))
        mine = pc.equal(rows[table]["revision"], run.revision)
        delta[table] = rows[table].slice(0, 0) if snapshot == run.base_snapshot(table) else rows[table].filter(mine)
    return SmallRun(rows, delta, conditions)


def _unreachable_reason(run: RunContext) -> str | None:
    config, folder = run.home.config, filesystem.local_path(run.home.warehouse)
    if config.storage.catalog is not None or folder is None or not folder.is_dir():
        return "its tables are not on a disk of this machine"
    edges = run.warehouse.snapshot_size("edges", run.verified_snapshot("edges")).rows
    if edges > memory_budget.max_audit_edges(config, 1):
        return f"its graph of {edges:,} edge intervals is too large for one task"
    return None
