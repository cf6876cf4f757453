"""Conditions on values as text: the expressions of Spark SQL that can be a filter, read without Spark by sqlglot.

`Condition.from_text` reads the text and refuses what a condition may not be: a query, an aggregate, or anything that is
another on the next run. What it cannot know (whether a function exists, the types of its arguments) Spark judges before
a run reads anything. A condition that `can_fail` raises an error on some rows (`tag > 5` on a tag that is no number);
`fails_on` is the expression that says on which.
Errors   ValueError in words, with the position in the text (from 1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

_DIALECT = "spark"
_OPENING, _CLOSING = {TokenType.L_PAREN, TokenType.L_BRACKET}, {TokenType.R_PAREN, TokenType.R_BRACKET}
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_KINDS = {"long": "number", "double": "number", "string": "text", "boolean": "truth"}
_SAFE_DIGITS = 15  # of a literal: with so many, what it is compared with is converted without an overflow
_OF_MANY_ROWS = (exp.AggFunc, exp.Window, exp.UDTF, exp.Explode, exp.RowNumber)
_UNSTEADY = {
    "rand",
    "randn",
    "random",
    "uuid",
    "shuffle",
    "now",
    "curdate",
    "user",
    "session_user",
    "randstr",
    "uniform",
}
_UNSTEADY |= {"current_timestamp", "current_date", "current_time", "current_user", "localtimestamp", "input_file_name"}
_UNSTEADY |= {"monotonically_increasing_id", "spark_partition_id", "current_timezone", "unix_timestamp"}


class Column(NamedTuple):
    """A column that a condition asks for, and where in the text."""

    name: str
    position: int


@dataclass(frozen=True)
class Condition:
    """A condition that can be read: as Spark takes it, with the columns that it asks for, in order.

    `alone`: the whole condition is this one column, so that its type decides whether it is a condition.
    """

    sql: str
    columns: tuple[Column, ...]
    alone: bool = False

    @classmethod
    def from_text(cls, text: str) -> Condition:
        """
        >>> [column.name for column in Condition.from_text("rating > 0 AND NOT `my col` IN ('a', 'b')").columns]
        ['rating', 'my col']
        >>> Condition.from_text("größe > 3").sql
        '`größe` > 3'
        >>> Condition.from_text("rating > 1 rating")
        Traceback (most recent call last):
        ValueError: 'rating' at position 12 cannot stand there
        """
        tree = read_condition(text)
        _require_row_condition(tree)
        columns = sorted((_column_of(found) for found in tree.find_all(exp.Column)), key=lambda found: found.position)
        return cls(spark_sql(text), tuple(columns), isinstance(tree, exp.Column))


def read_condition(text: str) -> exp.Condition:
    """Read the tree of a condition, whatever it asks. Raises `ValueError` in words where the grammar has no such text.

    >>> read_condition("trussness >")
    Traceback (most recent call last):
    ValueError: it ends after '>' at position 11, where a value is expected
    """
    if not text.strip():
        raise ValueError("it is empty")
    try:
        return sqlglot.parse_one(text, into=exp.Condition, dialect=_DIALECT)
    except TokenError:
        raise ValueError("a quote in it is not closed") from None
    except ParseError as error:
        raise ValueError(_parse_error_message(text, error)) from None


def split_at_commas(text: str) -> list[str]:
    """A text cut at its commas, but not at those within brackets or quotes.

    >>> split_at_commas("a-b where w in (1, 2), b->c where t = 'x,y'")
    ['a-b where w in (1, 2)', " b->c where t = 'x,y'"]
    """
    depth, cuts = 0, [-1]
    for token in _tokenize(text):
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if token.token_type == TokenType.COMMA and depth <= 0:
            cuts.append(token.start)
    return [text[cut + 1 : end] for cut, end in zip(cuts, [*cuts[1:], len(text)], strict=True)]


def collapse_blanks(text: str) -> str:
    """Every run of blanks as one, but not within quotes.

    >>> collapse_blanks("w  >\\n0 AND t = 'a  b' ")
    "w > 0 AND t = 'a  b'"
    """
    return _rewrite_tokens(text, lambda token, found: found)


@lru_cache(1024)
def normalize(text: str) -> str:
    """Equal for conditions that differ in blanks, in capitals of names and words, or in `==` and `!=` alone.

    >>> normalize("W>0 AND x!=1") == normalize("`w` > 0 and X <> 1")
    True
    """
    try:
        tree = sqlglot.parse_one(text, into=exp.Condition, dialect=_DIALECT)
    except (TokenError, ParseError):
        return collapse_blanks(text)
    for name in tree.find_all(exp.Identifier):
        name.set("this", name.name.lower())
        name.set("quoted", False)
    return tree.sql(dialect=_DIALECT)


def spark_sql(text: str) -> str:
    """A condition as Spark takes it, on one line: names beyond ASCII in backticks, and no comments, because other text
    may be put behind it."""
    return _rewrite_tokens(
        text, lambda token, found: f"`{found}`" if token.token_type == TokenType.VAR and not found.isascii() else found
    )


def can_fail(text: str, types: Mapping[str, str]) -> bool:
    """Tell whether Spark may raise an error when it evaluates a condition on a row. `types`: column → long, double,
    string or boolean.

    Certain not to fail are comparisons of columns with literals and columns of their own kind, and what joins these;
    whatever else there is (functions, arithmetic, comparisons that convert text) may fail.

    >>> types = {"w": "long", "tag": "string"}
    >>> [can_fail(text, types) for text in ("w > 1 OR tag IN ('a', 'b')", "w + 1 > 2", "tag > 5")]
    [False, True, True]
    """
    kinds = {name.casefold(): _KINDS[type_] for name, type_ in types.items()}
    return _safe_kind(sqlglot.parse_one(text, into=exp.Condition, dialect=_DIALECT), kinds) != "truth"


def only_where(test: str, condition: str) -> str:
    """Return a condition that is asked only where another one holds, and does not hold elsewhere.

    `test AND condition` says the same, but where the test is null Spark asks both, and it may move either away from the
    other. It is never null, also where Spark takes a condition that is null for one that cannot be (`element_at`).
    """
    return f"coalesce(CASE WHEN {test} THEN ({condition}) END, false)"


def fails_on(condition: str, test: str) -> str:
    """Return the SQL expression that is true of the rows for which `test` holds and the condition cannot be evaluated.

    `try_to_binary` is null where anything that it is given raises an error. The outer CASE keeps Spark from evaluating
    what occurs twice in the condition ahead of all, where nothing would catch its error.
    """
    answer = f"CASE WHEN {test} THEN CASE WHEN {condition} THEN 'y' ELSE 'n' END ELSE 'n' END"
    return f"try_to_binary({answer}, 'utf-8') IS NULL"


def _safe_kind(node: exp.Expr | None, kinds: Mapping[str, str]) -> str | None:
    """The kind of an expression's values: number, text, truth, or null; None where it may fail."""
    match node:
        case exp.Column():
            return kinds.get(node.name.casefold())
        case exp.Literal():
            return "text" if node.is_string else "number" if len(node.name) <= _SAFE_DIGITS else None
        case exp.Boolean():
            return "truth"
        case exp.Null():
            return "null"
        case exp.Paren():
            return _safe_kind(node.this, kinds)
        case exp.Neg() if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return _safe_kind(node.this, kinds)
        case exp.And() | exp.Or() | exp.Not():
            parts = [part for part in (node.this, node.args.get("expression")) if part is not None]
            return "truth" if {_safe_kind(part, kinds) for part in parts} <= {"truth", "null"} else None
        case exp.Is():
            parts = [node.this, node.expression]
        case exp.In() if node.expressions:
            parts = [node.this, *node.expressions]
        case exp.Between() if not node.args.get("symmetric"):
            parts = [node.this, node.args["low"], node.args["high"]]
        case _ if isinstance(node, _COMPARISONS):
            parts = [node.this, node.expression]
        case _:
            return None
    found = {_safe_kind(part, kinds) for part in parts} - {"null"}
    return "truth" if len(found) <= 1 and None not in found else None


