"""Linear operators, joins and reductions: full diff lists against recomputation, at every time, for every
lattice.

Each test is one Spark job over many cases, and of all operators that take the same. Inputs have retractions, negative
and large diffs, ties at one time, incomparable times; `want` comes from tests/algebra/reference.py alone.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from pyspark.sql import Column
from pyspark.sql import functions as F

from altneu.algorithms.algebra import joins, linear
from altneu.algorithms.algebra import reduce as reductions
from altneu.algorithms.algebra.collection import Collection
from altneu.algorithms.algebra.time_lattice import EPOCH
from tests import seeds
from tests.algebra.reference import (
    LATTICES,
    assert_same,
    closure,
    collected,
    contents,
    differences,
    expected,
    frame,
    label_rows,
    random_triples,
    recompute,
    unite_labelled,
)

SEED, CASES = seeds.one(20), 60
QUICK = {"(epoch×revision, index)"}
SOME_LATTICES = [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in LATTICES]


def inputs(seed: int, lattice_name: str, domains: list[int], cases: int = CASES) -> list:
    rng = random.Random(f"{seed}{lattice_name}")
    return [random_triples(rng, LATTICES[lattice_name], domains) for _ in range(cases)]


def assert_same_of_each(got: Counter, want: dict[str, Counter]) -> None:
    """`want`: of each operator, by its label."""
    assert all(want.values()), f"seed {SEED}: a reference is empty, so the case shows nothing"
    assert_same(got, label_rows(want), SEED)


def by_record(function: Callable[[tuple], list[tuple[tuple, int]]]) -> Callable[[Counter], Counter]:
    """A linear function on contents from its value on one record."""

    def on(contents: Counter) -> Counter:
        out: Counter = Counter()
        for data, n in contents.items():
            for data2, m in function(data):
                out[data2] += n * m
        return out

    return on


def at(name: str) -> Column:
    return F.col(name)  # Inside functions only: a column needs a running session.


LINEAR = {
    "map": (
        lambda c: linear.map(c, case=F.col("case"), s=at("x") + at("y")),
        lambda r: [((r[0] + r[1],), 1)],
    ),
    "filter": (lambda c: linear.filter(c, "x < 2"), lambda r: [(r, 1)] if r[0] < 2 else []),
    "explode": (
        lambda c: linear.join_function(
            c,
            F.array(
                F.struct(F.col("case").alias("case"), at("x").alias("v"), (at("y") - 1).alias("diff")),
                F.struct(F.col("case").alias("case"), at("y").alias("v"), F.lit(-4).alias("diff")),
            ),
        ),
        lambda r: [((r[0],), r[1] - 1), ((r[1],), -4)],
    ),
    "join_function, two updates and a condition": (
        lambda c: linear.join_function(
            c,
            [
                linear.Update({"case": F.col("case"), "v": at("x")}, diff=at("x") * 3),
                linear.Update({"case": F.col("case"), "v": at("y")}, diff=-2, when=at("x") > at("y")),
            ],
        ),
        lambda r: [((r[0],), r[0] * 3), *([((r[1],), -2)] if r[0] > r[1] else [])],
    ),
}


@pytest.mark.law(6)
@pytest.mark.parametrize("lattice", SOME_LATTICES)
def test_linear_operators_act_record_by_record(spark, lattice: str) -> None:
    time, cases = LATTICES[lattice], inputs(SEED, lattice, [3, 3])
    c = frame(spark, cases, ["x", "y"], time)
    got = collected(unite_labelled({name: operator(c) for name, (operator, _) in LINEAR.items()}))
    want = {name: expected([cases], time, by_record(record)) for name, (_, record) in LINEAR.items()}
    assert_same_of_each(got, want)


BOUNDS: dict[str, Callable[[int, int, int], bool]] = {  # of a record (x, y): is it live at epoch e?
    "both": lambda x, y, e: (x == 0 or x - 3 <= e) and (y == 4 or e < y - 2),
    "no lower": lambda x, y, e: y == 4 or e < y - 2,
    "no upper": lambda x, y, e: x == 0 or x - 3 <= e,
    "stamped": lambda x, y, e: y - 2 <= e,
}


def bounded(c: Collection, how: str) -> Collection:
    lower, upper = F.when(at("x") > 0, at("x") - 3), F.when(at("y") < 4, at("y") - 2)
    if how == "stamped":
        same = {name: at(name) for name in c.data}
        return linear.join_function(c, [linear.Update(same, {"epoch": at("y") - 2})])
    return linear.temporal_filter(c, None if how == "no lower" else lower, None if how == "no upper" else upper)


@pytest.mark.parametrize("lattice", SOME_LATTICES)
def test_records_live_within_their_bounds_and_nothing_else_moves(spark, lattice: str) -> None:
    """Contents at epoch e, before 0 too, are the input's contents there, of the records whose bounds hold e."""
    time = LATTICES[lattice]
    early = [[(d, (t[0] - 3, *t[1:]), n) for d, t, n in c] for c in inputs(SEED, lattice, [3, 5], cases=30)]
    c = frame(spark, early, ["x", "y"], time)
    every = [linear.map(bounded(c, how), how=F.lit(how), **{n: at(n) for n in c.data}) for how in BOUNDS]
    got = collected(every[0].concat(*every[1:]))
    ticks = [(e, *[0] * (len(time.columns) - 1)) for e in range(-3, 4)]
    want: Counter = Counter()
    for case, triples in enumerate(early):
        times = closure([t for _, t, _ in triples] + ticks, time)
        there = {t: contents(triples, time, t) for t in times}
        for how, lives in BOUNDS.items():
            live = {t: Counter({d: n for d, n in there[t].items() if lives(*d, t[0])}) for t in times}
            diffs = differences(live, time)
            want.update({((how, case, *data), t): n for (data, t), n in diffs.items()})
    assert_same(got, want, SEED)


