"""Conjunctive queries, as values and as text, without Spark.

Text     Atoms and comparisons in any order, with commas between them: `"e(a,b), e(b,c), a != c, a<b<c"`. An atom is a
         relation with one term for each of its columns: a variable, or a constant (`7`, `-2`, `'red'`). A comparison
         has terms with `<`, `>` or `!=` between each two neighbours. A head before `:-` is a projection: it names the
         variables of the result, `"ends(a, c) :- e(a,b), e(b,c)"`. Names are letters, digits and `_`; those of
         variables begin with a letter. A quote within a constant is written twice.
Law      A result is a choice of one record for each atom that agrees on the variables and passes all comparisons.
         Results that a projection makes equal add up: the multiplicity is the number of choices.
Errors   ValueError with the column in the text, counted from 1, and what is expected there; also for variables that
         differ by case only (`a` and `A`), because Spark takes them for the same.
Source   Seed 4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

_TOKEN = re.compile(r"(\w+)|('(?:[^']|'')*')|(-\d+)|:-|!=|[<>]=|\S")
_INTEGER = re.compile(r"-?\d+")
_FIRST_BEYOND_BIGINT = 1 << 63  # the least positive integer that is no bigint
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
        """Return the variables, each once, in order."""
        return tuple(dict.fromkeys(term for term in self.terms if isinstance(term, str)))

    def __str__(self) -> str:
        return f"{self.relation}({','.join(map(str, self.terms))})"


@dataclass(frozen=True)
class Query:
    """A conjunctive query: atoms, order constraints `(a, b)` meaning a < b, and pairs that must differ.

    head: the variables of the result, None for all. columns: the column of the text at which each variable occurs
    first.
    """

    atoms: tuple[Atom, ...]
    less_than: tuple[tuple[Term, Term], ...] = ()
    different: tuple[tuple[Term, Term], ...] = ()
    head: tuple[str, ...] | None = None
    columns: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def from_text(cls, text: str) -> Query:
        """Read a query from its text; the module docstring describes the syntax.

        >>> query = Query.from_text("a<b<c, e(a,b), f(b, c), c != d, e(c,d), d>a")
        >>> query.less_than, query.different
        ((('a', 'b'), ('b', 'c'), ('a', 'd')), (('c', 'd'),))
        >>> query = Query.from_text("ends(a, c) :- e(a,b,'red'), e(b,c,'red'), a != -1")
        >>> query.results, [str(atom) for atom in query.atoms], query.different
        (('a', 'c'), ["e(a,b,'red')", "e(b,c,'red')"], (('a', Constant(value=-1)),))
        >>> Query.from_text("e(a b)")
        Traceback (most recent call last):
        ValueError: 'e(a b)' at column 5: expected , or ), found b
        """
        return _Reader(text).read_query()

    @property
    def variables(self) -> list[str]:
        """Return all variables, in order of appearance in the atoms."""
        return list(dict.fromkeys(v for atom in self.atoms for v in atom.variables))

    @property
    def results(self) -> tuple[str, ...]:
        """Return the variables of the result: those of the head, or all."""
        return tuple(self.variables) if self.head is None else self.head

    def position_of(self, variable: str) -> str:
        """Return the position of a variable in the text, for a message; empty if the query was not read from text."""
        return f" at column {self.columns[variable]}" if variable in self.columns else ""


class _Token(NamedTuple):
    text: str  # empty at the end
    column: int
    word: bool = False
    quoted: bool = False

    @property
    def constant(self) -> Constant | None:
        """Return the constant that this token is, or None."""
        if self.quoted:
            return Constant(self.text[1:-1].replace("''", "'"))
        return Constant(int(self.text)) if _INTEGER.fullmatch(self.text) else None


class _Reader:
    """A recursive descent parser, with one method for each rule of the grammar."""

    def __init__(self, text: str) -> None:
        self.text = text
        matches = list(_TOKEN.finditer(text))
        self.tokens = [_Token(t[0], t.start() + 1, t[1] is not None, t[2] is not None) for t in matches]
        self.tokens.append(_Token("", len(text) + 1))
        self.next = 0
        self.atoms: list[Atom] = []
        self.less_than: list[tuple[Term, Term]] = []
        self.different: list[tuple[Term, Term]] = []
        self.unbound: dict[str, tuple[_Token, str]] = {}  # where a variable occurs that some atom must have
        self.columns: dict[str, int] = {}

    def read_query(self) -> Query:
        """Read `item, item, …` or `head :- item, item, …`."""
        head = self.read_head() if ":-" in (token.text for token in self.tokens) else None
        self.read_item()
        while self.current_token.text:
            self.take_token(",")
            self.read_item()
        bound = {v for atom in self.atoms for v in atom.variables}
        for name, (token, why) in self.unbound.items():
            if name not in bound:
                self.raise_at(token, f"{name} is {why}, but no atom has it")
        return Query(tuple(self.atoms), tuple(self.less_than), tuple(self.different), head, self.columns)

    def read_head(self) -> tuple[str, ...]:
        """Read `name(variable, …) :-`."""
        if not self.current_token.word or self.tokens[self.next + 1].text != "(":
            self.raise_expected("a head such as ends(a,b)")
        self.take_token()
        places: dict[str, _Token] = {}
        while True:
            self.take_token("," if places else "(")
            token = self.current_token
            if token.constant is not None:
                self.raise_at(token, f"{token.text} is no variable: a head has the variables of the result")
            name = self.read_variable()
            if name in places:
                self.raise_at(token, f"{name} occurs twice in the head")
            places[name] = token
            self.unbound.setdefault(name, (token, "in the head"))
            if self.current_token.text == ")":
                break
            if self.current_token.text != ",":
                self.raise_expected(", or )")
        self.take_token(")")
        self.take_token(":-")
        return tuple(places)

    def read_item(self) -> None:
        """Read `relation(term, …)` or a comparison."""
        if not self.current_token.word and self.current_token.constant is None:
            self.raise_expected("an atom such as e(a,b), or a comparison such as a<b")
        if self.current_token.word and self.tokens[self.next + 1].text == "(":
            self.read_atom()
        else:
            self.read_comparison()

    def read_atom(self) -> None:
        begin = self.current_token
        relation = self.take_token().text
        self.take_token("(")
        terms = [self.read_term()]
        while self.current_token.text != ")":
            self.take_token(",", ")")
            terms.append(self.read_term())
        self.take_token(")")
        atom = Atom(relation, tuple(terms))
        if not atom.variables:
            self.raise_at(begin, f"{atom} has no variable")
        self.atoms.append(atom)

    def read_comparison(self) -> None:
        """Read `a < b != c …`, in which each two neighbours are compared."""
        left = self.read_term(compared=True)
        if self.current_token.text not in _COMPARISONS:
            self.raise_expected("( or <, > or !=")
        while self.current_token.text in _COMPARISONS:
            sign = self.take_token().text
            place = self.current_token
            right = self.read_term(compared=True)
            if left == right:
                self.raise_at(place, f"{left} is compared with itself")
            if isinstance(left, Constant) and isinstance(right, Constant):
                self.raise_at(place, f"{left} and {right} are both constants")
            if sign == "!=":
                self.different.append((left, right))
            else:
                self.less_than.append((left, right) if sign == "<" else (right, left))
            left = right

    def read_term(self, *, compared: bool = False) -> Term:
        constant = self.current_token.constant
        if constant is None:
            return self.read_variable(compared=compared)
        if isinstance(constant.value, int) and not -_FIRST_BEYOND_BIGINT <= constant.value < _FIRST_BEYOND_BIGINT:
            self.raise_at(self.current_token, f"{constant} does not fit into 64 bits")
        self.take_token()
        return constant

    def read_variable(self, *, compared: bool = False) -> str:
        token = self.current_token
        name = token.text
        if not token.word:
            self.raise_expected("a variable" if token.text != "'" else "a closing quote")
        if name[0].isdigit():
            self.raise_at(token, f"{name} is neither a variable nor an integer")
        if name[0] == "_" or name.lower() == "diff":
            self.raise_at(token, f"{name} is a reserved name; choose another variable")
        for other in self.columns:
            if other.lower() == name.lower() and other != name:
                self.raise_at(token, f"{name} and {other} differ by case only; choose another variable")
        self.columns.setdefault(name, token.column)
        if compared:
            self.unbound.setdefault(name, (token, "compared"))
        return self.take_token().text

    @property
    def current_token(self) -> _Token:
        return self.tokens[self.next]

    def take_token(self, *wanted: str) -> _Token:
        if wanted and self.current_token.text not in wanted[:1]:
            self.raise_expected(" or ".join(wanted))
        self.next += 1
        return self.tokens[self.next - 1]

    def raise_expected(self, what: str) -> NoReturn:
        self.raise_at(self.current_token, f"expected {what}, found {self.current_token.text or 'the end'}")

    def raise_at(self, token: _Token, why: str) -> NoReturn:
        raise ValueError(f"{self.text!r} at column {token.column}: {why}")
