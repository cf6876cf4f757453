"""Conditions on values as text: the expressions of Spark SQL that can be a filter, read without Spark.

`Condition.parse` knows the grammar (operators, CASE, CAST, IN, BETWEEN, LIKE, calls, literals) and what a condition
may not be: a query, an aggregate, or anything that is another on the next run. What it cannot know (functions by
name, the types of their arguments) Spark judges before a run reads anything.
Errors   ValueError in words, with the position in the text (from 1).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<blank>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<text>[rR]?'(?:[^'\\]|\\.|'')*'|[rR]?"(?:[^"\\]|\\.|"")*")
      | (?P<quoted>`(?:[^`]|``)+`)
      | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:BD|[LSYDF])?(?!\w))
      | (?P<name>[^\W\d]\w*)
      | (?P<sign><=>|>>>|->|::|<>|!=|!>|!<|<=|>=|==|<<|>>|\|\||[-+*/%=<>!&|^~(),.\[\]])""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_BOUNDARY = re.compile(r"""[`'"(),\[\]]|[^`'"(),\[\]]+""")

_OR, _AND, _NOT, _COMPARED, _UNARY = 1, 2, 3, 4, 11
_COMPARISONS = {"=", "==", "<=>", "<>", "!=", "<", "<=", ">", ">=", "!>", "!<"}
_ARITHMETIC = {"|": 5, "^": 6, "&": 7, "<<": 8, ">>": 8, ">>>": 8, "+": 9, "-": 9, "||": 9, "*": 10, "/": 10, "%": 10}
_PREDICATES = {"is", "between", "in", "like", "ilike", "rlike", "regexp"}
# words that end an operand, and so are no columns unless they are quoted
_KEYWORDS = {"and", "or", "not", "case", "when", "then", "else", "end", "as", "from", "for", "escape", "div", "collate"}
_KEYWORDS |= _PREDICATES | {"select", "distinct"}
_AGGREGATES = {"count", "sum", "avg", "mean", "min", "max", "first", "last", "any_value", "collect_list", "collect_set"}
_AGGREGATES |= {"stddev", "variance", "median", "mode", "row_number", "rank", "dense_rank", "lag", "lead", "ntile"}
_AGGREGATES |= {"explode", "posexplode", "inline", "stack", "every", "some", "any", "bool_and", "bool_or"}
_UNSTEADY = {"rand", "randn", "random", "uuid", "shuffle", "now", "current_timestamp", "current_date", "curdate"}
_UNSTEADY |= {"localtimestamp", "current_time", "monotonically_increasing_id", "spark_partition_id", "current_user"}
_UNSTEADY |= {"input_file_name", "user", "session_user", "randstr", "uniform"}
_LITERALS = {"date", "timestamp", "timestamp_ntz", "timestamp_ltz", "x", "time"}


class Column(NamedTuple):
    """A column that a condition asks for, and where in the text."""

    name: str
    position: int


class _Token(NamedTuple):
    kind: str
    text: str
    position: int

    @property
    def word(self) -> str:
        return self.text.lower() if self.kind == "name" else ""


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
        >>> Condition.parse("rating >")
        Traceback (most recent call last):
        ValueError: it ends where a value is expected
        """
        return _Reader(text).condition()


def pieces(text: str) -> list[str]:
    """A text cut at its commas, but not at those within brackets or quotes.

    >>> pieces("a-b where w in (1, 2), b->c where t = 'x,y'")
    ['a-b where w in (1, 2)', " b->c where t = 'x,y'"]
    """
    found, depth, quote = [""], 0, ""
    for part in _BOUNDARY.findall(text):
        if quote:
            quote = "" if part == quote else quote
        elif part in ("'", '"', "`"):
            quote = part
        elif part in "([":
            depth += 1
        elif part in ")]":
            depth -= 1
        elif part == "," and depth <= 0:
            found.append("")
            continue
        found[-1] += part
    return found


def one_line(text: str) -> str:
    """Every run of blanks as one, but not within quotes.

    >>> one_line("w  >\\n0 AND t = 'a  b' ")
    "w > 0 AND t = 'a  b'"
    """
    kept = re.split(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)""", text)
    return "".join(part if place % 2 else re.sub(r"\s+", " ", part) for place, part in enumerate(kept)).strip()


