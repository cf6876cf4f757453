"""Queries as text: what is said is what is read, written in many ways; anything else is refused with its place."""

from __future__ import annotations

import random

import pytest

from algorithms.query import Atom, Query
from tests import seeds

REFUSED = {
    "": (1, "expected an atom"),
    "e(a,b),": (8, "expected an atom"),
    "a<b": (1, "a is compared, but no atom has it"),
    "e(a,b), a<c": (11, "c is compared, but no atom has it"),
    "e(a,b) a<b": (8, "expected ,"),
    "e(a,b), a": (10, "expected ( or <, > or !="),
    "e(a,b), a<=b": (10, "expected ( or <, > or !="),
    "e(a,b), a=b": (10, "expected ( or <, > or !="),
    "e(a,b), a<": (11, "expected a variable, found the end"),
    "e(a,b), a!=a": (12, "a is compared with itself"),
    "e(a,b), a<5": (11, "5 is no variable, and constants are not known here"),
    "e(a,7)": (5, "7 is no variable, and constants are not known here"),
    "e(a,a)": (5, "a is twice in one atom"),
    "e(a,b": (6, "expected , or ), found the end"),
    "e()": (3, "expected a variable, found )"),
    "e(a,,b)": (5, "expected a variable, found ,"),
    "e(a,b)), f(a)": (7, "expected ,, found )"),
    "e(a,'b')": (5, "expected a variable, found '"),
    "e(a,b), f(b,A)": (13, "Spark does not tell A from a"),
    "e(a,_v)": (5, "_v is a name of the algebra's own"),
    "e(a, diff)": (6, "diff is a name of the algebra's own"),
    "?e(a)": (1, "expected an atom"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_query_is_refused_with_its_place(text: str) -> None:
    column, why = REFUSED[text]
    with pytest.raises(ValueError) as refused:
        Query.parse(text)
    assert f"at column {column}: {why}" in str(refused.value)


def test_comparisons_may_come_first_be_chained_and_turn_around() -> None:
    query = Query.parse("a<b, e(a,b)")
    assert (query.atoms, query.less_than) == ((Atom("e", ("a", "b")),), (("a", "b"),))
    query = Query.parse("e(a,b), a!=b>c, f(b,c)")
    assert (query.less_than, query.different) == ((("c", "b"),), (("a", "b"),))


def test_random_queries_are_read_as_they_were_written() -> None:
    chosen = seeds.one()
    rng = random.Random(chosen)
    for _ in range(300):
        names = rng.sample(["a", "b", "c", "x1", "größe", "other_name"], 4)
        atoms = [Atom(rng.choice("efg"), tuple(rng.sample(names, rng.randint(1, 3)))) for _ in range(rng.randint(1, 4))]
        bound = sorted({v for atom in atoms for v in atom.variables})
        items = [("atom", atom) for atom in atoms]
        if len(bound) > 1:
            pairs = [tuple(rng.sample(bound, 2)) for _ in range(rng.randint(0, 3))]
            items += [(rng.choice(["<", ">", "!="]), pair) for pair in pairs]
        rng.shuffle(items)
        gap = lambda: " " * rng.randrange(3)  # noqa: E731
        words = []
        for kind, item in items:
            if isinstance(item, Atom):
                inside = f"{gap()},{gap()}".join(item.variables)
                words.append(f"{item.relation}{gap()}({gap()}{inside}{gap()})")
            else:
                words.append(f"{item[0]}{gap()}{kind}{gap()}{item[1]}")
        text = gap() + f"{gap()},{gap()}".join(words) + gap()
        query = Query.parse(text)
        less = [pair if kind == "<" else pair[::-1] for kind, pair in items if kind in ("<", ">")]
        assert list(query.atoms) == [item for kind, item in items if kind == "atom"], f"seed {chosen}: {text!r}"
        assert list(query.less_than) == less, f"seed {chosen}: {text!r}"
        assert list(query.different) == [pair for kind, pair in items if kind == "!="], f"seed {chosen}: {text!r}"
        for variable, column in query.columns.items():
            assert text[column - 1 :].startswith(variable), f"seed {chosen}: {text!r}"
