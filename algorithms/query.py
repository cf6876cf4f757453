"""Conjunctive queries, as values and as text. No Spark.

Text     Atoms and comparisons in any order, with commas between them: `"e(a,b), e(b,c), a != c, a<b<c"`. An atom is a
         relation with one variable for each of its columns; a comparison has variables of atoms, with `<`, `>` or `!=`
         between each two neighbours. Names are letters, digits and `_`; those of variables begin with a letter.
Law      A result is a choice of one record for each atom that agrees on the variables and passes all comparisons.
Errors   ValueError with the column in the text, counted from 1, and what was expected there. Refused so are variables
         that Spark would not tell apart (`a` beside `A`), and what no query can say here: constants, `e(a,a)`.
Source   Seed 4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

_TOKEN = re.compile(r"(\w+)|!=|[<>]=|\S")
_COMPARISONS = ("<", ">", "!=")


@dataclass(frozen=True)
class Atom:
    """One occurrence of a relation in a query, with the variables of its data columns."""

    relation: str
    variables: tuple[str, ...]


@dataclass(frozen=True)
class Query:
    """A conjunctive query: atoms, order constraints `(a, b)` meaning a < b, and pairs that must differ.

    `columns`: where the text that it was read from has each variable first.
    """

    atoms: tuple[Atom, ...]
    less_than: tuple[tuple[str, str], ...] = ()
    different: tuple[tuple[str, str], ...] = ()
    columns: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> Query:
        """A query from its text; see the head of this file.

        >>> query = Query.parse("a<b<c, e(a,b), f(b, c), c != d, e(c,d), d>a")
        >>> query.less_than, query.different
        ((('a', 'b'), ('b', 'c'), ('a', 'd')), (('c', 'd'),))
        >>> Query.parse("e(a b)")
        Traceback (most recent call last):
        ValueError: 'e(a b)' at column 5: expected , or ), found b
        """
        return _Reader(text).query()

    @property
    def variables(self) -> list[str]:
        """All variables, in order of appearance in the atoms."""
        return list(dict.fromkeys(v for atom in self.atoms for v in atom.variables))

    def place(self, variable: str) -> str:
        """Where the variable stands, for a message; nothing when the query was not read from text."""
        return f" at column {self.columns[variable]}" if variable in self.columns else ""


class _Token(NamedTuple):
    text: str  # empty at the end
    column: int
    word: bool = False


class _Reader:
    """Recursive descent: one method for each rule of the grammar."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [_Token(found[0], found.start() + 1, found[1] is not None) for found in _TOKEN.finditer(text)]
        self.tokens.append(_Token("", len(text) + 1))
        self.next = 0
        self.atoms: list[Atom] = []
        self.less_than: list[tuple[str, str]] = []
        self.different: list[tuple[str, str]] = []
        self.compared: dict[str, _Token] = {}
        self.columns: dict[str, int] = {}

    def query(self) -> Query:
        """item, item, …"""
        self.item()
        while self.token.text:
            self.take(",")
            self.item()
        bound = {v for atom in self.atoms for v in atom.variables}
        for name, token in self.compared.items():
            if name not in bound:
                self.refuse(token, f"{name} is compared, but no atom has it")
        return Query(tuple(self.atoms), tuple(self.less_than), tuple(self.different), self.columns)

    def item(self) -> None:
        """relation(variable, …) or a comparison."""
        if not self.token.word:
            self.expected("an atom such as e(a,b), or a comparison such as a<b")
        if self.tokens[self.next + 1].text == "(":
            self.atom()
        else:
            self.comparison()

    def atom(self) -> None:
        relation = self.take().text
        self.take("(")
        variables = [self.variable()]
        while self.token.text != ")":
            self.take(",", ")")
            if self.token.text in variables:
                self.refuse(self.token, f"{self.token.text} is twice in one atom: filter the relation before the query")
            variables.append(self.variable())
        self.take(")")
        self.atoms.append(Atom(relation, tuple(variables)))

    def comparison(self) -> None:
        """a < b != c …: each two neighbours are compared."""
        left = self.variable(compared=True)
        if self.token.text not in _COMPARISONS:
            self.expected("( or <, > or !=")
        while self.token.text in _COMPARISONS:
            sign = self.take().text
            place = self.token
            right = self.variable(compared=True)
            if left == right:
                self.refuse(place, f"{left} is compared with itself")
            if sign == "!=":
                self.different.append((left, right))
            else:
                self.less_than.append((left, right) if sign == "<" else (right, left))
            left = right

    def variable(self, compared: bool = False) -> str:
        token = self.token
        name = token.text
        if not token.word:
            self.expected("a variable")
        if name[0].isdigit():
            self.refuse(token, f"{name} is no variable, and constants are not known here: filter the relation first")
        if name[0] == "_" or name.lower() == "diff":
            self.refuse(token, f"{name} is a name of the algebra's own; choose another variable")
        for other in self.columns:
            if other.lower() == name.lower() and other != name:
                self.refuse(token, f"Spark does not tell {name} from {other}; choose another variable")
        self.columns.setdefault(name, token.column)
        if compared:
            self.compared.setdefault(name, token)
        return self.take().text

    @property
    def token(self) -> _Token:
        return self.tokens[self.next]

    def take(self, *wanted: str) -> _Token:
        if wanted and self.token.text not in wanted[:1]:
            self.expected(" or ".join(wanted))
        self.next += 1
        return self.tokens[self.next - 1]

    def expected(self, what: str) -> NoReturn:
        self.refuse(self.token, f"expected {what}, found {self.token.text or 'the end'}")

    def refuse(self, token: _Token, why: str) -> NoReturn:
        raise ValueError(f"{self.text!r} at column {token.column}: {why}")
