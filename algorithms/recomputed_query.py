"""Queries as text that are not maintained, but recomputed: any SELECT of DuckDB's over known relations.

What cannot be maintained can be recomputed: recursion, window functions, subqueries, EXCEPT, aggregates without GROUP
BY. `describe_recomputation` lets DuckDB say which columns a text has, on empty relations. It refuses what has another
value on the next run, and what reads anything else than relations.

Errors   `QueryError`, with the line and the column in the text.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NoReturn

from sqlglot import exp
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers

from altneu.algorithms.sql_query import (
    AGE,
    RESERVED,
    QueryError,
    Relation,
    describe_types,
    explain_unsteadiness,
    find_place,
    named_parts,
    parse_statement,
)

_VERTEX = "UUID"  # of vertices with names while DuckDB checks a text: no number, and found again in the result
_COLUMN = re.compile(r"[a-z]\w*")
_REFUSED: tuple[tuple[type[exp.Expr], str], ...] = (
    (exp.TableSample, "a sample is another one on the next run"),
    (exp.Parameter, "a parameter has no value: write the constant"),
    (exp.Placeholder, "a parameter has no value: write the constant"),
)


@dataclass(frozen=True)
class DescribedQuery:
    """A query that can be recomputed: the columns of its result with Spark's types, and the relations that it reads.

    normal_form: equal for texts that differ in comments, blanks and capitals only. vertices: the columns whose values
    are vertices with names.
    """

    types: Mapping[str, str]
    relations: tuple[str, ...]
    normal_form: str
    vertices: tuple[str, ...] = ()


def describe_recomputation(text: str, relations: Mapping[str, Relation]) -> DescribedQuery:
    """Describe the result of a text over some relations.

    Raises:
        QueryError: DuckDB would refuse the text, or its result is not decided by the relations alone.
    """
    tree = parse_statement(text)
    if not isinstance(tree, exp.Query):
        raise QueryError("a query is one SELECT")
    _refuse_unsteady_parts(text, tree)
    if tree.args.get("order") and not tree.args.get("limit"):
        _refuse(text, tree.args["order"], "a result has no order: use --sort and --top when you read it")
    names = _find_relations(text, tree, relations)
    types = describe_types(text, {name: relations[name] for name in names}, _VERTEX)
    for name in types:
        if name in RESERVED or not _COLUMN.fullmatch(name):
            raise QueryError(f"a column of a result cannot be called {name}: name it otherwise, … AS name")
    normal_form = normalize_identifiers(tree.copy(), dialect="duckdb").sql(dialect="duckdb", comments=False)
    vertices = tuple(name for name, type_ in types.items() if type_ == "vertex")
    return DescribedQuery(types | dict.fromkeys(vertices, "bigint"), names, str(normal_form), vertices)


def depends_on_age(text: str) -> bool:
    """Tell whether a text names the age of rows, or a star that contains it: its result changes with every epoch."""
    tree = parse_statement(text)
    stars = [node for node in tree.find_all(exp.Star) if not isinstance(node.parent, exp.Count)]
    return bool(stars) or any(column.name.lower() == AGE for column in tree.find_all(exp.Column))


def _refuse_unsteady_parts(text: str, tree: exp.Expr) -> None:
    for kind, why in _REFUSED:
        for node in tree.find_all(kind):
            _refuse(text, node, why)
    for node in tree.find_all(exp.Func):
        if why := explain_unsteadiness(node):
            _refuse(text, node, f"{node.sql(dialect='duckdb')} is not supported{why}")


def _find_relations(text: str, tree: exp.Expr, known: Collection[str]) -> tuple[str, ...]:
    """Return the relations that a text reads, each once, and refuse what is none."""
    local_names, names = named_parts(tree), dict[str, None]()
    if taken := sorted(local_names & {*known}):
        raise QueryError(f"WITH {taken[0]}: a relation has this name; name the part otherwise")
    for node in tree.find_all(exp.Table):
        name = node.name.lower()
        if not isinstance(node.this, exp.Identifier) or node.db:
            _refuse(text, node, f"{node.sql(dialect='duckdb')} is no relation; there are {', '.join(known)}")
        if name in known:
            names[name] = None
        elif name not in local_names:
            near = difflib.get_close_matches(name, known, 1)
            hint = f". Did you mean {near[0]}?" if near else ""
            _refuse(text, node, f"there is no relation {name}; there are {', '.join(known)}{hint}")
    if not names:
        raise QueryError(f"a query reads a relation: FROM {' or '.join(known)}")
    return tuple(names)


def _refuse(text: str, node: exp.Expr, why: str) -> NoReturn:
    raise QueryError(why, *find_place(text, node))
