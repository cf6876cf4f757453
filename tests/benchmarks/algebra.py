"""What the algebra's operators cost: plans of delta queries, their runs, a key that changes often, an iteration.

    python -m tests.benchmarks.algebra [--scale 14 17] [--changes 1000] [--skip clique …]

Seeded R-MAT graphs of 2^scale vertices. Exchanges are counted without Spark's own broadcasts; planning ends with the
physical plan, and a run counts the rows that come out. Prints tables in Markdown.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from altneu.algorithms.algebra import incremental, joins, linear
from altneu.algorithms.algebra import reduce as reductions
from altneu.algorithms.algebra.collection import Collection
from altneu.algorithms.algebra.delta_query import Query, delta_query
from altneu.algorithms.algebra.incremental import Change
from altneu.algorithms.algebra.iterate import iterate
from altneu.algorithms.algebra.time_lattice import EPOCH, EPOCH_REVISION, FOREVER
from altneu.algorithms.graph import triangles
from altneu.pipeline.storage.session import start_session
from tests.algebra.reference import exchanges
from tests.benchmarks.kernels import rmat

QUERIES = {
    "triangle": "e(a,b), e(a,c), e(b,c)",
    "4-clique": "e(a,b), e(a,c), e(a,d), e(b,c), e(b,d), e(c,d)",
}


def timed(work: Callable[[], object]) -> tuple[float, object]:
    begin = time.perf_counter()
    found = work()
    return time.perf_counter() - begin, found


def planned(frame: DataFrame) -> DataFrame:
    frame._jdf.queryExecution().executedPlan()
    return frame


def edges_of(spark: SparkSession, scale: int, changes: int) -> Collection:
    """All edges at revision 0, and at 1 the last `changes` of them go and others come."""
    a, b = rmat(scale, 9)
    rng = np.random.default_rng(7)
    late = rng.choice(a.size, changes, replace=False)
    revision = np.zeros(a.size, np.int64)
    revision[late[: changes // 2]] = 1
    gone = late[changes // 2 :]
    import pandas as pd

    rows = pd.DataFrame({"x": a, "y": b, "epoch": 0, "revision": revision, "diff": 1})
    away = pd.DataFrame({"x": a[gone], "y": b[gone], "epoch": 1, "revision": 1, "diff": -1})
    frame = spark.createDataFrame(pd.concat([rows, away])).persist()
    frame.count()
    return Collection(frame, EPOCH_REVISION)


def plans(spark: SparkSession) -> None:
    print("\n| query | exchanges | seconds to plan |\n|---|---|---|")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    empty = "x long, y long, epoch long, revision long, diff long"
    edges = Collection(spark.createDataFrame([(1, 2, 0, 0, 1)], empty), EPOCH_REVISION)
    planned(delta_query(Query.from_text(QUERIES["triangle"]), {"e": edges}).df)  # the first of a session
    for name, text in QUERIES.items():
        seconds, found = timed(lambda t=text: planned(delta_query(Query.from_text(t), {"e": edges}).df))  # type: ignore[misc]
        assert isinstance(found, DataFrame)
        print(f"| {name} | {exchanges(found)} | {seconds:.1f} |", flush=True)
    spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def queries(spark: SparkSession, scale: int, changes: int, skip: list[str]) -> None:
    edges = edges_of(spark, scale, changes)
    size = edges.df.count()
    for name, text in QUERIES.items():
        if name in skip:
            continue
        for what, only in (("from nothing", None), (f"{changes:,} changes", F.col("revision") == 1)):
            query = Query.from_text(text)
            seconds, rows = timed(lambda q=query, o=only: delta_query(q, {"e": edges}, only=o).df.count())  # type: ignore[misc]
            print(f"| {size:,} | {name} | {what} | {rows:,} | {seconds:.1f} |", flush=True)
    edges.df.unpersist()


def beside_the_stage(spark: SparkSession, scale: int, changes: int) -> None:
    """The changed triangles: the stage's own three steps, and the generic query, in turns."""
    edges = edges_of(spark, scale, changes).df.withColumns({"a": F.col("x"), "b": F.col("y"), "until": F.lit(FOREVER)})
    rows = edges.select("a", "b", "epoch", "until", "diff", "revision")
    index, delta = (rows.where(f"revision = {n}").drop("revision").persist() for n in (0, 1))
    parts = [Collection.from_intervals(each, EPOCH) for each in (index, delta)]

    def own() -> int:
        return triangles.vertex_triangle_changes(triangles.triangle_changes(index, delta)).count()

    def generic() -> int:
        found = incremental.query(Query.from_text(QUERIES["triangle"]), {"e": Change(*parts)}, broadcast=True).delta.df
        at = found.select(F.explode(F.array("a", "b", "c")).alias("vertex"), "epoch", "diff")
        return at.groupBy("vertex", "epoch").agg(F.sum("diff").alias("diff")).where("diff <> 0").count()

    assert own() == generic(), "the first of each is not counted"
    turns = [(timed(own)[0], timed(generic)[0]) for _ in range(3)]
    for name, seconds in zip(("the stage's three steps", "`incremental.query`"), zip(*turns, strict=True), strict=True):
        print(f"| {index.count():,} | {name} | {sorted(seconds)[1]:.1f} |", flush=True)
    for each in (index, delta):
        each.unpersist()


