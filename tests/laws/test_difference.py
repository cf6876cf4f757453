"""Law 12 of `diff`: between any two states it is the difference of what a reader sees, recomputed, at every epoch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.reading.difference import Difference, Side
from pipeline.run import held, planning, rollback
from pipeline.run.compact import compact
from pipeline.state.records import RunRecord
from tests import homes, reference
from tests.laws.test_history import World

pytestmark = pytest.mark.usefixtures("tiny", "unaudited")
Landed = dict[int, list[Any]]


def truth(landed: Landed, frontier: int | None, epoch: int, live_for: int | None) -> dict[str, dict[Any, Any]]:
    """What a reader sees at an epoch, or after the frontier at that."""
    if frontier is None:
        return {"edges": {}, "vertices": {}}
    graph = reference.edges(landed, min(epoch, frontier), live_for)
    degrees = Counter(end for edge in graph for end in edge)
    corners = Counter(v for triangle in reference.triangles(graph) for v in triangle)
    return {"edges": reference.trussness(graph), "vertices": {v: (n, corners[v]) for v, n in degrees.items()}}


def other(one: dict[Any, Any], two: dict[Any, Any], none: Any) -> dict[Any, Any]:
    pairs = {key: (one.get(key, none), two.get(key, none)) for key in {**one, **two}}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def top(side: dict[str, dict[Any, Any]]) -> int:
    return max(side["edges"].values(), default=0)


def check(world: World, before: Side, after: Side, landed: tuple[Landed, Landed]) -> None:
    found = Difference(before, after)
    live = world.live_for
    rows = {view: [row.asDict() for row in found.rows(world.spark, view).collect()] for view in ("edges", "vertices")}
    totals = found.document()["totals"]
    last = found.last
    assert last is not None
    for epoch in range(found.first or 0, last + 1):
        was = truth(landed[0], before.row.frontier, epoch, live)
        now = truth(landed[1], after.row.frontier, epoch, live)
        here = [row for row in rows["edges"] if row["first"] <= epoch <= row["last"]]
        edges = {(row["src"], row["dst"]): (row["trussness_before"], row["trussness"]) for row in here}
        assert edges == other(was["edges"], now["edges"], 0), (world.seed, epoch, before.name, after.name)
        assert len(here) == len(edges)
        vertices = {
            row["vertex"]: ((row["degree_before"], row["triangles_before"]), (row["degree"], row["triangles"]))
            for row in rows["vertices"]
            if row["first"] <= epoch <= row["last"]
        }
        assert vertices == other(was["vertices"], now["vertices"], (0, 0)), (world.seed, epoch)
        spans = [each for each in totals if int(each["first"]) <= epoch <= int(each["last"])]
        counted = [
            {
                "edges": len(side["edges"]),
                "vertices": len(side["vertices"]),
                "max_trussness": max(side["edges"].values(), default=0),
            }
            for side in (was, now)
        ]
        for name in counted[0]:
            wanted = counted[0][name], counted[1][name]
            pair = (spans[0][name]["before"], spans[0][name]["after"]) if spans else (0, 0)
            assert pair == wanted if spans else wanted[0] == wanted[1], (world.seed, epoch, name)
    for row in rows["edges"]:
        assert row["first"] <= row["last"] <= last
    ends = {(row["src"], row["dst"]): row for row in rows["edges"] if row["last"] == last}
    for each in found.entered(found.rows(world.spark, "edges")):
        k = each["k"]
        assert each["entered"] == sum(row["trussness_before"] < k <= row["trussness"] for row in ends.values())
        assert each["left"] == sum(row["trussness"] < k <= row["trussness_before"] for row in ends.values())


def side(world: World, revision: int) -> Side:
    return Side(world.home, world.ledger, world.ledger.at(revision))


def staged(world: World, run: RunRecord) -> Side:
    return Side(world.home, world.ledger, held.as_published(world.ledger, run), run)


@pytest.mark.law(12)
@pytest.mark.parametrize(
    ("live_for", "short"), [(2, True), *(pytest.param(each, False, marks=pytest.mark.slow) for each in (None, 2))]
)
def test_the_difference_of_any_two_revisions(
    spark: SparkSession, tmp_path: Path, live_for: int | None, short: bool
) -> None:
    world = World(spark, tmp_path / "home", live_for=live_for, retention="[retention]\nrevisions = 4\n")
    world.deliver(0, 2)
    world.deliver(1, 4)
    for epoch in (2, 5):
        world.land(epoch)
    run = homes.hold(world.home, world.ledger, [2, 5])
    old = {revision: world.expected[revision][0] for revision in (1, 2)}
    if not short:
        check(world, side(world, 2), staged(world, run), (old[2], world.landed))
        check(world, side(world, 1), side(world, 2), (old[1], old[2]))
        check(world, side(world, 0), side(world, 2), ({}, old[2]))
    check(world, side(world, 2), side(world, 1), (old[2], old[1]))  # backwards
    compact(world.home, world.ledger, spark, grace=0)
    before = Side(world.home, world.ledger, world.ledger.parent(run))
    check(world, before, staged(world, run), (old[2], world.landed))  # its base was written again meanwhile
    held.approve(world.home, world.ledger, run, None, None)
    from pipeline.run import runner

    assert runner.publish(world.home, world.ledger, run.run_id).revision == 3
    world.published()
    rollback.rollback(world.home, world.ledger, 2)
    world.landed = {**world.expected[2][0]}
    world.published()
    world.deliver(3)
    check(world, side(world, 3), side(world, 5), (world.expected[3][0], world.landed))  # over what was taken back
    if short:
        return
    check(world, side(world, 2), side(world, 5), (old[2], world.landed))
    again = planning.plan_rebuild(world.home, world.ledger, from_landing=False)
    homes.run_as_planned(world.home, world.ledger, again)
    check(world, side(world, 5), side(world, 6), (world.landed, world.landed))  # made again: the same
    check(world, side(world, 3), side(world, 6), (world.expected[3][0], world.landed))
