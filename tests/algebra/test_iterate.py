"""iterate: at EVERY outer time the fixpoint from scratch; outer times are epoch × revision, so epochs arrive late.

Edges come, go and come back (tests/algebra/reference.py draws an indicator per edge on a grid of times). Every graph
of a test is a case of one run. Also here: the naive delta join inside iterate is wrong, and ours is right.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from itertools import combinations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from altneu.algorithms.algebra import incremental, joins, linear
from altneu.algorithms.algebra import reduce as reductions
from altneu.algorithms.algebra.calculus import delta_join
from altneu.algorithms.algebra.collection import Collection
from altneu.algorithms.algebra.delta_query import delta_query
from altneu.algorithms.algebra.incremental import Change
from altneu.algorithms.algebra.iterate import PARTS, NotConverged, iterate, nested, round_changes, rounds, semi_naive
from altneu.algorithms.algebra.query import Query
from altneu.algorithms.algebra.time_lattice import EPOCH, EPOCH_REVISION, AltNeu, Lattice
from tests import seeds
from tests.algebra.reference import (
    assert_same,
    closure,
    collected,
    contents,
    differences,
    expected,
    frame,
    mismatch,
    random_sets,
)

SEED, CASES, VERTICES = seeds.one(61), 16, 6
PAIRS = list(combinations(range(VERTICES), 2))


def graphs(
    seed: int, edges: int, time: Lattice = EPOCH_REVISION, most: int = 3, high: int = 3, present: float = 0.6
) -> list:
    rng = random.Random(seed)
    return [random_sets(rng, time, rng.sample(PAIRS, edges), most, high, present) for _ in range(CASES)]


def both_ways(edges: Collection) -> Collection:
    """(case, a, b) in both directions."""
    turned = linear.map(edges, case=F.col("case"), a=F.col("b"), b=F.col("a"))
    return edges.concat(turned)


def constant(spark: SparkSession, names: list[str], rows: list[tuple], time: Lattice) -> Collection:
    """Records that are there from the beginning, in every case."""
    triples = [(row, time.minimum(), 1) for row in rows]
    return frame(spark, [triples] * CASES, names, time)


def neighbours(e: Counter) -> dict[int, set[int]]:
    out: dict[int, set[int]] = {v: set() for v in range(VERTICES)}
    for a, b in e:
        out[a].add(b)
        out[b].add(a)
    return out


def reached(e: Counter) -> set[int]:
    """From vertex 0 along the edges' direction, by a plain search."""
    seen, todo = {0}, [0]
    while todo:
        v = todo.pop()
        for a, b in e:
            if a == v and b not in seen:
                seen.add(b)
                todo.append(b)
    return seen


def components(e: Counter) -> Counter:
    near, label = neighbours(e), {v: v for v in range(VERTICES)}
    while True:
        after = {v: min([label[v], *[label[w] for w in near[v]]]) for v in label}
        if after == label:
            return Counter({(v, n): 1 for v, n in label.items()})
        label = after


def core(e: Counter, k: int) -> Counter:
    left = set(e)
    while weak := {(a, b) for a, b in left if any(sum(v in x for x in left) < k for v in (a, b))}:
        left -= weak
    return Counter({x: 1 for x in left})


def support(left: set, a: int, b: int) -> int:
    near = neighbours(Counter(left))
    return len(near[a] & near[b])


def truss(e: Counter, k: int) -> Counter:
    left = set(e)
    while weak := {x for x in left if support(left, *x) < k - 2}:
        left -= weak
    return Counter({x: 1 for x in left})


def triangles_of(e: Counter) -> Counter:
    return Counter({(a, b, c): 1 for a, b, c in combinations(range(VERTICES), 3) if {(a, b), (a, c), (b, c)} <= set(e)})


def by_joins(x: Collection) -> Collection:
    ab, ac, bc = x, x.rename({"b": "c"}), x.rename({"a": "b", "b": "c"})
    return joins.join(joins.join(ab, ac), bc)


def by_delta_query(x: Collection) -> Collection:
    return delta_query(Query.from_text("x(case,a,b), x(case,a,c), x(case,b,c)"), {"x": x})


def by_naive_calculus(x: Collection) -> Collection:
    relations = [x, x.rename({"b": "c"}), x.rename({"a": "b", "b": "c"})]
    return delta_join(relations, inner=AltNeu(x.time))


def strong(x: Collection, k: int, find=by_joins) -> Collection:
    """The edges of x in at least k-2 triangles of x."""
    found, case = find(x), F.col("case")
    sides = [linear.map(found, case=case, a=F.col(s), b=F.col(t)) for s, t in ("ab", "ac", "bc")]
    degree = reductions.count(sides[0].concat(*sides[1:]), ["case", "a", "b"])
    return joins.semijoin(x, linear.filter(degree, f"count >= {k - 2}"), ["case", "a", "b"], right_is_set=True)


