"""Calculus and delta queries: every rule claims each combination once, against joins recomputed at every time."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations, product

import pytest
from pyspark.sql import functions as F

from algorithms.calculus import as_of_join, delta_join, differentiate, integrate, triangles
from algorithms.collection import Collection
from algorithms.delta_query import Atom, Query, as_sets, check_sets, delta_query, explain
from algorithms.extend import COUNT, Extender, count, extend
from algorithms.times import EPOCH, EPOCH_REVISION, AltNeu
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


@pytest.mark.parametrize("lattice", ["epoch", "epoch×revision"])
def test_integrate_undoes_differentiate(spark, lattice: str) -> None:
    time = LATTICES[lattice]
    rng = random.Random(SEED)
    c = frame(spark, [random_triples(rng, time, [3]) for _ in range(20)], ["x"], time)
    there = differentiate(c, inner=AltNeu(time))
    assert collected(integrate(there, time)) == collected(c), f"seed {SEED}"
    assert not collected(there.leave(time)), "at any other time the blips cancel"


@pytest.mark.parametrize("lattice", [pytest.param("epoch", marks=pytest.mark.slow), "epoch×revision"])
def test_three_rules_count_each_triangle_once(spark, lattice: str) -> None:
    cases, time = edge_cases(SEED, lattice), LATTICES[lattice]
    want = expected([cases], time, three_edges)
    edges = frame(spark, cases, ["x", "y"], time)
    assert_same(collected(rules(edges, along=ALONG[lattice])), want, SEED)
    ours = delta_query(Query.parse("e(case,a,b), e(case,a,c), e(case,b,c)"), {"e": edges})
    assert_same(collected(ours), want, SEED)


def test_the_new_revision_needs_only_its_changes_and_the_edges(spark) -> None:
    """Low memory: what one revision adds comes from its changes and the edge relation, with no join kept in between."""
    cases = edge_cases(SEED, "epoch×revision")
    edges = frame(spark, cases, ["x", "y"], EPOCH_REVISION)
    want = expected([cases], EPOCH_REVISION, three_edges)
    last = Counter({row: n for row, n in want.items() if row[1][1] == 3})
    only = F.col("revision") == 3
    assert_same(collected(rules(edges, along="revision", only=only)), last, SEED)
    ours = delta_query(Query.parse("e(case,a,b), e(case,a,c), e(case,b,c)"), {"e": edges}, only=only)
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
}


def brute(text: str, relations: dict[str, Counter]) -> Counter:
    """Every assignment of the variables to 0 … 3, one by one."""
    query = Query.parse(text.replace("case,", ""))
    out: Counter = Counter()
    for values in product(range(4), repeat=len(query.variables)):
        row = dict(zip(query.variables, values, strict=True))
        weight = 1
        for atom in query.atoms:
            weight *= relations[atom.relation][tuple(row[v] for v in atom.variables)]
        if weight and all(row[a] < row[b] for a, b in query.less_than):
            out[values] = weight
    return out


SLOW = {"path", "4-cycle", "triangle of two relations"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in QUERIES])
def test_delta_queries(spark, name: str) -> None:
    rng = random.Random(f"{SEED}{name}")
    time = EPOCH_REVISION
    pairs = list(product(range(4), repeat=2))
    triples = list(product(range(4), repeat=3))
    cases = 15
    r = [random_sets(rng, time, rng.sample(pairs, 6), 2) for _ in range(cases)]
    s = [random_sets(rng, time, rng.sample(pairs, 6), 2) for _ in range(cases)]
    t = [random_sets(rng, time, rng.sample(triples, 8), 2) for _ in range(cases)]
    want = expected([r, s, t], time, lambda r, s, t: brute(QUERIES[name], {"r": r, "s": s, "t": t}))
    frames = {
        "r": frame(spark, r, ["x", "y"], time),
        "s": frame(spark, s, ["x", "y"], time),
        "t": frame(spark, t, ["x", "y", "z"], time),
    }
    # The case is data like any other; put it first in the reference's rows.
    got = delta_query(Query.parse(QUERIES[name]), frames)
    assert_same(collected(got), want, SEED)


def test_a_delta_query_of_bags_is_the_bilinear_join(spark) -> None:
    rng = random.Random(SEED)
    r = [random_triples(rng, EPOCH_REVISION, [2, 2]) for _ in range(20)]
    s = [random_triples(rng, EPOCH_REVISION, [2, 2]) for _ in range(20)]
    want = expected([r, s], EPOCH_REVISION, lambda r, s: brute(QUERIES["path"], {"r": r, "s": s}))
    frames = {n: frame(spark, x, ["x", "y"], EPOCH_REVISION) for n, x in (("r", r), ("s", s))}
    assert_same(collected(delta_query(Query.parse(QUERIES["path"]), frames)), want, SEED)


def test_multisets_are_found_and_made_sets(spark) -> None:
    rng = random.Random(SEED)
    cases = [random_triples(rng, EPOCH_REVISION, [2, 2]) for _ in range(20)]
    bag = frame(spark, cases, ["x", "y"], EPOCH_REVISION)
    assert collected(check_sets(bag)) and not collected(check_sets(as_sets({"r": bag})["r"]))


def test_extension_proposes_no_more_than_the_least_count(spark) -> None:
    """Law 8 on the graph that breaks wedges: a star. A pair join would make d² candidates; here each prefix makes 1."""
    d = 60
    star = [(0, i) for i in range(1, d + 1)] + [(i, d + i) for i in range(1, d + 1)]
    edges = spark.createDataFrame(star, "x long, y long")
    prefixes = edges.select(F.col("x").alias("a"), F.col("y").alias("b"))
    extenders = [
        Extender(edges.select(F.col("x").alias("a"), F.col("y").alias("c")), ("a",), "c"),
        Extender(edges.select(F.col("x").alias("b"), F.col("y").alias("c")), ("b",), "c"),
    ]
    counted = count(prefixes, extenders)
    assert counted.agg(F.sum(COUNT)).first()[0] == d and counted.agg(F.max(COUNT)).first()[0] == 1
    found = {tuple(r) for r in extend(prefixes, extenders).collect()}
    everything = set(star)
    assert found == {(a, b, c) for a, b in star for a2, c in star if a == a2 and (b, c) in everything}


def test_errors(spark) -> None:
    edges = Collection(
        spark.createDataFrame([(1, 2, 0, 0, 1)], "x long, y long, epoch long, revision long, diff long"), EPOCH_REVISION
    )
    with pytest.raises(ValueError, match="`along` must name a total coordinate"):
        triangles(edges)
    with pytest.raises(ValueError, match="no relation f"):
        delta_query(Query.parse("f(a,b)"), {"e": edges})
    with pytest.raises(ValueError, match="one variable, each different, per data column"):
        delta_query(Query((Atom("e", ("a", "a")),)), {"e": edges})
    with pytest.raises(ValueError, match="one variable, each different, per data column"):
        delta_query(Query.parse("e(a,b,c)"), {"e": edges})
    with pytest.raises(ValueError, match="not connected"):
        explain(Query.parse("e(a,b), e(c,d)"))


def test_explain_orders_rules(spark) -> None:
    assert explain(Query.parse("e(a,b), e(a,c), e(b,c)")) == [
        "de(a,b) → c: e(a,c) old, e(b,c) old",
        "de(a,c) → b: e(a,b) new, e(b,c) old",
        "de(b,c) → a: e(a,b) new, e(a,c) new",
    ]
    assert contents([], EPOCH, (0,)) == Counter()
