"""Conditions on values as text: the expressions of Spark SQL that can be a filter, parsed without Spark by sqlglot.

`Condition.from_text` reads the text and refuses what a condition may not be: a query, an aggregate, or anything whose
value changes from run to run. It cannot know whether a function exists, nor the types of its arguments: Spark checks
these before a run reads anything. A condition that `can_fail` raises an error on some rows (`tag > 5` on a tag that is
no number); `fails_on` is the expression that tells on which.

Errors   ValueError with a message for a person, with the position in the text (from 1).
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
_SAFE_DIGITS = 15  # of a literal: a column that is compared with so many digits is converted without an overflow
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
    """A column that a condition uses, and its position in the text."""

    name: str
    position: int


@dataclass(frozen=True)
class Condition:
    """A condition that can be parsed: its Spark SQL, and the columns that it uses, in order.

    is_one_column: the whole condition is this one column, so that its type decides whether it is a condition.
    """

    sql: str
    columns: tuple[Column, ...]
    is_one_column: bool = False

    @classmethod
    def from_text(cls, text: str) -> Condition:
        """Parse a condition.

        Raises:
            ValueError: the text is no condition; the message says why, and where.

        >>> [column.name for column in Condition.from_text("rating > 0 AND NOT `my col` IN ('a', 'b')").columns]
        ['rating', 'my col']
        >>> Condition.from_text("größe > 3").sql
        '`größe` > 3'
        >>> Condition.from_text("rating > 1 rating")
        Traceback (most recent call last):
        ValueError: 'rating' at position 12 is not expected there
        """
        tree = read_condition(text)
        _require_row_condition(tree)
        columns = sorted(
            (_column_of(column) for column in tree.find_all(exp.Column)), key=lambda column: column.position
        )
        return cls(spark_sql(text), tuple(columns), isinstance(tree, exp.Column))


def read_condition(text: str) -> exp.Condition:
    """Parse a condition, whatever it is, into a tree.

    Raises:
        ValueError: the text is not in the grammar; the message says where.

    >>> read_condition("trussness >")
    Traceback (most recent call last):
    ValueError: the condition ends after '>' at position 11, where a value is expected
    """
    if not text.strip():
        raise ValueError("the condition is empty")
    try:
        return sqlglot.parse_one(text, into=exp.Condition, dialect=_DIALECT)
    except TokenError:
        raise ValueError("a quote in the condition is not closed") from None
    except ParseError as error:
        raise ValueError(_parse_error_message(text, error)) from None


def split_at_commas(text: str) -> list[str]:
    """Split a text at its commas, but not at those within brackets or quotes.

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
    """Replace every run of blanks by one blank, but not within quotes.

    >>> collapse_blanks("w  >\\n0 AND t = 'a  b' ")
    "w > 0 AND t = 'a  b'"
    """
    return _rewrite_tokens(text, lambda token, text_of_token: text_of_token)


