"""The explanation of a row of a declared query: the rows of its relations that make it, and their landed rows.

The relations are read from the pinned tables, as they are at the epoch. A row that the result does not have is
explained, too: by the rows that would make it, which are too few for HAVING, or none.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import UsageError
from ..home.queries import ARCS, EDGES, LANDED_ROWS, QueryDefinition
from ..state.records import Revision
from ..storage.table_schemas import value_columns
from .engine_protocol import R, Tables
from .explain import Document, landed_rows_with_fate, name_vertices
from .query_results import COPIES
from .vertex_names import numbers_of_names
from .views import require_answerable

COMBINATIONS = 12  # that are listed
ENDS = ("src", "dst")
_TABLES = {LANDED_ROWS: "upserts", ARCS: "arcs", EDGES: "trussness"}
_NUMBERS = {
    "bigint": re.compile(r"[+-]?[0-9]+"),
    "double": re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"),
}


def explain_query_row(
    tables: Tables[R], revision: Revision, query: QueryDefinition, epoch: int, values: Mapping[str, str]
) -> Document:
    """Explain a row of a result, of which some columns are given as text.

    Raises:
        UsageError: The query has no such column, or a value is not of its type.
    """
    require_answerable(tables.home, revision, epoch)
    known = {name: _write_value(tables, revision, query, name, text) for name, text in values.items()}
    rows = _select_result_rows(tables, revision, query, epoch, known)
    row = rows[0] if rows else None
    if row is not None:
        known = {name: _write_literal(tables, row[name]) for name in query.columns}
    combinations, number = _select_combinations(tables, revision, query, epoch, known)
    shown = dict(values) if row is None else _name_ends(tables, revision, row, query.vertices)
    return {
        "query": query.name,
        "row": {name: value for name, value in shown.items() if name != COPIES},
        "epoch": tables.home.schedule.format_label(epoch),
        "revision": revision.revision,
        "copies": 0 if row is None else row[COPIES],
        "rows_not_explained": max(0, len(rows) - 1),
        "combinations": combinations,
        "combinations_not_listed": number - len(combinations),
    }


def explain_query_difference(
    tables: Tables[R], revision: Revision, query: QueryDefinition, epoch: int, row: Mapping[str, Any]
) -> list[str]:
    """Return the landed rows behind a differing row of an audit, as lines of text."""
    known = {name: _write_literal(tables, row[name]) for name in query.columns}
    combinations, number = _select_combinations(tables, revision, query, epoch, known)
    lines = [f"behind it are {number:,} combination(s) of rows"]
    for part in (part for parts in combinations for part in parts):
        for landed in part["landed"]:
            place = f"{landed['file']} line {landed['line']}"
            text = f"landed at {landed['epoch']}: {landed['op']} {landed['src']} → {landed['dst']}, {place}"
            lines.append(text if part["relation"] == LANDED_ROWS else f"{text}: {landed['fate']}")
    return list(dict.fromkeys(lines))[: 1 + COMBINATIONS]


def find_column(query: QueryDefinition, name: str) -> str:
    """Return the column of a result that is meant, or raise `UsageError` with the nearest one."""
    by_lower = {column.lower(): column for column in query.columns}
    if name.lower() in by_lower:
        return by_lower[name.lower()]
    near = difflib.get_close_matches(name.lower(), by_lower, 1)
    hint = f" Did you mean {by_lower[near[0]]}?" if near else ""
    raise UsageError(
        f"query {query.name} has no column {name!r}; it has {', '.join(query.columns)}.{hint}",
        f"altneu show query {query.name}",
    )


def _write_value(tables: Tables[R], revision: Revision, query: QueryDefinition, name: str, text: str) -> str:
    """Write a value that a person has typed as SQL."""
    type_ = query.columns[name]
    if name in query.vertices:
        return str(numbers_of_names(tables, [text], revision)[0])
    if text.lower() == "null":
        return "NULL"
    if type_ == "string":
        return tables.text_literal(text)
    if type_ == "boolean" and text.lower() in ("true", "false"):
        return text.lower()
    if type_ not in _NUMBERS or not _NUMBERS[type_].fullmatch(text):
        raise UsageError(
            f"{name} = {text}: {name} is of type {type_}.", f"altneu show query {query.name} --format json"
        )
    return text


def _write_literal(tables: Tables[R], value: Any) -> str:
    """Write a stored value as SQL."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return tables.text_literal(value)
    if isinstance(value, float):
        return f"CAST('{value}' AS double)"
    return str(value).lower()


