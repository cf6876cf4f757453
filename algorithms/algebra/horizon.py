"""What a change needs of the past: the state just before its first epoch, and what comes after.

Law      Let f be the first epoch at which an input changes. What an operator of this package gives at epochs >= f
         depends on the inputs at epochs >= f - 1 alone: on their accumulated state at f - 1, and on their rows after
         it. So the functions here replace all that happened up to f - 1 by its sum at f - 1. The result of an operator
         on their rows is exact from f on; its rows at f - 1 stand for all of the past, and have to be left out.
Shapes   Those of the given rows. Rows stay as they are but for their epoch, which is at least f - 1;
         `sum_triples_since` consolidates what is before f.
Cost     One scan, without an exchange but for `sum_triples_since`. Of intervals the condition is one on `until`, so
         that files of intervals that have ended before are not opened.
Source   Seed 1 (accumulation up to a time); McSherry et al. 2020, Shared Arrangements (compaction to a frontier).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from altneu.algorithms.sql_text import quote_identifiers


def intervals_since(intervals: DataFrame, first: int) -> DataFrame:
    """Return the signed intervals that reach epoch `first` - 1 or later, cut at `first` - 1.

    Signed intervals add up at each epoch by itself, so that those which have ended before can be left out one by one.
    """
    return intervals.where(f"until >= {first}").withColumn("epoch", F.expr(_not_before(first)))


def sum_triples_since(triples: DataFrame, key: Sequence[str], first: int) -> DataFrame:
    """Return diff triples `key, epoch, diff`: at `first` - 1 the sum of all up to then, and those from `first` on."""
    cut = triples.selectExpr(*quote_identifiers(key), f"{_not_before(first)} AS epoch", "diff")
    return cut.groupBy(*key, "epoch").agg(F.expr("sum(diff) AS diff")).where("diff <> 0")


def upserts_since(upserts: DataFrame, first: int, live_for: int | None) -> DataFrame:
    """Return the upserts that may be in force at `first` - 1, and those from `first` on.

    An upsert ends after `live_for` epochs at the latest. Without such an end any upsert of the past may be in force:
    all are returned.
    """
    return upserts if live_for is None else upserts.where(f"epoch > {first - live_for - 1}")


def _not_before(first: int) -> str:
    return f"greatest(epoch, {first - 1}L)"
