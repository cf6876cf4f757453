"""DBSP's identities on random streams, against a list of Counters, one per tick."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from altneu.algorithms.algebra import dbsp, joins, linear
from altneu.algorithms.algebra import reduce as reductions
from altneu.algorithms.algebra.dbsp import Stream
from tests import seeds

SEED, TICKS, CASES = seeds.one(51), 6, 30
Plain = list[Counter]


def random_stream(seed: int, names: int = 2) -> Plain:
    rng = random.Random(seed)
    return [
        Counter(
            {
                (c, rng.randrange(2), rng.randrange(names)): rng.choice((1, 1, 2, -1))
                for c in range(CASES)
                if rng.random() < 0.7
            }
        )
        for _ in range(TICKS)
    ]


def to_spark(spark, s: Plain, names: str = "k long, x long") -> Stream:
    rows = [(*data, t, n) for t, z in enumerate(s) for data, n in z.items()]
    return Stream(spark.createDataFrame(rows, f"case long, {names}, tick long, diff long"), TICKS)


def back(s: Stream) -> Plain:
    out: Plain = [Counter() for _ in range(TICKS)]
    for row in s.df.select(*s.data, "tick", "diff").collect():
        out[row["tick"]][tuple(row)[:-2]] += row["diff"]
    return [clean(z) for z in out]


def clean(z: Counter) -> Counter:
    return Counter({k: n for k, n in z.items() if n})


def plus(a: Counter, b: Counter, sign: int = 1) -> Counter:
    return clean(Counter({k: a[k] + sign * b[k] for k in set(a) | set(b)}))


def integral(s: Plain) -> Plain:
    total, out = Counter(), []
    for z in s:
        total = plus(total, z)
        out.append(total)
    return out


def derivative(s: Plain) -> Plain:
    return [plus(z, before, -1) for z, before in zip(s, [Counter(), *s], strict=False)]


def present(z: Counter) -> Counter:
    return Counter({k: 1 for k, n in z.items() if n > 0})


def by_key(z: Counter, w: Counter) -> Counter:
    out: Counter = Counter()
    for (c, k, x), n in z.items():
        for (c2, k2, y), m in w.items():
            if (c, k) == (c2, k2):
                out[c, k, x, y] += n * m
    return clean(out)


def shifted(z: Counter) -> Counter:
    out: Counter = Counter()
    for (c, k, x), n in z.items():
        if x > 0:
            out[c, k, x + k] += n
    return clean(out)


def shift(c):
    return linear.map(linear.filter(c, "x > 0"), case=F.col("case"), k=F.col("k"), x=F.col("x") + F.col("k"))


def test_derivative_integral_and_delay(spark) -> None:
    plain = random_stream(SEED)
    s = to_spark(spark, plain)
    assert back(dbsp.integrate(s)) == integral(plain)
    assert back(dbsp.differentiate(s)) == derivative([clean(z) for z in plain])
    assert back(dbsp.integrate(dbsp.differentiate(s))) == [clean(z) for z in plain], "I ∘ D = id"
    assert back(dbsp.differentiate(dbsp.integrate(s))) == [clean(z) for z in plain], "D ∘ I = id"
    assert back(dbsp.delay(s)) == [Counter(), *[clean(z) for z in plain[:-1]]]


def test_lift_is_the_function_at_every_tick(spark) -> None:
    plain = random_stream(SEED)
    s = to_spark(spark, plain)
    assert back(dbsp.lift(reductions.distinct)(s)) == [present(z) for z in plain]
    assert back(dbsp.lift(shift)(s)) == [shifted(z) for z in plain]


def test_incremental_forms(spark) -> None:
    deltas = random_stream(SEED)
    s = to_spark(spark, deltas)
    whole = integral(deltas)
    assert back(dbsp.incremental(reductions.distinct)(s)) == derivative([present(z) for z in whole])
    assert back(dbsp.incremental(shift)(s)) == back(dbsp.lift(shift)(s)), "linear: its own incremental form"


def test_chain_rule(spark) -> None:
    s = to_spark(spark, random_stream(SEED))
    both = dbsp.incremental(lambda c: reductions.distinct(shift(c)))(s)
    assert back(both) == back(dbsp.incremental(reductions.distinct)(dbsp.incremental(shift)(s)))


def test_bilinear_form_from_the_plain_join(spark) -> None:
    left, right = random_stream(SEED), random_stream(SEED + 1)
    r = to_spark(spark, left)
    s = to_spark(spark, right, "k long, y long")
    want = derivative([by_key(a, b) for a, b in zip(integral(left), integral(right), strict=True)])
    assert back(dbsp.bilinear(joins.join)(r, s)) == want, f"seed {SEED}"
    assert back(dbsp.incremental(joins.join)(r, s)) == want


def test_lattice_values_flow_beside_groups(spark) -> None:
    """A high-water mark (no inverse) as cumulative state, then as deltas, joined with a stream of groups."""
    inserts = [clean(Counter({k: abs(n) for k, n in z.items()})) for z in random_stream(SEED, names=5)]
    orders = random_stream(SEED + 1)
    marks = dbsp.lattice_reduce(to_spark(spark, inserts), ["case", "k"], {"high": F.max("x")})
    mixed = dbsp.bilinear(joins.join)(dbsp.to_deltas(marks, ["case", "k"], TICKS), to_spark(spark, orders))
    high: Plain = []
    for z in integral(inserts):
        best: dict = {}
        for c, k, x in z:
            best[c, k] = max(best.get((c, k), x), x)
        high.append(Counter({(c, k, x): 1 for (c, k), x in best.items()}))
    want = derivative([by_key(a, b) for a, b in zip(high, integral(orders), strict=True)])
    assert back(mixed) == want, f"seed {SEED}"


def test_retracting_a_lattice_value_is_an_error(spark) -> None:
    s = to_spark(spark, [Counter({(0, 0, 3): 1}), Counter({(0, 0, 3): -1}), *[Counter()] * 4])
    with pytest.raises(PySparkException, match="cannot be retracted"):
        dbsp.lattice_reduce(s, ["case", "k"], {"high": F.max("x")}).collect()
