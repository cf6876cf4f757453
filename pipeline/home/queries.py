"""The declared queries of a home: the files `queries/NAME.sql`, each with one SELECT, and what a run records of them.

`read_queries` compiles all files, those first that others read, and reports the problems of all of them at once. A run
records their definitions with its settings, and its stages work from what is recorded. A declared relation
(`[relations.NAME]`) has a definition as well: its result are the rows in force, and its state are the rows that have
landed. The modules that parse SQL are imported only where a home has a query.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from ..errors import UsageError
from .columns import SQL_TYPES
from .home import Home
from .setting_types import RELATIONS
from .settings import DeclaredRelation

if TYPE_CHECKING:
    from altneu.algorithms.sql_query import Relation

FOLDER = "queries"
PREFIX, STATE = "query_", "_state"  # the tables of a query are query_NAME and query_NAME_state
RELATION_PREFIX, ROWS = "relation_", "_rows"  # those of a declared relation are relation_NAME and relation_NAME_rows
LANDED_ROWS, ARCS, EDGES, VERTICES = RELATIONS
_NAME = re.compile(r"[a-z][a-z0-9_]{0,19}")
_LISTS = ("relations", "key", "vertices")
_NAMING = "a query's name begins with a letter and has at most 20 lower-case letters, digits and _"


@dataclass(frozen=True)
class QueryDefinition:
    """A query as a run records it: its text, and the data columns of its tables with their types.

    state: the columns of its state, none where there is no last step. normal_form: equal for texts that mean the same.
    relations: what it reads, also other queries. key: the columns of its result of which no two rows have the same
    values, none where a row may occur twice. vertices: the columns of its result that are numbers of vertices with
    names, in a home with string ids. has_landed: it is a declared relation, whose rows have landed. is_recomputed: it
    is not maintained, but recomputed by its text.
    """

    name: str
    text: str
    normal_form: str
    columns: Mapping[str, str]
    state: Mapping[str, str]
    relations: tuple[str, ...]
    key: tuple[str, ...] = ()
    vertices: tuple[str, ...] = ()
    has_landed: bool = False
    is_recomputed: bool = False

    @property
    def is_set(self) -> bool:
        """Tell whether no row of the result occurs twice."""
        return bool(self.key)

    @property
    def table(self) -> str:
        return (RELATION_PREFIX if self.has_landed else PREFIX) + self.name

    @property
    def state_table(self) -> str:
        """Return the table of the state, which exists where there is one."""
        return self.table + (ROWS if self.has_landed else STATE)

    @property
    def columns_by_table(self) -> dict[str, Mapping[str, str]]:
        """Return the tables of the query, with their data columns."""
        return {self.table: self.columns, **({self.state_table: self.state} if self.state else {})}

    def has_same_meaning(self, other: QueryDefinition | None) -> bool:
        """Tell whether another definition has the same rows and the same tables."""
        return other is not None and (self.normal_form, self.columns_by_table) == (
            other.normal_form,
            other.columns_by_table,
        )

    def to_json(self) -> dict[str, Any]:
        lists = {field: list(getattr(self, field)) for field in _LISTS}
        maps = {"columns": dict(self.columns), "state": dict(self.state)}
        flags = {"has_landed": self.has_landed, "is_recomputed": self.is_recomputed}
        return {"text": self.text, "normal_form": self.normal_form, **maps, **lists, **flags}

    @classmethod
    def from_json(cls, name: str, stored: Mapping[str, Any]) -> Self:
        fields = dict(stored)
        if fields.pop("is_set", False):  # what an earlier version has recorded; no row occurs twice
            fields.setdefault("key", list(stored["columns"]))
        lists = {field: tuple(fields.get(field, ())) for field in _LISTS}
        return cls(name, **{**fields, **lists})


Definitions = Mapping[str, QueryDefinition]


def is_query_table(table: str) -> bool:
    """Tell whether a table is one of a query or of a declared relation."""
    return table.startswith((PREFIX, RELATION_PREFIX))


def is_relation_rows(table: str) -> bool:
    """Tell whether a table has the landed rows of a declared relation."""
    return table.startswith(RELATION_PREFIX) and table.endswith(ROWS)


def recorded_queries(config: Mapping[str, Any]) -> dict[str, QueryDefinition]:
    """Return the queries that a run has recorded with its settings, those first that others read."""
    known = {name: QueryDefinition.from_json(name, stored) for name, stored in (config.get(FOLDER) or {}).items()}
    return {name: known[name] for name in _sort_by_inputs({name: each.relations for name, each in known.items()})}


def without_queries(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a run has recorded, without its queries."""
    return {name: value for name, value in config.items() if name != FOLDER}


