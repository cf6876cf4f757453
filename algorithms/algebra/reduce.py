"""The operators that are not linear, over any lattice of `time_lattice`: reduce, top, distinct, count, threshold.

Law      At every time the output's contents are the operator applied to the input's contents at that time. The
         output's diffs are the differences of its contents, so they are the only consolidated answer.
Method   The contents of a key may change at the times of its triples and at the joins of these times, and at no others.
         At each of them sums give the contents, and the operator is applied. An output diff is the result at a time
         minus what the results at the times just before explain (inclusion and exclusion over the corners of
         `_time_corners`). Times that follow one another, as those of scheduled runs do, are a chain, in which each
         result is compared with the one before it. All this is projections over arrays, so no lattice (epoch ×
         revision, a round, alt/neu) is special.
Shapes   The input has the data columns `key` and value columns, the output `key` and the aggregates' names.
         `multiplicity` is a column that the aggregates may use.
Cost     One shuffle on the key; no Python. A row for each record of a key at each of the key's times at which the
         record exists. Pairs of times are compared: those of a record with those of its key, and those of a key with
         each other if some are incomparable. The triples of one record, and the times of one key, are in memory
         together.
         `running_sums` has no arrays: one shuffle and one sort, a row for each time of a key.
Errors   ValueError for unknown key columns, a result that has the name of a key or a time, and other lattices.
         `distinct` takes records with a negative multiplicity as absent, `count` reports them, `reduce` skips them,
         unless rows="nonzero"; `threshold` does what its function says.
Algebra  The input needs a group (contents are sums of signed diffs); the operator itself needs nothing.
Source   Seed 1 (operators respond with the diffs of their recomputation), law 6 of the design.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from altneu.algorithms.algebra.collection import DIFF, Collection
from altneu.algorithms.algebra.time_lattice import Lattice, Lexicographic, Product, Total, is_same_time

MULTIPLICITY, WEIGHS = "multiplicity", "_weighs"
Test = Callable[[Sequence[Column], Sequence[Column]], Column]


def reduce(
    collection: Collection,
    key: Sequence[str],
    aggregates: Mapping[str, Column],
    rows: Literal["positive", "nonzero"] = "positive",
) -> Collection:
    """Return one record per key: the aggregates over the key's records; none where the key has no such record.

    Aggregates are Spark's: `{"low": F.min("x"), "total": F.sum(F.col("x") * F.col("multiplicity"))}`.
    """
    _require_new_names([*key, *aggregates], collection)
    cells = _key_cells(collection, _group_columns(key), [c for c in collection.data if c not in key])
    seen = cells.where(F.col(MULTIPLICITY) > 0 if rows == "positive" else F.col(MULTIPLICITY) != 0)
    named = [aggregate.alias(name) for name, aggregate in aggregates.items()]
    result = seen.groupBy(*_group_columns(key), *collection.time.columns).agg(*named, F.first(WEIGHS).alias(WEIGHS))
    return _scatter_differences(result.withColumn(DIFF, F.lit(1)), [*key, *aggregates], _group_columns(key), collection)


def top(
    collection: Collection, key: Sequence[str], order: Sequence[str], descending: Sequence[str], most: int
) -> Collection:
    """Return the records of each key that fewer than `most` others come before in an order: the ranks 1 to `most`.

    Copies of a record count, and records that are equal in the order have the same rank, as in SQL's RANK; nulls come
    last.

    Args:
        collection: the records.
        key: the columns of the key.
        order: the columns of the order.
        descending: those of them in which the greatest value comes first.
        most: the greatest rank.
    """
    cells = _key_cells(collection, _group_columns(key), [c for c in collection.data if c not in key])
    seen, group = cells.where(F.col(MULTIPLICITY) > 0), [*_group_columns(key), *collection.time.columns]
    steps = [F.desc_nulls_last(c) if c in descending else F.asc_nulls_last(c) for c in order]
    # the frame of an ordered window ends with the records that are equal in the order
    up_to = F.sum(MULTIPLICITY).over(Window.partitionBy(*group).orderBy(*steps))
    equal = F.sum(MULTIPLICITY).over(Window.partitionBy(*group, *order))
    first = seen.withColumn("_before", up_to - equal).where(F.col("_before") < most)
    weighted = first.withColumn(DIFF, F.col(MULTIPLICITY))
    return _scatter_differences(weighted, collection.data, _group_columns(key), collection)


def threshold(collection: Collection, function: Callable[[Column], Column]) -> Collection:
    """Return each record with the multiplicity `function(multiplicity)`; `function(0)` must be 0 (unchecked)."""
    data = collection.data
    cells = _key_cells(collection, _group_columns(data), []).where(F.col(MULTIPLICITY) != 0)
    weighted = cells.withColumn(DIFF, function(F.col(MULTIPLICITY)).cast("bigint"))
    return _scatter_differences(weighted.where(F.col(DIFF) != 0), data, _group_columns(data), collection)


def distinct(collection: Collection) -> Collection:
    """Return each record once where its multiplicity is positive."""
    return threshold(collection, lambda m: (m > 0).cast("bigint"))


def count(collection: Collection, key: Sequence[str], name: str = "count") -> Collection:
    """Return `(key, count)`: the sum of the multiplicities of the key's records, if it is not zero."""
    _require_new_names([*key, name], collection)
    only = replace(collection, df=collection.df.select(*key, *collection.time.columns, DIFF))
    cells = _key_cells(only, _group_columns(key), []).where(F.col(MULTIPLICITY) != 0)
    named = cells.withColumn(name, F.col(MULTIPLICITY)).withColumn(DIFF, F.lit(1))
    return _scatter_differences(named, [*key, name], _group_columns(key), collection)


