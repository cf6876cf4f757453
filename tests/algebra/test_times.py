"""Lattice laws on all times of a small box, and the column forms against the Python forms on every pair."""

from __future__ import annotations

import itertools

import pytest
from pyspark.sql import functions as F

from altneu.algorithms.algebra.time_lattice import EPOCH, EPOCH_REVISION, AltNeu, Lattice, Product, Time, Total
from tests.algebra.reference import LATTICES

TOPS = {"neu": 1, "relation": 2}


def box(lattice: Lattice) -> list[Time]:
    return list(itertools.product(*[range(TOPS.get(c, 2) + 1) for c in lattice.columns]))


@pytest.mark.parametrize("name", LATTICES)
def test_order_join_and_meet_obey_the_laws(name: str) -> None:
    lattice, le = LATTICES[name], LATTICES[name].less_equal
    times = box(lattice)
    below = {b: {a for a in times if le(a, b)} for b in times}
    above = {a: {b for b in times if le(a, b)} for a in times}
    for a, b in itertools.product(times, times):
        assert le(a, a) and le(lattice.minimum(), a)
        assert not (le(a, b) and le(b, a)) or a == b
        assert above[b] <= above[a] if le(a, b) else True
        join, meet = lattice.join(a, b), lattice.meet(a, b)
        assert above[join] == above[a] & above[b], f"{name}: {join} is not the least bound above {a} and {b}"
        assert below[meet] == below[a] & below[b], f"{name}: {meet} is not the greatest bound below {a} and {b}"


@pytest.mark.parametrize("name", LATTICES)
def test_columns_agree_with_python(spark, name: str) -> None:
    lattice = LATTICES[name]
    pairs = list(itertools.product(box(lattice), box(lattice)))
    names = lattice.columns
    schema = ", ".join(f"{side}_{c} long" for side in "ab" for c in names)
    df = spark.createDataFrame([(*a, *b) for a, b in pairs], schema)
    a, b = ([F.col(f"{side}_{c}") for c in names] for side in "ab")
    rows = df.select(
        *a,
        *b,
        lattice.less_equal_columns(a, b).alias("le"),
        F.array(*lattice.join_columns(a, b)).alias("join"),
        F.array(*lattice.meet_columns(a, b)).alias("meet"),
    ).collect()
    n = len(names)
    for row in rows:
        x, y = tuple(row[:n]), tuple(row[n : 2 * n])
        assert (row["le"], tuple(row["join"]), tuple(row["meet"])) == (
            lattice.less_equal(x, y),
            lattice.join(x, y),
            lattice.meet(x, y),
        ), f"{name} at {x}, {y}"
    assert len(rows) == len(pairs)


def test_altneu_as_the_seed_defines_it() -> None:
    time = AltNeu(Total("epoch"))
    assert time.less_equal((3, 0), (3, 1)) and not time.less_equal((3, 1), (3, 0))
    assert time.less_equal((3, 1), (4, 0)), "both moments are alike for any other time"
    partial = AltNeu(EPOCH_REVISION)
    assert partial.join((1, 2, 1), (2, 1, 1)) == (2, 2, 0), "above both at once, so alt suffices"
    assert partial.meet((1, 2, 0), (2, 1, 0)) == (1, 1, 1), "below both at once, so neu still is"


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="must not share a time column"):
        Product(EPOCH, EPOCH)
    with pytest.raises(ValueError, match="coordinates"):
        EPOCH_REVISION.less_equal((1,), (1, 2))
