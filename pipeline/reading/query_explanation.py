"""The explanation of a row of a declared query: the rows of its relations that make it, and their landed rows.

The relations are read from the pinned tables, as they are at the epoch. A row that the result does not have is
explained, too: by the rows that would make it, which are too few for HAVING, or none.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

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
_TABLES = {LANDED_ROWS: "upserts", ARCS: "arcs", EDGES: "trussness", VERTICES: "vertices"}
_NUMBERS = {
    "bigint": re.compile(r"[+-]?[0-9]+"),
    "double": re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"),
}


def explain_query_row(
    tables: Tables[R], revision: Revision, definitions: Definitions, name: str, epoch: int, values: Mapping[str, str]
) -> Document:
    """Explain a row of the result of the query `name`, some of whose columns are given as text.

    Raises:
        UsageError: A value is not of its column's type, the epoch cannot be answered for, or the query is recomputed.
    """
    query = definitions[name]
    if query.is_recomputed:
        raise UsageError(
            f"query {name} is recomputed by its text, so that nobody knows which landed rows make a row.",
            f"altneu show query {name}",
        )
    require_answerable(tables.home, revision, epoch)
    known = {name: _write_value(tables, revision, query, name, text) for name, text in values.items()}
    rows = _select_result_rows(tables, revision, query, epoch, known)
    row = rows[0] if rows else None
    if row is not None:
        known = {name: _write_literal(tables, row[name]) for name in query.columns}
    combinations, number = _Witnesses(tables, revision, definitions, epoch).select(query, known)
    shown = dict(values) if row is None else _name_vertices(tables, revision, row, query.vertices)
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
    tables: Tables[R], revision: Revision, definitions: Definitions, name: str, epoch: int, row: Mapping[str, Any]
) -> list[str]:
    """Return the landed rows behind a differing row of an audit, as lines of text."""
    query = definitions[name]
    if query.is_recomputed:
        return []
    known = {name: _write_literal(tables, row[name]) for name in query.columns}
    combinations, number = _Witnesses(tables, revision, definitions, epoch).select(query, known)
    lines = [f"behind it are {number:,} combination(s) of rows"]
    for part in (part for parts in combinations for part in parts):
        for landed in part["landed"]:
            place = f"{landed['file']} line {landed['line']}"
            key = " → ".join(str(landed[end]) for end in ENDS) if "src" in landed else part["relation"]
            text = f"landed at {landed['epoch']}: {landed['op']} {key}, {place}"
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


@dataclass(frozen=True)
class _Witnesses(Generic[R]):
    """The rows of relations that make rows of results, as they are at an epoch of a revision."""

    tables: Tables[R]
    revision: Revision
    definitions: Definitions
    epoch: int

    def select(self, query: QueryDefinition, known: Mapping[str, str]) -> tuple[list[list[Document]], int]:
        """Return the first combinations of rows that make a row, each with its landed rows, and their number."""
        from altneu.algorithms.query_witnesses import list_witness_queries

        names = (query.name,) if query.has_landed else query.relations
        ctes = ", ".join(f"{self.tables.quote_identifier(name)} AS ({self.write_relation(name)})" for name in names)
        stored = {self.find_table(name): self.tables.read_table(self.find_table(name), self.revision) for name in names}
        text = query.text if query.has_landed else query.normal_form
        columns = {name: tuple(self.columns_of(name)) for name in names}
        witnesses: list[list[Document]] = []
        number = 0
        for witness in list_witness_queries(text, known, columns, "spark" if self.tables.distributed else "duckdb"):
            combinations = witness.sql.replace("{", "{{").replace("}", "}}")
            listed = f"SELECT *, count(*) OVER () AS _number FROM ({combinations}) AS w LIMIT {COMBINATIONS}"
            rows = self.tables.collect_rows(self.tables.select_rows(f"WITH {ctes} {listed}", **stored))
            number += rows[0]["_number"] if rows else 0
            witnesses += [_split_row(witness, row) for row in rows[: COMBINATIONS - len(witnesses)]]
        return self.add_landed_rows(witnesses), number

    def find_table(self, relation: str) -> str:
        return self.definitions[relation].table if relation in self.definitions else _TABLES[relation]

    def columns_of(self, relation: str) -> Sequence[str]:
        if relation in self.definitions:
            return list(self.definitions[relation].columns)
        if relation in (EDGES, VERTICES):
            return (*ENDS, "trussness") if relation == EDGES else ("vertex", "degree", "triangles")
        values = (*ENDS, *self.tables.home.config.values)
        return (*values, "op", "seq", "epoch", "file", "line") if relation == LANDED_ROWS else values

    def vertices_of(self, relation: str) -> Sequence[str]:
        """Return the columns of a relation that are vertices."""
        if relation in self.definitions:
            return self.definitions[relation].vertices
        return ("vertex",) if relation == VERTICES else ENDS

    def write_relation(self, relation: str) -> str:
        """Write the query for a relation as it is at the epoch."""
        listed = ", ".join(map(self.tables.quote_identifier, self.columns_of(relation)))
        table, alive = f"{{{self.find_table(relation)}}}", f"epoch <= {self.epoch}"
        if relation == EDGES:
            summed = f"SELECT a AS src, b AS dst, k AS trussness FROM {table} WHERE {alive} GROUP BY a, b, k"
            return f"{summed} HAVING sum(diff) > 0"
        alive += f" AND until > {self.epoch}" if relation == ARCS else ""
        summed = f"SELECT {listed} FROM {table} WHERE {alive} GROUP BY {listed} HAVING sum(diff) > 0"
        if relation != LANDED_ROWS or "age" in (name.lower() for name in value_columns(self.tables.home)):
            return summed
        return f"SELECT *, {self.epoch} - epoch AS age FROM ({summed})"

    def add_landed_rows(self, combinations: Sequence[list[Document]]) -> list[list[Document]]:
        """Return combinations whose rows have the landed rows that make them, and the names of vertices."""
        parts = [part for parts in combinations for part in parts]
        pairs = sorted({_sort_ends(part["row"]) for part in parts if part["relation"] in _OF_PAIRS})
        landed = landed_rows_with_fate(self.tables, self.revision, pairs, self.epoch)
        return [[self.complete_part(part, landed) for part in parts] for parts in combinations]

    def complete_part(self, part: Document, landed: Sequence[Document]) -> Document:
        relation = part["relation"]
        if relation in _OF_PAIRS:
            mine = [self.name_row(row, ENDS) for row in landed if _is_behind(row, part)]
        else:
            mine = self.select_own_rows(relation, part["row"])
        named = self.name_row(part["row"], self.vertices_of(relation))
        own = self.definitions.get(relation)
        has_landed = relation in _OF_PAIRS or (own is not None and own.has_landed)
        following = {} if has_landed else {"next": _write_next_command(relation, named)}
        return {**part, "row": named, "landed": mine, **following}

    def select_own_rows(self, relation: str, row: Mapping[str, Any]) -> list[Document]:
        """Return the landed rows of a row's key in a declared relation; a query's rows have none of their own."""
        definition = self.definitions.get(relation)
        if definition is None or not definition.has_landed:
            return []
        tables, quote = self.tables, self.tables.quote_identifier
        tests = [f"{quote(name)} = {_write_literal(tables, row[name])}" for name in definition.key]
        listed = ", ".join([*map(quote, definition.state), "epoch"])
        sql = (
            f"SELECT {listed} FROM {{rows}} WHERE {' AND '.join([f'epoch <= {self.epoch}', *tests])} "
            f"GROUP BY {listed} HAVING sum(diff) > 0"
        )
        rows = tables.select_rows(sql, rows=tables.read_table(definition.state_table, self.revision))
        in_order = sorted(
            tables.collect_rows(rows), key=lambda each: (each["epoch"], each["seq"], each["op"] == "upsert")
        )
        label = tables.home.schedule.format_label
        return [
            {
                **self.name_row(each, definition.vertices),
                "epoch": label(each["epoch"]),
                "fate": _tell_fate(each, row),
            }
            for each in in_order
        ]

    def name_row(self, row: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
        return _name_vertices(self.tables, self.revision, row, columns)


_OF_PAIRS = (LANDED_ROWS, ARCS, EDGES)


def _tell_fate(landed: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """Tell whether a landed row of a key has the values that are in force."""
    same = landed["op"] == "upsert" and all(landed[name] == value for name, value in row.items())
    return "has these values" if same else "overwritten"


def _write_next_command(relation: str, row: Mapping[str, Any]) -> str:
    """Write the command that explains a row of `vertices` or of another query."""
    if relation == VERTICES:
        return shlex.join(["altneu", "explain", "vertex", str(row["vertex"])])
    values = [f"{name}={'null' if value is None else value}" for name, value in row.items()]
    return shlex.join(["altneu", "explain", "query", relation, *values])


def _split_row(witness: WitnessQuery, row: Mapping[str, Any]) -> list[Document]:
    """Return the rows of the atoms that a combination has, without those that an outer join has not found."""
    parts: list[Document] = [
        {"alias": alias, "relation": relation, "row": {name: row[at] for name, at in witness.columns[alias].items()}}
        for alias, relation in witness.atoms.items()
    ]
    return [part for part in parts if any(value is not None for value in part["row"].values())]


def _sort_ends(row: Mapping[str, Any]) -> tuple[int, int]:
    return min(row["src"], row["dst"]), max(row["src"], row["dst"])


def _is_behind(landed: Mapping[str, Any], part: Document) -> bool:
    """Tell whether a landed row makes a row of a relation, or was overwritten by one that does."""
    row = part["row"]
    if part["relation"] == LANDED_ROWS:
        return all(landed[name] == row[name] for name in (*ENDS, "file", "line", "seq", "op"))
    same = _sort_ends(landed) == _sort_ends(row)
    return same and (part["relation"] == EDGES or landed["src"] == row["src"])


def _name_vertices(
    tables: Tables[R], revision: Revision, row: Mapping[str, Any], columns: Sequence[str]
) -> dict[str, Any]:
    """Return a row with the names of its vertices."""
    there = [name for name in columns if row[name] is not None]
    return dict(row) | dict(zip(there, name_vertices(tables, revision, [row[name] for name in there]), strict=True))
