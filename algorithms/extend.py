"""Extension of prefixes by one attribute: count, propose, validate. The step of a worst-case optimal join.

Law      extend(P, x) = every prefix of P with every value of x that ALL extenders allow. The extender that
         offers a prefix the fewest values proposes them; the others validate. So at most Σ min(count)
         candidates arise.
Shapes   Prefixes: any columns. An `Extender` is a set of pairs (key, value): `key` are columns of the prefix,
         the value is the new attribute. All are plain rows; times and diffs are the business of
         `delta_query`.
Cost     count: one aggregate and one equi-join per extender. propose and validate: one equi-join each, over
         the prefixes and candidates only. Nothing is collected or cached.
Errors   ValueError for no extenders, or an attribute that the prefix already has.
Source   Seed 4 (count, propose, validate of dogsdogsdogs), law 8 of the design.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce as fold

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

COUNT, WINNER = "_count", "_winner"


@dataclass(frozen=True)
class Extender:
    """What one relation says about a new attribute: `pairs` has columns `key` and `attribute`, each pair
    once."""

    pairs: DataFrame
    key: tuple[str, ...]
    attribute: str

    def keyed(self) -> DataFrame:
        """The pairs with their key columns renamed, so that they can be joined to a prefix."""
        return self.pairs.select(*[F.col(k).alias(f"_k_{k}") for k in self.key], self.attribute)

    def matches(self) -> Column:
        """The join condition on the key; with no key every pair matches."""
        return fold(Column.__and__, [F.col(k) == F.col(f"_k_{k}") for k in self.key], F.lit(True))


def count(prefixes: DataFrame, extenders: Sequence[Extender]) -> DataFrame:
    """Prefixes with `_winner`, the extender that offers fewest values, and `_count`, how many; hopeless ones
    are gone."""
    counted = prefixes
    for i, extender in enumerate(extenders):
        keys = [f"_k_{k}" for k in extender.key]
        sizes = extender.keyed().groupBy(*keys).agg(F.count("*").alias(f"_n_{i}")).where(F.col(f"_n_{i}") > 0)
        counted = counted.join(sizes, extender.matches()).drop(*keys)
    sizes_here = [F.col(f"_n_{i}") for i in range(len(extenders))]
    least = F.array_min(F.array(*sizes_here))
    winner = F.coalesce(*[F.when(n == least, F.lit(i)) for i, n in enumerate(sizes_here)])
    return counted.withColumns({COUNT: least, WINNER: winner}).drop(*[f"_n_{i}" for i in range(len(extenders))])


def propose(prefixes: DataFrame, extender: Extender) -> DataFrame:
    """Each prefix with each value that the extender offers it."""
    return prefixes.join(extender.keyed(), extender.matches()).drop(*[f"_k_{k}" for k in extender.key])


def validate(candidates: DataFrame, extender: Extender) -> DataFrame:
    """The candidates whose value the extender offers too."""
    away = extender.keyed().withColumnRenamed(extender.attribute, f"_v_{extender.attribute}")
    same = F.col(extender.attribute) == F.col(f"_v_{extender.attribute}")
    return candidates.join(away, extender.matches() & same, "left_semi")


def extend(prefixes: DataFrame, extenders: Sequence[Extender]) -> DataFrame:
    """Prefixes extended by the attribute that the extenders share: count, then propose by the least, then
    validate."""
    if not extenders:
        raise ValueError("an extension needs at least one relation that offers values")
    attributes = {e.attribute for e in extenders}
    if len(attributes) != 1 or attributes & set(prefixes.columns):
        raise ValueError(f"an extension adds one new attribute, not {attributes} to {prefixes.columns}")
    if len(extenders) == 1:
        return propose(prefixes, extenders[0])
    counted = count(prefixes, extenders)
    branches = []
    for i, extender in enumerate(extenders):
        mine = propose(counted.where(F.col(WINNER) == i).drop(COUNT, WINNER), extender)
        for j, other in enumerate(extenders):
            mine = validate(mine, other) if j != i else mine
        branches.append(mine)
    return fold(DataFrame.unionByName, branches)
