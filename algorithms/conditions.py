"""Conditions on values as text: the expressions of Spark SQL that can be a filter, read without Spark by sqlglot.

`Condition.parse` reads the text and refuses what a condition may not be: a query, an aggregate, or anything that is
another on the next run. What it cannot know (whether a function exists, the types of its arguments) Spark judges before
a run reads anything.
Errors   ValueError in words, with the position in the text (from 1).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

_DIALECT = "spark"
_OPENING, _CLOSING = {TokenType.L_PAREN, TokenType.L_BRACKET}, {TokenType.R_PAREN, TokenType.R_BRACKET}
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
    def parse(cls, text: str) -> Condition:
        """
        >>> [column.name for column in Condition.parse("rating > 0 AND NOT `my col` IN ('a', 'b')").columns]
        ['rating', 'my col']
        >>> Condition.parse("größe > 3").sql
        '`größe` > 3'
        >>> Condition.parse("rating > 1 rating")
        Traceback (most recent call last):
        ValueError: 'rating' at position 12 cannot stand there
        """
        tree = read_condition(text)
        _refuse(tree)
        columns = sorted((_column(found) for found in tree.find_all(exp.Column)), key=lambda found: found.position)
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
        raise ValueError(_words(text, error)) from None


def pieces(text: str) -> list[str]:
    """A text cut at its commas, but not at those within brackets or quotes.

    >>> pieces("a-b where w in (1, 2), b->c where t = 'x,y'")
    ['a-b where w in (1, 2)', " b->c where t = 'x,y'"]
    """
    depth, cuts = 0, [-1]
    for token in _tokens(text):
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if token.token_type == TokenType.COMMA and depth <= 0:
            cuts.append(token.start)
    return [text[cut + 1 : end] for cut, end in zip(cuts, [*cuts[1:], len(text)], strict=True)]


def one_line(text: str) -> str:
    """Every run of blanks as one, but not within quotes.

    >>> one_line("w  >\\n0 AND t = 'a  b' ")
    "w > 0 AND t = 'a  b'"
    """
    return _rewritten(text, lambda token, found: found)


@lru_cache(1024)
def normal(text: str) -> str:
    """Equal for conditions that differ in blanks, in capitals of names and words, or in `==` and `!=` alone.

    >>> normal("W>0 AND x!=1") == normal("`w` > 0 and X <> 1")
    True
    """
    try:
        tree = sqlglot.parse_one(text, into=exp.Condition, dialect=_DIALECT)
    except (TokenError, ParseError):
        return one_line(text)
    for name in tree.find_all(exp.Identifier):
        name.set("this", name.name.lower())
        name.set("quoted", False)
    return tree.sql(dialect=_DIALECT)


def spark_sql(text: str) -> str:
    """A condition as Spark takes it, on one line: names beyond ASCII in backticks, and no comments, because other text
    may be put behind it."""
    return _rewritten(
        text, lambda token, found: f"`{found}`" if token.token_type == TokenType.VAR and not found.isascii() else found
    )


def _rewritten(text: str, word: Callable[[Token, str], str]) -> str:
    """The text with each token as `word` gives it, and one blank where there are blanks or comments between two."""
    tokens = _tokens(text)
    if not tokens:
        return text.strip()
    parts, end = [], tokens[0].start
    for token in tokens:
        parts += [" "] * (token.start > end) + [word(token, text[token.start : token.end + 1])]
        end = token.end + 1
    return "".join(parts)


def _tokens(text: str) -> list[Token]:
    """None where a quote is not closed: the text stays as it is then, and `parse` says so."""
    try:
        return list(sqlglot.tokenize(text, read=_DIALECT))
    except TokenError:
        return []


def _words(text: str, error: ParseError) -> str:
    found = error.errors[0]
    near = str(found["highlight"])
    place = len(str(found["start_context"])) + 1
    if not str(found["end_context"]).strip() and "Required" in str(found["description"]):
        return f"it ends after {near!r} at position {place}, where a value is expected"
    return f"{near!r} at position {place} cannot stand there"


def _refuse(tree: exp.Condition) -> None:
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


def _column(found: exp.Column) -> Column:
    place = int(found.this.meta.get("start", 0)) + 1
    if found.table:
        raise ValueError(f"{found.sql()!r} at position {place}: a column has no part after a dot")
    return Column(found.name, place)
