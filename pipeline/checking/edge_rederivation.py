"""A second derivation of the edges from the landed upserts, for some pairs and for every epoch at once.

It shares nothing with the plan of the stage `edges`: it is arithmetic over sorted arrays in the task that has the rows
of a pair. Where a filter looks at values, an aggregation first finds the last row of each key and epoch, because the
order of values is that of Spark. There is one exchange, of the chosen rows alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.algorithms.sql_predicates import only_where

from ..home.home import Home

_KEYS = ("a", "b", "forth", "epoch", "seq", "on", "diff")
_STEPS = "a bigint, b bigint, epoch bigint, diff bigint"
Longs = NDArray[np.int64]


def add_pairs(upserts: DataFrame) -> DataFrame:
    """Select the upserts that can make an edge, and add the ends of their pair, a < b."""
    pair = F.least("src", "dst").alias("a"), F.greatest("src", "dst").alias("b")
    return upserts.where("src <> dst").select("*", *pair)


def edge_steps(rows: DataFrame, home: Home) -> DataFrame:
    """Derive the diff triples a, b, epoch, diff of the edges of some pairs from all their landed rows (`add_pairs`)."""
    config = home.config
    rows, is_value = rows.repartition("a", "b"), F.col("op") == "upsert"
    if config.edge_condition is None:  # without a condition values do not matter
        seq = F.coalesce("seq", F.lit(-FOREVER - 1)).alias(
            "seq"
        )  # a missing seq is the least, as in the aggregation below
        kept = rows.select("a", "b", "src", "epoch", seq, is_value.alias("on"), "diff")
    else:
        landed = rows.groupBy("a", "b", "src", "dst", *config.values, "op", "seq", "epoch")
        value = F.struct(F.lit(1).alias("_one"), *config.values)
        last = (
            landed.agg(F.sum("diff").alias("_n"))
            .where("_n > 0")
            .groupBy("a", "b", "src", "dst", "epoch")
            .agg(F.max(F.struct("seq", is_value.alias("_is_value"), value.alias("_value"))).alias("_last"))
            .select("a", "b", "src", "dst", "epoch", "_last._is_value", "_last._value.*")
        )
        on = F.expr(only_where("_is_value", config.edge_condition))  # the condition may fail on the values of a delete
        zero, one = (F.lit(n).cast("bigint") for n in (0, 1))
        kept = last.select("a", "b", "src", "epoch", zero.alias("seq"), on.alias("on"), one.alias("diff"))
    forth = (F.col("src") == F.col("a")).alias("forth")
    return kept.select("a", "b", forth, "epoch", "seq", "on", "diff").mapInArrow(
        _make_steps_task(config.edges.live_for), _STEPS
    )


def _make_steps_task(live_for: int | None) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def derive_steps(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = [batch for batch in batches if batch.num_rows]
        if parts:
            table = pa.Table.from_batches(parts)
            a, b, epoch, diff = steps_of_pairs(*last_rows(*(table[name].to_numpy() for name in _KEYS)), live_for)
            steps = pa.table({"a": a, "b": b, "epoch": epoch, "diff": diff})
            yield from steps.to_batches(max_chunksize=1 << 20)

    return derive_steps


def last_rows(
    a: Longs, b: Longs, forth: NDArray[Any], epoch: Longs, seq: Longs, on: NDArray[Any], diff: Longs
) -> tuple[Longs, Longs, NDArray[Any], Longs, NDArray[Any]]:
    """Return the last remaining row of each key and epoch, in the order of key and epoch.

    Rows that differ only in their diffs are one row, which remains if the diffs add up to more than zero.

    Returns:
        The columns a, b, forth, epoch, on.
    """
    order = np.lexsort((on, seq, epoch, forth, b, a))
    a, b, forth, epoch, seq, on, diff = (column[order] for column in (a, b, forth, epoch, seq, on, diff))
    fresh = _pair_starts(a, b) | _pair_starts(forth, epoch)
    alike = np.flatnonzero(fresh | _pair_starts(seq, on))
    present = alike[np.add.reduceat(diff, alike) > 0] if a.size else alike
    key = np.cumsum(fresh)[present]
    chosen = present[np.append(key[1:] != key[:-1], True)] if present.size else present
    return a[chosen], b[chosen], forth[chosen], epoch[chosen], on[chosen]


def steps_of_pairs(
    a: Longs, b: Longs, forth: NDArray[Any], epoch: Longs, on: NDArray[Any], live_for: int | None
) -> tuple[Longs, Longs, Longs, Longs]:
    """Derive the steps of the edges: a row is in force until the key's next one, and an edge exists while a key is on.

    Returns:
        The columns a, b, epoch, diff.
    """
    until = np.full(a.size, FOREVER, np.int64)
    same = (a[1:] == a[:-1]) & (b[1:] == b[:-1]) & (forth[1:] == forth[:-1])
    until[:-1][same] = epoch[1:][same]
    if live_for is not None:
        ends = np.where(epoch > FOREVER - live_for, FOREVER, epoch + live_for)
        until = np.minimum(until, ends)
    a, b, epoch, until = a[on], b[on], epoch[on], until[on]
    ended = until < FOREVER
    times = np.concatenate([epoch, until[ended]])
    a, b = np.concatenate([a, a[ended]]), np.concatenate([b, b[ended]])
    sign = np.repeat(np.array([1, -1], np.int64), [epoch.size, ended.sum()])
    order = np.lexsort((times, b, a))
    a, b, times, sign = (column[order] for column in (a, b, times, sign))
    if not a.size:
        return a, b, times, sign
    fresh = _pair_starts(a, b)
    first = np.flatnonzero(fresh)
    sums = np.cumsum(sign)
    keys = sums - np.repeat(np.concatenate([[0], sums[first[1:] - 1]]), np.diff(np.append(first, a.size)))
    last = np.ones(a.size, np.bool_)  # whether a row is the last one of its pair and epoch
    last[:-1] = fresh[1:] | (times[1:] != times[:-1])
    a, b, times, alive = a[last], b[last], times[last], (keys[last] > 0).astype(np.int64)
    before = np.concatenate([[0], alive[:-1]])
    before[_pair_starts(a, b)] = 0
    diff = alive - before
    moved = diff != 0
    return a[moved], b[moved], times[moved], diff[moved]


def _pair_starts(a: Longs, b: Longs) -> NDArray[np.bool_]:
    """Tell for each row whether it is the first one of its pair."""
    starts = np.ones(a.size, np.bool_)
    starts[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
    return starts