def _select_result_rows(
    tables: Tables[R], revision: Revision, query: QueryDefinition, epoch: int, known: Mapping[str, str]
) -> list[dict[str, Any]]:
    listed = ", ".join(map(tables.quote_identifier, query.columns))
    tests = [f"{tables.quote_identifier(name)} IS NOT DISTINCT FROM {value}" for name, value in known.items()]
    sql = (
        f"SELECT {listed}, CAST(sum(diff) AS BIGINT) AS {COPIES} FROM {{stored}} "
        f"WHERE {' AND '.join([f'epoch <= {epoch}', *tests])} GROUP BY {listed} HAVING sum(diff) <> 0"
    )
    rows = tables.collect_rows(tables.select_rows(sql, stored=tables.read_table(query.table, revision)))
    return sorted(rows, key=str)


def _select_combinations(
    tables: Tables[R], revision: Revision, query: QueryDefinition, epoch: int, known: Mapping[str, str]
) -> tuple[list[list[Document]], int]:
    """Return the first combinations of rows that make a row, each with its landed rows, and their number."""
    from altneu.algorithms.query_witnesses import list_witness_queries

    relations = {name: _relation_columns(tables, name) for name in query.relations}
    ctes = ", ".join(f"{name} AS ({_write_relation(tables, name, epoch)})" for name in query.relations)
    stored = {_TABLES[name]: tables.read_table(_TABLES[name], revision) for name in query.relations}
    dialect = "spark" if tables.distributed else "duckdb"
    found: list[list[Document]] = []
    number = 0
    for witness in list_witness_queries(query.normal_form, known, relations, dialect):
        text = witness.sql.replace("{", "{{").replace("}", "}}")
        listed = f"SELECT *, count(*) OVER () AS _number FROM ({text}) AS w LIMIT {COMBINATIONS}"
        rows = tables.collect_rows(tables.select_rows(f"WITH {ctes} {listed}", **stored))
        number += rows[0]["_number"] if rows else 0
        for row in rows[: COMBINATIONS - len(found)]:
            found.append(
                [
                    {"alias": alias, "relation": relation, "row": values}
                    for alias, relation in witness.atoms.items()
                    if (values := {name: row[column] for name, column in witness.columns[alias].items()})["src"]
                    is not None
                ]
            )
    return _add_landed_rows(tables, revision, epoch, found), number


def _relation_columns(tables: Tables[R], relation: str) -> tuple[str, ...]:
    if relation == EDGES:
        return (*ENDS, "trussness")
    values = (*ENDS, *tables.home.config.values)
    return (*values, "op", "seq", "epoch", "file", "line") if relation == LANDED_ROWS else values


def _write_relation(tables: Tables[R], relation: str, epoch: int) -> str:
    """Write the query for a relation as it is at an epoch."""
    if relation == EDGES:
        ends = "a AS src, b AS dst, k AS trussness"
        return f"SELECT {ends} FROM {{trussness}} WHERE epoch <= {epoch} GROUP BY a, b, k HAVING sum(diff) > 0"
    quoted = ", ".join(map(tables.quote_identifier, _relation_columns(tables, relation)))
    if relation == LANDED_ROWS:
        summed = f"SELECT {quoted} FROM {{upserts}} WHERE epoch <= {epoch} GROUP BY {quoted} HAVING sum(diff) > 0"
        own = "" if "age" in (name.lower() for name in value_columns(tables.home)) else f", {epoch} - epoch AS age"
        return f"SELECT *{own} FROM ({summed})"
    lives = f"epoch <= {epoch} AND until > {epoch}"
    return f"SELECT {quoted} FROM {{arcs}} WHERE {lives} GROUP BY {quoted} HAVING sum(diff) > 0"


def _add_landed_rows(
    tables: Tables[R], revision: Revision, epoch: int, combinations: Sequence[list[Document]]
) -> list[list[Document]]:
    pairs = sorted({_sort_ends(part["row"]) for parts in combinations for part in parts})
    landed = landed_rows_with_fate(tables, revision, pairs, epoch)
    return [
        [
            {
                **part,
                "row": _name_ends(tables, revision, part["row"], ENDS),
                "landed": [_name_ends(tables, revision, row, ENDS) for row in landed if _is_behind(row, part)],
            }
            for part in parts
        ]
        for parts in combinations
    ]


def _sort_ends(row: Mapping[str, Any]) -> tuple[int, int]:
    return min(row["src"], row["dst"]), max(row["src"], row["dst"])


def _is_behind(landed: Mapping[str, Any], part: Document) -> bool:
    """Tell whether a landed row makes a row of a relation, or was overwritten by one that does."""
    row = part["row"]
    if part["relation"] == LANDED_ROWS:
        return all(landed[name] == row[name] for name in (*ENDS, "file", "line", "seq", "op"))
    same = _sort_ends(landed) == _sort_ends(row)
    return same and (part["relation"] == EDGES or landed["src"] == row["src"])


def _name_ends(tables: Tables[R], revision: Revision, row: Mapping[str, Any], ends: Sequence[str]) -> dict[str, Any]:
    """Return a row with the names of its vertices."""
    there = [name for name in ends if row[name] is not None]
    return dict(row) | dict(zip(there, name_vertices(tables, revision, [row[name] for name in there]), strict=True))
