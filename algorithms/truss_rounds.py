"""The trussness of every edge beyond one task's memory: the same maintenance, in distributed rounds.

Law      As `truss.trussness_changes`: at every epoch of the window the result equals a full peel there.
Method   With U as in `kernels/maintain`: from any bound of kappa = trussness - 2 from above, rounds of bound <-
         min(bound, U bound) end at kappa. A round looks at some edges, lowers their bounds, and finds whom to look at
         next.
         Leave: the edges that go fall to -1, which shakes those that counted a triangle with them.
         Rise: each of n new edges raises an old one by one at most, so kappa + n bounds all. An old edge f can rise
         only if a chain of edges that rise, each in a triangle with the next and none with a kappa above the next
         one's, leads to it from a new edge, and if more than kappa(f) of its triangles can pass kappa(f). Proof: take
         the least k where others rise from k. Each triangle that lifts one of them lies among old edges of kappa > k
         and others of them (its edges are not new, and the chain reaches none of them). So all of them were above k.
         Fall: outside of that region the old kappa bounds; from there, and from what was shaken, until nothing falls.
Shapes   Edges: a < b. The graph: a, b, r: kappa before, -1 of a new edge. Bounds: a, b, r, bound.
Cost     EXECUTES: the state once, the epochs once, and three queries for each round: the neighbourhoods, the new
         bounds, and a copy of these; up to 25 Spark jobs, as each shuffle and each side that is sent to all is one.
         There are as many rounds as the change reaches far. CACHED by `localCheckpoint`, so that plans do not grow:
         what a round makes, and the graph once an epoch; blocks go when their frames are collected as garbage. A round
         reads the graph once, where it lies when few edges are looked at, and finds their triangles from the end of
         lower degree: sum of min(degree) proposals, O(m^1.5) for a whole graph, never the square of a degree. No
         triangle is kept for the next round.
Errors   ValueError when the edges, or the edges and the stored trussness, contradict each other.
Source   Lu, Zhou, Zhang, Stanley, "The h-index of a network node" (2016); Sariyuce, Seshadhri, Pinar, "Local algorithms
         for hierarchical dense subgraph discovery" (VLDB 2018); Huang et al. 2014 for the bound of one insertion.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial, reduce
from time import perf_counter
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from algorithms.edges import steps

EDGE = ["a", "b"]
FEW = 1_000_000  # a side of a join with no more rows is sent to every task: about 150 bytes a row there
MANY = 8  # parts that are made one, so that plans do not grow
NEW, GONE = -1, -1  # kappa before of an edge that comes, bound of one that goes
UNBOUNDED = 2**31

Say = Callable[[int, str], None]


class Rule(NamedTuple):
    """A kind of round, in SQL. `h` is U of the bounds, x and y are the other edges of a triangle.

    now    the new bound of the edge that is looked at
    next   is x to be looked at next, now that this edge has moved?
    again  is this edge itself?
    """

    now: str
    next: str
    again: str = "false"


SHAKEN = "now < bound AND now < {x}.bound AND {x}.bound <= least(bound, {y}.bound)"
LEAVE = Rule(str(GONE), SHAKEN)
RISE = Rule("greatest(r, least(bound, h))", "now > r AND r <= {x}.r AND {x}.r < least(now, {y}.bound)")
# What fell may count on others that fell in the same round.
FALL = Rule("least(bound, h)", SHAKEN, "0 < now AND now < bound")


def trussness_changes(
    intervals: DataFrame, trussness: DataFrame, first: int, last: int, say: Say = lambda epoch, text: None
) -> DataFrame:
    """Difference between the trussness replayed over epochs `first`..`last` and the stored one there.

    `intervals`: signed, a, b, epoch, until, diff; none begins or ends outside first - 1 .. last. `trussness`: the
    stored triples up to `last`. Returns a, b, k, epoch, diff, note. `say` hears of each round: the epoch, and a text.
    """
    state, events, epochs = _opening(intervals, trussness, first)
    later = trussness.where(F.col("epoch") >= first)
    parts = [later.select(*EDGE, "k", "epoch", (-F.col("diff")).alias("diff"))]
    notes: list[tuple[int, str]] = []
    for place, (epoch, inserted, deleted) in enumerate(epochs, 1):
        began = perf_counter()
        say(epoch, f"({place} of {len(epochs)}) {inserted:,} edges come, {deleted:,} go")
        here = events.where(F.col("epoch") == epoch)
        state, bounds = _maintain(state, here, inserted, deleted, partial(say, epoch))
        _add(parts, bounds.triples(epoch))
        note = {
            "epoch": epoch,
            "inserted": inserted,
            "deleted": deleted,
            "method": "rounds",
            "rounds": bounds.rounds,
            "evaluations": bounds.looked,
            "seconds": round(perf_counter() - began, 6),
        }
        notes.append((epoch, json.dumps(note)))
    net = _union(parts).groupBy(*EDGE, "k", "epoch").agg(F.sum("diff").alias("diff")).where("diff <> 0")
    log = intervals.sparkSession.createDataFrame(notes, "epoch bigint, note string")
    zeros = [F.lit(0).cast("bigint").alias(name) for name in (*EDGE, "k", "diff")]
    triples = net.withColumn("note", F.lit(None).cast("string"))
    return triples.unionByName(log.select(*zeros, "epoch", "note")).select(*EDGE, "k", "epoch", "diff", "note")


def _opening(
    intervals: DataFrame, trussness: DataFrame, first: int
) -> tuple[DataFrame, DataFrame, list[tuple[int, int, int]]]:
    """The levels (a, b, r) just before `first`; the events (a, b, epoch, diff); (epoch, inserted, deleted) of each."""
    net = steps(intervals, EDGE).groupBy(*EDGE, "epoch").agg(F.sum("diff").alias("diff")).where("diff <> 0")
    line = Window.partitionBy(*EDGE).orderBy("epoch")
    net = net.withColumn("times", F.sum("diff").over(line)).transform(_pin)
    levels = trussness.where(F.col("epoch") < first).groupBy(*EDGE, "k").agg(F.sum("diff").alias("n")).where("n <> 0")
    levels = levels.groupBy(*EDGE).agg(F.sum("n").alias("known"), (F.max("k") - 2).alias("r"))
    before = net.where(F.col("epoch") < first).select(*EDGE, "times")
    both = before.join(levels, EDGE, "full").fillna(0, ["times", "known"]).transform(_pin)
    row = both.where("times <> 1 OR known <> 1").orderBy(*EDGE).first()
    if row:
        raise ValueError(
            f"edge ({row.a}, {row.b}) is there {row.times} times just before epoch {first}, with {row.known} trussness"
        )
    events = net.where(F.col("epoch") >= first)
    wrong = F.min(F.when(~F.col("times").isin(0, 1), F.struct(*EDGE, "times"))).alias("wrong")
    counts = events.groupBy("epoch").agg(F.count_if(F.col("diff") > 0), F.count_if(F.col("diff") < 0), wrong)
    epochs = sorted(tuple(row) for row in counts.collect())
    for epoch, _, _, bad in epochs:
        if bad:
            raise ValueError(f"edge ({bad.a}, {bad.b}) is there {bad.times} times at epoch {epoch}")
    return both.select(*EDGE, "r"), events, [(epoch, inserted, deleted) for epoch, inserted, deleted, _ in epochs]


class Bounds:
    """Bounds of kappa from above, for the edges of one epoch that were looked at. They only fall: the least holds."""

    def __init__(self, graph: DataFrame, come: DataFrame, count: int, say: Callable[[str], None]) -> None:
        self.graph, self.say = graph, say
        self.parts = [come.select(*EDGE, _long(NEW, "r"), _long(UNBOUNDED, "bound"))]
        self.rows = count
        self.rounds = self.looked = 0

    @property
    def frame(self) -> DataFrame:
        """a, b, r, bound: one row an edge."""
        return _union(self.parts).groupBy(*EDGE).agg(F.max("r").alias("r"), F.min("bound").alias("bound"))

    def triples(self, epoch: int) -> DataFrame:
        """What the epoch changes: diff triples of the trussness."""
        signed = (("r", -1), ("bound", 1))
        both = F.array(*(F.struct(F.col(c).alias("k"), _long(sign, "diff")) for c, sign in signed))
        moved = self.frame.where("r <> bound").select(*EDGE, F.inline(both)).where("k >= 0")
        return moved.select(*EDGE, F.expr("k + 2 AS k"), _long(epoch, "epoch"), "diff")

    def levels(self) -> DataFrame:
        """a, b, r: kappa after the epoch, once the bounds have come down to it."""
        own = self.frame.select(*EDGE, "bound")
        after = self.graph.join(_hint(own, self.rows), EDGE, "left").select(*EDGE, F.coalesce("bound", "r").alias("r"))
        return after.where("r >= 0")

    def round(self, few: DataFrame, count: int, rule: Rule, most: int = 0) -> tuple[DataFrame, int]:
        """Look at the edges `few` (`count` rows at most), and lower their bounds. Edges may be repeated.

        `most`: how much an edge may rise that was not looked at. Returns the edges to look at next, and how many rows.
        """
        near = self._near(few, count, most).localCheckpoint()
        edge = Window.partitionBy(*EDGE)
        seen = _triangles(few, near, count).withColumn("rank", F.row_number().over(edge.orderBy(F.desc("low"))))
        seen = seen.withColumn("h", F.max(F.expr("least(low, rank)")).over(edge))
        seen = seen.withColumn("now", F.expr(rule.now).cast("bigint"))
        following = [F.when(F.expr(f"f IS NULL AND {rule.again}"), F.struct(*EDGE))]
        for x, y in ("fg", "gf"):
            following.append(F.when(F.expr(rule.next.format(x=x, y=y)), F.struct(f"{x}.a", f"{x}.b")))
        seen = seen.withColumn("next", F.array_compact(F.array(*following))).where("f IS NULL OR size(next) > 0")
        rows = seen.select(*EDGE, "r", F.col("now").alias("bound"), F.col("f").isNull().alias("own"), "next").persist()
        try:
            looked, coming = rows.agg(F.count_if("own"), F.coalesce(F.sum(F.size("next")), F.lit(0))).first() or (0, 0)
            # From the cache, whose size is known: an estimate would triple its digits in each round.
            pinned = rows.select("*").localCheckpoint()
        finally:
            rows.unpersist()
        self.rounds += 1
        self.looked += looked
        self.rows += looked
        self.say(f"round {self.rounds}: looked at {looked:,} edges")
        _add(self.parts, pinned.where("own").drop("own", "next"))
        return pinned.select(F.inline("next")), coming

    def _near(self, few: DataFrame, count: int, most: int) -> DataFrame:
        """The neighbourhoods of the ends of `few`: x, w (neighbour), e (the edge: a, b, r, bound), n (degree of x)."""
        ends = few.select(F.explode(F.array(*EDGE)).alias("x"))
        ways = F.array(*(F.struct(F.col(x).alias("x"), F.col(w).alias("w")) for x, w in ("ab", "ba")))
        near = self.graph.select(F.inline(ways), *EDGE, "r").join(_hint(ends, 2 * count), "x", "left_semi")
        near = near.join(_hint(self.frame.select(*EDGE, "bound"), self.rows), EDGE, "left")
        near = near.withColumn("bound", F.coalesce("bound", F.col("r") + most)).where("bound >= 0")
        degree = F.count("*").over(Window.partitionBy("x"))
        return near.select("x", "w", F.struct(*EDGE, "r", "bound").alias("e"), degree.alias("n"))


def _triangles(few: DataFrame, near: DataFrame, count: int) -> DataFrame:
    """A row for each edge of `few` that is there, and one for each of its triangles: a, b, r, bound, f, g, low.

    f, g: the other two edges (a, b, r, bound), null in the edge's own row; low: the lower one's bound, else 0.
    """
    columns = [*EDGE, "r", "bound"]
    looked = near.select("e.*", "x", "w", "n").join(_hint(few, count), EDGE, "left_semi")
    lesser = looked.groupBy(columns).agg(F.min(F.struct("n", "x", "w")).alias("lesser"))
    sides = lesser.select(*columns, F.col("lesser.x").alias("x"), F.col("lesser.w").alias("y"))
    proposed = near.select("x", "w", F.col("e").alias("f")).join(_hint(sides, count), "x").where("w <> y").drop("x")
    third = near.select(F.col("x").alias("y"), "w", F.col("e").alias("g"))
    found = proposed.join(third, ["y", "w"]).select(*columns, "f", "g", F.least("f.bound", "g.bound").alias("low"))
    return _merged(found.unionByName(lesser.select(*columns, _long(0, "low")), allowMissingColumns=True))


def _maintain(
    state: DataFrame, events: DataFrame, inserted: int, deleted: int, say: Callable[[str], None]
) -> tuple[DataFrame, Bounds]:
    """The levels after one epoch's events (a, b, diff), and the bounds of what was looked at: by then, kappa."""
    gone, come = (events.where(F.col("diff") == sign).select(*EDGE) for sign in (-1, 1))
    graph = state.unionByName(come.select(*EDGE, _long(NEW, "r"))).transform(_pin)
    bounds = Bounds(graph, come, inserted, say)
    doubtful, count = [], 0
    if deleted:
        shaken, count = bounds.round(gone, deleted, LEAVE)
        doubtful.append(shaken)
    if inserted:
        few, reached = come, inserted
        while reached:
            following, reached = bounds.round(few, reached, RISE, inserted)
            few = following.join(bounds.frame, EDGE, "left_anti")
        doubtful.append(bounds.frame.where("bound > r").select(*EDGE))
        count += bounds.rows
    few = _union(doubtful)
    while count:
        few, count = bounds.round(few, count, FALL)
    return bounds.levels(), bounds


def _pin(frame: DataFrame) -> DataFrame:
    """Computed once, in no more partitions than a shuffle makes."""
    return _merged(frame).localCheckpoint(eager=False)


def _merged(frame: DataFrame) -> DataFrame:
    """In no more partitions than a shuffle makes: unions add them up, round after round."""
    return frame.coalesce(int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions", "200") or 200))


def _hint(frame: DataFrame, rows: int) -> DataFrame:
    return F.broadcast(frame) if rows <= FEW else frame


def _union(parts: Sequence[DataFrame]) -> DataFrame:
    return _merged(reduce(DataFrame.unionByName, parts))


def _add(parts: list[DataFrame], more: DataFrame) -> None:
    """Another part; many are made one."""
    parts.append(more)
    if len(parts) > MANY:
        parts[:] = [_union(parts).transform(_pin)]


def _long(value: int, name: str) -> Column:
    return F.lit(value).cast("bigint").alias(name)