@pytest.mark.law(6)
def test_reachability_semi_naive(spark) -> None:
    cases = graphs(SEED, 7)
    edges = frame(spark, cases, ["v", "w"], EPOCH_REVISION)
    roots = constant(spark, ["v"], [(0,)], EPOCH_REVISION)
    got = semi_naive(roots, lambda x: linear.map(joins.join(x, edges), case=F.col("case"), v=F.col("w")))
    scratch = expected(
        [[[((0, 0), EPOCH_REVISION.minimum(), 1), *c] for c in cases]],
        EPOCH_REVISION,
        lambda e: Counter({(v,): 1 for v in reached(Counter({x: n for x, n in e.items() if x != (0, 0)}))}),
    )
    assert_same(collected(got), scratch, SEED)


@pytest.mark.slow
def test_connected_components(spark) -> None:
    cases = graphs(SEED + 1, 6)
    edges = both_ways(frame(spark, cases, ["a", "b"], EPOCH_REVISION))
    start = constant(spark, ["v", "label"], [(v, v) for v in range(VERTICES)], EPOCH_REVISION)

    def body(x: Collection) -> Collection:
        moved = joins.join(x.rename({"v": "a"}), edges, ["case", "a"])
        offered = linear.map(moved, case=F.col("case"), v=F.col("b"), label=F.col("label"))
        return reductions.reduce(start.concat(offered), ["case", "v"], {"label": F.min("label")})

    marker = ((0, 0), EPOCH_REVISION.minimum(), 1)  # so that the first time counts although no edge is there yet
    scratch = expected(
        [[[marker, *c] for c in cases]],
        EPOCH_REVISION,
        lambda e: components(Counter({x: n for x, n in e.items() if x != (0, 0)})),
    )
    assert_same(collected(iterate(start, body)), scratch, SEED)


@pytest.mark.slow
def test_k_core(spark) -> None:
    cases = graphs(SEED + 2, 9)
    edges = both_ways(frame(spark, cases, ["a", "b"], EPOCH_REVISION))

    def body(x: Collection) -> Collection:
        keep = linear.filter(reductions.count(x, ["case", "a"]), "count >= 2")
        there = joins.semijoin(x, keep, ["case", "a"], right_is_set=True)
        return joins.semijoin(there, keep.rename({"a": "b"}), ["case", "b"], right_is_set=True)

    got = linear.filter(iterate(edges, body), "a < b")
    assert_same(collected(got), expected([cases], EPOCH_REVISION, lambda e: core(e, 2)), SEED)


@pytest.mark.law(6)
@pytest.mark.slow
def test_k_truss(spark) -> None:
    cases = graphs(SEED + 3, 15, most=2, high=2, present=0.9)
    edges = frame(spark, cases, ["a", "b"], EPOCH_REVISION)
    got = iterate(edges, lambda x: strong(x, 4))
    assert_same(collected(got), expected([cases], EPOCH_REVISION, lambda e: truss(e, 4)), SEED)


@pytest.mark.slow
def test_k_truss_with_a_delta_query_in_the_body(spark) -> None:
    cases = graphs(SEED + 3, 15, most=2, high=2, present=0.9)
    edges = frame(spark, cases, ["a", "b"], EPOCH_REVISION)
    want = expected([cases], EPOCH_REVISION, lambda e: truss(e, 4))
    assert_same(collected(iterate(edges, lambda x: strong(x, 4, by_delta_query))), want, SEED)
    naive = collected(iterate(edges, lambda x: strong(x, 4, by_naive_calculus)))
    assert mismatch(naive, want), "the naive construction should be wrong here"


