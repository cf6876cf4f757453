"""Operators that carry state: what they give for a delta is what their results differ by, at every time.

The triples of a case are dealt to the state and to deltas by lot, so a delta has times before, beside and equal to
those that are there: late epochs, epochs replaced, deletions and re-insertions, ties. The reference knows no state.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import product

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from altneu.algorithms.algebra import incremental
from altneu.algorithms.algebra.collection import Collection
from altneu.algorithms.algebra.incremental import Change
from altneu.algorithms.algebra.query import Query
from altneu.algorithms.algebra.reduce import reduce, running_sums
from altneu.algorithms.algebra.time_lattice import EPOCH, EPOCH_REVISION, Lattice
from tests import seeds
from tests.algebra.reference import (
    LATTICES,
    assert_same,
    collected,
    exchanges,
    expected,
    frame,
    label_rows,
    no_python,
    plan,
    random_sets,
    random_triples,
    unite_labelled,
)
from tests.algebra.test_operators import REDUCTIONS, aggregates, natural

SEED, CASES, RUNS = seeds.one(91), 25, 2

OPERATORS = {
    "reduce": lambda c, few: incremental.reduce(c, ["case", "k"], aggregates(), broadcast=few),
    "reduce, nonzero rows": lambda c, few: incremental.reduce(
        c, ["case", "k"], {"n": F.sum("multiplicity")}, "nonzero", broadcast=few
    ),
    "count": lambda c, few: incremental.count(c, ["case", "k"], broadcast=few),
    "top": lambda c, few: incremental.top(c, ["case", "k"], ["x"], ["x"], 2, broadcast=few),
    "distinct": lambda c, few: incremental.distinct(c, broadcast=few),
    "threshold": lambda c, few: incremental.threshold(c, lambda m: m * m - m, broadcast=few),
}


def dealt(rng: random.Random, cases: list[list]) -> list[list[list]]:
    """The triples of each case dealt to so many runs: for each run, its cases."""
    runs: list[list[list]] = [[[] for _ in cases] for _ in range(RUNS)]
    for number, case in enumerate(cases):
        for triple in case:
            rng.choice(runs)[number].append(triple)
    return runs


def carried(parts: Sequence[Collection]) -> list[Change]:
    """One change for each run: its part comes to those before it."""
    changes, state = [], Collection(parts[0].df.limit(0), parts[0].time)
    for part in parts:
        changes.append(Change(state, part))
        state = changes[-1].after
    return changes


def minus(a: Counter, b: Counter) -> Counter:
    return Counter({row: a[row] - b[row] for row in {*a, *b} if a[row] != b[row]})


@pytest.mark.law(6)
@pytest.mark.parametrize("lattice", [pytest.param("epoch", marks=pytest.mark.slow), "epoch×revision"])
def test_the_result_of_a_delta_is_the_difference_of_recomputations(spark, lattice: str) -> None:
    time, rng = LATTICES[lattice], random.Random(f"{SEED}{lattice}")
    runs = dealt(rng, [random_triples(rng, time, [2, 3], most=9) for _ in range(CASES)])
    each = carried([frame(spark, run, ["k", "x"], time) for run in runs])
    before: dict[str, Counter] = {name: Counter() for name in OPERATORS}
    for number, change in enumerate(each):
        so_far = [[t for run in runs[: number + 1] for t in run[case]] for case in range(CASES)]
        whole = {name: expected([so_far], time, REDUCTIONS[name][1]) for name in OPERATORS}
        deltas = {name: operator(change, number % 2 == 0).delta for name, operator in OPERATORS.items()}
        want = {name: minus(whole[name], before[name]) for name in OPERATORS}
        assert all(want.values()), f"seed {SEED}: a reference is empty, so the case shows nothing"
        assert_same(collected(unite_labelled(deltas)), label_rows(want), SEED)
        before = whole


@pytest.mark.law(6)
def test_running_sums_are_reduce_with_sums(spark) -> None:
    rng = random.Random(f"{SEED} sums")
    runs = [[random_sets(rng, EPOCH, product(range(2), range(3))) for _ in range(CASES)] for _ in range(2)]
    change = Change(*(frame(spark, run, ["k", "x"], EPOCH) for run in runs))
    sums = {"n": F.col("diff"), "s": F.col("x") * F.col("diff")}
    again = {"n": F.sum("multiplicity"), "s": F.sum(F.col("x") * F.col("multiplicity"))}
    got = incremental.running_sums(change, ["case", "k"], sums, broadcast=True).delta
    whole = running_sums(change.after, ["case", "k"], sums)
    want = {
        "delta": incremental.reduce(change, ["case", "k"], again).delta,
        "whole": reduce(change.after, ["case", "k"], again),
    }
    assert_same(collected(unite_labelled({"delta": got, "whole": whole})), collected(unite_labelled(want)), SEED)


def both(spark: SparkSession, cases: list[list[list]], names: list[str], time: Lattice) -> tuple[Change, list, list]:
    """A change with what was there and all there is afterwards."""
    old, new = (frame(spark, run, names, time) for run in cases[:2])
    after = [a + b for a, b in zip(*cases[:2], strict=True)]
    return Change(old, new), cases[0], after


@pytest.mark.parametrize("few", [pytest.param(False, marks=pytest.mark.slow), True])
def test_joins_and_queries_of_deltas(spark, few: bool) -> None:
    time, rng = EPOCH_REVISION, random.Random(f"{SEED}{few}")
    left, right = (dealt(rng, [random_triples(rng, time, [2, 2]) for _ in range(CASES)]) for _ in range(2))
    r, r_old, r_new = both(spark, left, ["k", "x"], time)
    s, s_old, s_new = both(spark, right, ["k", "y"], time)
    want = minus(expected([r_new, s_new], time, natural), expected([r_old, s_old], time, natural))
    assert_same(collected(incremental.join(r, s, broadcast=few).delta), want, SEED)
    same = incremental.query(Query.from_text("r(case,k,x), s(case,k,y)"), {"r": r, "s": s}, broadcast=few)
    assert_same(Counter({((c, k, x, y), t): n for ((c, k, x, y), t), n in collected(same.delta).items()}), want, SEED)


def test_a_chain_of_operators_carries_its_state(spark) -> None:
    """How many vertices have each degree: a count, and a count of those, run by run; the sums are the whole."""
    rng = random.Random(SEED)
    edges = list(product(range(4), repeat=2))
    runs = dealt(rng, [random_sets(rng, EPOCH, rng.sample(edges, 6), most=4) for _ in range(CASES)])
    parts = [frame(spark, run, ["a", "b"], EPOCH) for run in runs]
    total: Counter = Counter()
    for change in carried(parts):
        degrees = incremental.count(change, ["case", "a"], "degree")
        frequency = incremental.count(degrees, ["case", "degree"], "vertices")
        total.update(collected(frequency.delta))

    def spread(e: Counter) -> Counter:
        degree: Counter = Counter()
        for (a, _), n in e.items():
            degree[a] += n
        found = Counter(d for d in degree.values() if d)
        return Counter({(d, n): 1 for d, n in found.items()})

    whole = [[t for run in runs for t in run[case]] for case in range(CASES)]
    # A delta dealt by lot takes away what is not there yet: totals count because sums do.
    assert_same(Counter({row: n for row, n in total.items() if n}), expected([whole], EPOCH, spread), SEED)


def test_nothing_that_is_stored_is_exchanged_for_a_few_keys(spark) -> None:
    rows = frame(spark, [[((1, 2), (0,), 1)]], ["k", "x"], EPOCH)
    threshold = spark.conf.get("spark.sql.autoBroadcastJoinThreshold")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        found = incremental.count(Change(rows, rows), ["k"], broadcast=True).delta.df
        assert exchanges(found) == 2 and no_python(found), "the keys once, to be told apart, and the reduction's own"
        joined = incremental.join(
            Change(rows, rows), Change(rows, rows).through(lambda c: c.rename({"x": "y"})), broadcast=True
        )
        assert exchanges(joined.delta.df) == 0 and "SortMergeJoin" not in plan(joined.delta.df)
    finally:
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", threshold)


def test_parts_that_do_not_fit_are_refused(spark) -> None:
    old, new = frame(spark, [[]], ["k"], EPOCH), frame(spark, [[]], ["x"], EPOCH)
    for call in (lambda: incremental.count(Change(old, new), ["case"]), lambda: Change(old, new).after):
        with pytest.raises(ValueError, match="cannot add data"):
            call()