def test_flat_map_and_explode_of_a_count(spark) -> None:
    c = Collection(
        spark.createDataFrame([("a", 3, 0, 1), ("b", 1000000000, 1, -2)], "k string, n long, epoch long, diff long"),
        EPOCH,
    )
    words = collected(linear.flat_map(c, F.array("k", F.upper("k")), "w"))
    assert words == Counter({(("a",), (0,)): 1, (("A",), (0,)): 1, (("b",), (1,)): -2, (("B",), (1,)): -2})
    copies = collected(linear.explode(c, F.array(F.struct("k", "n")), "k"))
    assert copies == Counter({(("a",), (0,)): 3, (("b",), (1,)): -2000000000}), "no copy is ever made"


def test_seed_2s_example(spark) -> None:
    """`x` copies of `2*x` from time `3*x` until `4*x`, for x from 0 through 9."""
    c = Collection(
        spark.range(10).select(
            F.col("id").alias("x"), F.lit(0).cast("long").alias("epoch"), F.lit(1).cast("long").alias("diff")
        ),
        EPOCH,
    )
    got = collected(
        linear.join_function(
            c,
            [
                linear.Update({"v": 2 * at("x")}, {"epoch": 3 * at("x")}, at("x")),
                linear.Update({"v": 2 * at("x")}, {"epoch": 4 * at("x")}, -at("x")),
            ],
        )
    )
    want = Counter({((2 * x,), (3 * x,)): x for x in range(1, 10)})
    want.update({((2 * x,), (4 * x,)): -x for x in range(1, 10)})
    assert got == want


def natural(r: Counter, s: Counter) -> Counter:
    out: Counter = Counter()
    for (k, x), n in r.items():
        for (k2, y), m in s.items():
            if k == k2:
                out[k, x, y] += n * m
    return out


def semi(r: Counter, s: Counter) -> Counter:
    keys = Counter()
    for (k, _), n in s.items():
        keys[k] += n
    return Counter({(k, x): n for (k, x), n in r.items() if keys[k] > 0})


JOINS = {
    "join": (lambda r, s: joins.join(r, s), natural),
    "semijoin": (lambda r, s: joins.semijoin(r, s, ["case", "k"]), semi),
    "antijoin": (
        lambda r, s: joins.antijoin(r, s, ["case", "k"]),
        lambda r, s: Counter({d: n for d, n in r.items() if d not in semi(r, s)}),
    ),
}