@pytest.mark.law(6)
def test_a_delta_join_inside_iterate_needs_a_total_tie_break(spark) -> None:
    """Design §2. Inside iterate times are epoch × round: partial. Seed 1's calculus loses triangles whose edges change
    at incomparable times; the total tie-break of `delta_query` gives the right triangles at every epoch and round."""
    cases = graphs(SEED + 4, 12, EPOCH, most=4, high=7)
    edges = frame(spark, cases, ["a", "b"], EPOCH)
    inner = rounds({"x": edges}, lambda xs: {"x": strong(xs["x"], 4)})["x"]
    per_case: list[list] = [[] for _ in range(CASES)]
    for (data, time), n in collected(inner).items():
        per_case[data[0]].append((data[1:], time, n))
    want = expected([per_case], nested(EPOCH), triangles_of)
    assert len({t[1] for _, t in want}) > 1, "rounds matter in this sample"
    assert_same(collected(by_delta_query(inner)), want, SEED)
    naive = collected(by_naive_calculus(inner))
    assert mismatch(naive, want)
    # What a reader sees after leaving the scope: at which epochs is the naive result wrong?
    wrong, epochs = set(), range(8)
    for case in range(CASES):
        scratch = differences(
            {
                t: triangles_of(truss(contents(cases[case], EPOCH, t), 4))
                for t in closure([(e,) for e in epochs], EPOCH)
            },
            EPOCH,
        )
        seen: Counter = Counter()
        for (data, time), n in naive.items():
            if data[0] == case:
                seen[data[1:], time[:1]] += n
        for e in epochs:
            sides = [contents(((d, t, n) for (d, t), n in x.items()), EPOCH, (e,)) for x in (seen, scratch)]
            wrong |= {(case, e)} if sides[0] != sides[1] else set()
    assert wrong, "the naive construction should show at some epoch"
    print(f"naive calculus inside iterate: wrong at {len(wrong)} of {CASES * len(epochs)} epochs")


@pytest.mark.slow
def test_mutual_recursion(spark) -> None:
    """Vertices at an even and at an odd number of steps from 0, each defined by the other."""
    cases = graphs(SEED + 5, 7)
    edges = frame(spark, cases, ["v", "w"], EPOCH_REVISION)
    roots = constant(spark, ["v"], [(0,)], EPOCH_REVISION)
    none = linear.filter(roots, F.lit(False))

    def along(x: Collection) -> Collection:
        return linear.map(joins.join(x, edges), case=F.col("case"), v=F.col("w"))

    def body(xs: dict[str, Collection]) -> dict[str, Collection]:
        even = reductions.distinct(roots.concat(along(xs["odd"])))
        return {"even": even, "odd": reductions.distinct(along(xs["even"]))}

    got = iterate({"even": roots, "odd": none}, body)

    def parity(e: Counter, odd: bool) -> Counter:
        seen, todo = {(0, False)}, [(0, False)]
        while todo:
            v, p = todo.pop()
            fresh = {(b, not p) for a, b in e if a == v} - seen
            seen |= fresh
            todo += fresh
        return Counter({(v,): 1 for v, p in seen if p == odd})

    assert_same(collected(got["odd"]), expected([cases], EPOCH_REVISION, lambda e: parity(e, True)), SEED)


def test_a_toggle_is_a_clear_error(spark) -> None:
    """p :- not p has no fixpoint."""
    p = constant(spark, ["v"], [(0,)], EPOCH)
    with pytest.raises(NotConverged, match="still changed after 3 rounds: the body has no fixpoint"):
        iterate(p, lambda x: p.minus(x), limit=3)


@pytest.mark.slow
@pytest.mark.parametrize("since", [2, 3])
def test_the_rounds_of_the_outer_times_before_are_taken_up(spark, since: int) -> None:
    """Revision by revision, with deletions: the rounds, and so the fixpoints, are those of one call over all of it."""
    cases = graphs(SEED + 6, 7)
    every = frame(spark, cases, ["v", "w"], EPOCH_REVISION)
    roots = constant(spark, ["v"], [(0,)], EPOCH_REVISION)
    none = Collection(roots.df.limit(0), roots.time)

    def edges(low: int, high: int) -> Collection:
        return Collection(every.df.where(F.col("revision").between(low, high)), every.time)

    def whole(known: Collection) -> Callable[[dict[str, Collection]], dict[str, Collection]]:
        moved = lambda x: linear.map(joins.join(x, known), case=F.col("case"), v=F.col("w"))  # noqa: E731
        return lambda xs: {"x": reductions.distinct(roots.concat(moved(xs["x"])))}

    def change(known: Change) -> Callable[[dict[str, Change]], dict[str, Change]]:
        def body(xs: dict[str, Change]) -> dict[str, Change]:
            moved = incremental.join(xs["x"], known)
            moved = moved.through(lambda c: linear.map(c, case=F.col("case"), v=F.col("w")))
            return {"x": incremental.distinct(Change(roots, none).concat(moved))}

        return body

    trace = rounds({"x": roots}, whole(edges(0, since - 1)))
    for revision in range(since, 4):
        more = round_changes(trace, {"x": none}, change(Change(edges(0, revision - 1), edges(revision, revision))))
        assert {t[1] for _, t in collected(more["x"])} == {revision}, "nothing is said of the outer times before"
        trace = {"x": trace["x"].concat(more["x"])}
    assert_same(collected(trace["x"]), collected(rounds({"x": roots}, whole(every))["x"]), SEED)