def _rewrite_tokens(text: str, word: Callable[[Token, str], str]) -> str:
    """The text with each token as `word` gives it, and one blank where there are blanks or comments between two."""
    tokens = _tokenize(text)
    if not tokens:
        return text.strip()
    parts, end = [], tokens[0].start
    for token in tokens:
        parts += [" "] * (token.start > end) + [word(token, text[token.start : token.end + 1])]
        end = token.end + 1
    return "".join(parts)


def _tokenize(text: str) -> list[Token]:
    """None where a quote is not closed: the text stays as it is then, and `parse` says so."""
    try:
        return list(sqlglot.tokenize(text, read=_DIALECT))
    except TokenError:
        return []


def _parse_error_message(text: str, error: ParseError) -> str:
    found = error.errors[0]
    near = str(found["highlight"])
    place = len(str(found["start_context"])) + 1
    if not str(found["end_context"]).strip() and "Required" in str(found["description"]):
        return f"it ends after {near!r} at position {place}, where a value is expected"
    return f"{near!r} at position {place} cannot stand there"


def _require_row_condition(tree: exp.Condition) -> None:
    """ValueError when it can be read but is no condition on one row's own values."""
    if tree.find(exp.Query, exp.Subquery):
        raise ValueError("it is a query; a condition asks the row's own values alone")
    for call in tree.find_all(exp.Func, exp.Window, exp.UDTF):
        name = call.name if isinstance(call, exp.Anonymous) else call.key
        written = re.sub(r"\W.*", "", call.sql(dialect=_DIALECT), flags=re.DOTALL).lower() or name
        if isinstance(call, _OF_MANY_ROWS):
            raise ValueError(f"{written}() is of many rows; a condition asks one row's own values")
        if {written, name.lower()} & _UNSTEADY:
            raise ValueError(f"{written}() is another on the next run")
    if isinstance(tree, (exp.Literal, exp.Neg, exp.BitwiseNot)) or (
        isinstance(tree, exp.Binary) and not isinstance(tree, (exp.Predicate, exp.Connector, exp.Escape))
    ):
        raise ValueError("it is a value and no condition: compare it with something")


def _column_of(found: exp.Column) -> Column:
    place = int(found.this.meta.get("start", 0)) + 1
    if found.table:
        raise ValueError(f"{found.sql()!r} at position {place}: a column has no part after a dot")
    return Column(found.name, place)
