"""The columns of stored tables from which those of a declared query come, for lineage.

`trace_columns` asks the compiler. The state of a query is no table of a catalog's users: it is left out, and a result
comes from the relations themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..home.home import Home
from ..home.queries import (
    ARCS,
    EDGES,
    LANDED_ROWS,
    VERTICES,
    Definitions,
    QueryDefinition,
    is_relation_rows,
    known_relations,
)

LANDING = "landing"
_TABLES = {LANDED_ROWS: "upserts", ARCS: ARCS, EDGES: "trussness", VERTICES: VERTICES}
_COLUMNS = {
    LANDED_ROWS: {"age": "epoch"},
    EDGES: {"src": "a", "dst": "b", "trussness": "k"},
}  # relation → column → what it is called in the table


class TracedColumns(NamedTuple):
    """The origin of a table's columns, each written `TABLE.COLUMN`.

    sources: column → those that its values are made of. deciding: those that decide which rows there are.
    """

    sources: Mapping[str, Sequence[str]]
    deciding: Sequence[str] = ()


def trace_columns(home: Home, table: str, definitions: Definitions) -> TracedColumns:
    """Return the origin of the columns of a query's table, or of a declared relation's.

    There is none of a query whose text the settings of the home do not allow any more.
    """
    definition = next(each for each in definitions.values() if table in each.columns_by_table)
    if definition.has_landed:
        return TracedColumns(_trace_relation(definition, table))
    if table == definition.state_table:
        return TracedColumns({})
    from altneu.algorithms.sql_query import compile_query

    try:
        query = compile_query(definition.text, known_relations(home, definitions))
    except ValueError:
        return TracedColumns({})
    sources = {column: _qualify_columns(definitions, each) for column, each in query.sources.items()}
    return TracedColumns(sources, _qualify_columns(definitions, query.deciding))


def _trace_relation(relation: QueryDefinition, table: str) -> dict[str, list[str]]:
    columns = relation.columns_by_table[table]
    if is_relation_rows(table):
        landed = [name for name in columns if name not in ("file", "line")]
        return {name: [f"{LANDING}.{relation.name}/{name}"] for name in landed}
    return {name: [f"{relation.state_table}.{name}"] for name in columns}


def _qualify_columns(definitions: Definitions, columns: frozenset[tuple[str, str]]) -> list[str]:
    return sorted({_qualify_column(definitions, relation, column) for relation, column in columns})


def _qualify_column(definitions: Definitions, relation: str, column: str) -> str:
    table = definitions[relation].table if relation in definitions else _TABLES[relation]
    return f"{table}.{_COLUMNS.get(relation, {}).get(column, column)}"