def test_only_changes_go_through_the_rounds_that_are_taken_up(spark) -> None:
    """One more edge behind a long path: each round gets at most the one vertex that it brings."""
    known, root = path(spark, 3)
    none = Collection(root.df.limit(0), EPOCH)
    new = Collection(spark.createDataFrame([(2, 99, 5, 1)], "v long, w long, epoch long, diff long"), EPOCH)
    seen: list[int] = []

    def body(xs: dict[str, Change]) -> dict[str, Change]:
        seen.append(xs["x"].delta.df.count())
        moved = incremental.join(xs["x"], Change(known, new)).through(lambda c: linear.map(c, v=F.col("w")))
        return {"x": incremental.distinct(Change(root, none).concat(moved))}

    step = lambda x: linear.map(joins.join(x, known), v=F.col("w"))  # noqa: E731
    trace = rounds({"x": root}, lambda xs: {"x": reductions.distinct(root.concat(step(xs["x"])))})
    more = round_changes(trace, {"x": none}, body)
    assert collected(more["x"].leave(EPOCH)) == Counter({((99,), (5,)): 1})
    assert len(seen) == 4 and max(seen) == 1


def persisted(spark: SparkSession) -> int:
    return spark.sparkContext._jsc.getPersistentRDDs().size()


def path(spark: SparkSession, length: int) -> tuple[Collection, Collection]:
    """The edges of a path 0, 1, …, length, and the root 0."""
    edges = spark.createDataFrame([(v, v + 1, 0, 1) for v in range(length)], "v long, w long, epoch long, diff long")
    root = spark.createDataFrame([(0, 0, 1)], "v long, epoch long, diff long")
    return Collection(edges, EPOCH), Collection(root, EPOCH)


Body, Step = Callable[[Collection], Collection], Callable[[Collection], Collection]
LOOPS: dict[str, tuple[Callable[[Collection, Body, Step], object], int]] = {  # how, and the frames that are left
    "iterate": (lambda root, body, step: iterate(root, body), 1),
    "two of them": (
        lambda root, body, step: iterate({"x": root, "y": root}, lambda xs: {"x": body(xs["y"]), "y": body(xs["x"])}),
        2,
    ),
    "semi-naive": (lambda root, body, step: semi_naive(root, step), 1),
    "rounds": (lambda root, body, step: rounds({"x": root}, lambda xs: {"x": body(xs["x"])}), 1 + PARTS),
    "iterate, too few": (lambda root, body, step: iterate(root, body, limit=3), 0),
    "semi-naive, too few": (lambda root, body, step: semi_naive(root, step, limit=3), 0),
    "rounds, too few": (lambda root, body, step: rounds({"x": root}, lambda xs: {"x": body(xs["x"])}, limit=3), 0),
}
ALWAYS = {"rounds, too few"}


@pytest.mark.parametrize("how", [pytest.param(n, marks=[] if n in ALWAYS else [pytest.mark.slow]) for n in LOOPS])
def test_rounds_are_let_go_and_no_more_than_the_result_is_left(spark, how: str) -> None:
    """A call leaves a frame for each collection of its result; one that fails leaves none."""
    edges, root = path(spark, 10)
    held = []

    def step(x: Collection) -> Collection:
        held.append(persisted(spark))
        return linear.map(joins.join(x, edges), v=F.col("w"))

    def body(x: Collection) -> Collection:
        return reductions.distinct(root.concat(step(x)))

    loop, most = LOOPS[how]
    before, found = persisted(spark), None  # kept, else what is left may be gone before it is counted
    with contextlib.nullcontext() if most else pytest.raises(NotConverged):
        found = loop(root, body, step)
    assert persisted(spark) - before <= most
    assert max(held) - before <= 4 + PARTS, "while it runs, too"
    if isinstance(found, Collection):
        assert collected(found) == Counter({((v,), (0,)): 1 for v in range(11)})


@pytest.mark.parametrize(
    "times", [pytest.param(0, marks=pytest.mark.slow), 4, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 20))]
)
def test_exactly_so_many_rounds(spark, times: int) -> None:
    """Walks of a given length: the body has no fixpoint, and is not asked for one."""
    edges, root = path(spark, 8)
    walk = lambda x: linear.map(joins.join(x, edges), v=F.col("w"))  # noqa: E731
    assert collected(iterate(root, walk, exactly=times)) == Counter({((times,), (0,)): 1} if times <= 8 else {})


def test_less_than_no_round_is_refused(spark) -> None:
    _, root = path(spark, 1)
    with pytest.raises(ValueError, match="exactly must be at least 0; got -1"):
        iterate(root, lambda x: x, exactly=-1)
    with pytest.raises(ValueError, match="cannot add data"):
        iterate(root, lambda x: x.rename({"v": "w"}))
