"""Collections: streams of `(data, time, diff)` triples held in Spark DataFrames.

Law      The contents at time t are, for every record, the sum of its diffs at times <= t. Two collections are
         equal when their contents are equal at every time; `consolidate` gives the one form in which equal
         means equal rows.
Shapes   `df` has the data columns, the time columns of `time` (bigint) and `diff` (bigint); anything that is
         neither time nor diff is data. Interval form: `epoch`, `until` (half-open, `FOREVER` when open) and `diff`.
Cost     Lazy: every method returns a plan and none collects or caches. `consolidate`, `as_of`, `changes`,
         `compact` and `to_intervals` shuffle once; all others are projections or unions without a shuffle.
         Spark ignores case in names: no two columns differ by case only. Names that begin with an underscore are
         the operators' own.
Errors   ValueError when a time column or `diff` is missing, a name occurs twice or is the operators' own, lattices or
         data columns do not match, or contents from before a compaction are requested.
Source   Seed 1 (triples, accumulation, compaction, enter and leave), design §1 and §2.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from altneu.algorithms.algebra.time_lattice import (
    EPOCH_REVISION,
    FOREVER,
    Lattice,
    Product,
    Time,
    literal_time,
    require_finite,
    time_columns,
)

DIFF = "diff"


@dataclass(frozen=True)
class Collection:
    """A collection: its triples, the lattice of their times, and the time `since` to which it is compacted."""

    df: DataFrame
    time: Lattice = EPOCH_REVISION
    since: Time | None = None

    def __post_init__(self) -> None:
        columns = self.df.columns
        missing = [c for c in (*self.time.columns, DIFF) if c not in columns]
        if missing:
            raise ValueError(f"triples lack the columns {', '.join(missing)}; they have {', '.join(columns)}")
        ours = [c for c in columns if c.startswith("_")]
        if ours:
            raise ValueError(f"names that begin with _ are reserved for operators; rename {', '.join(ours)}")
        times = Counter(c.lower() for c in columns)
        twice = [c for c in columns if times[c.lower()] > 1]
        if twice:
            raise ValueError(f"the columns {', '.join(twice)} have the same name for Spark, which ignores case")

    # --- construction

    @classmethod
    def from_triples(cls, df: DataFrame, time: Lattice = EPOCH_REVISION) -> Collection:
        """Return a collection of triples (data columns, time columns, `diff`); diffs and times become bigints."""
        exact = {name: F.col(name).cast("bigint") for name in (*time.columns, DIFF) if name in df.columns}
        return cls(df.withColumns(exact), time)

    @classmethod
    def from_intervals(cls, df: DataFrame, time: Lattice) -> Collection:
        """Return signed intervals as triples: `diff` at `epoch`, and `-diff` at `until` unless that is `FOREVER`."""
        rest = [c for c in df.columns if c not in ("epoch", "until", DIFF)]
        diff = F.col(DIFF).cast("bigint")
        start = F.struct(F.col("epoch").cast("bigint").alias("epoch"), diff.alias(DIFF))
        stop = F.struct(F.col("until").cast("bigint").alias("epoch"), (-diff).alias(DIFF))
        ends = F.when(F.col("until") == FOREVER, F.array(start)).otherwise(F.array(start, stop))
        return cls(df.where("epoch < until").select(*rest, F.inline(ends)), time)

    # --- shape

    @property
    def data(self) -> list[str]:
        """Return the names of the data columns."""
        return [c for c in self.df.columns if c not in (*self.time.columns, DIFF)]

    def rename(self, names: Mapping[str, str]) -> Collection:
        """Return the collection with data columns renamed: {old: new}."""
        unknown = [c for c in names if c not in self.data]
        if unknown:
            raise ValueError(f"no data columns {', '.join(unknown)}; the data columns are {', '.join(self.data)}")
        return replace(self, df=self.df.select([F.col(c).alias(names.get(c, c)) for c in self.df.columns]))

    def pipe(self, operator: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return `operator(self, …)`, so that a chain reads from left to right."""
        return operator(self, *args, **kwargs)

    # --- the group

    def concat(self, *others: Collection) -> Collection:
        """Return the sum of collections: the triples of all of them. Data columns are matched by name."""
        df = self.df
        for other in others:
            if other.time.columns != self.time.columns or set(other.data) != set(self.data):
                raise ValueError(
                    f"cannot add data {other.data} at {other.time.columns} to data {self.data} at {self.time.columns}"
                )
            df = df.unionByName(other.df)
        return Collection(df, self.time, common_since(self, *others))

    def negate(self) -> Collection:
        """Return every diff with the other sign: the inverse in the group."""
        return replace(self, df=self.df.withColumn(DIFF, -F.col(DIFF)))

    def minus(self, other: Collection) -> Collection:
        """Return `self` plus the inverse of `other`."""
        return self.concat(other.negate())

    def consolidate(self) -> Collection:
        """Return one triple per (data, time), without zeros. Equal collections over total or product times have equal
        rows.
        """
        keys = [*self.data, *self.time.columns]
        total = self.df.groupBy(*keys).agg(F.sum(DIFF).alias(DIFF)).where(F.col(DIFF) != 0)
        return replace(self, df=total.select(*self.df.columns))

    # --- contents

    def as_of(self, *time: int) -> DataFrame:
        """Return the contents at `time`: data columns and `diff`, the multiplicity (never zero, perhaps negative)."""
        self._require_known(time)
        seen = self.df.where(self.time.less_equal_columns(time_columns(self.time), literal_time(self.time, time)))
        return _accumulate(seen, self.data)

    def changes(self, before: Time, after: Time) -> DataFrame:
        """Return the contents at `after` minus those at `before`: data columns and `diff`."""
        self._require_known(before)
        self._require_known(after)
        here = time_columns(self.time)
        late = self.time.less_equal_columns(here, literal_time(self.time, after))
        early = self.time.less_equal_columns(here, literal_time(self.time, before))
        weight = late.cast("bigint") - early.cast("bigint")
        return _accumulate(self.df.withColumn(DIFF, F.col(DIFF) * weight).where(F.col(DIFF) != 0), self.data)

    def at(self, **coordinates: int) -> Collection:
        """Fix coordinates of a product time, such as `at(revision=7)`, and return the collection over the others.

        The coordinates must be whole parts of the product, because only then does `<=` split.
        """
        parts = self.time.parts if isinstance(self.time, Product) else (self.time,)
        rest = [p for p in parts if not set(p.columns) & set(coordinates)]
        fixed = [name for p in parts if p not in rest for name in p.columns]
        if sorted(fixed) != sorted(coordinates) or not rest or any(len(p.columns) > 1 for p in parts if p not in rest):
            raise ValueError(f"cannot fix {sorted(coordinates)} in times with parts {[p.columns for p in parts]}")
        since = self._since_of_data()
        self._require_known(tuple(coordinates.get(c, since.get(c, 0)) for c in self.time.columns))
        df = self.df
        for name, bound in coordinates.items():
            df = df.where(F.col(name) <= bound).drop(name)
        time = rest[0] if len(rest) == 1 else Product(*rest)
        return Collection(df, time, tuple(since[c] for c in time.columns) if since else None)

    def compact(self, since: Time) -> Collection:
        """Forget what no reader at or after `since` can distinguish: join times with `since` and sum up diffs.

        `as_of` is unchanged at every time >= since, and refuses others. The collection remembers `since`, and so do the
        results of operators whose contents at a time follow from the contents of their inputs at that time. Its `df`
        does not remember it, nor does a collection that is stored, delayed, differentiated or joined as of a moment:
        for these the caller has to remember it.
        """
        later = self.time.join_columns(time_columns(self.time), literal_time(self.time, since))
        moved = self.df.withColumns(dict(zip(self.time.columns, later, strict=True)))
        bound = since if self.since is None else self.time.join(self.since, since)
        return Collection(moved, self.time, bound).consolidate()

    # --- scopes

    def enter(self, inner: Lattice) -> Collection:
        """Return the collection in a scope whose times have further coordinates, which start at their minimum."""
        lost = [c for c in self.time.columns if c not in inner.columns]
        if lost:
            raise ValueError(f"the inner times {inner.columns} lack the outer coordinates {lost}")
        first = dict(zip(inner.columns, literal_time(inner, inner.minimum()), strict=True))
        new = {c: v for c, v in first.items() if c not in self.time.columns}
        clash = [c for c in self.data if c.lower() in {name.lower() for name in new}]
        if clash:
            raise ValueError(f"the data columns {clash} have names of times of the scope {inner.columns}: rename them")
        known = self._since_of_data()
        least = zip(inner.columns, inner.minimum(), strict=True)
        since = tuple(known.get(c, low) for c, low in least) if known else None
        return Collection(self.df.withColumns(new), inner, since)

    def leave(self, outer: Lattice) -> Collection:
        """Return the collection outside a scope: coordinates that `outer` does not have are dropped, and their last
        contents count.
        """
        inner = [c for c in self.time.columns if c not in outer.columns]
        known = self._since_of_data()
        return Collection(self.df.drop(*inner), outer, tuple(known[c] for c in outer.columns) if known else None)

    def delay(self, later: Mapping[str, Column]) -> Collection:
        """Replace time coordinates by expressions of the time.

        The caller has to ensure that the new time is >= the old one and that the map keeps the order; otherwise later
        operators are wrong.
        """
        alien = [c for c in later if c not in self.time.columns]
        if alien:
            raise ValueError(f"{alien} are no time columns; the time columns are {self.time.columns}")
        return Collection(self.df.withColumns({c: v.cast("bigint") for c, v in later.items()}), self.time)

    def _since_of_data(self) -> dict[str, int]:
        return dict(zip(self.time.columns, self.since, strict=True)) if self.since is not None else {}

    def _require_known(self, time: Time) -> None:
        if self.since is not None and not self.time.less_equal(self.since, time):
            raise ValueError(f"compacted: {self.time.columns} are known from {self.since} on, but not at {time}")

    # --- intervals

    def to_intervals(self) -> DataFrame:
        """Return the integral along `epoch`: data, other time columns, `epoch`, `until`, and `diff`, the multiplicity
        between them.

        With further coordinates (revision) each of their values keeps its own signed intervals, which add up.
        """
        if "epoch" not in self.time.columns:
            raise ValueError(f"intervals need the time column `epoch`; the time columns are {self.time.columns}")
        other = [c for c in self.time.columns if c != "epoch"]
        steps = self.df.groupBy(*self.data, *other, "epoch").agg(F.sum(DIFF).alias("_step")).where("_step <> 0")
        line = (
            Window.partitionBy(*self.data, *other).orderBy("epoch") if self.data or other else Window.orderBy("epoch")
        )
        spans = (
            steps.withColumn("epoch", F.expr(require_finite("epoch")))
            .withColumn(DIFF, F.sum("_step").over(line))
            .withColumn("until", F.coalesce(F.lead("epoch").over(line), F.lit(FOREVER)))
        )
        return spans.where(F.col(DIFF) != 0).select(*self.data, *other, "epoch", "until", DIFF)


def common_since(*collections: Collection) -> Time | None:
    """Return the time from which on results of these collections are known: the join of their `since`."""
    known = [c.since for c in collections if c.since is not None]
    return functools.reduce(collections[0].time.join, known) if known else None


def _accumulate(df: DataFrame, data: Sequence[str]) -> DataFrame:
    return df.groupBy(*data).agg(F.sum(DIFF).alias(DIFF)).where(F.col(DIFF) != 0)
