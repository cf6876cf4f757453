"""What Spark plans: linear chains fuse into one projection, reductions shuffle once, and nothing runs Python."""

from __future__ import annotations

import random
import re

import pytest
from pyspark.sql import functions as F

from altneu.algorithms.algebra import joins, linear
from altneu.algorithms.algebra import reduce as reductions
from altneu.algorithms.algebra.calculus import delta_join, differentiate, integrate
from altneu.algorithms.algebra.collection import Collection
from altneu.algorithms.algebra.delta_query import delta_query
from altneu.algorithms.algebra.query import Query
from altneu.algorithms.algebra.time_lattice import EPOCH, EPOCH_REVISION
from tests import seeds
from tests.algebra.reference import exchanges, frame, no_python, plan, random_triples


@pytest.fixture
def records(spark) -> Collection:
    rng = random.Random(seeds.one(71))
    return frame(spark, [random_triples(rng, EPOCH_REVISION, [3, 3]) for _ in range(3)], ["k", "x"], EPOCH_REVISION)


def nodes(collection: Collection, name: str) -> int:
    return len(re.findall(rf"\b{name}\b \[|\b{name} \(", plan(collection.df)))


def test_a_chain_of_linear_operators_is_one_projection(records) -> None:
    chain = linear.map(records, case=F.col("case"), k=F.col("k"), y=F.col("x") * 2)
    chain = linear.filter(linear.filter(chain, "y > 1"), F.col("k") < 2)
    chain = linear.map(chain, case=F.col("case"), z=F.col("y") + F.col("k")).negate()
    chain = linear.join_function(chain, [linear.Update({"z": F.col("z")}, {"epoch": F.lit(3)}, -2)])
    chain = chain.delay({"epoch": F.col("epoch") + 1})
    assert nodes(chain, "Project") == 1 and plan(chain.df).count("Filter") == 1 and exchanges(chain.df) == 0
    assert no_python(chain.df)


def test_operators_with_several_updates_do_not_shuffle(records) -> None:
    spread = [
        linear.temporal_filter(records, F.col("k"), F.col("x")),
        linear.flat_map(records, F.array("k", "x"), "v"),
        linear.explode(records, F.array(F.struct("k", "x")), "v"),
        integrate(differentiate(records, "revision"), EPOCH_REVISION),
    ]
    for c in spread:
        assert exchanges(c.df) == 0 and no_python(c.df)


@pytest.mark.parametrize("name", ["reduce", "count", "distinct", "threshold"])
def test_reductions_shuffle_once(records, name: str) -> None:
    by_name = {
        "reduce": lambda: reductions.reduce(records, ["case", "k"], {"low": F.min("x")}),
        "count": lambda: reductions.count(records, ["case", "k"]),
        "distinct": lambda: reductions.distinct(records),
        "threshold": lambda: reductions.threshold(records, lambda m: m * 2),
    }
    out = by_name[name]()
    assert exchanges(out.df) == 1 and no_python(out.df)


def test_joins_shuffle_each_side_once_and_run_no_python(spark, records) -> None:
    before = spark.conf.get("spark.sql.autoBroadcastJoinThreshold")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        right = records.rename({"x": "y"})
        both = joins.join(records, right)
        assert exchanges(both.df) == 2 and no_python(both.df)
        for out in (joins.semijoin(records, right, ["case", "k"]), joins.antijoin(records, right, ["case", "k"])):
            assert no_python(out.df)
    finally:
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", before)


def test_delta_joins_start_from_the_changes_and_never_join_two_whole_relations(spark) -> None:
    """State is the edges only: in every rule the left side of each join is derived from the changes of one revision."""
    edges = Collection(spark.createDataFrame([(1, 2, 0, 1)], "a long, b long, epoch long, diff long"), EPOCH)
    relations = [edges, edges.rename({"b": "c"}), edges.rename({"a": "b", "b": "c"})]
    text = plan(delta_join(relations, only=F.col("epoch") == 7).df)
    assert text.count("(epoch#") + text.count("= 7)") >= 3 and no_python(delta_join(relations).df)
    query = delta_query(Query.from_text(QUERIES["triangle"][0]), {"e": edges}, only=F.col("epoch") == 7)
    assert "= 7)" in plan(query.df) and no_python(query.df)


QUERIES = {
    "path": ("e(a,b), e(b,c)", 2),
    "triangle": ("e(a,b), e(a,c), e(b,c)", 8),
    "4-cycle": ("e(a,b), e(b,c), e(c,d), e(a,d)", 10),
    "4-clique": ("e(a,b), e(a,c), e(a,d), e(b,c), e(b,d), e(c,d)", 20),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "4-clique" else name for name in QUERIES]
)
def test_the_rules_of_a_delta_query_share_their_exchanges(spark, name: str) -> None:
    """At most 12 for a triangle and 40 for a 4-clique were asked; with broadcast prefixes none but those that count."""
    text, most = QUERIES[name]
    edges = Collection(spark.createDataFrame([(1, 2, 0, 1)], "a long, b long, epoch long, diff long"), EPOCH)
    before = spark.conf.get("spark.sql.autoBroadcastJoinThreshold")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        shuffled = delta_query(Query.from_text(text), {"e": edges})
        assert exchanges(shuffled.df) == most and no_python(shuffled.df)
        few = delta_query(Query.from_text(text), {"e": edges}, broadcast=True)
        assert (
            exchanges(few.df) < most
            and plan(few.df).count("BroadcastHashJoin") > plan(few.df).count("SortMergeJoin") == 0
        )
    finally:
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", before)
