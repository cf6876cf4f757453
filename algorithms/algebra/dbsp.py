"""DBSP: streams of Z-sets on a finite clock, z⁻¹, D, I, lifting, incremental forms, and values without an inverse.

Law      I(D(s)) = D(I(s)) = s. incremental(Q) = D ∘ lift(Q) ∘ I. Chain rule: incremental(P ∘ Q) =
         incremental(P) ∘ incremental(Q). Linear Q: incremental(Q) = lift(Q). Bilinear Q: incremental(Q)(r, s)
         = Q(r, s) + Q(z⁻¹I r, s) + Q(r, z⁻¹I s), the deltas by each other and by the other's past.
Shapes   A `Stream` has data columns, `tick` in 0 … ticks-1, and `diff`: row (x, t, w) says that the Z-set AT
         tick t (not since t) has x with weight w. A cumulative stream of lattice values has one row per key
         and tick, no weights. A collection over epochs is the delta stream of its contents:
         `from_collection`, `to_collection`.
Cost     z⁻¹ and D are projections and a union. I writes every record once per tick that it lives: contents
         are dense. Use it with small clocks only; the incremental forms exist to avoid it, and collections never need
         it.
Errors   ValueError for clocks that differ. A tick that is not on the clock fails the job in which it is integrated. So
         does a retraction in the input of `lattice_reduce`: max has no inverse.
Algebra  z⁻¹ and lift: none. I: a monoid. D, incremental: a group. bilinear: a ring. lattice_reduce: a
         join-semilattice.
Source   Seed 5 (DBSP emulated; edges that are no Abelian group; tick and static), DBSP proposition 3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from altneu.algorithms.algebra.collection import DIFF, Collection
from altneu.algorithms.algebra.time_lattice import Total

TICK = "tick"
Operator = Callable[..., Collection]


@dataclass(frozen=True)
class Stream:
    """A Z-set per tick of the clock 0 … ticks-1."""

    df: DataFrame
    ticks: int

    @property
    def data(self) -> list[str]:
        """Return the names of the data columns."""
        return [c for c in self.df.columns if c not in (TICK, DIFF)]

    def plus(self, *others: Stream) -> Stream:
        """Return the sum, tick by tick."""
        df = self.df
        for other in others:
            if other.ticks != self.ticks:
                raise ValueError(f"streams on clocks of {self.ticks} and {other.ticks} ticks cannot be added")
            df = df.unionByName(other.df)
        return Stream(df, self.ticks)

    def negate(self) -> Stream:
        """Return every weight with the other sign."""
        return Stream(self.df.withColumn(DIFF, -F.col(DIFF)), self.ticks)

    def consolidate(self) -> Stream:
        """Return one row per record and tick, without zeros: equal streams have equal rows."""
        df = self.df.groupBy(*self.data, TICK).agg(F.sum(DIFF).alias(DIFF)).where(F.col(DIFF) != 0)
        return Stream(df.select(*self.data, TICK, DIFF), self.ticks)


def from_collection(collection: Collection, ticks: int) -> Stream:
    """Return the changes of a collection, its triples, as a stream of `ticks` ticks; a time below 0 fails the job."""
    (name,) = collection.time.columns
    df = collection.df.withColumnRenamed(name, TICK).where(F.col(TICK) < ticks)
    return Stream(df.withColumn(TICK, _on_clock(ticks)), ticks)


def to_collection(deltas: Stream, name: str = "epoch") -> Collection:
    """Return a stream of changes as a collection over one total time."""
    return Collection(deltas.df.withColumnRenamed(TICK, name), Total(name))


def delay(stream: Stream) -> Stream:
    """Return z⁻¹ of the stream: at tick t what the stream had at t-1; nothing at 0."""
    later = stream.df.withColumn(TICK, F.col(TICK) + 1).where(F.col(TICK) < stream.ticks)
    return Stream(later, stream.ticks)


def differentiate(stream: Stream) -> Stream:
    """Return D(s) = s - z⁻¹(s): cumulative contents become deltas, 'static contents become 'tick (ephemeral)."""
    return stream.plus(delay(stream).negate())


def integrate(stream: Stream) -> Stream:
    """Return I(s)[t] = s[0] + … + s[t]: deltas become cumulative contents, which persist ('static)."""
    following = F.sequence(_on_clock(stream.ticks), F.lit(stream.ticks - 1).cast("bigint"))
    spread = stream.df.select(*stream.data, F.explode(following).alias(TICK), DIFF)
    return Stream(spread, stream.ticks).consolidate()


def lift(operator: Operator) -> Callable[..., Stream]:
    """Return a function on collections as a function on streams, applied at every tick by itself.

    The operator is applied to the collection whose contents at t are s[t], and the contents of the result at every tick
    are returned. That equals one application per tick, because every operator here is right at every time.
    """

    def lifted(*streams: Stream) -> Stream:
        deltas = [to_collection(differentiate(s), TICK) for s in streams]
        return integrate(from_collection(operator(*deltas), streams[0].ticks))

    return lifted


def incremental(operator: Operator) -> Callable[..., Stream]:
    """Return the operator on streams of changes: D ∘ lift(operator) ∘ I, in which each inner D ∘ I has already
    cancelled.
    """

    def changed(*deltas: Stream) -> Stream:
        out = operator(*[to_collection(d, TICK) for d in deltas])
        return from_collection(out, deltas[0].ticks).consolidate()

    return changed


def bilinear(operator: Operator) -> Callable[[Stream, Stream], Stream]:
    """Return the incremental form of a bilinear operator, generated from its plain form: three lifted applications."""
    plain = lift(operator)

    def changed(left: Stream, right: Stream) -> Stream:
        left_past, right_past = delay(integrate(left)), delay(integrate(right))
        return plain(left, right).plus(plain(left_past, right), plain(left, right_past)).consolidate()

    return changed


def lattice_reduce(deltas: Stream, key: Sequence[str], merges: Mapping[str, Column]) -> DataFrame:
    """Return cumulative lattice values: key, the merges (`{"high": F.max("x")}`), `tick`; a row at each tick with news.

    A merge must be a join-semilattice aggregate that a window may run (max, min, bool_or, bit_or,
    collect_set, a greatest struct). It is idempotent, so weights do not count. There is no inverse: a negative
    weight fails the job.
    """
    positive = F.when(F.col(DIFF) < 0, F.raise_error(F.lit("lattice_reduce: a lattice value cannot be retracted")))
    checked = deltas.df.withColumn("_check", positive).where(F.col("_check").isNull())
    line = Window.partitionBy(*key).orderBy(TICK)
    merged = checked.select(*key, TICK, *[m.over(line).alias(n) for n, m in merges.items()])
    return merged.groupBy(*key, TICK).agg(*[F.first(n).alias(n) for n in merges])


def to_deltas(cumulative: DataFrame, key: Sequence[str], ticks: int) -> Stream:
    """Return a cumulative stream as deltas: at each tick the previous value of the key goes and the current one comes.

    This is how a lattice flow joins a flow of groups: values have no inverse, but (key, value) records have.
    """
    values = [c for c in cumulative.columns if c not in (*key, TICK)]
    line = Window.partitionBy(*key).orderBy(TICK)
    now = F.struct(*values)
    rows = cumulative.withColumn("_was", F.lag(now).over(line)).withColumn("_now", now)
    rows = rows.where(~F.col("_was").eqNullSafe(F.col("_now")))
    unit = F.lit(1).cast("bigint")
    came = F.struct(F.col("_now").alias("_v"), unit.alias(DIFF))
    gone = F.struct(F.col("_was").alias("_v"), (-unit).alias(DIFF))
    pair = F.when(F.col("_was").isNull(), F.array(came)).otherwise(F.array(gone, came))
    spread = rows.select(*key, TICK, F.inline(pair))
    return Stream(spread.select(*key, *[F.col(f"_v.{v}").alias(v) for v in values], TICK, DIFF), ticks)


def _on_clock(ticks: int) -> Column:
    """Return the tick of each row; the job fails where it is not on the clock (a sequence would count down to it)."""
    message = F.concat(F.lit("tick "), F.col(TICK).cast("string"), F.lit(f" is not on the clock 0 … {ticks - 1}"))
    return F.when(F.col(TICK).between(0, ticks - 1), F.col(TICK)).otherwise(F.raise_error(message))
