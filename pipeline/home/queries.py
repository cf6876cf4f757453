"""The declared queries of a home: the files `queries/NAME.sql`, each with one SELECT, and what a run records of them.

`read_queries` compiles all files, and reports the problems of all of them at once. A run records their definitions
with its settings, and its stages work from what is recorded. The modules that parse SQL are imported only where a home
has a query.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ..errors import UsageError
from .columns import SQL_TYPES
from .home import Home

if TYPE_CHECKING:
    from altneu.algorithms.sql_query import CompiledQuery, Relation

FOLDER = "queries"
PREFIX, STATE = "query_", "_state"  # the tables of a query are query_NAME and query_NAME_state
LANDED_ROWS, ARCS, EDGES = "landed", "arcs", "edges"
RELATIONS = (LANDED_ROWS, ARCS, EDGES)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,19}")
_NAMING = "a query's name begins with a letter and has at most 20 lower-case letters, digits and _"


@dataclass(frozen=True)
class QueryDefinition:
    """A query as a run records it: its text, and the data columns of its tables with their types.

    state: the columns of its state, none where there is no last step. normal_form: equal for texts that mean the same.
    is_set: whether no row of its result occurs twice. vertices: the columns of its result that are numbers of vertices
    with names, in a home with string ids.
    """

    name: str
    text: str
    normal_form: str
    columns: Mapping[str, str]
    state: Mapping[str, str]
    relations: tuple[str, ...]
    is_set: bool
    vertices: tuple[str, ...] = ()

    @property
    def table(self) -> str:
        return PREFIX + self.name

    @property
    def columns_by_table(self) -> dict[str, Mapping[str, str]]:
        """Return the tables of the query, with their data columns."""
        state = {self.table + STATE: self.state} if self.state else {}
        return {self.table: self.columns, **state}

    def has_same_meaning(self, other: QueryDefinition | None) -> bool:
        """Tell whether another definition has the same rows and the same tables."""
        return other is not None and (self.normal_form, self.columns_by_table) == (
            other.normal_form,
            other.columns_by_table,
        )

    def to_json(self) -> dict[str, Any]:
        lists = {"relations": list(self.relations), "vertices": list(self.vertices)}
        maps = {"columns": dict(self.columns), "state": dict(self.state)}
        return {"text": self.text, "normal_form": self.normal_form, **maps, **lists, "is_set": self.is_set}

    @classmethod
    def from_json(cls, name: str, stored: Mapping[str, Any]) -> Self:
        lists = {field: tuple(stored[field]) for field in ("relations", "vertices")}
        return cls(name, **{**stored, **lists})


Definitions = Mapping[str, QueryDefinition]


def is_query_table(table: str) -> bool:
    return table.startswith(PREFIX)


def recorded_queries(config: Mapping[str, Any]) -> dict[str, QueryDefinition]:
    """Return the queries that a run has recorded with its settings."""
    return {name: QueryDefinition.from_json(name, stored) for name, stored in (config.get(FOLDER) or {}).items()}


def without_queries(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a run has recorded, without its queries."""
    return {name: value for name, value in config.items() if name != FOLDER}


def list_query_files(home: Home) -> list[Path]:
    """Return the files of the queries, by name."""
    return sorted((home.path / FOLDER).glob("*.sql"))


def read_queries(home: Home) -> dict[str, QueryDefinition]:
    """Read and compile all queries of a home.

    Raises:
        UsageError: some cannot be maintained; the message has the problems of all files.
    """
    problems, definitions = [], dict[str, QueryDefinition]()
    for file in list_query_files(home):
        try:
            definitions[file.stem] = _read_query(home, file)
        except ValueError as error:
            problems.append(f"{FOLDER}/{file.name} {error}")
    if problems:
        lines = "\n".join(["the queries cannot be maintained:", *(f"  {problem}" for problem in problems)])
        raise UsageError(lines, "correct the files, or move them away; altneu queries")
    return definitions


def compile_definition(home: Home, definition: QueryDefinition) -> CompiledQuery:
    """Compile a recorded query again, for a stage that maintains it."""
    from altneu.algorithms.sql_query import compile_query

    return compile_query(definition.text, known_relations(home))


def known_relations(home: Home) -> dict[str, Relation]:
    """Return the relations that a query of this home may name."""
    from altneu.algorithms.sql_query import AGE, Relation

    ends = dict.fromkeys(("src", "dst"), "vertex" if home.config.vertices.ids == "string" else "bigint")
    values = {name: SQL_TYPES[type_] for name, type_ in home.config.values.items()}
    landed = {**ends, **values, "op": "string", "seq": "bigint", "epoch": "bigint", AGE: "bigint"}
    return {
        LANDED_ROWS: Relation(landed),
        ARCS: Relation({**ends, **values}, key=("src", "dst")),
        EDGES: Relation({**ends, "trussness": "bigint"}, key=("src", "dst")),
    }


def _read_query(home: Home, file: Path) -> QueryDefinition:
    """Read one file. Raises ValueError for what is wrong with it."""
    from altneu.algorithms.maintained_query import state_columns
    from altneu.algorithms.sql_query import compile_query

    if not _NAME.fullmatch(file.stem) or file.stem in RELATIONS or file.stem.endswith(STATE):
        raise ValueError(f"{_NAMING}; it is no relation's, and does not end in {STATE}")
    try:
        text = file.read_text("utf-8")
    except UnicodeDecodeError:
        raise ValueError("is no text in UTF-8") from None
    query = compile_query(text, known_relations(home))
    if LANDED_ROWS in query.relations and home.config.retention.epochs is not None:
        raise ValueError("reads landed, but [retention] epochs folds landed rows: use arcs, or take the setting out")
    state = state_columns(query) if query.is_grouped else {}
    return QueryDefinition(
        file.stem, text, query.normal_form, query.types, state, query.relations, query.is_set, query.vertices
    )