def running_sums(collection: Collection, key: Sequence[str], sums: Mapping[str, Column]) -> Collection:
    """Return one record per key, with the sums of expressions over the key's triples, where the first sum is positive.

    The expressions weigh a triple by its diff themselves: `{"n": F.col("diff"), "total": F.col("x") * F.col("diff")}`.
    This is `reduce` for sums over a total order of times: a window along the times of a key takes the place of arrays.
    """
    time = collection.time
    if not isinstance(time, Total):
        raise ValueError(f"running sums need one time column, but this collection has {time.columns}")
    _require_new_names([*key, *sums], collection)
    names = list(sums)
    steps = collection.df.groupBy(*key, *time.columns).agg(*[F.sum(step).alias(name) for name, step in sums.items()])
    line = Window.partitionBy(*key).orderBy(*time.columns)
    levels = steps.withColumns({name: F.sum(name).over(line) for name in names})
    levels = levels.withColumn("_was", F.lag(F.struct(*names)).over(line))
    changed = levels.where(~F.struct(*names).eqNullSafe(F.col("_was")))
    now = F.struct(*names, F.lit(1).cast("bigint").alias(DIFF))
    was = F.struct(*[F.col("_was")[name].alias(name) for name in names], F.lit(-1).cast("bigint").alias(DIFF))
    rows_by_sign = F.array(F.when(F.col(names[0]) > 0, now), F.when(F.col("_was")[names[0]] > 0, was))
    rows = F.inline(F.filter(rows_by_sign, lambda row: row.isNotNull()))
    return replace(collection, df=changed.select(*key, *time.columns, rows))


def _require_new_names(names: Sequence[str], collection: Collection) -> None:
    """Raise ValueError if two columns of the output would have the same name, so that one would replace the other."""
    all_names = [c.lower() for c in (*names, *collection.time.columns, DIFF)]
    clash = [name for name in names if all_names.count(name.lower()) > 1]
    if clash:
        raise ValueError(f"the output would have the columns {', '.join(clash)} twice: give the result another name")


# -- the times of a key, its contents at each of them (sums), and the diffs of the results (differences) --------------


def _group_columns(key: Sequence[str]) -> list[str]:
    """Return the columns by which rows are grouped. Without a key everything is one group."""
    return list(key) or ["_all"]


