"""reduce, distinct, count, threshold: operators that are not linear, incremental over any lattice built in
`times`.

Law      At every time the output's contents are the operator applied to the input's contents there; the
         output's diffs are the differences of those, so they are the only consolidated answer.
Method   Per key, a grid of the times that its triples can meet at. Zeta: sums along each axis give the
         contents at each grid time. The operator is applied there. Moebius: differences along each axis give
         the diffs. Both are windows and projections, so time (epoch × revision, a round, alt/neu) needs no
         special case.
Shapes   Data columns `key` + value columns in; `key` + the aggregates' names out. `multiplicity` is a column
         that the aggregates may use.
Cost     One shuffle on the key; no Python. Cells per record of a key: the product over the axes of the key's
         distinct coordinates (epochs × revisions), so compact old revisions. Memory per key: one row's axes,
         plus Spark's windows.
Errors   ValueError for unknown key columns, a result named like a key or a time, and other lattices. Negative
         multiplicities: `distinct` sees them as absent, `count` reports them, `reduce` skips them, unless
         rows="nonzero"; `threshold` does what its function says.
Algebra  The input needs a group (contents are sums of signed diffs); the operator itself nothing.
Source   Seed 1 (operators respond with the diffs of their recomputation), law 6 of the design.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from algorithms.collection import DIFF, Collection
from algorithms.times import Lattice, Lexicographic, Product, Total, indices

MULTIPLICITY = "multiplicity"


def reduce(
    collection: Collection,
    key: Sequence[str],
    aggregates: Mapping[str, Column],
    rows: Literal["positive", "nonzero"] = "positive",
) -> Collection:
    """One record per key: the aggregates over the key's records; none where the key has no such record.

    Aggregates are Spark's: `{"low": F.min("x"), "total": F.sum(F.col("x") * F.col("multiplicity"))}`.
    """
    _fresh([*key, *aggregates], collection)
    cells = _cells(collection, _key(key), [c for c in collection.data if c not in key])
    seen = cells.where(F.col(MULTIPLICITY) > 0 if rows == "positive" else F.col(MULTIPLICITY) != 0)
    axes = [*collection.time.columns, *_nexts(collection.time)]
    result = seen.groupBy(*_key(key), *axes).agg(*[a.alias(n) for n, a in aggregates.items()])
    return _differences(result.withColumn(DIFF, F.lit(1)), [*key, *aggregates], _key(key), collection)


def threshold(collection: Collection, function: Callable[[Column], Column]) -> Collection:
    """Each record with the multiplicity `function(multiplicity)`; `function(0)` must be 0 (on trust)."""
    data = collection.data
    cells = _cells(collection, _key(data), []).where(F.col(MULTIPLICITY) != 0)
    weighted = cells.withColumn(DIFF, function(F.col(MULTIPLICITY)).cast("bigint"))
    return _differences(weighted.where(F.col(DIFF) != 0), data, _key(data), collection)


def distinct(collection: Collection) -> Collection:
    """Each record once where its multiplicity is positive."""
    return threshold(collection, lambda m: (m > 0).cast("bigint"))


def count(collection: Collection, key: Sequence[str], name: str = "count") -> Collection:
    """`(key, count)`: the sum of the multiplicities of the key's records, where it is not zero (it may be
    negative)."""
    _fresh([*key, name], collection)
    only = replace(collection, df=collection.df.select(*key, *collection.time.columns, DIFF))
    cells = _cells(only, _key(key), []).where(F.col(MULTIPLICITY) != 0)
    named = cells.withColumn(name, F.col(MULTIPLICITY)).withColumn(DIFF, F.lit(1))
    return _differences(named, [*key, name], _key(key), collection)


def _fresh(names: Sequence[str], collection: Collection) -> None:
    """ValueError when two columns of the output would share a name, and one take the place of the other."""
    all_names = [c.lower() for c in (*names, *collection.time.columns, DIFF)]
    clash = [name for name in names if all_names.count(name.lower()) > 1]
    if clash:
        raise ValueError(f"the output would have {', '.join(clash)} twice: give the result another name")


# The grid of a key, its zeta transform (contents) and its Moebius transform (diffs)


def _key(key: Sequence[str]) -> list[str]:
    """No key means one group of everything."""
    return list(key) or ["_all"]


def _axes(time: Lattice) -> list[Total]:
    if isinstance(time, Total):
        return [time]
    if isinstance(time, Product):
        return [axis for part in time.parts for axis in _axes(part)]
    if isinstance(time, Lexicographic):
        return _axes(time.inner)
    raise ValueError(f"reduce knows Total, Product and Lexicographic times, not {time!r}")


def _nexts(time: Lattice) -> list[str]:
    return [f"_next_{axis.name}" for axis in _axes(time)]


def _cells(collection: Collection, key: list[str], values: list[str]) -> DataFrame:
    """Every record of a key at every grid time of the key: `multiplicity` there, and the next coordinate per
    axis."""
    time, times = collection.time, list(collection.time.columns)
    unknown = [c for c in key if c not in collection.data and c != "_all"]
    if unknown or MULTIPLICITY in collection.data:
        raise ValueError(f"no key columns {unknown} in data {collection.data} (`{MULTIPLICITY}` is reserved there)")
    df = collection.df.withColumn("_all", F.lit(0)) if key == ["_all"] else collection.df
    record = [*key, *values]
    rows = df.repartition(*key).groupBy(*record, *times).agg(F.sum(DIFF).alias(DIFF)).where(F.col(DIFF) != 0)
    if len(times) > 1 or values:
        rows = _grid(rows, key, record, time)
    cells = _zeta(rows.withColumnRenamed(DIFF, MULTIPLICITY), record, time, times)
    for axis, name in zip(_axes(time), _nexts(time), strict=True):
        others = [c for c in times if c != axis.name]
        cells = cells.withColumn(name, F.lead(axis.name).over(Window.partitionBy(*record, *others).orderBy(axis.name)))
    return cells


def _grid(rows: DataFrame, key: list[str], record: list[str], time: Lattice) -> DataFrame:
    """Add zero diffs so that every record of a key has a row at all of the key's grid times."""
    times = list(time.columns)
    axes = {a.name: F.collect_set(a.name).over(Window.partitionBy(*key)) for a in _axes(time)}
    marked = rows.withColumns({f"_axis_{name}": values for name, values in axes.items()})
    first = F.row_number().over(Window.partitionBy(*record).orderBy(*times)) == 1
    marked = marked.withColumn("_first", first)
    grid: dict[str, Column] = {name: F.col(f"_axis_{name}") for name in axes}
    # An index takes all of its values.
    grid |= {i.name: F.sequence(F.lit(0).cast("bigint"), F.lit(i.top).cast("bigint")) for i in indices(time)}
    zero = F.lit(0).cast("bigint").alias(DIFF)
    empty = _product([(c, grid[c]) for c in times], [], zero)
    own = F.array(F.struct(*[F.col(c).alias(c) for c in times], F.col(DIFF).alias(DIFF)))
    cells = F.when(F.col("_first"), F.concat(own, empty)).otherwise(own)
    return marked.select(*record, F.inline(cells)).groupBy(*record, *times).agg(F.sum(DIFF).alias(DIFF))


