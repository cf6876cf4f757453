"""Calculus and delta queries: every rule claims each combination once, against joins recomputed at every time."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations, product

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from altneu.algorithms.algebra.calculus import as_of_join, delta_join, differentiate, integrate, triangles
from altneu.algorithms.algebra.collection import Collection
from altneu.algorithms.algebra.delta_query import as_sets, check_sets, delta_query, explain, query_changes
from altneu.algorithms.algebra.prefix_extension import COUNT, RULE, AtomLookup, Case, Extension, View
from altneu.algorithms.algebra.query import Constant, Query, Term
from altneu.algorithms.algebra.time_lattice import EPOCH, EPOCH_REVISION, AltNeu
from tests import seeds
from tests.algebra.reference import (
    LATTICES,
    assert_same,
    collected,
    contents,
    expected,
    frame,
    mismatch,
    random_sets,
    random_triples,
)

SEED, CASES = seeds.one(41), 40
EDGES = list(combinations(range(4), 2))
ALONG = {"epoch": None, "epoch×revision": "revision"}


def edge_cases(seed: int, lattice: str, cases: int = CASES) -> list:
    rng = random.Random(f"{seed}{lattice}")
    return [random_sets(rng, LATTICES[lattice], rng.sample(EDGES, 5)) for _ in range(cases)]


def three_edges(e: Counter) -> Counter:
    out: Counter = Counter()
    for (a, b), (a2, c) in product(e, e):
        if a == a2 and (b, c) in e:
            out[a, b, c] += e[a, b] * e[a, c] * e[b, c]
    return out


def keyed(collection: Collection, a: str, b: str) -> Collection:
    """The edges of every case with their ends renamed; `case` stays, so all joins are within a case."""
    x, y = (c for c in collection.data if c != "case")
    return collection.rename({x: a, y: b})


def rules(edges: Collection, **kwargs) -> Collection:
    return delta_join([keyed(edges, *ends) for ends in ("ab", "ac", "bc")], **kwargs)


@pytest.mark.law(6)
@pytest.mark.parametrize("lattice", [pytest.param("epoch", marks=pytest.mark.slow), "epoch×revision"])
def test_integrate_undoes_differentiate(spark, lattice: str) -> None:
    time = LATTICES[lattice]
    rng = random.Random(SEED)
    c = frame(spark, [random_triples(rng, time, [3]) for _ in range(20)], ["x"], time)
    there = differentiate(c, inner=AltNeu(time))
    assert collected(integrate(there, time)) == collected(c), f"seed {SEED}"
    assert not collected(there.leave(time)), "at any other time the blips cancel"


@pytest.mark.law(5)
@pytest.mark.parametrize("lattice", [pytest.param("epoch", marks=pytest.mark.slow), "epoch×revision"])
def test_three_rules_count_each_triangle_once(spark, lattice: str) -> None:
    cases, time = edge_cases(SEED, lattice), LATTICES[lattice]
    want = expected([cases], time, three_edges)
    edges = frame(spark, cases, ["x", "y"], time)
    assert_same(collected(rules(edges, along=ALONG[lattice])), want, SEED)
    ours = delta_query(Query.from_text("e(case,a,b), e(case,a,c), e(case,b,c)"), {"e": edges})
    assert_same(collected(ours), want, SEED)


def test_the_new_revision_needs_only_its_changes_and_the_edges(spark) -> None:
    """Low memory: what one revision adds comes from its changes and the edge relation, with no join kept in between."""
    cases = edge_cases(SEED, "epoch×revision")
    edges = frame(spark, cases, ["x", "y"], EPOCH_REVISION)
    want = expected([cases], EPOCH_REVISION, three_edges)
    last = Counter({row: n for row, n in want.items() if row[1][1] == 3})
    only = F.col("revision") == 3
    assert_same(collected(rules(edges, along="revision", only=only)), last, SEED)
    ours = delta_query(Query.from_text("e(case,a,b), e(case,a,c), e(case,b,c)"), {"e": edges}, only=only)
    assert_same(collected(ours), last, SEED)


def test_moments_on_a_partial_order_lose_combinations(spark) -> None:
    """Design §2: the whole-time wrap of seed 1 is wrong for incomparable times; the same test passes for ours."""
    cases = edge_cases(SEED, "epoch×revision")
    edges = frame(spark, cases, ["x", "y"], EPOCH_REVISION)
    want = expected([cases], EPOCH_REVISION, three_edges)
    naive = collected(rules(edges, inner=AltNeu(EPOCH_REVISION)))
    assert mismatch(naive, want), f"seed {SEED}: the naive construction should be wrong here"


def test_triangles_in_the_seeds_words(spark) -> None:
    rows = [(1, 2, 0, 1), (1, 3, 0, 1), (2, 3, 0, 1), (2, 3, 4, -1)]
    edges = Collection(spark.createDataFrame(rows, "src long, dst long, epoch long, diff long"), EPOCH)
    assert collected(triangles(edges)) == Counter({((1, 2, 3), (0,)): 1, ((1, 2, 3), (4,)): -1})


def test_as_of_join_locks_the_price(spark) -> None:
    orders = [("bacon", 2, 1), ("latte", 3, 283), ("bacon", 6, -1)]
    prices = [
        ("bacon", 5, 0, 1),
        ("latte", 3, 0, 1),
        ("latte", 3, 4, -1),
        ("latte", 4, 4, 1),
        ("bacon", 5, 5, -1),
        ("bacon", 7, 5, 1),
    ]
    o = Collection(spark.createDataFrame(orders, "item string, epoch long, diff long"), EPOCH)
    p = Collection(spark.createDataFrame(prices, "item string, price long, epoch long, diff long"), EPOCH)
    got = collected(as_of_join(o, p))
    # The seed's homework: the retraction takes back the price of its own moment, so -1 at 7 remains beside +1 at 5.
    want = {(("bacon", 5), (2,)): 1, (("latte", 3), (3,)): 283, (("bacon", 7), (6,)): -1}
    assert got == Counter(want)


def test_as_of_join_equals_a_look_up_at_each_change(spark) -> None:
    rng = random.Random(SEED)
    left = [random_triples(rng, EPOCH_REVISION, [2, 2]) for _ in range(CASES)]
    right = [random_triples(rng, EPOCH_REVISION, [2, 3]) for _ in range(CASES)]
    want: Counter = Counter()
    for case in range(CASES):
        for (k, x), (e, r), n in left[case]:
            # Along revision: the left change at revision r meets right changes of revisions <= r, at the later epoch.
            for (k2, y), (e2, r2), m in right[case]:
                if k == k2 and r2 <= r:
                    want[(case, k, x, y), (max(e, e2), r)] += n * m
    old, new = (frame(spark, c, ["k", n], EPOCH_REVISION) for c, n in ((left, "x"), (right, "y")))
    assert_same(collected(as_of_join(old, new, along="revision")), Counter({k: n for k, n in want.items() if n}), SEED)


QUERIES = {
    "path": "r(case,a,b), s(case,b,c)",
    "triangle of two relations": "r(case,a,b), s(case,b,c), r(case,a,c), a<c",
    "4-cycle": "r(case,a,b), r(case,b,c), r(case,c,d), r(case,a,d)",
    "a relation of three": "t(case,a,b,c), r(case,a,d), s(case,d,b)",
    "the same pair twice": "r(case,a,b), s(case,a,b)",
    "rules of different lengths": "r(case,a,b), r(case,b,c), r(case,a,c), s(case,c,d), a != d",
    "a relation of one": "u(case,b), r(case,a,b), s(case,b,c), u(case,a)",
    "constants": "r(case,a,1), s(case,a,b), b != 2, 0 < a, t(case,3,b,c)",
    "a loop and a projection": "ends(case,a,d) :- r(case,a,b), s(case,b,b), t(case,b,c,d), d != a",
}


def brute(text: str, relations: dict[str, Counter]) -> Counter:
    """Every assignment of the variables to 0 … 3, one by one."""
    query = Query.from_text(text.replace("case,", ""))
    out: Counter = Counter()
    for values in product(range(4), repeat=len(query.variables)):
        row = dict(zip(query.variables, values, strict=True))

        def value(term: Term, row: dict[str, int] = row) -> int | str:
            return term.value if isinstance(term, Constant) else row[term]

        weight = 1
        for atom in query.atoms:
            weight *= relations[atom.relation][tuple(value(term) for term in atom.terms)]
        fits = all(value(a) < value(b) for a, b in query.less_than)
        if weight and fits and all(value(a) != value(b) for a, b in query.different):
            out[tuple(row[v] for v in query.results)] += weight
    return out


QUICK = {"triangle of two relations"}
ARITY = {"r": 2, "s": 2, "t": 3, "u": 1}


def relation_cases(seed: str, cases: int) -> dict[str, list]:
    """Sets of every arity. The greatest revision, 3, is that of a delta: late epochs, deletions, ties are in it."""
    rng = random.Random(seed)
    found = {}
    for name, arity in ARITY.items():
        records = list(product(range(4), repeat=arity))
        chosen = [rng.sample(records, min(len(records), 4 + 2 * arity)) for _ in range(cases)]
        found[name] = [random_sets(rng, EPOCH_REVISION, each, 2) for each in chosen]
    return found


def relation_frames(spark: SparkSession, cases: dict[str, list]) -> dict[str, Collection]:
    return {n: frame(spark, each, ["x", "y", "z"][: ARITY[n]], EPOCH_REVISION) for n, each in cases.items()}


@pytest.mark.law(5)
@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in QUERIES])
def test_delta_queries(spark, name: str) -> None:
    """Whole, and in the two forms that give what one revision adds; with prefixes exchanged, and broadcast."""
    cases, query = relation_cases(f"{SEED}{name}", 20), Query.from_text(QUERIES[name])
    used = sorted({atom.relation for atom in query.atoms})
    sides = [cases[n] for n in used]
    want = expected(sides, EPOCH_REVISION, lambda *r: brute(QUERIES[name], dict(zip(used, r, strict=True))))
    frames = relation_frames(spark, cases)
    # The case is data like any other; it is the first variable.
    assert_same(collected(delta_query(query, frames)), want, SEED)
    added = Counter({row: n for row, n in want.items() if row[1][1] == 3})
    late = F.col("revision") == 3
    assert_same(collected(delta_query(query, frames, only=late, broadcast=True)), added, SEED)
    before = {n: Collection(c.df.where(~late), c.time) for n, c in frames.items()}
    delta = {n: Collection(c.df.where(late), c.time) for n, c in frames.items() if n in used}
    assert_same(collected(query_changes(query, before, delta)), added, SEED)


def test_a_delta_comes_after_all_whatever_its_times(spark) -> None:
    """Triples drawn by lot as the delta, so at times before, beside and equal to those that are there."""
    text, rng = "r(case,a,b), s(case,b,c), r(case,a,c)", random.Random(f"{SEED}delta")
    both = [[[(x, rng.random() < 0.4) for x in case] for case in each] for each in relation_cases(text, 12).values()][
        :2
    ]
    whole, old = ([[[x for x, late in c if not late or new] for c in each] for each in both] for new in (True, False))
    added = [[[x for x, late in case if late] for case in each] for each in both]

    def all_of(sides: list) -> Counter:
        return expected(sides, EPOCH_REVISION, lambda r, s: brute(text, {"r": r, "s": s}))

    want = all_of(whole)
    want.subtract(all_of(old))
    frames = [relation_frames(spark, dict(zip("rs", each, strict=True))) for each in (old, added)]
    got = collected(query_changes(Query.from_text(text), *frames))
    assert_same(got, Counter({row: n for row, n in want.items() if n}), SEED)


def test_values_of_many_types_agree_and_nulls_agree_with_nothing(spark) -> None:
    """Integers of two widths meet; what only one atom has may be null, and is handed on."""
    likes = spark.createDataFrame(
        [("ann", 1, 0, 1), ("bob", 2, 0, 1), ("bob", None, 0, 1)], "who string, n int, epoch long, diff long"
    )
    price = spark.createDataFrame(
        [(1, None, 3, 1), (2, "it's", 4, 1), (None, "c", 0, 1)], "n long, name string, epoch long, diff long"
    )
    relations = {"likes": Collection(likes, EPOCH), "price": Collection(price, EPOCH)}
    got = collected(delta_query(Query.from_text("likes(who, n), price(n, name)"), relations))
    assert got == Counter({(("ann", 1, None), (3,)): 1, (("bob", 2, "it's"), (4,)): 1})
    got = collected(delta_query(Query.from_text("out(n) :- likes('bob', n), price(n, 'it''s'), n < 3"), relations))
    assert got == Counter({((2,), (4,)): 1})
    for wrong, what in {"likes(7, n)": "the column who", "likes(who, n), n < 'x'": "the variable n"}.items():
        with pytest.raises(ValueError, match=f"{what}.* is of type"):
            delta_query(Query.from_text(wrong), relations)


@pytest.mark.law(6)
def test_a_delta_query_of_bags_is_the_bilinear_join(spark) -> None:
    rng = random.Random(SEED)
    r = [random_triples(rng, EPOCH_REVISION, [2, 2]) for _ in range(20)]
    s = [random_triples(rng, EPOCH_REVISION, [2, 2]) for _ in range(20)]
    want = expected([r, s], EPOCH_REVISION, lambda r, s: brute(QUERIES["path"], {"r": r, "s": s}))
    frames = {n: frame(spark, x, ["x", "y"], EPOCH_REVISION) for n, x in (("r", r), ("s", s))}
    assert_same(collected(delta_query(Query.from_text(QUERIES["path"]), frames)), want, SEED)


def test_multisets_are_found_and_made_sets(spark) -> None:
    rng = random.Random(SEED)
    cases = [random_triples(rng, EPOCH_REVISION, [2, 2]) for _ in range(20)]
    bag = frame(spark, cases, ["x", "y"], EPOCH_REVISION)
    assert collected(check_sets(bag)) and not collected(check_sets(as_sets({"r": bag})["r"]))


@pytest.mark.law(8)
def test_extension_proposes_no_more_than_the_least_count(spark) -> None:
    """Law 8 on the graph that breaks wedges: a star. A pair join would make d² candidates; here each prefix makes 1."""
    d = 60
    star = [(0, i) for i in range(1, d + 1)] + [(i, d + i) for i in range(1, d + 1)]
    rows = spark.createDataFrame([(*e, 0, 1) for e in star], "x long, y long, epoch long, diff long")
    forward = View(rows, ("x", "y"), ("bigint", "bigint"))
    # Both e(a,c) and e(b,c) offer values of c to the prefixes (a,b).
    proposing = [AtomLookup(0, (v, "c"), (0,), (1,), is_fully_bound=True, or_equal=True) for v in "ab"]
    judging = [AtomLookup(0, (v, "c"), (0, 1), (), is_fully_bound=True, or_equal=True) for v in "ab"]
    step = [Case(0, (proposing[0], judging[1])), Case(0, (proposing[1], judging[0]))]
    unbound = [F.lit(0).alias(RULE), F.col("x").alias("a"), F.col("y").alias("b"), F.lit(None).cast("long").alias("c")]
    prefixes = rows.select(*unbound, F.col("epoch").alias("_at_epoch"), "epoch", "diff")
    for broadcast in (False, True):
        extension = Extension([forward], EPOCH, ["epoch"], broadcast)
        counted = extension.count(prefixes, step)
        ends = counted.where(F.col(COUNT) > 0)
        assert ends.agg(F.sum(COUNT)).first()[0] == d and ends.agg(F.max(COUNT)).first()[0] == 1
        found = {tuple(r) for r in extension.extend(prefixes, step).select("a", "b", "c").collect()}
        everything = set(star)
        assert found == {(a, b, c) for a, b in star for a2, c in star if a == a2 and (b, c) in everything}


def test_errors(spark) -> None:
    edges = Collection(
        spark.createDataFrame([(1, 2, 0, 0, 1)], "x long, y long, epoch long, revision long, diff long"), EPOCH_REVISION
    )
    with pytest.raises(ValueError, match="`along` must name a total coordinate"):
        triangles(edges)
    with pytest.raises(ValueError, match="no relation f"):
        delta_query(Query.from_text("f(a,b)"), {"e": edges})
    with pytest.raises(ValueError, match="needs one term for each data column of"):
        delta_query(Query.from_text("e(a,b,c)"), {"e": edges})
    with pytest.raises(ValueError, match="not connected"):
        explain(Query.from_text("e(a,b), e(c,d)"))


def test_explain_orders_rules(spark) -> None:
    assert explain(Query.from_text("e(a,b), e(a,c), e(b,c)")) == [
        "de(a,b) → c: e(a,c) old, e(b,c) old",
        "de(a,c) → b: e(a,b) new, e(b,c) old",
        "de(b,c) → a: e(a,b) new, e(a,c) new",
    ]
    assert contents([], EPOCH, (0,)) == Counter()