def _key_cells(collection: Collection, key: list[str], values: list[str]) -> DataFrame:
    """Return every record of a key at every time of the key at which the record exists, with `multiplicity` and
    `_weighs`.

    `_weighs` has the times of the output diffs of which the key's result at this time is a term, and its sign in each.
    """
    time, times = collection.time, list(collection.time.columns)
    unknown = [c for c in key if c not in collection.data and c != "_all"]
    if unknown or MULTIPLICITY in collection.data:
        raise ValueError(f"no key columns {unknown} in data {collection.data} (`{MULTIPLICITY}` is a reserved name)")
    df = collection.df.withColumn("_all", F.lit(0)) if key == ["_all"] else collection.df
    record = [*key, *values]
    rows = df.repartition(*key).groupBy(*record, *times).agg(F.sum(DIFF).alias(DIFF)).where(F.col(DIFF) != 0)
    own_diffs = F.sort_array(F.collect_list(F.struct(*times, DIFF))).alias("_own")
    if not values and isinstance(time, Total):
        return _running_cells(rows, record, time)
    if values:
        whole = Window.partitionBy(*key)
        first = F.row_number().over(whole.orderBy(*times)) == 1
        known = F.when(first, F.sort_array(F.collect_set(F.struct(*times)).over(whole)))
        rows = rows.withColumn("_times", known)
        rows = rows.withColumn("_steps", F.when(F.col("_times").isNotNull(), _change_steps(F.col("_times"), time)))
        rows = rows.withColumn("_steps", F.first("_steps", ignorenulls=True).over(whole))
        records = rows.groupBy(*record).agg(own_diffs, F.first("_steps").alias("_steps"))
    else:
        records = rows.groupBy(*record).agg(own_diffs)
        records = records.withColumn("_times", F.transform("_own", lambda o: _time_struct(o, times)))
        records = records.withColumn("_steps", _change_steps(F.col("_times"), time))

    def cell(step: Column) -> Column:
        def add(total: Column, o: Column) -> Column:
            before = time.less_equal_columns(_time_fields(o, times), _time_fields(step, times))
            return total + F.when(before, o[DIFF]).otherwise(F.lit(0))

        multiplicity = F.aggregate("_own", F.lit(0).cast("bigint"), add)
        return F.struct(*_named_time(step, times), multiplicity.alias(MULTIPLICITY), step[WEIGHS].alias(WEIGHS))

    cells = F.filter(F.transform("_steps", cell), lambda c: c[MULTIPLICITY] != 0)
    return records.select(*record, F.inline(cells))


def _running_cells(rows: DataFrame, record: list[str], time: Total) -> DataFrame:
    """Return the `_key_cells` of records that are their own keys, at times in a total order, without arrays."""
    line = Window.partitionBy(*record).orderBy(time.name)
    following = F.struct(F.lead(time.name).over(line).alias(time.name), F.lit(-1).alias("sign"))
    here = F.struct(F.col(time.name), F.lit(1).alias("sign"))
    weighs = F.when(following[time.name].isNull(), F.array(here)).otherwise(F.array(here, following))
    return rows.withColumns({MULTIPLICITY: F.sum(DIFF).over(line), WEIGHS: weighs}).drop(DIFF)


def _change_steps(times: Column, time: Lattice) -> Column:
    """Return the times at which a key may change, from its sorted times, each with its `_weighs` (`_key_cells`)."""
    names = list(time.columns)

    def chained(t: Column, i: Column) -> Column:
        return F.coalesce(
            time.less_equal_columns(_time_fields(t, names), _time_fields(F.get(times, i + 1), names)), F.lit(True)
        )

    def step(t: Column, i: Column) -> Column:
        both = F.array(_weigh_time(t, names, 1), _weigh_time(F.get(times, i + 1), names, -1))
        return F.struct(*_named_time(t, names), F.filter(both, lambda w: w[names[0]].isNotNull()).alias(WEIGHS))

    chain = F.transform(times, step)
    if isinstance(time, Total):
        return chain
    return F.when(F.forall(F.transform(times, chained), lambda x: x), chain).otherwise(_lattice_steps(times, time))


def _lattice_steps(times: Column, time: Lattice) -> Column:
    """Return the steps of times of which some are incomparable: the joins of the times are steps as well."""
    names = list(time.columns)
    closed = times
    # a join of many times is also the join of at most as many of them as there are coordinates
    for _ in range((len(names) - 1).bit_length()):
        closed = _let_value(closed, lambda known: _with_joins(known, time))

    def entries(known: Column) -> Column:
        """Return, for each step and corner, the greatest time in the corner, whose result weighs on the step."""

        def greatest(inside: Test, s: Column) -> Column:
            return F.array_max(F.filter(known, lambda u: inside(_time_fields(u, names), _time_fields(s, names))))

        def list_corners(s: Column) -> Column:
            corners = [
                F.struct(greatest(inside, s).alias("_of"), *_named_time(s, names), F.lit(sign).alias("sign"))
                for sign, inside in _time_corners(time)
            ]
            return F.filter(F.array(*corners), lambda e: e["_of"].isNotNull())

        return F.flatten(F.transform(known, list_corners))

    def steps(known: Column) -> Column:
        def step(s: Column, pairs: Column) -> Column:
            pairs_of_step = F.filter(pairs, lambda e: e["_of"] == s)
            weighs = F.transform(pairs_of_step, lambda e: F.struct(*_named_time(e, names), e["sign"].alias("sign")))
            return F.struct(*_named_time(s, names), weighs.alias(WEIGHS))

        return _let_value(entries(known), lambda pairs: F.transform(known, lambda s: step(s, pairs)))

    return _let_value(closed, steps)


