"""The test of the tests: break an operator on purpose, and the comparison that the suite uses must see it.

Each mutant is applied to the same kind of random cases, and compared by the same `mismatch`, as in the other files.
The unbroken operator passes on the same sample first, so a mutant is never "found" by a wrong reference.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import combinations

import pytest
from pyspark.sql import functions as F

from altneu.algorithms.algebra import (
    calculus,
    collection,
    delta_query,
    joins,
    linear,
    prefix_extension,
    reduce,
    time_lattice,
    upserts,
)
from altneu.algorithms.algebra.collection import Collection
from altneu.algorithms.algebra.time_lattice import EPOCH_REVISION
from tests import seeds
from tests.algebra.reference import collected, contents, expected, frame, mismatch, random_sets, random_triples

SEED, CASES = seeds.one(81), 25


def sample(sets: bool = False) -> list:
    rng = random.Random(SEED)
    if sets:
        edges = list(combinations(range(4), 2))
        return [random_sets(rng, EPOCH_REVISION, edges, 2) for _ in range(CASES)]
    return [random_triples(rng, EPOCH_REVISION, [2, 2]) for _ in range(CASES)]


def three_edges(e: Counter) -> Counter:
    ok = [(a, b, c) for a, b, c in combinations(range(4), 3) if {(a, b), (a, c), (b, c)} <= set(e)]
    return Counter(dict.fromkeys(ok, 1))


def by_calculus(edges: Collection) -> Collection:
    relations = [edges.rename({"k": s, "x": t}) for s, t in ("ab", "ac", "bc")]
    return calculus.delta_join(relations, along="revision")


def by_delta_query(edges: Collection) -> Collection:
    query = delta_query.Query.from_text("e(case,a,b), e(case,b,c), e(case,a,c)")
    return delta_query.delta_query(query, {"e": edges})


def self_join(c: Collection) -> Collection:
    return joins.join(c, c.rename({"x": "y"}), ["case", "k"])


def pairs(c: Counter) -> Counter:
    out: Counter = Counter()
    for (k, x), n in c.items():
        for (k2, y), m in c.items():
            out[k, x, y] += n * m if k == k2 else 0
    return out


def tripled(c: Collection) -> Collection:
    update = linear.Update({"case": F.col("case"), "k": F.col("k")}, diff=F.col("x") * 3 - 1)
    return linear.join_function(c, [update])


def tripled_plain(c: Counter) -> Counter:
    out: Counter = Counter()
    for (k, x), n in c.items():
        out[k,] += n * (3 * x - 1)
    return out


def least(c: Counter) -> Counter:
    low: dict = {}
    for (k, x), n in c.items():
        if n > 0:
            low[k] = min(x, low.get(k, x))
    return Counter({(k, x): 1 for k, x in low.items()})


def minimum(c: Collection) -> Collection:
    return reduce.reduce(c, ["case", "k"], {"low": F.min("x")})


def forget_the_shift(patch) -> None:
    patch.setattr(collection.Collection, "delay", lambda self, later: self)


def less_equal_for_less(patch) -> None:
    right = prefix_extension.before_in_order
    patch.setattr(prefix_extension, "before_in_order", lambda a, b, or_equal: right(a, b, True))


def less_for_less_equal(patch) -> None:
    right = prefix_extension.before_in_order
    patch.setattr(prefix_extension, "before_in_order", lambda a, b, or_equal: right(a, b, False))


def partial_order_for_total(patch) -> None:
    patch.setattr(calculus, "moments", lambda time, along=None: time_lattice.AltNeu(time))


def keep_the_left_time(patch) -> None:
    patch.setattr(time_lattice.Product, "join_columns", lambda self, a, b: list(a))


def forget_to_multiply(patch) -> None:
    right = joins.join
    ones = lambda c: Collection(c.df.withColumn("diff", F.signum("diff").cast("bigint")), c.time)  # noqa: E731
    patch.setattr(joins, "join", lambda a, b, on=None: right(a, ones(b), on))


def forget_the_input_diff(patch) -> None:
    right = linear._output_columns
    patch.setattr(linear, "_output_columns", lambda c, u: [*right(c, u)[:-1], u.diff.cast("bigint").alias("diff")])


def forget_to_take_differences(patch) -> None:
    right = reduce._time_corners
    patch.setattr(reduce, "_time_corners", lambda time: right(time)[:1])


def differences_along_one_axis_only(patch) -> None:
    right = reduce._time_corners
    patch.setattr(
        reduce, "_time_corners", lambda time: right(time)[:2] if isinstance(time, time_lattice.Product) else right(time)
    )


def forget_the_joins(patch) -> None:
    patch.setattr(reduce, "_with_joins", lambda known, time: known)


MUTANTS: dict[Callable, tuple] = {
    forget_the_shift: (by_calculus, three_edges, True),
    partial_order_for_total: (by_calculus, three_edges, True),
    less_equal_for_less: (by_delta_query, three_edges, True),
    less_for_less_equal: (by_delta_query, three_edges, True),
    keep_the_left_time: (self_join, pairs, False),
    forget_to_multiply: (self_join, pairs, False),
    forget_the_input_diff: (tripled, tripled_plain, False),
    forget_to_take_differences: (minimum, least, False),
    differences_along_one_axis_only: (minimum, least, False),
    forget_the_joins: (minimum, least, False),
}
ALWAYS = {forget_the_shift, less_equal_for_less, keep_the_left_time, forget_the_input_diff, forget_the_joins}
PARAMS = [pytest.param(m, id=m.__name__, marks=[] if m in ALWAYS else [pytest.mark.slow]) for m in MUTANTS]


@pytest.mark.parametrize("mutant", PARAMS)  # one of each operator in the ordinary suite
def test_the_suite_sees_a_broken_operator(spark, monkeypatch, mutant: Callable) -> None:
    operator, function, sets = MUTANTS[mutant]
    cases = sample(sets)
    want = expected([cases], EPOCH_REVISION, function)
    edges = frame(spark, cases, ["k", "x"], EPOCH_REVISION)
    assert want and not mismatch(collected(operator(edges)), want), f"seed {SEED}: unbroken, yet different"
    mutant(monkeypatch)
    assert mismatch(collected(operator(edges)), want), f"seed {SEED}: {mutant.__name__} went unseen"


def test_the_suite_sees_the_lowest_seq_win(spark, monkeypatch) -> None:
    from tests.algebra import test_upserts as suite

    rows = suite.rows_of(SEED)
    want = suite.intervals(suite.values(rows, None, False))
    clause = upserts.window_clause
    lowest = {"seq DESC": "seq ASC"}
    monkeypatch.setattr(
        upserts, "window_clause", lambda key, order: clause(key, [lowest.get(each, each) for each in order])
    )
    got = suite.bag(upserts.to_timelines(suite.frame(spark, rows), suite.KEY, suite.VALUE))
    assert mismatch(got, want), f"seed {SEED}: the lowest seq won, unseen"


def test_the_suite_sees_a_no_op_that_speaks(spark) -> None:
    """Winners without merging runs: a repeated value would retract and insert itself."""
    from tests.algebra import test_upserts as suite

    rows = suite.rows_of(SEED)
    want = suite.intervals(suite.values(rows, 2, False))
    steps = upserts.winning_upserts(suite.frame(spark, rows), suite.KEY, suite.VALUE).where("op = 'upsert'")
    spans = steps.selectExpr("case", "k", "v", "w", "epoch", "epoch + 2 as until")
    assert mismatch(suite.bag(spans), want), f"seed {SEED}"
    assert contents([], EPOCH_REVISION, (0, 0)) == Counter()
