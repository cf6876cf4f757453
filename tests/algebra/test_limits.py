"""Names, words, limits and the ends of the integers: what has no answer is refused in words, and nothing is lost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from altneu.algorithms.algebra import dbsp, joins, linear
from altneu.algorithms.algebra import reduce as reductions
from altneu.algorithms.algebra.collection import Collection
from altneu.algorithms.algebra.delta_query import delta_query
from altneu.algorithms.algebra.iterate import NotConverged, iterate, semi_naive
from altneu.algorithms.algebra.query import Atom, Query
from altneu.algorithms.algebra.time_lattice import EPOCH, EPOCH_REVISION, FOREVER, REVISION
from altneu.algorithms.algebra.upserts import to_triples, to_upserts, upsert_lives
from altneu.algorithms.graph.motif_patterns import parse_motif
from altneu.algorithms.graph.motifs import motif_changes_in_joins
from tests import seeds
from tests.algebra.reference import Contents, collected, contents, frame, random_sets, random_triples

UPSERTS = "k long, v long, op string, seq long, epoch long"


def triples(spark: SparkSession, rows: list[tuple], names: str = "a long, b long") -> Collection:
    return Collection(spark.createDataFrame(rows, f"{names}, epoch long, diff long"), EPOCH)


def held(at: Contents) -> str | None:
    """What an upsert can say of these contents of one key: its value, None for nothing, or `conflict`."""
    if any(n != 1 for n in at.values()) or len(at) > 1:
        return "conflict"
    return next((str(v) for (v,) in at), None)


def test_conflicts_are_seen_behind_negative_records(spark) -> None:
    """At every epoch: an upsert is the one value there is, and whatever else the contents are is a conflict."""
    chosen = seeds.one(71)
    rng = random.Random(chosen)
    cases = [random_triples(rng, EPOCH, [3]) for _ in range(150)]
    cases += [random_sets(rng, EPOCH, [(v,)], 4) for v in range(3) for _ in range(20)]
    cases = [[(data, (epoch - 2,), n) for data, (epoch,), n in case] for case in cases]
    rows = to_upserts(frame(spark, cases, ["v"], EPOCH), ["case"], ["v"]).collect()
    got = {(r["case"], r["epoch"]): r for r in rows}
    assert len(got) == len(rows)
    seen: Counter = Counter()
    for number, case in enumerate(cases):
        before: str | None = None
        for epoch in range(-2, 2):
            after, row = held(contents(case, EPOCH, (epoch,))), got.pop((number, epoch), None)
            where = f"seed {chosen}, case {number}, epoch {epoch}"
            if after == "conflict":
                assert row is None or row.op == "conflict", where
                assert row is not None or before == "conflict", where
            elif before != "conflict":
                assert (row is not None) == (after != before), where
                assert row is None or (row.op, row.v) == (("delete", None) if after is None else ("upsert", int(after)))
            seen[row.op if row else "none"] += 1
            before = after
    assert not got and min(seen[op] for op in ("upsert", "delete", "conflict", "none")) > 5, seen


BAD_ROWS = {
    "op must be 'upsert' or 'delete', got Delete": (1, 5, "Delete", 0, 3),
    "op must be 'upsert' or 'delete', got null": (1, 5, None, 0, 3),
    "an epoch is an integer below 9223372036854775807, got 9223372036854775807": (1, 5, "upsert", 0, FOREVER),
    "an epoch is an integer below 9223372036854775807, got null": (1, 5, "upsert", 0, None),
}


@pytest.mark.parametrize("words", BAD_ROWS)
def test_upserts_that_mean_nothing_fail_the_job_in_words(spark, words: str) -> None:
    rows = spark.createDataFrame([(1, 4, "upsert", 0, 2), BAD_ROWS[words]], UPSERTS)
    with pytest.raises(PySparkException, match=words):
        to_triples(rows, ["k"], ["v"]).df.collect()


def test_lives_at_both_ends_of_the_integers(spark) -> None:
    first, last = -FOREVER - 1, FOREVER - 1
    rows = [(1, 5, "upsert", 0, first), (2, 5, "upsert", 0, last), (3, 5, "upsert", 0, last - 3)]
    found = upsert_lives(spark.createDataFrame(rows, UPSERTS), ["k"], ["v"], live_for=3)
    got = {(r.k, r.epoch, r.until) for r in found.collect()}
    assert got == {(1, first, first + 3), (2, last, FOREVER), (3, last - 3, last)}


def test_a_stream_has_the_ticks_of_its_clock_only(spark) -> None:
    rows = [("a", 0, 1), ("a", 2, 2), ("b", 7, 1)]
    changes = triples(spark, rows, "x string")
    ticks = {(r.x, r.tick, r.diff) for r in dbsp.integrate(dbsp.from_collection(changes, 4)).df.collect()}
    assert ticks == {("a", 0, 1), ("a", 1, 1), ("a", 2, 3), ("a", 3, 3)}
    beyond = dbsp.Stream(changes.df.withColumnRenamed("epoch", "tick"), 4)
    before = dbsp.from_collection(triples(spark, [("a", -1, 1)], "x string"), 4)
    with pytest.raises(PySparkException, match="tick 7 is not on the clock 0 … 3"):
        dbsp.integrate(beyond).df.collect()
    with pytest.raises(PySparkException, match="tick -1 is not on the clock"):
        before.df.collect()


def test_a_limit_is_the_number_of_rounds_that_change_something(spark) -> None:
    """1 leads to 2, to 3, and that to 1 again: two rounds reach all, and a third finds nothing new."""
    root = triples(spark, [(1, 0, 1)], "x long")

    def step(x: Collection) -> Collection:
        return linear.map(x, x=F.col("x") % 3 + 1)

    def body(x: Collection) -> Collection:
        return reductions.distinct(root.concat(step(x)))

    everyone = Counter({((v,), (0,)): 1 for v in (1, 2, 3)})
    assert collected(iterate(root, body, limit=2)) == everyone
    assert collected(semi_naive(root, step, limit=2)) == everyone
    with pytest.raises(NotConverged, match="after 1 rounds"):
        iterate(root, body, limit=1)
    with pytest.raises(NotConverged, match="after 1 rounds"):
        semi_naive(root, step, limit=1)


NOT_LINEAR: dict[str, Callable[[Collection], Collection]] = {
    "joined with itself": lambda x: linear.map(
        joins.join(x.rename({"b": "c"}), x.rename({"a": "c"})), a=F.col("a"), b=F.col("b")
    ),
    "distinct": lambda x: reductions.distinct(linear.map(x, a=F.lit(9), b=F.col("b") - F.col("b"))),
}


@pytest.mark.parametrize(
    "name",
    [name if name == "joined with itself" else pytest.param(name, marks=pytest.mark.slow) for name in NOT_LINEAR],
)
def test_a_step_that_shows_that_it_is_not_linear_is_refused(spark, name: str) -> None:
    path = triples(spark, [(1, 2, 0, 1), (2, 3, 0, 1), (3, 4, 0, 1)])
    with pytest.raises(ValueError, match="not linear"):
        semi_naive(path, NOT_LINEAR[name])


def test_compacted_contents_are_not_asked_for_from_before(spark) -> None:
    rows = spark.createDataFrame([(1, 0, 0, 1), (1, 5, 2, 1)], "x long, epoch long, revision long, diff long")
    small = Collection(rows).compact((3, 1))
    joined = joins.join(small, linear.map(small, x=F.col("x")).rename({"x": "x"}).compact((0, 4)))
    assert joined.since == (3, 4)
    for made in (small, linear.filter(small, "x > 0").consolidate(), reductions.distinct(small), small.minus(small)):
        made.as_of(3, 1)
        for time in ((2, 9), (9, 0)):
            with pytest.raises(ValueError, match="known from"):
                made.as_of(*time)
        with pytest.raises(ValueError, match="known from"):
            made.changes((0, 0), (4, 4))
    with pytest.raises(ValueError, match="known from"):
        small.at(revision=0)
    assert small.at(revision=2).since == (3,)
    with pytest.raises(ValueError, match="known from"):
        small.at(revision=2).as_of(2)


def test_names_that_spark_would_take_for_one_are_refused(spark) -> None:
    edges = triples(spark, [(1, 2, 0, 1)])
    with pytest.raises(ValueError, match="a, A have the same name"):
        edges.rename({"b": "A"})
    with pytest.raises(ValueError, match="b, b have the same name"):
        edges.rename({"a": "b"})
    with pytest.raises(ValueError, match="Epoch, epoch have the same name"):
        edges.rename({"a": "Epoch"})
    with pytest.raises(ValueError, match="names that begin with _ are reserved for operators"):
        edges.rename({"a": "_a"})
    with pytest.raises(ValueError, match=r"\['Revision'\] have names of times of the scope"):
        edges.rename({"a": "Revision"}).enter(EPOCH_REVISION)
    with pytest.raises(ValueError, match="are names of times or of the diff"):
        linear.map(edges, Diff=F.col("a"))
    for clash in (
        lambda: reductions.count(edges, ["a"], name="A"),
        lambda: reductions.count(edges, ["a"], name="epoch"),
        lambda: reductions.reduce(edges, ["a"], {"diff": F.max("b")}),
    ):
        with pytest.raises(ValueError, match="twice: give the result another name"):
            clash()
    with pytest.raises(ValueError, match="rename the variable epoch at column 5: a time"):
        delta_query(Query.from_text("e(a,epoch), a<epoch"), {"e": edges})
    with pytest.raises(ValueError, match="rename the variable A: a time, diff or another"):
        delta_query(Query((Atom("e", ("a", "b")), Atom("e", ("b", "A")))), {"e": edges})


def test_what_is_there_from_the_beginning_is_there_before_epoch_0(spark) -> None:
    known = Collection(spark.createDataFrame([(1, 3, 1)], "x long, revision long, diff long"), REVISION)
    assert [tuple(r) for r in known.enter(EPOCH_REVISION).as_of(-5, 3).collect()] == [(1, 1)]


def test_vertices_of_motifs_may_have_any_name(spark) -> None:
    rows = spark.createDataFrame([], "relation string, a long, b long, epoch long, until long, diff long")
    counted = motif_changes_in_joins({"m": parse_motif("epoch-diff, diff-Diff, Diff-revision")}, None, rows)
    assert counted.columns == ["motif", "vertex", "epoch", "diff"]
