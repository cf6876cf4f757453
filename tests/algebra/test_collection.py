"""Collections: contents, compaction, scopes and intervals against sums over plain lists of triples."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product

import pytest
from pyspark.sql import functions as F

from altneu.algorithms.algebra.collection import Collection
from altneu.algorithms.algebra.iterate import nested
from altneu.algorithms.algebra.time_lattice import EPOCH, EPOCH_REVISION, FOREVER, REVISION, AltNeu, Product
from tests import seeds
from tests.algebra.reference import assert_same, collected, contents, frame, random_triples

SEED, CASES = seeds.one(11), 25


@pytest.fixture
def cases() -> list:
    rng = random.Random(SEED)
    return [random_triples(rng, EPOCH_REVISION, [3]) for _ in range(CASES)]


def seen(cases: list, time: tuple) -> Counter:
    return Counter({(i, *d): n for i, c in enumerate(cases) for d, n in contents(c, EPOCH_REVISION, time).items()})


def bag(df) -> Counter:
    return Counter({tuple(r)[:-1]: r["diff"] for r in df.collect()})


def test_contents_and_changes(spark, cases) -> None:
    c = frame(spark, cases, ["x"], EPOCH_REVISION)
    assert bag(c.as_of(2, 1)) == seen(cases, (2, 1)), f"seed {SEED}"
    before, after = seen(cases, (1, 2)), seen(cases, (3, 1))
    want = {k: after[k] - before[k] for k in set(before) | set(after)}
    assert bag(c.changes((1, 2), (3, 1))) == Counter({k: n for k, n in want.items() if n})


def test_fixing_a_coordinate(spark, cases) -> None:
    at = collected(frame(spark, cases, ["x"], EPOCH_REVISION).at(revision=1))
    for e in range(4):
        got: Counter = Counter()
        for (data, time), n in at.items():
            got[data] += n if time[0] <= e else 0
        assert Counter({k: n for k, n in got.items() if n}) == seen(cases, (e, 1))


@pytest.mark.law(9)
def test_compaction_changes_no_answer_at_or_after_since(spark, cases) -> None:
    small = collected(frame(spark, cases, ["x"], EPOCH_REVISION).compact((1, 2)), raw=True)
    assert len(small) < sum(map(len, cases))
    for time in product(range(1, 4), range(2, 4)):
        got: Counter = Counter()
        for (data, t), n in small.items():
            got[data] += n if EPOCH_REVISION.less_equal(t, time) else 0
        assert Counter({k: n for k, n in got.items() if n}) == seen(cases, time), f"seed {SEED} at {time}"


def test_intervals_and_triples_are_one_collection(spark, cases) -> None:
    c = frame(spark, cases, ["x"], EPOCH_REVISION)
    spans = c.to_intervals()
    assert_same(collected(Collection.from_intervals(spans, EPOCH_REVISION)), collected(c), SEED)
    assert spans.where(F.col("epoch") >= F.col("until")).isEmpty()
    assert not spans.where(F.col("until") == FOREVER).isEmpty()


def test_the_group(spark, cases) -> None:
    c = frame(spark, cases, ["x"], EPOCH_REVISION)
    assert not collected(c.minus(c))
    assert collected(c.concat(c)) == Counter({k: 2 * n for k, n in collected(c).items()})


def test_scopes(spark, cases) -> None:
    c = frame(spark, cases, ["x"], EPOCH_REVISION)
    for inner in (AltNeu(EPOCH_REVISION), nested(EPOCH_REVISION)):
        assert collected(c.enter(inner).leave(EPOCH_REVISION)) == collected(c)
    later = collected(c.enter(AltNeu(EPOCH_REVISION)).delay({"neu": F.lit(1)}))
    assert {time[-1] for _, time in later} == {1}


def test_errors_say_what_is_there(spark) -> None:
    df = spark.createDataFrame([(1, 0, 1)], "x long, epoch long, diff long")
    with pytest.raises(ValueError, match="lack the columns revision"):
        Collection(df)
    c = Collection(df, EPOCH)
    with pytest.raises(ValueError, match="no data columns y"):
        c.rename({"y": "z"})
    with pytest.raises(ValueError, match="cannot add data"):
        c.concat(c.rename({"x": "z"}))
    with pytest.raises(ValueError, match="lack the outer coordinates"):
        c.enter(REVISION)
    with pytest.raises(ValueError, match="no time columns"):
        c.delay({"x": F.lit(1)})
    with pytest.raises(ValueError, match="cannot fix"):
        Collection(df.withColumn("neu", F.lit(0)), Product(AltNeu(EPOCH))).at(epoch=1)