def list_query_files(home: Path) -> list[Path]:
    """Return the files of the queries in the folder of a home, by name."""
    return sorted((home / FOLDER).glob("*.sql"))


def is_query_name(name: str) -> bool:
    """Tell whether a query may have a name; those of the declared relations are taken, too."""
    return bool(_NAME.fullmatch(name)) and name not in RELATIONS and not name.endswith(STATE)


def read_queries(home: Home) -> dict[str, QueryDefinition]:
    """Read and compile all queries of a home, those first that others read, with the declared relations.

    Raises:
        UsageError: some cannot be maintained; the message has the problems of all files.
    """
    problems, definitions = dict[str, str](), declare_relations(home)
    texts = _read_texts(home, problems)
    for name in {*home.config.queries.recompute} - {*texts, *problems}:
        problems[name] = "is not there, but [queries] recompute names it: write the file, or take the name out"
    for name in _sort_texts(texts, problems):
        try:
            definitions[name] = _compile_text(home, name, texts[name], definitions, problems)
        except ValueError as error:
            problems[name] = str(error)
    if problems:
        listed = [f"  {FOLDER}/{name}.sql {problem}" for name, problem in sorted(problems.items())]
        lines = "\n".join(["the queries cannot be maintained:", *listed])
        raise UsageError(lines, "correct the files, or move them away; altneu queries")
    return definitions


def declare_relations(home: Home) -> dict[str, QueryDefinition]:
    """Return the definitions of the declared relations of a home."""
    return {name: _define_relation(home, name, each) for name, each in home.config.relations.items()}


def _define_relation(home: Home, name: str, declared: DeclaredRelation) -> QueryDefinition:
    ids = "bigint" if home.config.vertices.ids == "integer" else "string"
    columns = {column: SQL_TYPES.get(type_, "bigint") for column, type_ in declared.columns.items()}
    vertices = [column for column, type_ in declared.key.items() if type_ == "vertex" and ids == "string"]
    return QueryDefinition(
        name,
        f"SELECT {', '.join(map(double_quote, columns))} FROM {double_quote(name)}",
        json.dumps([declared.key, declared.values]),
        columns,
        {**columns, "op": "string", "seq": "bigint", "file": "string", "line": "bigint"},
        (),
        tuple(declared.key),
        tuple(vertices),
        has_landed=True,
    )


def double_quote(name: str) -> str:
    """Quote a name for DuckDB."""
    return '"' + name.replace('"', '""') + '"'


def list_inputs(query: QueryDefinition, definitions: Definitions) -> dict[str, QueryDefinition]:
    """Return the queries that a query reads, and those that these read, in the order in which they are computed."""
    inputs: dict[str, QueryDefinition] = {}
    for name in query.relations:
        if name in definitions:
            inputs |= list_inputs(definitions[name], definitions) | {name: definitions[name]}
    return inputs


def known_relations(home: Home, definitions: Definitions = MappingProxyType({})) -> dict[str, Relation]:
    """Return the relations that a query of this home may name, with the results of other queries."""
    from altneu.algorithms.sql_query import AGE, Relation

    ends = dict.fromkeys(("src", "dst"), "vertex" if home.config.vertices.ids == "string" else "bigint")
    values = {name: SQL_TYPES[type_] for name, type_ in home.config.values.items()}
    landed = {**ends, **values, "op": "string", "seq": "bigint", "epoch": "bigint", AGE: "bigint"}
    return {
        LANDED_ROWS: Relation(landed),
        ARCS: Relation({**ends, **values}, key=("src", "dst")),
        EDGES: Relation({**ends, "trussness": "bigint"}, key=("src", "dst")),
        VERTICES: Relation({"vertex": ends["src"], "degree": "bigint", "triangles": "bigint"}, key=("vertex",)),
        **{
            name: Relation({**query.columns, **dict.fromkeys(query.vertices, "vertex")}, query.key)
            for name, query in definitions.items()
        },
    }


