"""The rows that a run reads: those from its horizons on (`storage.horizons`). What of a long history has ended costs
nothing, so it does not count where a run chooses its plans, its engines and the size of its process.
"""

from __future__ import annotations

from ..state.ledger import Ledger
from ..state.records import RunKind
from ..storage import graph_cache
from ..storage.branches import Branches
from ..storage.horizons import Horizon, table_horizon
from .choices.plan_choice import Scope

TABLES = ("upserts", "edges", "trussness")  # most of what the stages after ingest read


def run_horizon(ledger: Ledger, scope: Scope, table: str) -> Horizon | None:
    """Return the horizon from which on a run reads a table, or None where it reads all of its rows.

    A rebuild reads everything; so do serving tables, whose rows are made of the whole history of what is touched.
    """
    if scope.kind is not RunKind.RUN or ledger.home.config.publish.tables:
        return None
    if table == "trussness" and not _has_left_graph(ledger, scope):
        return None
    return table_horizon(table, scope.first_changed_epoch, ledger.home.config.edges.live_for)


def _has_left_graph(ledger: Ledger, scope: Scope) -> bool:
    """Tell whether the parent's run has left the trussness of every edge, so that the run need not sum the diffs."""
    if graph_cache.saved_checkpoint(ledger, scope.parent) is not None:
        return True
    key = graph_cache.cached_graph_key(ledger, scope.parent)
    return key is not None and graph_cache.cached_epoch(ledger.home, key) is not None


def count_rows_before_run(ledger: Ledger, scope: Scope) -> int:
    """Count the stored rows that a run reads, without Spark."""
    if scope.parent.frontier is None:
        return 0
    from ..storage.refs_without_spark import open_branches

    try:
        return sum_read_rows(ledger, scope, open_branches(ledger.home), scope.parent.snapshots)
    except (OSError, LookupError):  # only Spark can read the metadata
        sizes = ledger.stages.table_sizes()
        return sum(sizes[table].rows for table in TABLES if table in sizes)


def sum_read_rows(ledger: Ledger, scope: Scope, tables: Branches, pins: dict[str, int]) -> int:
    """Count the rows of some snapshots in the files that the horizons of a run do not skip."""
    return sum(tables.count_rows(table, pins[table], run_horizon(ledger, scope, table)) for table in TABLES)
