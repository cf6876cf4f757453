"""The audit of the declared queries that a run has changed: each is recomputed by its text, as `[audit] mode` says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from altneu.expectations.model import Check

from ...checking.query_recount import QuerySource, explain_first_difference, recompute_by_either
from ...home.queries import QueryDefinition
from ...state.stage_results import AuditFacts, QueriesFacts
from ...storage.duckdb_tables import DuckTables, Query
from ...storage.table_schemas import hidden_condition
from ..choices.plan_choices import FULL, LOCAL, AuditChoice
from ..query_changes import NOTHING
from ..run_context import RunContext

RUNS = 32  # in one run of so many a query is recomputed whose recomputation costs more than the run


def check_queries_of_run(
    run: RunContext, decision: AuditChoice, epochs: Sequence[int]
) -> tuple[list[Check], dict[str, float]]:
    """Recompute the queries that the run has changed, at the epochs of a full check or at the frontier.

    Returns:
        The results of the checks, and the seconds that each query took.
    """
    if not run.maintained_queries:
        return [], {}
    from altneu.expectations.suite import check_queries

    wanted = [run.maintained_queries[name] for name in _choose_queries(run, decision)]
    if not wanted:
        return [], {}
    recomputed_epochs = sorted({*epochs, run.frontier})
    run.say(f"recomputing {len(wanted)} quer{'y' if len(wanted) == 1 else 'ies'}")
    differences, seconds = _recompute(run, wanted, recomputed_epochs)
    if differences:
        revision = run.unpublished_revision()
        differences = explain_first_difference(run.warehouse, revision, run.maintained_queries, differences)
    labels = {epoch: run.home.schedule.format_label(epoch) for epoch in recomputed_epochs}
    return check_queries(differences, {"epochs": recomputed_epochs, "labels": labels}), seconds


def _choose_queries(run: RunContext, decision: AuditChoice) -> list[str]:
    """Return the changed queries that are recomputed."""
    facts = run.get_result(QueriesFacts).queries
    changed = [name for name in run.maintained_queries if name in facts and facts[name].way != NOTHING]
    mode, _, n = decision.requested_mode.partition(" ")
    if mode == LOCAL:
        return []
    if mode == "rolling":
        return changed if run.revision % int(n) == 0 else []
    if mode == FULL:
        return changed
    return choose_affordable(changed, _last_seconds(run), _spent_seconds(run), run.revision)


def choose_affordable(changed: Sequence[str], last: Mapping[str, float], spent: float, revision: int) -> list[str]:
    """Return the queries whose last recomputation took no longer than the run has, and in one run of `RUNS` all.

    >>> choose_affordable(["pairs", "ring", "new"], {"pairs": 0.8, "ring": 7.2}, 5.0, 33)
    ['pairs', 'new']
    >>> choose_affordable(["pairs", "ring", "new"], {"pairs": 0.8, "ring": 7.2}, 5.0, 64)
    ['pairs', 'ring', 'new']
    """
    return [name for name in changed if last.get(name, 0.0) <= spent or revision % RUNS == 0]


def _last_seconds(run: RunContext) -> dict[str, float]:
    """Return how long the last recomputation of each query took."""
    seconds: dict[str, float] = {}
    for row in run.ledger.stages.list_recent(RUNS):
        if isinstance(row.facts, AuditFacts):
            seconds |= row.facts.queries
    return seconds


def _spent_seconds(run: RunContext) -> float:
    """Return how long the finished stages of the run took."""
    return sum(row.seconds or 0.0 for row in run.ledger.stages.select(run.run_id))


def _recompute(
    run: RunContext, queries: Sequence[QueryDefinition], epochs: Sequence[int]
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    snapshots = {table: run.verified_snapshot(table) for table in run.warehouse.collections}
    in_duckdb = source_in_duckdb(run, DuckTables(run.home))
    in_spark = QuerySource(run.warehouse, run.read_after, run.maintained_queries, in_spark=True)
    return recompute_by_either(run.warehouse, snapshots, queries, epochs, in_duckdb, in_spark)


def source_in_duckdb(run: RunContext, tables: DuckTables) -> QuerySource[Query]:
    """Return the tables as the run leaves them."""

    def read_table_after(table: str) -> Query:
        stored = tables.read_snapshot(table, run.verified_snapshot(table))
        return Query(f"SELECT * FROM ({stored.sql}) WHERE {hidden_condition(run.parent)}")

    return QuerySource(tables, read_table_after, run.maintained_queries, in_spark=False)
