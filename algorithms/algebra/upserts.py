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

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from altneu.algorithms.algebra.collection import Collection
from altneu.algorithms.algebra.time_lattice import EPOCH, FOREVER, require_finite
from altneu.algorithms.sql_predicates import only_where
from altneu.algorithms.sql_text import quote_identifiers, window_clause

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
    order = [
        *quote_identifiers(at),
        "seq DESC",
        f"op = '{DELETE}'",
        *[f"{c} DESC" for c in quote_identifiers([*value, *rest])],
    ]
    # The window is partitioned by the key alone: later windows on this key reuse the exchange and the order.
    now = f"struct({', '.join(quote_identifiers(at))})"
    ordered = require_valid_rows(rows).selectExpr("*", f"lag({now}) {window_clause(key, order)} AS _before")
    return ordered.where(f"NOT _before <=> {now}").drop("_before")


def upsert_lives(
    rows: DataFrame,
    key: Sequence[str],
    value: Sequence[str],
    live_for: int | None = None,
    where: str | None = None,
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
    # The last row of a group has no next one: `least` then ignores the null.
    until = f"least(lead(epoch) {window_clause([*key, *by], ['epoch'])}, {expiry_epoch(live_for)}) AS until"
    won = winning_upserts(rows, key, value, [*by, "epoch"])
    lives = won.selectExpr(*quote_identifiers([*key, *value, *by, "epoch"]), until, f"{has_value(where)} AS _present")
    return lives.where("_present").drop("_present")


def require_valid_rows(rows: DataFrame) -> DataFrame:
    """Return the rows; the job fails for an `op` that is no operation, and for an `epoch` at which no interval can
    begin.
    """
    return rows.withColumns({"op": F.expr(_KNOWN_OPERATION), "epoch": F.expr(require_finite("epoch"))})


def has_value(where: str | None = None) -> str:
    """Return the SQL that tells whether an upsert gives its key a value that passes `where`.

    The condition is not evaluated for a delete: it might fail on the values of one, and Spark may separate the two
    parts of an AND.
    """
    present = f"op <> '{DELETE}'"
    return present if where is None else only_where(present, where)


def expiry_epoch(live_for: int | None) -> str:
    """Return the SQL of the epoch at which the value of an upsert ends at the latest."""
    if live_for is None:
        return f"{FOREVER}L"
    if live_for < 1:
        raise ValueError(f"live_for is a number of epochs and must be at least 1; got {live_for}")
    return f"CASE WHEN epoch < {FOREVER - live_for}L THEN epoch + {live_for}L ELSE {FOREVER}L END"


def to_timelines(
    rows: DataFrame,
    key: Sequence[str],
    value: Sequence[str],
    live_for: int | None = None,
    where: str | None = None,
    by: Sequence[str] = (),
) -> DataFrame:
    """Return the validity intervals of upsert rows: key, value, `by`, `epoch` (from), `until`; one per maximal run of a
    value.

    The intervals are the `upsert_lives`, whose parameters these are; a repetition of the value in force extends its
    life.
    """
    steps = window_clause([*key, *by], ["epoch"])
    spans = upsert_lives(rows, key, value, live_for, where, by)
    same = [f"lag(until) {steps} = epoch", *[f"{v} <=> lag({v}) {steps}" for v in quote_identifiers(value)]]
    starts = spans.selectExpr("*", f"CAST(NOT coalesce({' AND '.join(same)}, false) AS BIGINT) AS _starts")
    runs = starts.selectExpr("*", f"sum(_starts) {steps} AS _run").groupBy(*key, *by, *value, "_run")
    merged = runs.agg(F.expr("min(epoch) AS epoch"), F.expr("max(until) AS until"))
    return merged.select(*key, *value, *by, "epoch", "until")


def net_intervals(intervals: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return the pointwise sum of signed intervals (`diff`), as disjoint maximal intervals with their nonzero sum.

    This is the interval form of `consolidate`. Input intervals may overlap and carry any diff. To compute the
    difference of two versions in one shuffle, tag their rows, take `to_timelines(…, by=[tag])`, and turn the tag into a
    sign.
    """
    _require_columns(intervals, [*key, "epoch", "until", "diff"])
    return _level_intervals(intervals, key, ["CAST(diff AS BIGINT)"], "{}")


def distinct_changes(intervals: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return how the union of a key's intervals changes from version -1 to version 1: key, `epoch`, `until`, `diff`.

    This is the interval form of the delta of `distinct`. Intervals of one `version` may overlap. Where version 1 alone
    covers an epoch the diff is +1, where version -1 alone covers it the diff is -1. The intervals of the result are
    disjoint and maximal.
    """
    _require_columns(intervals, [*key, "epoch", "until", "version"])
    counts = [f"CAST(version = {version} AS BIGINT)" for version in (1, -1)]
    return _level_intervals(intervals, key, counts, "CAST({} > 0 AS BIGINT) - CAST({} > 0 AS BIGINT)")


def _level_intervals(intervals: DataFrame, key: Sequence[str], amounts: Sequence[str], level: str) -> DataFrame:
    """Return the maximal intervals on which `level`, of the running sums of the amounts, is one nonzero number.

    All of them are SQL; `level` has `{}` for each sum.
    """
    named = [(f"_amount{i}", amount) for i, amount in enumerate(amounts)]
    begin = ", ".join(f"{amount} AS {name}" for name, amount in named)
    end = ", ".join(f"-{amount} AS {name}" for name, amount in named)
    ends = f"inline(array(struct(epoch, {begin}), struct(until AS epoch, {end})))"
    steps = intervals.where("epoch < until").selectExpr(*quote_identifiers(key), ends)
    line = window_clause(key, ["epoch"])
    # The running sums have a RANGE frame: all steps of one epoch see the level after all of them.
    sums = level.format(*[f"sum({name}) {line}" for name, _ in named])
    levels = steps.selectExpr(*quote_identifiers(key), "epoch", f"{sums} AS diff", f"lag(epoch) {line} AS _before")
    last = levels.where("NOT _before <=> epoch")
    changes = last.selectExpr("*", f"coalesce(lag(diff) {line}, 0) AS _level").where("diff <> _level")
    spans = changes.selectExpr(*quote_identifiers(key), "epoch", f"lead(epoch) {line} AS until", "diff")
    return spans.where("diff <> 0")


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
    rows = delta.selectExpr(*quote_identifiers(columns), "diff AS _now", "0L AS _before")
    if base is not None:
        touched = delta.select(*key).distinct()
        old = base.join(F.broadcast(touched) if broadcast else touched, [*key], "left_semi")
        rows = rows.unionByName(old.selectExpr(*quote_identifiers(columns), "diff AS _now", "diff AS _before"))
    lines = to_timelines(existing_versions(rows, columns), key, value, by=["_version"])
    signed = lines.selectExpr(*quote_identifiers([*key, *value]), "epoch", "until", "CAST(_version AS BIGINT) AS diff")
    return Collection.from_intervals(net_intervals(signed, [*key, *value]), EPOCH)


def existing_versions(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the landed rows that exist before (`_version` -1) and now (1), from their diffs `_before` and `_now`.

    One landed row may be in several files: only whether it exists counts.
    """
    counted = rows.groupBy(*columns).agg(F.expr("sum(_now) AS _now"), F.expr("sum(_before) AS _before"))
    signs = "explode(array(CASE WHEN _now > 0 THEN 1 END, CASE WHEN _before > 0 THEN -1 END)) AS _version"
    return counted.selectExpr(*quote_identifiers(columns), signs).where("_version IS NOT NULL")


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


# Any other word fails the job, because it would count as neither or as the wrong one.
_KNOWN_OPERATION = f"""CASE WHEN op IN ('{UPSERT}', '{DELETE}') THEN op
ELSE raise_error(concat("op must be '{UPSERT}' or '{DELETE}', got ", coalesce(op, 'null'))) END"""


def _require_columns(frame: DataFrame, columns: Sequence[str]) -> None:
    if not hasattr(frame, "_jdf"):
        return  # with Spark Connect a look at the columns costs as much as a small query; the query itself will fail
    missing = [c for c in columns if c not in frame.columns]
    if missing:
        raise ValueError(f"rows lack the columns {', '.join(missing)}; they have {', '.join(frame.columns)}")
