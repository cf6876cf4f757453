"""Which declared queries a run computes from their changes, which anew, and which it drops."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..home.queries import Definitions, QueryDefinition, list_query_files, read_queries, recorded_queries
from ..state.ledger import Ledger
from ..state.records import Revision
from ..storage.table_schemas import query_inputs

# what a run does for a query
NOTHING, DELTA, ANEW, RECOMPUTED = "nothing", "delta", "anew", "recomputed"


@dataclass(frozen=True)
class QueryChanges:
    """The queries of a run on a revision.

    unchanged: those with the meaning that the revision has. anew: new or changed ones, each with the reason. dropped:
    those that the revision has and the run has not. rewritten_tables: the tables that are written again. relations:
    those of them all that are declared relations. recomputed: those that are not maintained, but recomputed by their
    texts.
    """

    unchanged: tuple[str, ...] = ()
    anew: tuple[tuple[str, str], ...] = ()
    dropped: tuple[str, ...] = ()
    rewritten_tables: frozenset[str] = frozenset()
    is_published: bool = False
    relations: tuple[str, ...] = ()
    recomputed: tuple[str, ...] = ()

    @property
    def needs_run(self) -> bool:
        """Tell whether a run is needed though nothing has landed."""
        return self.is_published and bool(self.anew or self.dropped)

    def describe_pending(self) -> str:
        """Describe the queries that differ from what is published, for a person."""
        words = [*(f"{name} ({why})" for name, why in self.anew), *(f"{name} (dropped)" for name in self.dropped)]
        return ", ".join(words)


def compare_queries(ledger: Ledger, parent: Revision) -> QueryChanges:
    """Compare the queries of a home with those of a revision.

    Raises:
        UsageError: some queries cannot be maintained.
    """
    home = ledger.home
    before = _published_queries(ledger, parent)
    declared = list_query_files(home.path) or home.config.relations or home.config.queries.recompute
    if not before and not declared:
        return QueryChanges()
    now = read_queries(home)
    rewritten, reasons = find_rewritten_tables(now, ledger, parent), dict[str, str]()
    for name, definition in now.items():
        if definition.table in rewritten:
            reasons[name] = _explain_rewrite(definition, before.get(name), reasons)
    return QueryChanges(
        tuple(name for name in now if name not in reasons),
        tuple(reasons.items()),
        tuple(name for name in before if name not in now),
        rewritten,
        parent.frontier is not None,
        tuple(name for name, definition in now.items() if definition.has_landed),
        tuple(name for name, definition in now.items() if definition.is_recomputed),
    )


def find_rewritten_tables(queries: Definitions, ledger: Ledger, parent: Revision) -> frozenset[str]:
    """Find the tables of new and changed queries and of those that read them, and the inputs that the revision does
    not have.
    """
    before = _published_queries(ledger, parent)
    rewritten = {table for table in query_inputs(queries) if table not in parent.snapshots}
    for name, definition in queries.items():
        lacking = set(definition.columns_by_table) - set(parent.snapshots)
        inputs = {queries[other].table for other in definition.relations if other in queries}
        if lacking or inputs & rewritten or not definition.has_same_meaning(before.get(name)):
            rewritten |= set(definition.columns_by_table)
    return frozenset(rewritten)


def _explain_rewrite(now: QueryDefinition, before: QueryDefinition | None, anew: Collection[str]) -> str:
    if before is None:
        return "it is new"
    inputs = [name for name in now.relations if name in anew]
    if now.has_same_meaning(before) and inputs:
        return f"it reads {inputs[0]}"
    return "its columns have changed" if now.has_landed else "its text has changed"


def _published_queries(ledger: Ledger, parent: Revision) -> Definitions:
    return {} if parent.frontier is None else recorded_queries(ledger.runs.get(parent.run_id).config)
