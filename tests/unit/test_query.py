"""Queries as text: what is said is what is read, written in many ways; anything else is refused with its place."""

from __future__ import annotations

import random

import pytest

from altneu.algorithms.algebra.query import Atom, Constant, Query
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
    "e(a,b), a<5x": (11, "5x is neither a variable nor an integer"),
    "e(a,7b)": (5, "7b is neither a variable nor an integer"),
    "e(a,99999999999999999999)": (5, "99999999999999999999 does not fit into 64 bits"),
    "e(1,'x')": (1, "e(1,'x') has no variable"),
    "e(a), 1 < 2": (11, "1 and 2 are both constants"),
    "e(a), 1": (8, "expected ( or <, > or !="),
    "e(a,'b)": (5, "expected a closing quote, found '"),
    "q(a :- e(a)": (5, "expected , or ), found :-"),
    "q(a,) :- e(a)": (5, "expected a variable, found )"),
    "q(a,a) :- e(a)": (5, "a occurs twice in the head"),
    "q(1) :- e(a)": (3, "1 is no variable: a head has the variables of the result"),
    "q(a,b) :- e(a)": (5, "b is in the head, but no atom has it"),
    "e(a), f(b) :- e(a)": (5, "expected :-"),
    ":- e(a)": (1, "expected a head such as ends(a,b)"),
    "e(a,b": (6, "expected , or ), found the end"),
    "e()": (3, "expected a variable, found )"),
    "e(a,,b)": (5, "expected a variable, found ,"),
    "e(a,b)), f(a)": (7, "expected ,, found )"),
    "e(a,b), f(b,A)": (13, "A and a differ by case only"),
    "e(a,_v)": (5, "_v is a reserved name"),
    "e(a, diff)": (6, "diff is a reserved name"),
    "?e(a)": (1, "expected an atom"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_query_is_refused_with_its_place(text: str) -> None:
    column, why = REFUSED[text]
    with pytest.raises(ValueError) as refused:
        Query.from_text(text)
    assert f"at column {column}: {why}" in str(refused.value)


def test_comparisons_may_come_first_be_chained_and_turn_around() -> None:
    query = Query.from_text("a<b, e(a,b)")
    assert (query.atoms, query.less_than) == ((Atom("e", ("a", "b")),), (("a", "b"),))
    query = Query.from_text("e(a,b), a!=b>c, f(b,c)")
    assert (query.less_than, query.different) == ((("c", "b"),), (("a", "b"),))


CONSTANTS = [Constant(7), Constant(-12), Constant("red"), Constant("it's, (a)<b"), Constant("")]


def test_random_queries_are_read_as_they_were_written() -> None:
    chosen = seeds.one()
    rng = random.Random(chosen)
    for _ in range(300):
        names = rng.sample(["a", "b", "c", "x1", "größe", "other_name"], 4)
        some = [(rng.choice(names), *rng.choices([*names, *CONSTANTS], k=rng.randrange(3))) for _ in range(4)]
        atoms = [Atom(rng.choice("efg"), terms) for terms in some[: rng.randint(1, 4)]]
        bound = sorted({v for atom in atoms for v in atom.variables})
        items: list[tuple] = [("atom", atom) for atom in atoms]
        for _ in range(rng.randint(0, 3)):
            left = rng.choice(bound)
            pair = (left, rng.choice([t for t in (*bound, *CONSTANTS) if t != left]))
            items.append((rng.choice(["<", ">", "!="]), pair))
        rng.shuffle(items)
        gap = lambda: " " * rng.randrange(3)  # noqa: E731
        words = []
        for kind, item in items:
            if isinstance(item, Atom):
                inside = f"{gap()},{gap()}".join(map(str, item.terms))
                words.append(f"{item.relation}{gap()}({gap()}{inside}{gap()})")
            else:
                words.append(f"{item[0]}{gap()}{kind}{gap()}{item[1]}")
        text = gap() + f"{gap()},{gap()}".join(words) + gap()
        head = tuple(rng.sample(bound, rng.randint(1, len(bound)))) if rng.random() < 0.5 else None
        if head:
            text = f"out{gap()}({gap()}{f'{gap()},'.join(head)}{gap()}){gap()}:-{text}"
        query = Query.from_text(text)
        less = [pair if kind == "<" else pair[::-1] for kind, pair in items if kind in ("<", ">")]
        assert list(query.atoms) == [item for kind, item in items if kind == "atom"], f"seed {chosen}: {text!r}"
        assert list(query.less_than) == less, f"seed {chosen}: {text!r}"
        assert list(query.different) == [pair for kind, pair in items if kind == "!="], f"seed {chosen}: {text!r}"
        assert query.head == head, f"seed {chosen}: {text!r}"
        for variable, column in query.columns.items():
            assert text[column - 1 :].startswith(variable), f"seed {chosen}: {text!r}"
