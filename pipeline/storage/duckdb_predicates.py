"""The translation of conditions from Spark SQL to DuckDB, for those that certainly mean the same in both.

`translate_to_duckdb("trussness >= 5 AND NOT src IN (1, 2)", {...})` returns DuckDB's text, or raises
`UncertainCondition`. The meaning is certain for comparisons of a column with literals and columns of its own kind, IN,
BETWEEN, IS NULL, AND, OR, NOT, LIKE with `%` only, and the remainder of an integer by a literal other than 0. Spark
evaluates everything else: functions, casts, `_` in LIKE, comparisons between kinds, which the two engines convert by
different rules, and sums, which DuckDB may rewrite so that they do not overflow.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from altneu.algorithms.sql_predicates import read_condition

from .condition_errors import Refused, UncertainCondition

_COMPARED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_INTEGER, _NUMBER, _TEXT, _TRUTH = "bigint", "double", "string", "boolean"
_LITERAL = "integer literal"  # an INT in Spark
_DECIMAL = "decimal literal"
_GREATEST = 2**63 - 1


def translate_to_duckdb(text: str, types: Mapping[str, str]) -> str:
    """Translate a condition. `types` maps columns to types of SQL. Raises `UncertainCondition` and `Refused`.

    >>> translate_to_duckdb("src = 7 or `dst` % 2 = 0", {"src": "bigint", "dst": "bigint"})
    '"src" = 7 OR "dst" % 2 = 0'
    >>> translate_to_duckdb("src / 2 > 3", {"src": "bigint"})
    Traceback (most recent call last):
    altneu.pipeline.storage.condition_errors.UncertainCondition: 'src / 2'
    """
    try:
        tree: exp.Expr = read_condition(text)
    except ValueError as error:
        raise Refused(str(error)) from None
    known = {name.casefold(): (name, type_) for name, type_ in types.items()}
    if len(known) < len(types) or any(node.comments for node in tree.walk()):
        raise UncertainCondition("it has a comment, or columns that differ only in upper and lower case")
    missing = [column.name for column in tree.find_all(exp.Column) if column.name.casefold() not in known]
    if _type_of(tree, known, set(missing)) != _TRUTH:
        raise UncertainCondition("it is not a comparison")
    if missing:
        raise Refused(f"there is no column {missing[0]!r}")

    def translate_node(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        return exp.column(exp.to_identifier(known[node.name.casefold()][0], quoted=True))

    return tree.transform(translate_node).sql(dialect="duckdb")


def _type_of(node: exp.Expr, known: Mapping[str, tuple[str, str]], missing: set[str]) -> str | None:
    """Return the type of an expression; None: it is a missing column. Raises `UncertainCondition`."""

    def type_of_part(part: exp.Expr) -> str | None:
        return _type_of(part, known, missing)

    match node:
        case exp.Paren():
            return type_of_part(node.this)
        case exp.And() | exp.Or():
            _require_same_types(node, [type_of_part(node.this), type_of_part(node.expression)], _TRUTH)
            return _TRUTH
        case exp.Not():
            _require_same_types(node, [type_of_part(node.this)], _TRUTH)
            return _TRUTH
        case exp.Is() if isinstance(node.expression, exp.Null) and isinstance(node.this, exp.Column):
            return _TRUTH
        case exp.In() if node.expressions and isinstance(node.this, exp.Column):
            _require_comparable(node, [type_of_part(node.this), *map(type_of_part, node.expressions)])
            return _TRUTH
        case exp.Between() if not node.args.get("symmetric"):
            _require_comparable(
                node, [type_of_part(node.this), type_of_part(node.args["low"]), type_of_part(node.args["high"])]
            )
            return _TRUTH
        case exp.Like() if isinstance(node.expression, exp.Literal) and "_" not in node.expression.name:
            _require_same_types(node, [type_of_part(node.this), type_of_part(node.expression)], _TEXT)
            return _TRUTH
        case exp.Mod() if _integer_literal(node.expression) not in (None, 0):
            _require_column(node, type_of_part(node.this))
            return _INTEGER
        case exp.Column() if not node.table:
            if node.name in missing:
                return None
            return known[node.name.casefold()][1]
        case exp.Literal() if node.is_string:
            if "\\" in node.name or not node.name.isprintable():
                raise _uncertain_error(node)
            return _TEXT
        case exp.Literal() | exp.Neg():
            return _number_literal(node)
    if isinstance(node, _COMPARED):
        _require_comparable(node, [type_of_part(node.this), type_of_part(node.expression)])
        return _TRUTH
    raise _uncertain_error(node)


def _integer_literal(node: exp.Expr) -> int | None:
    """Return the value of an integer literal, with or without a sign."""
    sign = -1 if isinstance(node, exp.Neg) else 1
    text = (node.this if isinstance(node, exp.Neg) else node).name
    return sign * int(text) if text.isascii() and text.isdigit() and int(text) <= _GREATEST else None


def _number_literal(node: exp.Expr) -> str:
    inside = node.this if isinstance(node, exp.Neg) else node
    if not isinstance(inside, exp.Literal) or inside.is_string:
        raise _uncertain_error(node)
    if _integer_literal(node) is not None:
        return _LITERAL
    whole, dot, rest = inside.name.partition(".")
    if dot and (whole + rest).isascii() and (whole + rest).isdigit() and len(whole + rest) <= 15:
        return _DECIMAL
    raise _uncertain_error(node)


def _require_same_types(node: exp.Expr, kinds: list[str | None], wanted: str) -> None:
    if any(kind not in (wanted, None) for kind in kinds):
        raise _uncertain_error(node)


def _require_column(node: exp.Expr, kind: str | None) -> None:
    """Raise `UncertainCondition` where a kind is not an integer column: Spark computes with literals in 32 bits."""
    if kind not in (_INTEGER, None):
        raise _uncertain_error(node)


def _require_comparable(node: exp.Expr, kinds: list[str | None]) -> None:
    """Raise `UncertainCondition` where the engines might convert values differently to compare them."""
    known = {kind for kind in kinds if kind is not None}
    if known <= {_INTEGER, _LITERAL} or known <= {_NUMBER, _LITERAL, _DECIMAL} or known == {_TEXT}:
        return
    raise _uncertain_error(node)


def _uncertain_error(node: exp.Expr) -> UncertainCondition:
    return UncertainCondition(repr(node.sql(dialect="spark")))