def hot_keys(spark: SparkSession, runs: int) -> None:
    print(f"\n| one key changed in {runs:,} runs | seconds |\n|---|---|")
    number = F.col("id")
    late = F.when(number % 50 == 0, number - 40).otherwise(number)
    for name, epoch in (("epochs in order", number), ("every 50th epoch late", late)):
        rows = spark.range(runs).select(
            F.lit(1).alias("k"),
            number.alias("x"),
            epoch.alias("epoch"),
            number.alias("revision"),
            F.lit(1).alias("diff"),
        )
        last = rows.withColumns(
            {"epoch": F.col("epoch") + 1, "revision": F.col("revision") + 1, "diff": -F.col("diff")}
        )
        held = Collection.from_triples(rows.unionByName(last), EPOCH_REVISION)
        counted = Collection.from_triples(rows, EPOCH_REVISION)
        seconds, _ = timed(lambda c=counted: reductions.count(c, ["k"]).df.count())  # type: ignore[misc]
        print(f"| count, {name} | {seconds:.1f} |", flush=True)
        seconds, _ = timed(lambda c=held: reductions.reduce(c, ["k"], {"low": F.min("x")}).df.count())  # type: ignore[misc]
        print(f"| reduce of a value that is replaced, {name} | {seconds:.1f} |", flush=True)


def many_keys(spark: SparkSession, keys: int) -> None:
    print(f"\n| {keys:,} keys | seconds |\n|---|---|")
    number = F.col("id")
    rows = (
        spark.range(2 * keys)
        .select(
            F.pmod(number, F.lit(keys)).alias("k"),
            (number % 7).alias("x"),
            (F.xxhash64(number) % 3).alias("epoch"),
            F.pmod(F.xxhash64(number), F.lit(5)).alias("revision"),
            F.lit(1).alias("diff"),
        )
        .persist()
    )
    rows.count()
    c = Collection.from_triples(rows, EPOCH_REVISION)
    for name, out in (
        ("count", lambda: reductions.count(c, ["k"])),
        ("distinct", lambda: reductions.distinct(c)),
        ("reduce", lambda: reductions.reduce(c, ["k"], {"low": F.min("x")})),
        ("count, epochs alone", lambda: reductions.count(c.at(revision=9), ["k"])),
    ):
        seconds, _ = timed(lambda o=out: o().df.count())  # type: ignore[misc]
        print(f"| {name} | {seconds:.1f} |", flush=True)
    rows.unpersist()


def iteration(spark: SparkSession, length: int) -> None:
    """Components of a path by the least label: as many rounds as it is long."""
    context = spark.sparkContext._jsc
    number = F.col("id")
    line = spark.range(length).select(
        number.alias("a"),
        (number + 1).alias("b"),
        F.lit(0).cast("long").alias("epoch"),
        F.lit(1).cast("long").alias("diff"),
    )
    edges = Collection(line, EPOCH)
    start = Collection(
        spark.range(length + 1).select(
            number.alias("v"),
            number.alias("label"),
            F.lit(0).cast("long").alias("epoch"),
            F.lit(1).cast("long").alias("diff"),
        ),
        EPOCH,
    )

    def body(x: Collection) -> Collection:
        moved = linear.map(joins.join(x.rename({"v": "a"}), edges, ["a"]), v=F.col("b"), label=F.col("label"))
        return reductions.reduce(start.concat(moved), ["v"], {"label": F.min("label")})

    before = context.getPersistentRDDs().size()
    seconds, _ = timed(lambda: iterate(start, body).df.count())
    left = context.getPersistentRDDs().size() - before
    print(
        f"\n| iterate, rounds | seconds | persisted RDDs left |\n|---|---|---|\n| {length} | {seconds:.1f} | {left} |",
        flush=True,
    )


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--scale", type=int, nargs="*", default=[14, 17])
    asked.add_argument("--changes", type=int, default=1000)
    asked.add_argument("--runs", type=int, default=2000)
    asked.add_argument("--skip", nargs="*", default=[])
    given = asked.parse_args()
    spark = start_session("local[2]")
    if "plans" not in given.skip:
        plans(spark)
    if "iteration" not in given.skip:
        iteration(spark, 30)
    if "keys" not in given.skip:
        many_keys(spark, 500_000)
        hot_keys(spark, given.runs)
    print("\n| edges | query | what | rows | seconds |\n|---|---|---|---|---|")
    for scale in given.scale:
        queries(spark, scale, given.changes, given.skip)
    if "stage" not in given.skip:
        print("\n| edges | changed triangles by | seconds |\n|---|---|---|")
        for scale in given.scale:
            beside_the_stage(spark, scale, given.changes)


if __name__ == "__main__":
    main()
