"""The choice to audit a home outside of Spark (`duckdb_audit`), and such an audit of what is published.

`[audit] engine` decides; with "auto" DuckDB audits what one process reads and recomputes sooner than Spark, on a disk
of this machine, and if DuckDB certainly understands the conditions of the settings as Spark does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from altneu.expectations.model import Check

from ..errors import AltneuError, UsageError
from ..home import memory_budget
from ..home.home import Home
from ..home.queries import is_query_table
from ..state.ledger import Ledger
from ..state.records import SERVING_TABLES, Revision
from ..storage.condition_errors import Refused, UncertainCondition
from ..storage.duckdb_tables import DuckTables, are_files_local
from ..storage.session import count_stored_rows
from ..storage.table_schemas import MOTIFS, TABLES
from . import duckdb_audit, motif_reference
from .reported_totals_check import differing_rows, differing_totals, reported_totals

# Of rows that one process holds, at most 5.5 GB. With three million an audit took 3.5 s, and Spark's 25 s.
MOST_ROWS = 10_000_000
MOST_EDGES = 5_000_000  # of all epochs that are recomputed: with more, Spark's tasks side by side are quicker


def choose_duckdb(home: Home, rows: int, edges: int, epochs: int) -> duckdb_audit.Conditions | None:
    """Return the conditions for DuckDB where it audits, and None where Spark does.

    Args:
        home: The home.
        rows: About how many rows the audit holds.
        edges: How many edge intervals it holds.
        epochs: How many epochs it recomputes.

    Raises:
        UsageError: `[audit] engine = "duckdb"`, and only Spark can audit the home.
    """
    engine = home.config.audit.engine
    if engine == "spark" or (engine == "auto" and (rows > MOST_ROWS or edges * epochs > MOST_EDGES)):
        return None
    conditions, why = None, _unreachable_reason(home, rows, edges)
    try:
        conditions = duckdb_audit.Conditions(home)
    except (UncertainCondition, Refused) as error:
        why = f"only Spark can evaluate a condition with {error}"
    if conditions is None or why is not None:
        if engine == "duckdb":
            raise UsageError(f"DuckDB cannot audit this run: {why}.", 'set [audit] engine = "auto"')
        return None
    return conditions


def _unreachable_reason(home: Home, rows: int, edges: int) -> str | None:
    if not are_files_local(home):
        return "its tables are not on a disk of this machine"
    if rows > memory_budget.max_held_rows(home.config):
        return f"the {rows:,} rows that it compares are too many for the memory of one process"
    if edges > memory_budget.max_audit_edges(home.config, 1):
        return f"its graph of {edges:,} edge intervals is too large for one task"
    return None


def audit_without_spark(
    ledger: Ledger, revision: Revision, epochs: list[int], say: Callable[[str], None]
) -> list[Check] | None:
    """Audit published epochs by a full recomputation, as `audit.audit_published` does, but explain no difference.

    Returns:
        The results of the checks. None: Spark audits the epochs, or has to say why a table cannot be read.
    """
    from altneu.expectations.suite import check_differences

    home = ledger.home
    edges = ledger.stages.table_sizes().get("edges")
    if edges is None or not epochs or _has_more_to_check(home, revision):
        return None
    conditions = choose_duckdb(home, count_stored_rows(ledger), edges.rows, len(epochs))
    if conditions is None:
        return None
    say(f"recomputing {len(epochs)} epoch(s) from scratch")
    motifs, shown = motif_reference.read_motifs(home.config.motifs), reported_totals(ledger, revision, epochs)
    try:
        rows = _read_tables(home, revision)
        recount = duckdb_audit.recount_epochs(rows, home, conditions, epochs, motifs, shown)
    except AltneuError:
        return None
    differences = recount.differences + differing_totals(shown, recount.totals)
    differences += differing_rows(shown, recount.stored_rows)
    labels = {epoch: home.schedule.format_label(epoch) for epoch in epochs}
    context = {"epochs": epochs, "labels": labels, "motifs": list(motifs), "kinds": shown.kinds}
    return check_differences(differences, context)


def _has_more_to_check(home: Home, revision: Revision) -> bool:
    """Tell whether an audit looks at more than is recomputed here: names, queries, serving tables, missing motifs."""
    has_others = any(table in SERVING_TABLES or is_query_table(table) for table in revision.snapshots)
    lacks_motifs = bool(home.config.motifs) and "motif_counts" not in revision.snapshots
    return has_others or lacks_motifs or home.config.vertices.ids == "string"


def _read_tables(home: Home, revision: Revision) -> Mapping[str, pa.Table]:
    tables = DuckTables(home)
    names = [*TABLES, *(MOTIFS if home.config.motifs else ())]
    return {name: tables.to_arrow(tables.read_table(name, revision)) for name in names if name in revision.snapshots}