@pytest.mark.law(6)
@pytest.mark.parametrize("lattice", SOME_LATTICES)
def test_joins_are_bilinear(spark, lattice: str) -> None:
    left, right = inputs(SEED, lattice, [2, 2]), inputs(SEED + 1, lattice, [2, 2])
    time = LATTICES[lattice]
    r, s = frame(spark, left, ["k", "x"], time), frame(spark, right, ["k", "y"], time)
    got = collected(unite_labelled({name: operator(r, s) for name, (operator, _) in JOINS.items()}))
    assert_same_of_each(got, {name: expected([left, right], time, each) for name, (_, each) in JOINS.items()})


def per_key(function: Callable[[dict], tuple | None]) -> Callable[[Counter], Counter]:
    def on(contents: Counter) -> Counter:
        groups: dict = {}
        for (k, x), n in contents.items():
            groups.setdefault(k, {})[x] = n
        found = {k: function(g) for k, g in groups.items()}
        return Counter({(k, *v): 1 for k, v in found.items() if v is not None})

    return on


def low_and_total(group: dict) -> tuple | None:
    seen = {x: n for x, n in group.items() if n > 0}
    return (min(seen), sum(x * n for x, n in seen.items())) if seen else None


def aggregates() -> dict[str, Column]:
    return {"low": F.min("x"), "total": F.sum(F.col("x") * F.col("multiplicity"))}


def first_two(contents: Counter) -> Counter:
    """The records of each key that fewer than two copies of greater ones come before."""
    there = {row: n for row, n in contents.items() if n > 0}
    before = {(k, x): sum(n for (j, y), n in there.items() if j == k and y > x) for k, x in there}
    return Counter({row: n for row, n in there.items() if before[row] < 2})


REDUCTIONS = {
    "reduce": (lambda c: reductions.reduce(c, ["case", "k"], aggregates()), per_key(low_and_total)),
    "reduce, nonzero rows": (
        lambda c: reductions.reduce(c, ["case", "k"], {"n": F.sum("multiplicity")}, rows="nonzero"),
        per_key(lambda g: (sum(g.values()),)),
    ),
    "count": (
        lambda c: reductions.count(c, ["case", "k"]),
        per_key(lambda g: (sum(g.values()),) if sum(g.values()) else None),
    ),
    "top": (lambda c: reductions.top(c, ["case", "k"], ["x"], ["x"], 2), first_two),
    "distinct": (reductions.distinct, lambda c: Counter({d: 1 for d, n in c.items() if n > 0})),
    "threshold": (
        lambda c: reductions.threshold(c, lambda m: m * m - m),
        lambda c: Counter({d: n * n - n for d, n in c.items()}),
    ),
}


@pytest.mark.law(6)
@pytest.mark.parametrize("lattice", SOME_LATTICES)
def test_reductions_are_the_differences_of_their_recomputations(spark, lattice: str) -> None:
    time, cases = LATTICES[lattice], inputs(SEED, lattice, [2, 3])
    c = frame(spark, cases, ["k", "x"], time)
    got = collected(unite_labelled({name: operator(c) for name, (operator, _) in REDUCTIONS.items()}), raw=True)
    assert_same_of_each(got, {name: expected([cases], time, each) for name, (_, each) in REDUCTIONS.items()})


def test_reduce_without_a_key_is_one_group(spark) -> None:
    rng, want = random.Random(SEED), Counter()
    while not want:  # few triples may add up to nothing
        triples = random_triples(rng, EPOCH, [3], most=12)
        want = recompute([triples], EPOCH, lambda c: Counter({(n,): 1 for n in [sum(c.values())] if n}))
    c = frame(spark, [triples], ["x"], EPOCH)
    got = collected(reductions.count(linear.map(c, x=at("x")), []))
    assert_same(got, want, SEED)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds.several((100, 101)))
@pytest.mark.parametrize("lattice", LATTICES)
def test_wide_sweep(spark, lattice: str, seed: int) -> None:
    time = LATTICES[lattice]
    for operator, function in REDUCTIONS.values():
        cases = inputs(seed, lattice, [2, 3], cases=200)
        assert_same(
            collected(operator(frame(spark, cases, ["k", "x"], time))),
            expected([cases], time, function),
            seed,
        )
    for operator, function in JOINS.values():
        left, right = inputs(seed, lattice, [2, 2], 200), inputs(seed + 1, lattice, [2, 2], 200)
        out = operator(frame(spark, left, ["k", "x"], time), frame(spark, right, ["k", "y"], time))
        assert_same(collected(out), expected([left, right], time, function), seed)
