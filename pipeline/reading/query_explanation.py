"""The explanation of a row of a declared query: the rows of its relations that make it, and their landed rows.

The relations are read from the pinned tables, as they are at the epoch. A row that the result does not have is
explained, too: by the rows that would make it, which are too few for HAVING, or none. A row of a declared relation is
explained by the landed rows of its key. Rows of other queries and of `vertices` are not followed further: they have a
command that explains them.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..home.queries import ARCS, EDGES, LANDED_ROWS, VERTICES, Definitions, QueryDefinition
from ..state.records import Revision
from ..storage.table_schemas import value_columns
from .engine_protocol import R, Tables
from .explain import Document, landed_rows_with_fate, name_vertices
from .query_results import COPIES
from .vertex_names import numbers_of_names
from .views import require_answerable

if TYPE_CHECKING:
    from altneu.algorithms.query_witnesses import WitnessQuery

COMBINATIONS = 12  # that are listed
ENDS = ("src", "dst")
_NUMBERS = {
    "bigint": re.compile(r"[+-]?[0-9]+"),
    "double": re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"),
}


@dataclass(frozen=True)
class _Relation:
    """A relation of a query: its table, its columns, those that are vertices, and its rows as of an epoch as SQL."""

    table: str
    columns: tuple[str, ...]
    vertices: tuple[str, ...]
    sql: str


def explain_query_row(
    tables: Tables[R],
    revision: Revision,
    query: QueryDefinition,
    definitions: Definitions,
    epoch: int,
    values: Mapping[str, str],
) -> Document:
    """Explain a row of a result, of which some columns are given as text; `definitions` has the queries that it reads.

    Raises:
        UsageError: The query has no such column, or a value is not of its type.
    """
    require_answerable(tables.home, revision, epoch)
    known = {name: _write_value(tables, revision, query, name, text) for name, text in values.items()}
    rows = _select_result_rows(tables, revision, query, epoch, known)
    row = rows[0] if rows else None
    if row is not None:
        known = {name: _write_literal(tables, row[name]) for name in query.columns}
    combinations, number = _select_combinations(tables, revision, query, definitions, epoch, known)
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
    tables: Tables[R],
    revision: Revision,
    query: QueryDefinition,
    definitions: Definitions,
    epoch: int,
    row: Mapping[str, Any],
) -> list[str]:
    """Return the landed rows behind a differing row of an audit, as lines of text."""
    known = {name: _write_literal(tables, row[name]) for name in query.columns}
    combinations, number = _select_combinations(tables, revision, query, definitions, epoch, known)
    lines = [f"behind it are {number:,} combination(s) of rows"]
    for part in (part for parts in combinations for part in parts):
        for landed in part["landed"]:
            place = f"{landed['file']} line {landed['line']}"
            what = (
                f"{landed['src']} → {landed['dst']}" if "src" in landed else ", ".join(map(str, part["row"].values()))
            )
            text = f"landed at {landed['epoch']}: {landed['op']} {what}, {place}"
            lines.append(f"{text}: {landed['fate']}" if part["relation"] in (ARCS, EDGES) else text)
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
    tables: Tables[R],
    revision: Revision,
    query: QueryDefinition,
    definitions: Definitions,
    epoch: int,
    known: Mapping[str, str],
) -> tuple[list[list[Document]], int]:
    """Return the first combinations of rows that make a row, each with its landed rows, and their number."""
    from altneu.algorithms.query_witnesses import list_witness_queries

    read = query.relations or (query.name,)  # a declared relation reads its own rows
    relations = {name: _describe_relation(tables, definitions, name, epoch) for name in read}
    ctes = ", ".join(f"{tables.quote_identifier(name)} AS ({each.sql})" for name, each in relations.items())
    stored = {each.table: tables.read_table(each.table, revision) for each in relations.values()}
    columns = {name: each.columns for name, each in relations.items()}
    text = query.text if query.has_landed else query.normal_form
    dialect = "spark" if tables.distributed else "duckdb"
    parts: list[list[Document]] = []
    number = 0
    for witness in list_witness_queries(text, known, columns, dialect):
        sql = witness.sql.replace("{", "{{").replace("}", "}}")
        listed = f"SELECT *, count(*) OVER () AS _number FROM ({sql}) AS w LIMIT {COMBINATIONS}"
        rows = tables.collect_rows(tables.select_rows(f"WITH {ctes} {listed}", **stored))
        number += rows[0]["_number"] if rows else 0
        parts += [_list_parts(witness, row) for row in rows[: COMBINATIONS - len(parts)]]
    return _add_landed_rows(tables, revision, definitions, relations, epoch, parts), number


def _list_parts(witness: WitnessQuery, row: Mapping[str, Any]) -> list[Document]:
    """Return the rows of the relations in a combination, without those that a LEFT JOIN has not found."""
    rows = {
        alias: {name: row[column] for name, column in columns.items()} for alias, columns in witness.columns.items()
    }
    return [
        {"alias": alias, "relation": relation, "row": rows[alias]}
        for alias, relation in witness.atoms.items()
        if any(value is not None for value in rows[alias].values())
    ]


def _describe_relation(tables: Tables[R], definitions: Definitions, relation: str, epoch: int) -> _Relation:
    """Return a relation as it is at an epoch."""
    columns: tuple[str, ...]
    if relation == EDGES:
        ends = "a AS src, b AS dst, k AS trussness"
        sql = f"SELECT {ends} FROM {{trussness}} WHERE epoch <= {epoch} GROUP BY a, b, k HAVING sum(diff) > 0"
        return _Relation("trussness", (*ENDS, "trussness"), ENDS, sql)
    if relation == LANDED_ROWS:
        columns = (*ENDS, *tables.home.config.values, "op", "seq", "epoch", "file", "line")
        own = "" if "age" in (name.lower() for name in value_columns(tables.home)) else f", {epoch} - epoch AS age"
        sql = f"SELECT *{own} FROM ({_select_present(tables, 'upserts', columns, f'epoch <= {epoch}')})"
        return _Relation("upserts", columns, ENDS, sql)
    if relation == ARCS:
        columns = (*ENDS, *tables.home.config.values)
        lives = f"epoch <= {epoch} AND until > {epoch}"
        return _Relation("arcs", columns, ENDS, _select_present(tables, "arcs", columns, lives))
    if relation == VERTICES:
        columns = ("vertex", "degree", "triangles")
        sql = _select_present(tables, VERTICES, columns, f"epoch <= {epoch}")
        return _Relation(VERTICES, columns, ("vertex",), sql)
    query = definitions[relation]
    columns = tuple(query.columns)
    sql = _select_present(tables, query.table, columns, f"epoch <= {epoch}")
    return _Relation(query.table, columns, query.vertices, sql)


def _select_present(tables: Tables[R], table: str, columns: Sequence[str], condition: str) -> str:
    quoted = ", ".join(map(tables.quote_identifier, columns))
    return f"SELECT {quoted} FROM {{{table}}} WHERE {condition} GROUP BY {quoted} HAVING sum(diff) > 0"


def _add_landed_rows(
    tables: Tables[R],
    revision: Revision,
    definitions: Definitions,
    relations: Mapping[str, _Relation],
    epoch: int,
    combinations: Sequence[list[Document]],
) -> list[list[Document]]:
    """Return combinations with the landed rows behind each part, or the command that explains it, and with names."""
    of_edges = (LANDED_ROWS, ARCS, EDGES)
    pairs = {_sort_ends(part["row"]) for parts in combinations for part in parts if part["relation"] in of_edges}
    landed = landed_rows_with_fate(tables, revision, sorted(pairs), epoch)

    def explain_part(part: Document) -> Document:
        relation, definition = part["relation"], definitions.get(part["relation"])
        named = _name_ends(tables, revision, part["row"], relations[relation].vertices)
        if relation in of_edges:
            rows = [_name_ends(tables, revision, row, ENDS) for row in landed if _is_behind(row, part)]
        elif definition is not None and definition.has_landed:
            rows = _select_landed_rows(tables, revision, definition, epoch, part["row"])
        else:
            return {**part, "row": named, "landed": [], "next": _write_next_command(relation, named)}
        return {**part, "row": named, "landed": rows}

    return [list(map(explain_part, parts)) for parts in combinations]


def _select_landed_rows(
    tables: Tables[R], revision: Revision, relation: QueryDefinition, epoch: int, row: Mapping[str, Any]
) -> list[Document]:
    """Return the landed rows of a key of a declared relation up to an epoch, in the order of their time."""
    columns = (*relation.columns, "op", "seq", "epoch", "file", "line")
    tests = [f"{tables.quote_identifier(name)} = {_write_literal(tables, row[name])}" for name in relation.key]
    sql = _select_present(tables, relation.state_table, columns, " AND ".join([f"epoch <= {epoch}", *tests]))
    stored = {relation.state_table: tables.read_table(relation.state_table, revision)}
    rows = sorted(tables.collect_rows(tables.select_rows(sql, **stored)), key=lambda row: (row["epoch"], row["seq"]))
    label = tables.home.schedule.format_label
    return [
        {**_name_ends(tables, revision, landed, relation.vertices), "epoch": label(landed["epoch"])} for landed in rows
    ]


def _write_next_command(relation: str, row: Mapping[str, Any]) -> str:
    """Write the command that explains a row of `vertices` or of another query."""
    if relation == VERTICES:
        return shlex.join(["altneu", "explain", "vertex", str(row["vertex"])])
    values = [f"{name}={'null' if value is None else value}" for name, value in row.items()]
    return shlex.join(["altneu", "explain", "query", relation, *values])


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
