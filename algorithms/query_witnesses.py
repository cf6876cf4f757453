"""The rows behind a row of a query's result: which rows of its relations make it, as SQL.

Law      A row of the result is there because of combinations of rows, one of each atom. The query for them has the
         joins and conditions of the text, and the row's values as conditions on the outputs; grouping is left out, so
         that all rows of a group are behind its row.
Shapes   The columns of a combination are `aI_COLUMN` for each atom I.
Errors   None: the text is the normal form of a compiled query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import exp


@dataclass(frozen=True)
class WitnessQuery:
    """The query for the combinations of one SELECT. atoms: its relations by alias, in order; those of NOT EXISTS have
    no rows in it. columns: for each atom the names of its columns, as the query returns them.
    """

    sql: str
    atoms: Mapping[str, str]
    columns: Mapping[str, Mapping[str, str]]


def list_witness_queries(
    normal_form: str, values: Mapping[str, str], relations: Mapping[str, tuple[str, ...]], dialect: str
) -> list[WitnessQuery]:
    """Return the queries for the rows behind a row: one for each SELECT of a union.

    Args:
        normal_form: The normal form of a compiled query.
        values: Columns of the result with their values, as SQL.
        relations: The columns of each relation that are returned.
        dialect: That of the engine which runs the queries.
    """
    tree = sqlglot.parse_one(normal_form, dialect="duckdb")
    selects = list(_list_selects(tree))
    names = [each.alias_or_name for each in selects[0].selects]
    places = {names.index(name): value for name, value in values.items()}
    return [_write_query(select, places, relations, dialect) for select in selects]


def _list_selects(tree: exp.Expr) -> list[exp.Select]:
    if isinstance(tree, exp.Union):
        return [*_list_selects(tree.this), *_list_selects(tree.expression)]
    assert isinstance(tree, exp.Select)
    return [tree]


def _write_query(
    select: exp.Select, places: Mapping[int, str], relations: Mapping[str, tuple[str, ...]], dialect: str
) -> WitnessQuery:
    sources = [select.args["from_"].this, *(join.this for join in select.args.get("joins") or ())]
    atoms = {str(source.alias_or_name): str(source.name) for source in sources}
    columns = {
        alias: {column: f"a{place}_{column}" for column in relations[relation]}
        for place, (alias, relation) in enumerate(atoms.items())
    }
    query = select.copy()
    for part in ("group", "having", "distinct"):
        query.set(part, None)
    for place, value in places.items():
        output = select.selects[place].unalias()
        if not output.find(exp.AggFunc):
            query = query.where(exp.NullSafeEQ(this=exp.paren(output.copy()), expression=exp.maybe_parse(value)))
    listed = [
        exp.alias_(exp.column(exp.to_identifier(column, quoted=True), table=alias), name, quoted=True)
        for alias, mine in columns.items()
        for column, name in mine.items()
    ]
    return WitnessQuery(query.select(*listed, append=False).sql(dialect=dialect), atoms, columns)