def _sort_by_inputs(relations: Mapping[str, Collection[str]]) -> list[str]:
    """Sort names so that each follows those that it reads. Raises `CycleError`."""
    own = {name: [other for other in relations[name] if other in relations] for name in sorted(relations)}
    return list(TopologicalSorter(own).static_order())


def _read_texts(home: Home, problems: dict[str, str]) -> dict[str, str]:
    """Return the texts of the files by name, and add what is wrong with the others to `problems`."""
    texts = {}
    for file in list_query_files(home.path):
        name = file.stem
        if name in home.config.relations:
            problems[name] = f"has the name of the relation {name}, which altneu.toml declares"
            continue
        if not is_query_name(name):
            problems[name] = f"{_NAMING}; it is no relation's, and does not end in {STATE}"
            continue
        try:
            texts[name] = file.read_text("utf-8")
        except UnicodeDecodeError:
            problems[name] = "is no text in UTF-8"
    return texts


def _sort_texts(texts: Mapping[str, str], problems: dict[str, str]) -> list[str]:
    """Return the names of the queries, each after those that it reads. Circles are problems."""
    from altneu.algorithms.sql_query import named_relations

    relations = {name: named_relations(text) for name, text in texts.items()}
    while True:
        try:
            return _sort_by_inputs(relations)
        except CycleError as error:
            circle = sorted(set(error.args[1]))
            files = ", ".join(f"{FOLDER}/{name}.sql" for name in circle)
            each_other = f": {files} read each other" if len(circle) > 1 else ""
            problems |= dict.fromkeys(circle, f"reads its own result{each_other}")
            for name in circle:
                del relations[name]


def _compile_text(
    home: Home, name: str, text: str, definitions: Definitions, problems: Mapping[str, str]
) -> QueryDefinition:
    """Compile one text. Raises ValueError for what is wrong with it."""
    from altneu.algorithms.sql_query import named_relations

    wrong = sorted((named_relations(text) & set(problems)) - set(definitions))
    if wrong:
        raise ValueError(f"reads {', '.join(wrong)}, which cannot be maintained")
    define = _define_recomputed if name in home.config.queries.recompute else _define_maintained
    query = define(home, name, text, definitions)
    if LANDED_ROWS in query.relations and home.config.retention.epochs is not None:
        raise ValueError("reads landed, but [retention] epochs folds landed rows: use arcs, or take the setting out")
    return query


def _define_maintained(home: Home, name: str, text: str, definitions: Definitions) -> QueryDefinition:
    from altneu.algorithms.maintained_query import state_columns
    from altneu.algorithms.sql_query import compile_query

    try:
        query = compile_query(text, known_relations(home, definitions))
    except ValueError as error:
        raise ValueError(f"{error}{_advise_recomputation(home, name, text, definitions)}") from None
    state = state_columns(query) if query.is_grouped else {}
    return QueryDefinition(
        name, text, query.normal_form, query.types, state, query.relations, query.key, query.vertices
    )


def _define_recomputed(home: Home, name: str, text: str, definitions: Definitions) -> QueryDefinition:
    from altneu.algorithms.recomputed_query import describe_recomputation

    query = describe_recomputation(text, known_relations(home, definitions))
    return QueryDefinition(
        name, text, query.normal_form, query.types, {}, query.relations, vertices=query.vertices, is_recomputed=True
    )


def _advise_recomputation(home: Home, name: str, text: str, definitions: Definitions) -> str:
    """Return the next step for a query that can be recomputed though it cannot be maintained, or nothing."""
    try:
        _define_recomputed(home, name, text, definitions)
    except ValueError:
        return ""
    return f'. It can be recomputed by every run, which takes longer: [queries] recompute = ["{name}"] in altneu.toml'
