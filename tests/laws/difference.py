"""What `diff` says of two states, compared at every epoch with what a reader of either sees, recomputed."""

from __future__ import annotations

from collections import Counter
from typing import Any

from altneu.pipeline.reading.revision_diff import DiffSide, RevisionDiff
from altneu.pipeline.run import approval_numbers
from altneu.pipeline.state.records import RunRecord
from tests import reference
from tests.laws.world import LawWorld

Landed = dict[int, list[Any]]
NAMES = ("edges", "vertices", "max_trussness")


def side_of(world: LawWorld, revision: int) -> DiffSide:
    return DiffSide(world.ledger, world.ledger.revisions.get(revision))


def side_of_base(world: LawWorld, run: RunRecord) -> DiffSide:
    """What a run builds on."""
    return DiffSide(world.ledger, world.ledger.runs.get_parent(run))


def side_of_run(world: LawWorld, run: RunRecord) -> DiffSide:
    """What a run that is not published would show."""
    return DiffSide(world.ledger, approval_numbers.unpublished_revision(world.ledger, run), run)


def recompute(landed: Landed, frontier: int | None, epoch: int, live_for: int | None) -> dict[str, dict[Any, Any]]:
    """What a reader sees at an epoch, or after the frontier at that."""
    if frontier is None:
        return {"edges": {}, "vertices": {}}
    graph = reference.edges(landed, min(epoch, frontier), live_for)
    degrees = Counter(end for edge in graph for end in edge)
    corners = Counter(v for triangle in reference.triangles(graph) for v in triangle)
    return {"edges": reference.trussness(graph), "vertices": {v: (n, corners[v]) for v, n in degrees.items()}}


def count_state(state: dict[str, dict[Any, Any]]) -> dict[str, int]:
    most = max(state["edges"].values(), default=0)
    return {"edges": len(state["edges"]), "vertices": len(state["vertices"]), "max_trussness": most}


def differing(one: dict[Any, Any], two: dict[Any, Any], none: Any) -> dict[Any, Any]:
    pairs = {key: (one.get(key, none), two.get(key, none)) for key in {**one, **two}}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def assert_difference(world: LawWorld, before: DiffSide, after: DiffSide, landed: tuple[Landed, Landed]) -> None:
    """`landed`: the batches of either side."""
    found = RevisionDiff(before, after)
    rows = {
        view: [row.asDict() for row in found.select_rows(world.spark, view).collect()] for view in ("edges", "vertices")
    }
    totals, last = found.to_document()["totals"], found.last_epoch
    assert last is not None
    for epoch in range(found.first_epoch or 0, last + 1):
        where = (world.seed, epoch, before.name, after.name)
        was, now = (
            recompute(batches, side.row.frontier, epoch, world.live_for)
            for batches, side in zip(landed, (before, after), strict=True)
        )
        here = [row for row in rows["edges"] if row["first"] <= epoch <= row["last"]]
        edges = {(row["src"], row["dst"]): (row["trussness_before"], row["trussness"]) for row in here}
        assert edges == differing(was["edges"], now["edges"], 0), where
        assert len(here) == len(edges)
        vertices = {
            row["vertex"]: ((row["degree_before"], row["triangles_before"]), (row["degree"], row["triangles"]))
            for row in rows["vertices"]
            if row["first"] <= epoch <= row["last"]
        }
        assert vertices == differing(was["vertices"], now["vertices"], (0, 0)), where
        spans = [each for each in totals if int(each["first"]) <= epoch <= int(each["last"])]
        for name in NAMES:
            wanted = count_state(was)[name], count_state(now)[name]
            pair = (spans[0][name]["before"], spans[0][name]["after"]) if spans else (0, 0)
            assert pair == wanted if spans else wanted[0] == wanted[1], (*where, name)
    assert all(row["first"] <= row["last"] <= last for row in rows["edges"])
    ends = [row for row in rows["edges"] if row["last"] == last]
    for each in found.truss_movements(found.select_rows(world.spark, "edges")):
        k = each["k"]
        assert each["entered"] == sum(row["trussness_before"] < k <= row["trussness"] for row in ends)
        assert each["left"] == sum(row["trussness"] < k <= row["trussness_before"] for row in ends)
