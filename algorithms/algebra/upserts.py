"""Upserts as collections and back: the meaning over time of a keyed stream of `(key, value or nothing)`.

Law      Law 1 of the design. At epoch t a key has the last value at epochs <= t. Within one epoch the highest
         `seq` wins; at equal `seq` the greatest value wins, and a value beats a delete. A repetition of the
         value in force changes nothing; neither does the deletion of an absent key.
Shapes   Upsert rows: key columns, value columns (possibly none), `op` ('upsert' | 'delete'), `seq` bigint,
         `epoch` bigint; further columns allowed. Timelines: one row per half-open interval `[epoch, until)`;
         `until` is `FOREVER` while open. Intervals of one key do not overlap, unless a function says that they
         may.
Cost     Every function shuffles its rows once, on the key, and sorts them once; nothing else moves. Rows
         already hashed on the same key are not shuffled again, so a chain of these functions costs one
         exchange.
Errors   ValueError naming the missing columns. The job fails with a message for an `op` that is neither word, and for
         an epoch that is null or `FOREVER`, at which no interval can begin. The caller has to avoid a null seq.
Source   Seed 3 (upserts, their conversion, state machines); that text leaves the way back (`to_upserts`) open.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from altneu.algorithms.algebra.collection import Collection
from altneu.algorithms.algebra.time_lattice import EPOCH, FOREVER, require_finite

UPSERT, DELETE = "upsert", "delete"


def winning_upserts(
    rows: DataFrame, key: Sequence[str], value: Sequence[str], at: Sequence[str] = ("epoch",)
) -> DataFrame:
    """Return one row per key and `at`: the upsert in force at that time, with all its columns.

    `at` may hold further grouping columns before the epoch, such as a tag for the old and the new version of
    a batch. Rows that agree in everything the law compares are distinguished by their remaining columns of
    simple type, so that a retry keeps the same row.
    """
    _require_columns(rows, [*key, *value, *at, "op", "seq"])
    nested = ("map", "variant", "struct", "array")
    simple = [f.name for f in rows.schema.fields if f.dataType.typeName() not in nested]
    rest = [c for c in simple if c not in {*key, *value, *at, "op", "seq"}]
    rows = require_valid_rows(rows)
    order = [
        *[F.asc(c) for c in at],
        F.desc("seq"),
        (F.col("op") == DELETE).asc(),
        *[F.desc_nulls_last(c) for c in (*value, *rest)],
    ]
    # The window is partitioned by the key alone: later windows on this key reuse the exchange and the order.
    before = F.lag(F.struct(*at)).over(Window.partitionBy(*key).orderBy(*order))
    first = rows.withColumn("_before", before).where(~F.col("_before").eqNullSafe(F.struct(*at)))
    return first.drop("_before")


def upsert_lives(
    rows: DataFrame,
    key: Sequence[str],
    value: Sequence[str],
    live_for: int | None = None,
    where: Column | str | None = None,
    by: Sequence[str] = (),
) -> DataFrame:
    """Return the life of each upsert that won its epoch and has a value: key, value, `by`, `epoch` (from), `until`.

    Args:
        rows: the upsert rows.
        key: the key columns.
        value: the value columns.
        live_for: N ends the value of an upsert at epoch e after e+N-1 unless a later upsert or delete of the key ends
            it sooner. None: no end.
        where: a value row that fails this condition counts as absent: it wins its epoch, and ends the value before it.
        by: further grouping columns; each group has its own lives.
    """
    steps = Window.partitionBy(*key, *by).orderBy("epoch")
    present = has_value(where)
    # The last row of a group has no next one: `least` then ignores the null.
    until = F.least(F.lead("epoch").over(steps), expiry_epoch(live_for))
    won = winning_upserts(rows, key, value, [*by, "epoch"]).withColumn("_present", present).withColumn("until", until)
    return won.where("_present").select(*key, *value, *by, "epoch", "until")


def require_valid_rows(rows: DataFrame) -> DataFrame:
    """Return the rows; the job fails for an `op` that is no operation, and for an `epoch` at which no interval can
    begin.
    """
    return rows.withColumns({"op": _known_operation(F.col("op")), "epoch": require_finite(F.col("epoch"))})


def has_value(where: Column | str | None = None) -> Column:
    """Tell whether an upsert gives its key a value that passes `where`.

    The condition is not evaluated for a delete: it might fail on the values of one, and Spark may separate the two
    parts of an AND.
    """
    present = F.col("op") != DELETE
    if where is None:
        return present
    return F.coalesce(F.when(present, F.expr(where) if isinstance(where, str) else where), F.lit(False))


def expiry_epoch(live_for: int | None) -> Column:
    """Return the epoch at which the value of an upsert ends at the latest."""
    if live_for is None:
        return F.lit(FOREVER)
    if live_for < 1:
        raise ValueError(f"live_for is a number of epochs and must be at least 1; got {live_for}")
    ends = F.col("epoch") < FOREVER - live_for
    return F.when(ends, F.col("epoch") + F.lit(live_for).cast("bigint")).otherwise(FOREVER)


def to_timelines(
    rows: DataFrame,
    key: Sequence[str],
    value: Sequence[str],
    live_for: int | None = None,
    where: Column | str | None = None,
    by: Sequence[str] = (),
) -> DataFrame:
    """Return the validity intervals of upsert rows: key, value, `by`, `epoch` (from), `until`; one per maximal run of a
    value.

    The intervals are the `upsert_lives`, whose parameters these are; a repetition of the value in force extends its
    life.
    """
    steps = Window.partitionBy(*key, *by).orderBy("epoch")
    spans = upsert_lives(rows, key, value, live_for, where, by)
    follows = F.lag("until").over(steps) == F.col("epoch")
    same = [F.col(v).eqNullSafe(F.lag(v).over(steps)) for v in value]
    starts = (~F.coalesce(functools.reduce(Column.__and__, same, follows), F.lit(False))).cast("bigint")
    runs = spans.withColumn("_starts", starts).withColumn("_run", F.sum("_starts").over(steps))
    merged = runs.groupBy(*key, *by, *value, "_run").agg(F.min("epoch").alias("epoch"), F.max("until").alias("until"))
    return merged.select(*key, *value, *by, "epoch", "until")


def net_intervals(intervals: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return the pointwise sum of signed intervals (`diff`), as disjoint maximal intervals with their nonzero sum.

    This is the interval form of `consolidate`. Input intervals may overlap and carry any diff. To compute the
    difference of two versions in one shuffle, tag their rows, take `to_timelines(…, by=[tag])`, and turn the tag into a
    sign.
    """
    _require_columns(intervals, [*key, "epoch", "until", "diff"])
    return _level_intervals(intervals, key, [F.col("diff").cast("bigint")], lambda total: total)


