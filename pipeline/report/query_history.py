"""The history of each declared query's result for the pages of some epochs: how many rows came and went at each epoch.

The rows are counted in the tables of the results, by DuckDB in this process. Where it cannot read them, or they are
many, pages show no history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import AltneuError
from ..home.queries import QueryDefinition, is_query_table
from ..reading.query_results import published_queries
from ..state.ledger import Ledger
from ..state.records import Revision

MOST_ROWS = 5_000_000  # stored rows of all results: some seconds of DuckDB

QueryHistory = Mapping[int, tuple[int, int]]  # epoch → the rows that came there, and those that went


def read_query_histories(ledger: Ledger, revision: Revision, first: int, last: int) -> dict[str, QueryHistory]:
    """Return the history of each query up to epoch `last`; what changed before `first` is at epoch `first` - 1."""
    if not any(map(is_query_table, revision.snapshots)):
        return {}
    from ..storage.duckdb_tables import DuckTables, are_files_local

    if not are_files_local(ledger.home):
        return {}
    tables, queries = DuckTables(ledger.home), published_queries(ledger, revision)
    try:
        if tables.count_stored_rows(revision, tuple(query.table for query in queries.values())) > MOST_ROWS:
            return {}
        return {name: _count_changes(tables, revision, query, first, last) for name, query in queries.items()}
    except (AltneuError, OSError):  # a compaction has expired the revision, or the files are being moved
        return {}


def _count_changes(tables: Any, revision: Revision, query: QueryDefinition, first: int, last: int) -> QueryHistory:
    columns = ", ".join(map(tables.quote_identifier, query.columns))
    sql = f"""
        SELECT epoch, CAST(sum(greatest(n, 0)) AS bigint) AS came, CAST(sum(greatest(-n, 0)) AS bigint) AS went
        FROM (
            SELECT greatest(epoch, {first - 1}) AS epoch, sum(diff) AS n FROM {{stored}} WHERE epoch <= {last}
            GROUP BY {columns}, greatest(epoch, {first - 1})
        ) GROUP BY ALL"""
    rows = tables.collect_rows(tables.select_rows(sql, stored=tables.read_table(query.table, revision)))
    return {row["epoch"]: (row["came"], row["went"]) for row in rows}


def describe_query(name: str, history: QueryHistory, epochs: Sequence[int], verdict: str) -> dict[str, Any]:
    """Return a query's rows at the last of some epochs, what came and went there, and its sizes at all of them."""
    sizes = [sum(came - went for at, (came, went) in history.items() if at <= epoch) for epoch in epochs]
    came, went = history.get(epochs[-1], (0, 0))
    return {"query": name, "rows": sizes[-1], "came": came, "went": went, "sizes": sizes, "verdict": verdict}