@lru_cache(1024)
def normalize(text: str) -> str:
    """Return a text that is equal for conditions that differ only in blanks, case of names and words, `==` or `!=`.

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
    """Return a condition as Spark SQL on one line, with names beyond ASCII in backticks.

    It has no comments, because other text may follow it.
    """
    return _rewrite_tokens(
        text, lambda token, name: f"`{name}`" if token.token_type == TokenType.VAR and not name.isascii() else name
    )


def can_fail(text: str, types: Mapping[str, str]) -> bool:
    """Tell whether Spark may raise an error when it evaluates a condition on a row.

    `types` maps a column to long, double, string or boolean. Comparisons of columns with literals and with columns of
    their own kind never fail, nor do AND, OR and NOT of these. Everything else (functions, arithmetic, comparisons
    that convert text) may fail.

    >>> types = {"w": "long", "tag": "string"}
    >>> [can_fail(text, types) for text in ("w > 1 OR tag IN ('a', 'b')", "w + 1 > 2", "tag > 5")]
    [False, True, True]
    """
    kinds = {name.casefold(): _KINDS[type_] for name, type_ in types.items()}
    return _safe_kind(sqlglot.parse_one(text, into=exp.Condition, dialect=_DIALECT), kinds) != "truth"


def only_where(test: str, condition: str) -> str:
    """Return a condition that is evaluated only where another one holds, and is false elsewhere.

    `test AND condition` has the same meaning, but where the test is null Spark evaluates both, and it may move the two
    apart. The result is never null, even where Spark takes a condition that is null for one that cannot be null
    (`element_at`).
    """
    return f"coalesce(CASE WHEN {test} THEN ({condition}) END, false)"


def fails_on(condition: str, test: str) -> str:
    """Return the SQL expression that is true of the rows for which `test` holds and the condition cannot be evaluated.

    `try_to_binary` is null where its argument raises an error. Without the outer CASE Spark would evaluate an
    expression that occurs twice in the condition before everything else, where nothing would catch its error.
    """
    answer = f"CASE WHEN {test} THEN CASE WHEN {condition} THEN 'y' ELSE 'n' END ELSE 'n' END"
    return f"try_to_binary({answer}, 'utf-8') IS NULL"


def _safe_kind(node: exp.Expr | None, kinds: Mapping[str, str]) -> str | None:
    """Return the kind of an expression's values (number, text, truth, or null); None if it may fail."""
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
    found_kinds = {_safe_kind(part, kinds) for part in parts} - {"null"}
    return "truth" if len(found_kinds) <= 1 and None not in found_kinds else None


def _rewrite_tokens(text: str, word: Callable[[Token, str], str]) -> str:
    """Return the text with each token replaced by `word`, and blanks or comments between two by one blank."""
    tokens = _tokenize(text)
    if not tokens:
        return text.strip()
    parts, end = [], tokens[0].start
    for token in tokens:
        parts += [" "] * (token.start > end) + [word(token, text[token.start : token.end + 1])]
        end = token.end + 1
    return "".join(parts)


def _tokenize(text: str) -> list[Token]:
    """Return the tokens, or none if a quote is not closed: the text then stays as it is, and parsing it fails."""
    try:
        return list(sqlglot.tokenize(text, read=_DIALECT))
    except TokenError:
        return []


def _parse_error_message(text: str, error: ParseError) -> str:
    details = error.errors[0]
    near = str(details["highlight"])
    place = len(str(details["start_context"])) + 1
    if not str(details["end_context"]).strip() and "Required" in str(details["description"]):
        return f"the condition ends after {near!r} at position {place}, where a value is expected"
    return f"{near!r} at position {place} is not expected there"


def _require_row_condition(tree: exp.Condition) -> None:
    """Raise ValueError if an expression is no condition on one row's own values."""
    if tree.find(exp.Query, exp.Subquery):
        raise ValueError("this is a query; a condition uses only values of one row")
    for call in tree.find_all(exp.Func, exp.Window, exp.UDTF):
        name = call.name if isinstance(call, exp.Anonymous) else call.key
        written = re.sub(r"\W.*", "", call.sql(dialect=_DIALECT), flags=re.DOTALL).lower() or name
        if isinstance(call, _OF_MANY_ROWS):
            raise ValueError(f"{written}() uses many rows; a condition uses only values of one row")
        if {written, name.lower()} & _UNSTEADY:
            raise ValueError(f"{written}() has another value on the next run")
    if isinstance(tree, (exp.Literal, exp.Neg, exp.BitwiseNot)) or (
        isinstance(tree, exp.Binary) and not isinstance(tree, (exp.Predicate, exp.Connector, exp.Escape))
    ):
        raise ValueError("this is a value, not a condition: compare it with something")


def _column_of(column: exp.Column) -> Column:
    place = int(column.this.meta.get("start", 0)) + 1
    if column.table:
        raise ValueError(f"{column.sql()!r} at position {place}: a column has no part after a dot")
    return Column(column.name, place)