def spark_sql(text: str) -> str:
    """A condition as Spark takes it; a text that is none stays as it is, for Spark to say so."""
    try:
        return Condition.parse(text).sql
    except ValueError:
        return text


class _Reader:
    """Recursive descent by binding power. `_value` returns whether what it has read can be true or false: True, False,
    or None where only Spark knows."""

    def __init__(self, text: str) -> None:
        found = _tokens(text)
        self.tokens = [token for token in found if token.kind != "blank"]
        self.sql = "".join(map(_as_spark_reads, found)).strip()
        self.at = 0
        self.columns: list[Column] = []
        self.bound: list[str] = []  # parameters of the lambdas around

    def condition(self) -> Condition:
        if self.tokens[0].kind == "end":
            raise ValueError("it is empty")
        truth = self._value(0)
        token = self.tokens[self.at]
        if token.kind != "end":
            raise ValueError(f"{token.text!r} at position {token.position} is unexpected: an operator is missing")
        if truth is False:
            raise ValueError("it is a value and no condition: compare it with something")
        kinds = [token.kind for token in self.tokens]
        return Condition(self.sql, tuple(self.columns), kinds in (["name", "end"], ["quoted", "end"]))

    # -- tokens -------------------------------------------------------------------------------------------------

    def _next(self) -> _Token:
        token = self.tokens[self.at]
        self.at += 1
        return token

    def _takes(self, *wanted: str) -> bool:
        """Take the next token if it is one of these signs or words."""
        token = self.tokens[self.at]
        found = token.kind in ("sign", "name") and token.text.lower() in wanted
        self.at += found
        return found

    def _sees(self, *wanted: str, ahead: int = 0) -> bool:
        token = self.tokens[min(self.at + ahead, len(self.tokens) - 1)]
        return token.kind in ("sign", "name") and token.text.lower() in wanted

    def _expect(self, wanted: str) -> None:
        token = self.tokens[self.at]
        if not self._takes(wanted):
            where = "its end" if token.kind == "end" else f"{token.text!r} at position {token.position}"
            raise ValueError(f"{wanted.upper()!r} is expected before {where}")

    # -- grammar ------------------------------------------------------------------------------------------------

    def _value(self, power: int) -> bool | None:
        if self._takes("not", "!"):
            self._value(_NOT)
            truth: bool | None = True
        elif self._takes("-", "+", "~"):
            self._value(_UNARY)
            truth = False
        else:
            truth = self._operand()
        while True:
            follows = self._operator(power)
            if follows == "none":
                return truth
            truth = {"true": True, "false": False, "any": None}[follows]

    def _operator(self, power: int) -> str:
        """Read an operator that binds closer than `power`, and its right side; what it makes, or `none`."""
        for word, strength in (("or", _OR), ("and", _AND)):
            if power < strength and self._takes(word):
                self._value(strength)
                return "true"
        if power < _COMPARED:
            if any(self._takes(sign) for sign in _COMPARISONS):
                self._value(_COMPARED)
                return "true"
            if self._sees(*_PREDICATES) or (self._sees("not") and self._sees(*_PREDICATES, ahead=1)):
                self._takes("not")
                self._predicate(self._next().word)
                return "true"
        token = self.tokens[self.at]
        strength = 10 if token.word == "div" else _ARITHMETIC.get(token.text, 0) if token.kind == "sign" else 0
        if strength > power:
            self.at += 1
            self._value(strength)
            return "false"
        if self._takes("["):
            self._value(0)
            self._expect("]")
            return "any"
        if self._takes("::"):
            self._type()
            return "any"
        if self._takes("collate"):
            self._next()
            return "false"
        return "none"

    def _predicate(self, word: str) -> None:
        if word == "is":
            self._takes("not")
            if self._takes("distinct"):
                self._expect("from")
                self._value(_COMPARED)
            elif not self._takes("null", "true", "false", "unknown"):
                self._expect("null")
        elif word == "between":
            self._value(_COMPARED)
            self._expect("and")
            self._value(_COMPARED)
        elif word == "in":
            self._expect("(")
            self._list(")")
        else:
            self._takes("any", "some", "all")
            self._value(_COMPARED)
            if self._takes("escape"):
                self._next()

    def _list(self, end: str) -> None:
        self._value(0)
        while self._takes(","):
            self._value(0)
        self._expect(end)

    def _operand(self) -> bool | None:
        token = self._next()
        if token.kind == "end":
            raise ValueError("it ends where a value is expected")
        if token.kind == "number":
            return False
        if token.kind == "text":
            while self.tokens[self.at].kind == "text":
                self.at += 1
            return False
        if token.kind == "quoted":
            self._column(token, token.text[1:-1].replace("``", "`"))
            return None
        if token.text == "(":
            truth = self._value(0)
            if self._takes(","):
                self._list(")")
                return False
            self._expect(")")
            return truth
        if token.kind == "name":
            return self._named(token)
        raise ValueError(f"{token.text!r} at position {token.position} stands where a value is expected")

    def _named(self, token: _Token) -> bool | None:
        word = token.word
        if word == "case":
            self._case()
            return None
        if word in ("true", "false"):
            return True
        if word == "null":
            return None
        if word == "interval":
            while self.tokens[self.at].kind in ("number", "text", "name") and not self._sees(*_KEYWORDS):
                self.at += 1
            return False
        if word in _LITERALS and self.tokens[self.at].kind == "text":
            self.at += 1
            return False
        if word in ("select", "exists") and self._sees("select", ahead=word == "exists"):
            raise ValueError("it asks a query; it may ask the row's own values alone")
        if word == "select":
            raise ValueError("it is a query; a condition asks the row's own values alone")
        if self._sees("("):
            return self._call(token)
        if word in _KEYWORDS:
            raise ValueError(f"{token.text!r} at position {token.position} stands where a value is expected")
        self._column(token, token.text)
        return None

    def _column(self, token: _Token, name: str) -> None:
        if self._sees("."):
            raise ValueError(f"{name!r} at position {token.position}: a column has no part after a dot")
        if name not in self.bound:
            self.columns.append(Column(name, token.position))

    def _case(self) -> None:
        if not self._sees("when"):
            self._value(0)
        self._expect("when")
        while True:
            self._value(0)
            self._expect("then")
            self._value(0)
            if not self._takes("when"):
                break
        if self._takes("else"):
            self._value(0)
        self._expect("end")

    def _call(self, token: _Token) -> bool | None:
        word = token.word
        self._expect("(")
        if word in ("cast", "try_cast", "safe_cast"):
            self._value(0)
            self._expect("as")
            self._type()
            self._expect(")")
            return None
        if word in _AGGREGATES:
            raise ValueError(f"{token.text}() is of many rows; a condition asks one row's own values")
        if word in _UNSTEADY:
            raise ValueError(f"{token.text}() is another on the next run")
        if self._takes(")"):
            return None
        if word == "extract":
            self._next()
            self._expect("from")
        self._takes("both", "leading", "trailing")
        while True:
            self._argument()
            if not self._takes(",", "from", "for", "placing"):
                break
        self._expect(")")
        return None

    def _argument(self) -> None:
        """A value, or a lambda: `x -> …`, `(x, y) -> …`."""
        names = []
        if self.tokens[self.at].kind == "name" and self._sees("->", ahead=1):
            names = [self._next().text]
        elif self._sees("("):
            end = self.at
            while self.tokens[end].kind == "name" or self.tokens[end].text in ("(", ","):
                end += 1
            if self.tokens[end].text == ")" and self.tokens[end + 1].text == "->":
                names = [token.text for token in self.tokens[self.at : end] if token.kind == "name"]
                self.at = end + 1
        if names:
            self._expect("->")
        self.bound += names
        self._value(0)
        del self.bound[len(self.bound) - len(names) :]

    def _type(self) -> None:
        """The name of a type, with what may be in brackets behind it."""
        token = self._next()
        if token.kind != "name":
            raise ValueError(f"a type is expected at position {token.position}")
        if self._takes("("):
            self._list(")")


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            if text[at] in "'\"`":
                raise ValueError(f"the quote at position {at + 1} is not closed")
            raise ValueError(f"{text[at : at + 10].split()[0]!r} at position {at + 1} means nothing here")
        found.append(_Token(match.lastgroup or "", match.group(), at + 1))
        at = match.end()
    return [*found, _Token("end", "", len(text) + 1)]


def _as_spark_reads(token: _Token) -> str:
    """Names beyond ASCII in backticks, and without comments: other text may be put behind a condition."""
    if token.kind == "blank" and token.text.strip():
        return " "
    return f"`{token.text}`" if token.kind == "name" and not token.text.isascii() else token.text
