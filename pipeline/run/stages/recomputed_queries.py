"""The queries that are recomputed (`[queries] recompute`): a run evaluates their texts at every epoch that may change.

The text itself is run over the landed rows, as an audit does it: by DuckDB, or by Spark for what is large. The result
is stored as all others are, as the difference at each epoch, so that it has history, diffs and revisions.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

import duckdb
import pyarrow as pa

from altneu.algorithms.recomputed_query import depends_on_age
from altneu.algorithms.sql_text import quote_identifier

from ...checking.query_recount import QuerySource, fits_duckdb, select_recomputed_rows
from ...home.queries import LANDED_ROWS, QueryDefinition, double_quote, list_inputs
from ...state.stage_results import IngestFacts, QueryRun
from ...storage.condition_errors import Refused, UncertainCondition
from ...storage.duckdb_tables import DuckTables, Query
from ..query_changes import ANEW, NOTHING, RECOMPUTED
from ..run_context import RunContext
from .audited_queries import source_in_duckdb
from .query_errors import translate_query_errors


def recompute_query(run: RunContext, definition: QueryDefinition) -> QueryRun:
    """Write how the result of a query changes, from its text at every epoch from the first changed one on."""
    started = time.monotonic()
    appends = run.extends_published(definition.table)
    if appends and not _may_change(run, definition):
        run.write_rows(definition.table, None)
        return QueryRun(way=NOTHING)
    epochs = list_changed_epochs(run, definition, appends=appends)
    with translate_query_errors(definition.name):
        rows = _write_changes(run, definition, epochs)
    seconds = round(time.monotonic() - started, 2)
    run.say(f"query {definition.name}: recomputed at {len(epochs):,} epoch(s), {rows:,} changed rows")
    return QueryRun(way=RECOMPUTED if appends else ANEW, rows=rows, seconds=seconds)


def list_changed_epochs(run: RunContext, definition: QueryDefinition, *, appends: bool) -> list[int]:
    """Return the epochs at which the result may be another one than at the epoch before, or than it was stored.

    Where rows expire or have an age, that is every epoch, also those after the former frontier at which nothing landed.
    """
    landed = {*run.landed_epochs(), *run.epochs}
    if appends:
        first = min(run.epochs)
    else:
        first = min(landed, default=run.frontier) if run.parent.since is None else run.parent.since
    if not _changes_by_itself(run, definition):
        return sorted({first, *(epoch for epoch in landed if first <= epoch <= run.frontier)})
    if appends and run.parent.frontier is not None:
        first = min(first, run.parent.frontier + 1)
    return list(range(first, run.frontier + 1))


def _may_change(run: RunContext, definition: QueryDefinition) -> bool:
    if run.epochs and _changes_by_itself(run, definition):
        return True
    facts, texts = run.get_result(IngestFacts), list_inputs(definition, run.maintained_queries).values()
    return bool(facts.changed_rows) or any(facts.relations.get(each.name) for each in texts)


def _changes_by_itself(run: RunContext, definition: QueryDefinition) -> bool:
    """Tell whether the result may change at an epoch at which nothing has landed."""
    texts = [definition, *list_inputs(definition, run.maintained_queries).values()]
    reads_age = (LANDED_ROWS in each.relations and depends_on_age(each.text) for each in texts)
    return run.home.config.edges.live_for is not None or any(reads_age)


def _write_changes(run: RunContext, definition: QueryDefinition, epochs: Sequence[int]) -> int:
    columns = [*definition.columns, "epoch", "diff"]
    before = run.read_before(definition.table).select(*map(quote_identifier, columns)).toArrow()
    changes = find_result_changes(list(definition.columns), before, _evaluate_text(run, definition, epochs))
    return run.write_rows(definition.table, run.spark.createDataFrame(changes) if changes.num_rows else None)


def _evaluate_text(
    run: RunContext, definition: QueryDefinition, epochs: Sequence[int]
) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of a text at each epoch."""
    tables = DuckTables(run.home)
    in_duckdb = source_in_duckdb(run, tables)
    if _can_use_duckdb(run, definition, in_duckdb):
        for epoch in epochs:
            yield epoch, tables.to_arrow(select_recomputed_rows(in_duckdb, definition, epoch))
        return
    in_spark = QuerySource(run.warehouse, run.read_after, run.maintained_queries, in_spark=True)
    for epoch in epochs:
        yield epoch, select_recomputed_rows(in_spark, definition, epoch).toArrow()


def _can_use_duckdb(run: RunContext, definition: QueryDefinition, source: QuerySource[Query]) -> bool:
    """Tell whether DuckDB can read the tables, they are small enough, and it can evaluate the condition of edges."""
    snapshots = {"upserts": run.verified_snapshot("upserts"), definition.table: run.base_snapshot(definition.table)}
    if not fits_duckdb(run.warehouse, snapshots, [definition]):
        return False
    try:
        select_recomputed_rows(source, definition, run.frontier)  # nothing is evaluated yet
    except (UncertainCondition, Refused):
        return False
    return True


def find_result_changes(columns: Sequence[str], before: pa.Table, results: Iterable[tuple[int, pa.Table]]) -> pa.Table:
    """Return the diffs that make a stored result equal to recomputed ones, with `epoch` and `diff`.

    Args:
        columns: The data columns of the result.
        before: The stored diffs.
        results: The epochs in order from the first changed one on, each with all rows of the result.
    """
    listed, first = ", ".join(map(double_quote, columns)), None
    with duckdb.connect() as connection:
        connection.register("stored", before)
        connection.execute("CREATE TABLE steps AS SELECT * FROM stored LIMIT 0")
        connection.register("old_rows", before.slice(0, 0))
        for epoch, rows in results:
            first = epoch if first is None else first
            named = rows.rename_columns(list(columns))
            connection.register("new_rows", named)
            connection.execute(
                f"""INSERT INTO steps SELECT {listed}, {epoch}, sum(n) FROM (
                    SELECT {listed}, 1 AS n FROM new_rows UNION ALL SELECT {listed}, -1 FROM old_rows
                ) GROUP BY {listed} HAVING sum(n) <> 0"""
            )
            connection.register("old_rows", named)
        return connection.sql(
            f"""SELECT {listed}, CAST(step AS BIGINT) AS epoch, CAST(sum(diff) AS BIGINT) AS diff FROM (
                SELECT {listed}, epoch AS step, diff FROM steps
                UNION ALL SELECT {listed}, greatest(epoch, {first}), -diff FROM stored
            ) GROUP BY {listed}, step HAVING sum(diff) <> 0"""
        ).to_arrow_table()
