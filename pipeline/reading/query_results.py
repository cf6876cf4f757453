"""The results of declared queries as a revision has them: which there are, their rows, and what has changed in them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from ..errors import UsageError
from ..home.queries import PREFIX, STATE, QueryDefinition, recorded_queries
from ..state.ledger import Ledger
from ..state.records import Revision
from ..state.stage_results import AuditFacts, QueriesFacts
from ..storage.table_schemas import kept_epoch
from .engine_protocol import R, Tables
from .vertex_names import replace_with_names

COPIES = "copies"


def published_queries(ledger: Ledger, revision: Revision) -> dict[str, QueryDefinition]:
    """Return the queries that a revision has."""
    if revision.frontier is None:
        return {}
    known = recorded_queries(ledger.runs.get(revision.run_id).config)
    return {name: each for name, each in known.items() if not revision.snapshots or each.table in revision.snapshots}


def require_query(ledger: Ledger, revision: Revision, name: str) -> QueryDefinition:
    """Return a query of a revision. Raise `UsageError` where the revision has none of this name."""
    known = published_queries(ledger, revision)
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, 1)
    there = f"there are {', '.join(known)}" if known else "it has none"
    hint = f" Did you mean {near[0]}?" if near else ""
    raise UsageError(f"revision {revision.revision} has no query {name!r}; {there}.{hint}", "altneu queries")


def result_columns(query: QueryDefinition) -> tuple[str, ...]:
    """Return the columns of a result as readers see it: with `copies`, where a row may occur several times."""
    return (*query.columns, *(() if query.is_set else (COPIES,)))


def select_query_rows(tables: Tables[R], revision: Revision, query: QueryDefinition, epoch: int) -> R:
    """Return the rows of a result as of an epoch."""
    listed = _quote_columns(tables, query)
    sql = (
        f"SELECT {listed}, CAST(sum(diff) AS BIGINT) AS {COPIES} FROM {{stored}} WHERE epoch <= {epoch} "
        f"GROUP BY {listed} HAVING sum(diff) <> 0"
    )
    rows = tables.select_rows(sql, stored=tables.read_table(query.table, revision))
    columns = ", ".join(map(tables.quote_identifier, result_columns(query)))
    return _name_result_vertices(
        tables, revision, query, tables.select_rows(f"SELECT {columns} FROM {{rows}}", rows=rows)
    )


def select_result_changes(
    tables: Tables[R], old: Revision, new: Revision, query: QueryDefinition, *, all_epochs: bool = False
) -> R:
    """Return the diffs that a consumer of revision `old` applies exactly once to have the result of revision `new`.

    By default they are about the rows at the frontier of each revision; with `all_epochs`, about the whole collection.
    """
    by = ["epoch"] if all_epochs else []
    listed = ", ".join([_quote_columns(tables, query), *by])

    def signed_rows(revision: Revision, sign: int) -> str:
        return f"SELECT {listed}, {sign} * diff AS diff FROM {{r{sign + 1}}} WHERE epoch <= {revision.frontier}"

    parts, relations = [signed_rows(new, 1)], {"r2": tables.read_table(query.table, new)}
    if old.frontier is not None and query.table in old.snapshots:
        parts.append(signed_rows(old, -1))
        relations["r0"] = tables.read_table(query.table, old)
    both = tables.select_rows(" UNION ALL ".join(parts), **relations)
    sql = f"SELECT {listed}, CAST(sum(diff) AS BIGINT) AS diff FROM {{both}} GROUP BY {listed} HAVING sum(diff) <> 0"
    return _name_result_vertices(tables, new, query, tables.select_rows(sql, both=both))


def select_result_diffs(tables: Tables[R], revision: Revision, query: QueryDefinition) -> R:
    """Return the diffs of a result up to the frontier, one for each row and epoch, with the names of vertices.

    What a compaction has folded is at the first epoch that is kept.
    """
    folded_epoch, listed = kept_epoch(revision), _quote_columns(tables, query)
    sql = (
        f"SELECT {listed}, {folded_epoch} AS epoch, CAST(sum(diff) AS BIGINT) AS diff FROM {{stored}} "
        f"WHERE epoch <= {revision.frontier} GROUP BY {listed}, {folded_epoch} HAVING sum(diff) <> 0"
    )
    rows = tables.select_rows(sql, stored=tables.read_table(query.table, revision))
    return _name_result_vertices(tables, revision, query, rows)


def require_same_columns(ledger: Ledger, old: Revision, query: QueryDefinition) -> None:
    """Raise `UsageError` where a query had other columns at an old revision, so that no diffs lead from it."""
    before = published_queries(ledger, old).get(query.name)
    if before is not None and dict(before.columns) != dict(query.columns):
        raise UsageError(
            f"query {query.name} had other columns at revision {old.revision}: {', '.join(before.columns)}. There are "
            "no changes from these to its rows.",
            f"altneu show query {query.name}",
        )


def list_queries(ledger: Ledger, revision: Revision) -> list[dict[str, Any]]:
    """Return a row for each query of a revision: its columns, its stored rows, whether it is maintained or recomputed,
    what the last run has done and changed and how long that took, and the seconds of its last audit.
    """
    sizes, rows = ledger.stages.table_sizes(), []
    runs, audits = _recent_facts(ledger)
    for name, query in published_queries(ledger, revision).items():
        last = runs.get(name)
        rows.append(
            {
                "query": name,
                "columns": ", ".join(query.columns),
                "reads": "its files" if query.has_landed else ", ".join(query.relations),
                "kept": "recomputed" if query.is_recomputed else "maintained",
                "stored": sizes[query.table].rows if query.table in sizes else None,
                "state": sizes[query.state_table].rows if query.state_table in sizes else None,
                "last": None if last is None else last.way,
                "changed": None if last is None else last.rows,
                "seconds": None if last is None else last.seconds,
                "audit": audits.get(name),
            }
        )
    return rows


def list_dropped_queries(ledger: Ledger) -> dict[str, int]:
    """Return the queries that the newest revision has no more: name → the last revision that can be read with it."""
    last = {
        table.removeprefix(PREFIX): revision.revision
        for revision in ledger.revisions.list_all()
        for table in revision.snapshots
        if table.startswith(PREFIX) and not table.endswith(STATE)
    }
    newest = ledger.revisions.get().revision
    return {name: revision for name, revision in last.items() if revision < newest}


def _recent_facts(ledger: Ledger) -> tuple[Mapping[str, Any], Mapping[str, float]]:
    """Return what the last runs have done for each query, and the seconds of its last recomputation."""
    runs: dict[str, Any] = {}
    audits: dict[str, float] = {}
    for row in ledger.stages.list_recent(32):
        if isinstance(row.facts, QueriesFacts):
            runs |= row.facts.queries
        if isinstance(row.facts, AuditFacts):
            audits |= row.facts.queries
    return runs, audits


def _quote_columns(tables: Tables[R], query: QueryDefinition) -> str:
    return ", ".join(map(tables.quote_identifier, query.columns))


def _name_result_vertices(tables: Tables[R], revision: Revision, query: QueryDefinition, rows: R) -> R:
    return replace_with_names(tables, revision, rows, list(query.vertices)) if query.vertices else rows