def _product(axes: list[tuple[str, Column]], chosen: list[Column], zero: Column) -> Column:
    """The array of structs of all combinations of the axes' values."""
    (name, values), rest = axes[0], axes[1:]
    if not rest:
        return F.transform(values, lambda v: F.struct(*chosen, v.alias(name), zero))
    return F.flatten(F.transform(values, lambda v: _product(rest, [*chosen, v.alias(name)], zero)))


def _zeta(df: DataFrame, record: list[str], time: Lattice, times: list[str]) -> DataFrame:
    """Replace the multiplicity of each cell by the sum over all cells of the record at times <= its own."""
    total = F.sum(MULTIPLICITY)
    if isinstance(time, Total):
        others = [c for c in times if c != time.name]
        return df.withColumn(MULTIPLICITY, total.over(Window.partitionBy(*record, *others).orderBy(time.name)))
    if isinstance(time, Product):
        for part in time.parts:
            df = _zeta(df, record, part, times)
        return df
    assert isinstance(time, Lexicographic)
    others = [c for c in times if c != time.name]
    after = Window.partitionBy(*record, *others).orderBy(time.name).rowsBetween(1, Window.unboundedFollowing)
    whole = total.over(Window.partitionBy(*record, *others))
    hidden = f"_after_{time.name}"
    df = df.withColumns({hidden: F.coalesce(total.over(after), F.lit(0)), MULTIPLICITY: whole})
    df = _zeta(df, record, time.inner, times)
    return df.withColumn(MULTIPLICITY, F.col(MULTIPLICITY) - F.col(hidden)).drop(hidden)


def _differences(df: DataFrame, data: list[str], key: list[str], source: Collection) -> Collection:
    """The diffs whose sums are the rows of `df` at its cells: each row is scattered to the times it weighs
    on."""
    time = source.time
    times = list(time.columns)
    steps = [
        F.struct(*[at[c].alias(c) for c in times], (F.col(DIFF) * sign).cast("bigint").alias(DIFF))
        for at, sign in _moebius(time)
    ]
    inside = F.filter(F.array(*steps), lambda s: ~_any_null([s[c] for c in times]))
    by = [c for c in key if c not in data]  # `_all`, which keeps the rows where they are
    spread = df.select(*by, *data, F.inline(inside))
    diffs = spread.groupBy(*by, *data, *times).agg(F.sum(DIFF).alias(DIFF)).where(F.col(DIFF) != 0)
    return replace(source, df=diffs.select(*data, *times, DIFF))


def _moebius(time: Lattice) -> list[tuple[dict[str, Column], int]]:
    """The times that contents at a cell weigh on, with signs; the cell itself is first. Null: beyond the
    grid."""
    if isinstance(time, Total):
        return [({time.name: F.col(time.name)}, 1), ({time.name: F.col(f"_next_{time.name}")}, -1)]
    if isinstance(time, Product):
        steps: list[tuple[dict[str, Column], int]] = [({}, 1)]
        for part in time.parts:
            steps = [(a | b, s * t) for a, s in steps for b, t in _moebius(part)]
        return steps
    assert isinstance(time, Lexicographic)
    inner, index = _moebius(time.inner), F.col(time.name)
    here = inner[0][0]
    following = F.when(index < time.top, index + 1)
    restart = F.when(index == time.top, F.lit(0).cast("bigint"))
    return [
        (here | {time.name: index}, 1),
        (here | {time.name: following}, -1),
        *[(at | {time.name: restart}, sign) for at, sign in inner[1:]],
    ]


def _any_null(columns: Sequence[Column]) -> Column:
    missing = columns[0].isNull()
    for column in columns[1:]:
        missing = missing | column.isNull()
    return missing
