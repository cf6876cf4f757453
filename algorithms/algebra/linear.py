"""Linear operators: each of them is an instance of one operator, `join_function`.

Law      op(x + y) = op(x) + op(y), so an operator acts record by record. `logic(data)` is itself a
         collection: for every triple `(data, time, diff)` and every `(data2, time2, diff2)` of it the output
         has `(data2, time ∨ time2, diff * diff2)`.
Shapes   `logic` is a list of `Update`s or one array column of structs, both written in terms of the data
         columns. A struct's fields named like a time column are joined, `diff` is multiplied, all others are
         the new data.
Cost     No shuffle, no state, no Python per row. One `Update` is a projection, and Spark fuses a chain of
         such operators (map, filter, delay, negate, …) into one projection and one filter. Several are one `Generate`.
Errors   ValueError for a name that is data and time at once. The caller has to avoid null diffs and times.
Algebra  A semiring of diffs; `explode` with negative diffs needs a ring.
Source   Seed 2 (generalizing linear operators), with its temporal filters; law 6 of the design.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from altneu.algorithms.algebra.collection import DIFF, Collection
from altneu.algorithms.algebra.time_lattice import Lattice, lexicographic_parts, time_columns


@dataclass(frozen=True)
class Update:
    """One triple of `logic(data)`.

    data: the new data; time: coordinates of its time (all others are the record's own); diff: its diff; when: the
    condition under which it occurs.
    """

    data: Mapping[str, Column]
    time: Mapping[str, Column] = field(default_factory=dict)
    diff: Column | int = 1
    when: Column | None = None


def join_function(collection: Collection, logic: Sequence[Update] | Column) -> Collection:
    """Join each record with the collection `logic(data)`: times joined, diffs multiplied.

    An example gives `x` copies of `2*x` from time `3*x` until `4*x` (x and double are bigints):

        join_function(c, [Update({"double": 2 * x}, {"epoch": 3 * x}, x),
                          Update({"double": 2 * x}, {"epoch": 4 * x}, -x)])
    """
    if isinstance(logic, Column):
        return _join_each(collection, logic)
    updates = list(logic)
    if len(updates) == 1:
        rows = collection.df if updates[0].when is None else collection.df.where(updates[0].when)
        return replace(collection, df=rows.select(*_output_columns(collection, updates[0])))
    triples = F.array(
        *[
            F.struct(*_output_columns(collection, u), F.coalesce(_update_condition(u), F.lit(False)).alias("_occurs"))
            for u in updates
        ]
    )
    if any(u.when is not None for u in updates):
        triples = F.filter(triples, lambda u: u["_occurs"])
    return replace(collection, df=collection.df.select(F.inline(triples)).drop("_occurs"))


def map(collection: Collection, **columns: Column) -> Collection:
    """Replace each record by the given columns: `map(c, n=F.col("x") + 1)`."""
    return join_function(collection, [Update(columns)])


def filter(collection: Collection, predicate: Column | str) -> Collection:
    """Keep the records for which `predicate` is true."""
    test = F.expr(predicate) if isinstance(predicate, str) else predicate
    return join_function(collection, [Update({c: F.col(c) for c in collection.data}, when=test)])


def flat_map(collection: Collection, array: Column, name: str) -> Collection:
    """Replace each record by one record `name` for every element of an array, with all other data dropped."""
    return join_function(collection, F.transform(array, lambda v: F.struct(v.alias(name))))


def explode(collection: Collection, pairs: Column, name: str) -> Collection:
    """Replace each record by the `(value, diff)` pairs of an array of two-field structs; diffs may have any size.

    `(key, count)` becomes `count` copies of `key` by the one pair `(key, count)`: no copy is ever made.
    """
    value, diff = _pair_fields(collection, pairs)
    return join_function(collection, F.transform(pairs, lambda p: F.struct(p[value].alias(name), p[diff].alias(DIFF))))


def temporal_filter(
    collection: Collection,
    lower: Column | None = None,
    upper: Column | None = None,
    along: str = "epoch",
) -> Collection:
    """Keep records at times `along` in `[lower, upper)` only; the retraction at `upper` is emitted at once.

    `lower` and `upper` are functions of the data; null (or not given) means unbounded.
    """
    same = {c: F.col(c) for c in collection.data}
    start = F.col(along) if lower is None else F.coalesce(lower, F.col(along))
    updates = [Update(same, {along: start.cast("bigint")})]
    if upper is not None:
        lives = upper.isNull() | (F.greatest(F.col(along), start) < upper)
        updates = [
            Update(same, {along: start.cast("bigint")}, when=lives),
            Update(same, {along: upper.cast("bigint")}, -1, when=lives & upper.isNotNull()),
        ]
    return join_function(collection, updates)


def _pair_fields(collection: Collection, pairs: Column) -> tuple[str, str]:
    """Return the two field names of an array-of-structs column (from the schema; no data is read)."""
    names = collection.df.select(pairs.alias("p")).schema["p"].dataType.elementType.names  # type: ignore[attr-defined]
    if len(names) != 2:
        raise ValueError(f"explode takes an array of (value, diff) structs; this array has the fields {names}")
    return names[0], names[1]


def _update_condition(update: Update) -> Column:
    return F.lit(True) if update.when is None else update.when


def _output_columns(collection: Collection, update: Update) -> list[Column]:
    """Return the columns of the triples that one update makes: data, joined time, multiplied diff."""
    _require_new_names(collection, list(update.data))
    alien = [c for c in update.time if c not in collection.time.columns]
    if alien:
        raise ValueError(f"{alien} are no time columns; the time columns are {collection.time.columns}")
    output_times = time_columns(collection.time)
    if update.time:
        output_times = collection.time.join_columns(output_times, _time_columns_of(collection.time, update.time))
    data = [v.alias(c) for c, v in update.data.items()]
    times = [v.alias(c) for c, v in zip(collection.time.columns, output_times, strict=True)]
    plain = isinstance(update.diff, int) and update.diff == 1
    factor = F.lit(update.diff) if isinstance(update.diff, int) else update.diff
    diff = F.col(DIFF) if plain else (F.col(DIFF) * factor.cast("bigint"))
    return [*data, *times, diff.alias(DIFF)]


def _time_columns_of(time: Lattice, given: Mapping[str, Column]) -> list[Column]:
    """Return a time with the given coordinates; the others are the record's own, so that they stay what they are.

    An index, however, starts again at a stamped time: it is then at its minimum.
    """
    restart = {i.name for i in lexicographic_parts(time) if set(i.inner.columns) & set(given)}
    own = {c: F.lit(0) if c in restart else F.col(c) for c in time.columns}
    return [given.get(c, own[c]).cast("bigint") for c in time.columns]


def _join_each(collection: Collection, logic: Column) -> Collection:
    """Apply `join_function` with an array column of structs."""
    time = collection.time.columns
    spread = collection.df.select(*time, DIFF, F.explode(logic).alias("_u"))
    names = spread.schema["_u"].dataType.names  # type: ignore[attr-defined]
    fields = {n: F.col(f"_u.{n}") for n in names}
    update = Update(
        {n: v for n, v in fields.items() if n not in (*time, DIFF)},
        {n: v for n, v in fields.items() if n in time},
        fields.get(DIFF, 1),
    )
    return replace(collection, df=spread.select(*_output_columns(collection, update)))


def _require_new_names(collection: Collection, names: Sequence[str]) -> None:
    reserved = {c.lower() for c in (*collection.time.columns, DIFF)}
    clash = [n for n in names if n.lower() in reserved]
    if clash:
        raise ValueError(f"{clash} are names of times or of the diff and cannot name data; choose other names")
