"""Conjunctive queries, as values and as text. No Spark.

Text     Atoms and comparisons in any order, with commas between them: `"e(a,b), e(b,c), a != c, a<b<c"`. An atom is a
         relation with one term for each of its columns: a variable, or a constant (`7`, `-2`, `'red'`). A comparison
         has terms with `<`, `>` or `!=` between each two neighbours. A head before `:-` is a projection: it names the
         variables of the result, `"ends(a, c) :- e(a,b), e(b,c)"`. Names are letters, digits and `_`; those of
         variables begin with a letter. A quote within a constant is written twice.
Law      A result is a choice of one record for each atom that agrees on the variables and passes all comparisons. What
         a projection makes equal adds up: the multiplicity is the number of choices.
Errors   ValueError with the column in the text, counted from 1, and what was expected there. Also refused are
         variables that differ by case only (`a` and `A`), which Spark takes for one.
Source   Seed 4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

_TOKEN = re.compile(r"(\w+)|('(?:[^']|'')*')|(-\d+)|:-|!=|[<>]=|\S")
_INTEGER = re.compile(r"-?\d+")
_BEYOND = 1 << 63  # no bigint
_COMPARISONS = ("<", ">", "!=")


@dataclass(frozen=True)
class Constant:
    """A value in the place of a variable."""

    value: int | str

    def __str__(self) -> str:
        return str(self.value) if isinstance(self.value, int) else "'" + self.value.replace("'", "''") + "'"


Term = str | Constant
"""A variable, by its name, or a constant."""


@dataclass(frozen=True)
class Atom:
    """One occurrence of a relation in a query, with a term for each of its data columns."""

    relation: str
    terms: tuple[Term, ...]

    @property
    def variables(self) -> tuple[str, ...]:
        """Its variables, each once, in order."""
        return tuple(dict.fromkeys(term for term in self.terms if isinstance(term, str)))

    def __str__(self) -> str:
        return f"{self.relation}({','.join(map(str, self.terms))})"


@dataclass(frozen=True)
class Query:
    """A conjunctive query: atoms, order constraints `(a, b)` meaning a < b, and pairs that must differ.

    `head`: the variables of the result, None for all. `columns`: where the text that it was read from has each variable
    first.
    """

    atoms: tuple[Atom, ...]
    less_than: tuple[tuple[Term, Term], ...] = ()
    different: tuple[tuple[Term, Term], ...] = ()
    head: tuple[str, ...] | None = None
    columns: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> Query:
        """A query from its text; see the head of this file.

        >>> query = Query.parse("a<b<c, e(a,b), f(b, c), c != d, e(c,d), d>a")
        >>> query.less_than, query.different
        ((('a', 'b'), ('b', 'c'), ('a', 'd')), (('c', 'd'),))
        >>> query = Query.parse("ends(a, c) :- e(a,b,'red'), e(b,c,'red'), a != -1")
        >>> query.results, [str(atom) for atom in query.atoms], query.different
        (('a', 'c'), ["e(a,b,'red')", "e(b,c,'red')"], (('a', Constant(value=-1)),))
        >>> Query.parse("e(a b)")
        Traceback (most recent call last):
        ValueError: 'e(a b)' at column 5: expected , or ), found b
        """
        return _Reader(text).query()

    @property
    def variables(self) -> list[str]:
        """All variables, in order of appearance in the atoms."""
        return list(dict.fromkeys(v for atom in self.atoms for v in atom.variables))

    @property
    def results(self) -> tuple[str, ...]:
        """The variables of the result: those of the head, or all."""
        return tuple(self.variables) if self.head is None else self.head

    def place(self, variable: str) -> str:
        """Where the variable stands, for a message; nothing when the query was not read from text."""
        return f" at column {self.columns[variable]}" if variable in self.columns else ""


class _Token(NamedTuple):
    text: str  # empty at the end
    column: int
    word: bool = False
    quoted: bool = False

    @property
    def constant(self) -> Constant | None:
        """The value that it says, None when it is no constant."""
        if self.quoted:
            return Constant(self.text[1:-1].replace("''", "'"))
        return Constant(int(self.text)) if _INTEGER.fullmatch(self.text) else None


class _Reader:
    """Recursive descent: one method for each rule of the grammar."""

    def __init__(self, text: str) -> None:
        self.text = text
        found = list(_TOKEN.finditer(text))
        self.tokens = [_Token(t[0], t.start() + 1, t[1] is not None, t[2] is not None) for t in found]
        self.tokens.append(_Token("", len(text) + 1))
        self.next = 0
        self.atoms: list[Atom] = []
        self.less_than: list[tuple[Term, Term]] = []
        self.different: list[tuple[Term, Term]] = []
        self.unbound: dict[str, tuple[_Token, str]] = {}  # where a variable is asked for that an atom must have
        self.columns: dict[str, int] = {}

    def query(self) -> Query:
        """item, item, … or head :- item, item, …"""
        head = self.head() if ":-" in (token.text for token in self.tokens) else None
        self.item()
        while self.token.text:
            self.take(",")
            self.item()
        bound = {v for atom in self.atoms for v in atom.variables}
        for name, (token, why) in self.unbound.items():
            if name not in bound:
                self.refuse(token, f"{name} is {why}, but no atom has it")
        return Query(tuple(self.atoms), tuple(self.less_than), tuple(self.different), head, self.columns)

    def head(self) -> tuple[str, ...]:
        """name(variable, …) :-"""
        if not self.token.word or self.tokens[self.next + 1].text != "(":
            self.expected("a head such as ends(a,b)")
        self.take()
        places: dict[str, _Token] = {}
        while True:
            self.take("," if places else "(")
            token = self.token
            if token.constant is not None:
                self.refuse(token, f"{token.text} is no variable: a head has the variables of the result")
            name = self.variable()
            if name in places:
                self.refuse(token, f"{name} is twice in the head")
            places[name] = token
            self.unbound.setdefault(name, (token, "in the head"))
            if self.token.text == ")":
                break
            if self.token.text != ",":
                self.expected(", or )")
        self.take(")")
        self.take(":-")
        return tuple(places)

    def item(self) -> None:
        """relation(term, …) or a comparison."""
        if not self.token.word and self.token.constant is None:
            self.expected("an atom such as e(a,b), or a comparison such as a<b")
        if self.token.word and self.tokens[self.next + 1].text == "(":
            self.atom()
        else:
            self.comparison()

    def atom(self) -> None:
        begin = self.token
        relation = self.take().text
        self.take("(")
        terms = [self.term()]
        while self.token.text != ")":
            self.take(",", ")")
            terms.append(self.term())
        self.take(")")
        atom = Atom(relation, tuple(terms))
        if not atom.variables:
            self.refuse(begin, f"{atom} has no variable")
        self.atoms.append(atom)

    def comparison(self) -> None:
        """a < b != c …: each two neighbours are compared."""
        left = self.term(compared=True)
        if self.token.text not in _COMPARISONS:
            self.expected("( or <, > or !=")
        while self.token.text in _COMPARISONS:
            sign = self.take().text
            place = self.token
            right = self.term(compared=True)
            if left == right:
                self.refuse(place, f"{left} is compared with itself")
            if isinstance(left, Constant) and isinstance(right, Constant):
                self.refuse(place, f"{left} and {right} are both constants")
            if sign == "!=":
                self.different.append((left, right))
            else:
                self.less_than.append((left, right) if sign == "<" else (right, left))
            left = right

    def term(self, compared: bool = False) -> Term:
        constant = self.token.constant
        if constant is None:
            return self.variable(compared)
        if isinstance(constant.value, int) and not -_BEYOND <= constant.value < _BEYOND:
            self.refuse(self.token, f"{constant} does not fit 64 bits")
        self.take()
        return constant

    def variable(self, compared: bool = False) -> str:
        token = self.token
        name = token.text
        if not token.word:
            self.expected("a variable" if token.text != "'" else "a closing quote")
        if name[0].isdigit():
            self.refuse(token, f"{name} is no variable and no integer")
        if name[0] == "_" or name.lower() == "diff":
            self.refuse(token, f"{name} is a name of the algebra's own; choose another variable")
        for other in self.columns:
            if other.lower() == name.lower() and other != name:
                self.refuse(token, f"{name} and {other} differ by case only; choose another variable")
        self.columns.setdefault(name, token.column)
        if compared:
            self.unbound.setdefault(name, (token, "compared"))
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