def _with_joins(known: Column, time: Lattice) -> Column:
    """Return sorted times with the joins of any two of them that are incomparable.

    Of two times the one that comes first in the order of their columns is never the greater one.
    """
    names = list(time.columns)

    def list_joins(t: Column) -> Column:
        others = F.filter(
            known, lambda u: (t < u) & ~time.less_equal_columns(_time_fields(t, names), _time_fields(u, names))
        )
        return F.transform(others, lambda u: _join_times(t, u, time))

    return F.sort_array(F.array_distinct(F.concat(known, F.flatten(F.transform(known, list_joins)))))


def _join_times(t: Column, u: Column, time: Lattice) -> Column:
    later = time.join_columns(_time_fields(t, time.columns), _time_fields(u, time.columns))
    return F.struct(*[x.alias(c) for c, x in zip(time.columns, later, strict=True)])


Corner = tuple[int, Test]


def _time_corners(time: Lattice) -> list[Corner]:
    """Return corners whose signed sum has what is at a time and at none before it, by inclusion and exclusion.

    A corner is a sign and a test whether u is in the corner below t. The first corner is all that is <= t. Each corner
    has a greatest time if the times are closed under joins.
    """
    if isinstance(time, Total):
        return [(1, lambda u, t: u[0] <= t[0]), (-1, lambda u, t: u[0] < t[0])]
    if isinstance(time, Product):
        corners: list[Corner] = [(1, lambda u, t: F.lit(True))]
        start = 0
        for part in time.parts:
            cut = slice(start, start + len(part.columns))
            corners = [(s * n, _both_tests(a, b, cut)) for s, a in corners for n, b in _time_corners(part)]
            start = cut.stop
        return corners
    if isinstance(time, Lexicographic):
        return _lexicographic_corners(time)
    raise ValueError(f"reduce supports Total, Product and Lexicographic times, not {time!r}")


def _both_tests(a: Test, b: Test, cut: slice) -> Test:
    return lambda u, t: a(u, t) & b(u[cut], t[cut])


def _lexicographic_corners(time: Lexicographic) -> list[Corner]:
    """Return the corners of (T, i): just below it is (T, i-1); below (T, 0) are the corners below T."""

    def strictly(u: Sequence[Column], t: Sequence[Column]) -> Column:
        return time.less_equal_columns(u, t) & (t[-1] > 0) & ~(is_same_time(u[:-1], t[:-1]) & (u[-1] == t[-1]))

    def first(inside: Test) -> Test:
        return lambda u, t: inside(u[:-1], t[:-1]) & (t[-1] == 0)

    inner = [(sign, first(inside)) for sign, inside in _time_corners(time.inner)[1:]]
    return [(1, time.less_equal_columns), (-1, strictly), *inner]


def _scatter_differences(df: DataFrame, data: list[str], key: list[str], source: Collection) -> Collection:
    """Return the diffs whose sums are the rows of `df` at its cells: each row is scattered to the times on which it
    weighs.
    """
    times = list(source.time.columns)
    terms = F.transform(
        WEIGHS, lambda w: F.struct(*_named_time(w, times), (F.col(DIFF) * w["sign"]).cast("bigint").alias(DIFF))
    )
    by = [c for c in key if c not in data]  # `_all`, with which the rows need no exchange
    spread = df.select(*by, *data, F.inline(terms))
    diffs = spread.groupBy(*by, *data, *times).agg(F.sum(DIFF).alias(DIFF)).where(F.col(DIFF) != 0)
    return replace(source, df=diffs.select(*data, *times, DIFF))


def _time_fields(time: Column, names: Sequence[str]) -> list[Column]:
    return [time[c] for c in names]


def _named_time(time: Column, names: Sequence[str]) -> list[Column]:
    return [time[c].alias(c) for c in names]


def _time_struct(row: Column, names: Sequence[str]) -> Column:
    return F.struct(*_named_time(row, names))


def _weigh_time(time: Column, names: Sequence[str], sign: int) -> Column:
    return F.struct(*_named_time(time, names), F.lit(sign).alias("sign"))


def _let_value(value: Column, body: Callable[[Column], Column]) -> Column:
    """Return `body` of a value that is computed once, however often the body uses it."""
    return F.get(F.transform(F.array(value), body), F.lit(0))