def distinct_changes(intervals: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return how the union of a key's intervals changes from version -1 to version 1: key, `epoch`, `until`, `diff`.

    This is the interval form of the delta of `distinct`. Intervals of one `version` may overlap. Where version 1 alone
    covers an epoch the diff is +1, where version -1 alone covers it the diff is -1. The intervals of the result are
    disjoint and maximal.
    """
    _require_columns(intervals, [*key, "epoch", "until", "version"])
    counts = [(F.col("version") == version).cast("bigint") for version in (1, -1)]
    return _level_intervals(
        intervals, key, counts, lambda now, was: (now > 0).cast("bigint") - (was > 0).cast("bigint")
    )


def _level_intervals(
    intervals: DataFrame, key: Sequence[str], amounts: Sequence[Column], level: Callable[..., Column]
) -> DataFrame:
    """Return the maximal intervals on which `level`, a function of the running sums of the amounts, is one nonzero
    number.
    """
    names = [f"_amount{i}" for i in range(len(amounts))]
    ends = F.array(
        F.struct(F.col("epoch"), *[amount.alias(name) for name, amount in zip(names, amounts, strict=True)]),
        F.struct(
            F.col("until").alias("epoch"),
            *[(-amount).alias(name) for name, amount in zip(names, amounts, strict=True)],
        ),
    )
    steps = intervals.where("epoch < until").select(*key, F.inline(ends))
    line = Window.partitionBy(*key).orderBy("epoch")
    # The running sums have a RANGE frame: all steps of one epoch see the level after all of them.
    sums = level(*[F.sum(name).over(line) for name in names])
    levels = steps.withColumn("diff", sums).withColumn("_before", F.lag("epoch").over(line))
    levels = levels.where(~F.col("_before").eqNullSafe(F.col("epoch")))
    changes = levels.withColumn("_level", F.coalesce(F.lag("diff").over(line), F.lit(0))).where("diff <> _level")
    spans = changes.withColumn("until", F.lead("epoch").over(line)).where("diff <> 0")
    return spans.select(*key, "epoch", "until", "diff")


def to_triples(rows: DataFrame, key: Sequence[str], value: Sequence[str], live_for: int | None = None) -> Collection:
    """Return upsert rows as a collection over epochs, with data columns key and value: seed 3's conversion.

    Every change is a retraction of the value before and an insertion of the next one; a no-op adds nothing.
    """
    spans = to_timelines(rows, key, value, live_for).withColumn("diff", F.lit(1).cast("bigint"))
    return Collection.from_intervals(spans, EPOCH)


def keyed_changes(
    base: DataFrame | None, delta: DataFrame, key: Sequence[str], value: Sequence[str], *, broadcast: bool = True
) -> Collection:
    """Return how the values in force of a keyed relation change when `delta` is added to `base`: key, value.

    Both are diff triples of landed rows: key, value, `op`, `seq`, `epoch`, `diff`. Only touched keys are computed.

    Args:
        base: the rows before. None: there are none.
        delta: the changed rows.
        key: the key columns.
        value: the value columns.
        broadcast: join the touched keys by broadcast; they must fit into an executor's memory.
    """
    columns = [*key, *value, "op", "seq", "epoch"]
    rows = delta.select(*columns, F.col("diff").alias("_now"), F.lit(0).cast("bigint").alias("_before"))
    if base is not None:
        touched = delta.select(*key).distinct()
        old = base.join(F.broadcast(touched) if broadcast else touched, [*key], "left_semi")
        rows = rows.unionByName(old.select(*columns, F.col("diff").alias("_now"), F.col("diff").alias("_before")))
    # One landed row may be in several files: only whether it exists counts, before and after.
    rows = rows.groupBy(*columns).agg(F.sum("_now").alias("_now"), F.sum("_before").alias("_before"))
    signs = F.array(F.when(F.col("_now") > 0, F.lit(1)), F.when(F.col("_before") > 0, F.lit(-1)))
    versions = rows.select(*columns, F.explode(signs).alias("_version")).where("_version IS NOT NULL")
    lines = to_timelines(versions, key, value, by=["_version"])
    signed = lines.select(*key, *value, "epoch", "until", F.col("_version").cast("bigint").alias("diff"))
    return Collection.from_intervals(net_intervals(signed, [*key, *value]), EPOCH)


def to_upserts(collection: Collection, key: Sequence[str], value: Sequence[str]) -> DataFrame:
    """Return a collection over epochs as upserts: key, value, `op`, `seq` (always 0), `epoch`; one row per change.

    At every epoch a key must have at most one value, once. Where it has more, upserts cannot express it: the row's `op`
    is 'conflict' and the caller must refuse the key. `to_triples` of the result is the collection again.
    """
    if tuple(collection.time.columns) != ("epoch",):
        raise ValueError(f"upserts have one time, epoch, but this collection has {collection.time.columns}: use at()")
    if sorted(collection.data) != sorted({*key, *value}):
        raise ValueError(f"key {list(key)} and value {list(value)} are not the data columns {collection.data}")
    spread = collection.df.repartition(*key)
    steps = spread.groupBy(*key, *value, "epoch").agg(F.sum("diff").alias("diff")).where("diff <> 0")
    line = Window.partitionBy(*key).orderBy("epoch")
    # The multiplicity of each record, so that a negative one cannot compensate for one that is too great.
    times = F.sum("diff").over(Window.partitionBy(*key, *value).orderBy("epoch"))
    odd, was_odd = (~n.isin(0, 1) for n in (F.col("_times"), F.col("_times") - F.col("diff")))
    per_epoch = (
        steps.withColumn("_times", times)
        .groupBy(*key, "epoch")
        .agg(
            F.sum("diff").alias("_net"),
            F.max(F.when(F.col("diff") > 0, F.struct(F.lit(True).alias("_is"), *value))).alias("_new"),
            F.sum(odd.cast("bigint") - was_odd.cast("bigint")).alias("_odd"),
        )
    )
    bad = (F.sum("_odd").over(line) > 0) | ~F.sum("_net").over(line).isin(0, 1)
    op = F.when(bad, "conflict").when(F.col("_new").isNull(), DELETE).otherwise(UPSERT)
    columns = [F.col(f"_new.{v}").alias(v) for v in value]
    return per_epoch.select(*key, *columns, op.alias("op"), F.lit(0).cast("bigint").alias("seq"), "epoch")


def state_machine(
    events: DataFrame,
    key: Sequence[str],
    symbol: Column,
    *,
    order: Sequence[str],
    start: Column,
    step: Callable[[Column, Column], Column],
    emit: Callable[[Column], Column],
    value: str = "value",
) -> Collection:
    """Return the collection over epochs that a transition function makes of a keyed stream of symbols: generalised
    upserts.

    Events are taken by `epoch`, then by `order`; the collection changes by the difference between the states at the
    ends of its epochs. `start`, `step` and `emit` are Spark expressions, so no Python runs per row. The cost is one
    shuffle on the key; the events and the states of ONE key are in memory together, and copying the log of states makes
    n events of one key cost n².

    Args:
        events: the rows, with the key columns and `epoch`.
        key: the key columns.
        symbol: the symbol of an event.
        order: the columns that order the events of an epoch.
        start: the state before any event.
        step: `step(state, symbol)` returns the next state, of the SAME type.
        emit: `emit(state)` returns an array of the values that the key holds in that state (none, one or many;
            repetitions count once).
        value: the name of the value column of the result.
    """
    event = F.struct("epoch", *[F.col(c).alias(f"_{i}") for i, c in enumerate(order)], symbol.alias("symbol"))
    runs = events.groupBy(*key).agg(F.sort_array(F.collect_list(event)).alias("_events"))
    # Fold to (state, held values at the end of each epoch); a later event of an epoch replaces its entry.
    kind = _array_type(runs, start, emit)
    nothing = F.expr(f"cast(array() as array<struct<epoch: bigint, held: {kind}>>)")
    zero = F.struct(start.alias("state"), nothing.alias("log"))

    def advance(acc: Column, e: Column) -> Column:
        state = step(acc["state"], e["symbol"])
        earlier = F.filter(acc["log"], lambda entry: entry["epoch"] < e["epoch"])
        held = F.array_distinct(emit(state))
        entry = F.struct(e["epoch"].cast("bigint").alias("epoch"), held.alias("held"))
        return F.struct(state.alias("state"), F.concat(earlier, F.array(entry)).alias("log"))

    logs = runs.select(*key, F.aggregate("_events", zero, advance)["log"].alias("log"))
    line = Window.partitionBy(*key).orderBy("epoch")
    held = logs.select(*key, F.inline("log")).withColumn("_was", F.lag("held").over(line))
    was = F.coalesce("_was", F.expr(f"cast(array() as {kind})"))
    gone = F.transform(F.array_except(was, "held"), lambda v: _signed_value(v, value, -1))
    came = F.transform(F.array_except("held", was), lambda v: _signed_value(v, value, 1))
    triples = held.select(*key, "epoch", F.inline(F.concat(gone, came)))
    return Collection(triples.select(*key, value, "epoch", "diff"), EPOCH)


def _signed_value(v: Column, value: str, diff: int) -> Column:
    return F.struct(v.alias(value), F.lit(diff).cast("bigint").alias("diff"))


def _array_type(frame: DataFrame, start: Column, emit: Callable[[Column], Column]) -> str:
    return frame.select(emit(start).alias("x")).schema["x"].dataType.simpleString()


def _known_operation(op: Column) -> Column:
    """Return the operation; any other word fails the job, because it would count as neither or as the wrong one."""
    message = F.concat(F.lit(f"op must be '{UPSERT}' or '{DELETE}', got "), F.coalesce(op, F.lit("null")))
    return F.when(op.isin(UPSERT, DELETE), op).otherwise(F.raise_error(message))


def _require_columns(frame: DataFrame, columns: Sequence[str]) -> None:
    if not hasattr(frame, "_jdf"):
        return  # with Spark Connect a look at the columns costs as much as a small query; the query itself will fail
    missing = [c for c in columns if c not in frame.columns]
    if missing:
        raise ValueError(f"rows lack the columns {', '.join(missing)}; they have {', '.join(frame.columns)}")
