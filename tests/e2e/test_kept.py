"""The graph that a run keeps for the next: whatever became of its files, every epoch's trussness is right, and a run
uses them just when they are there and true. In the default tier `tests/kernels/test_warm.py` damages the files, and
`tests/truss/test_region_in_spark.py` goes on from whole ones."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from altneu.pipeline.maintenance import rollback
from altneu.pipeline.maintenance.compact import compact
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.stage_results import TrianglesFacts, TrussFacts
from altneu.pipeline.storage import graph_cache
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers, reference, seeds
from tests.builders import Batch, draw_batch

pytestmark = pytest.mark.usefixtures("tiny", "unaudited")

History = dict[int, list[reference.Row]]


def draw_changes(rng: random.Random, size: int = 40) -> Batch:
    """Draw changes of a graph of a dozen vertices, of which some are in no other batch."""
    return draw_batch(rng, [*range(12), rng.randrange(100, 200)], size, deletes=1 / 3, loops=False)


def check(spark: SparkSession, ledger: Ledger, history: History, live_for: int | None) -> None:
    """The stored trussness and triangle counts at every epoch up to the frontier."""
    row = ledger.revisions.require_published()
    assert row.frontier is not None
    found, counts = (
        Warehouse(spark, ledger.home).read_table(table, row).collect() for table in ("trussness", "triangle_counts")
    )
    for epoch in range(min(history), row.frontier + 1):
        state: dict[tuple[int, int, int], int] = {}
        for r in found:
            if r.epoch <= epoch:
                state[r.a, r.b, r.k] = state.get((r.a, r.b, r.k), 0) + r.diff
        expected = reference.trussness(reference.edges(history, epoch, live_for))
        assert {key: n for key, n in state.items() if n} == {(*e, k): 1 for e, k in expected.items()}, epoch
        triangles: Counter[int] = Counter()
        for r in counts:
            triangles[r.vertex] += r.diff if r.epoch <= epoch else 0
        corners = reference.triangles(reference.edges(history, epoch, live_for))
        wanted = Counter(v for each in corners for v in each)
        assert triangles == wanted, epoch  # a vertex without triangles is equal to none


def plan(ledger: Ledger) -> str | None:
    return ledger.stages.get_facts(ledger.revisions.require_published().run_id, TrussFacts).plan


def triangle_plan(ledger: Ledger) -> str | None:
    return ledger.stages.get_facts(ledger.revisions.require_published().run_id, TrianglesFacts).plan


def damage(ledger: Ledger, how: str) -> None:
    home = ledger.home
    key = graph_cache.cached_graph_key(ledger, ledger.revisions.require_published())
    assert key is not None
    here = graph_cache.cache_folder(home) / key
    assert here.is_dir()
    if how == "absent":
        shutil.rmtree(graph_cache.cache_folder(home))
    elif how == "truncated":
        with open(here / "edge.npy", "r+b") as file:
            file.truncate(200)
    elif how == "stale":  # the graph of the revision before, under the name of the newest
        rows = [row for row in ledger.revisions.list_all() if row.frontier is not None]
        older = graph_cache.cached_graph_key(ledger, rows[-2])
        assert older is not None
        shutil.rmtree(here)
        shutil.copytree(graph_cache.cache_folder(home) / older, here)
    elif how == "on another machine":
        (graph_cache.cache_folder(home) / "here").write_text("somewhere else")
    elif how == "no folder can be made":
        shutil.rmtree(graph_cache.cache_folder(home))
        graph_cache.cache_folder(home).touch()


# what becomes of the files, the epochs that land then, and how the run begins
STEPS = [
    ("kept", [2, 3], "resume"),  # a correction, and a new one
    ("absent", [4], "replay"),
    ("kept", [1, 5], "resume"),  # late and new
    ("truncated", [6], "replay"),
    ("stale", [7], "replay"),
    ("on another machine", [8], "resume"),  # what this machine says now is the truth
    ("kept", [8], "resume"),
    ("no folder can be made", [9], "replay"),
    ("no folder yet", [10], "replay"),
    ("kept", [11], "resume"),
]


@pytest.mark.slow
@pytest.mark.parametrize("live_for", [None, 3])
def test_every_epoch_is_right_whatever_became_of_the_files(
    tmp_path: Path, spark: SparkSession, live_for: int | None
) -> None:
    rng = random.Random(seeds.one(11))
    window = f"[edges]\nlive_for = {live_for}\n" if live_for else ""
    home, ledger = home_helpers.make(tmp_path / "home", '[triangles]\nplan = "resume"\n' + window)
    history: History = {epoch: draw_changes(rng, 80) for epoch in (1, 2)}
    for epoch, batch in history.items():
        home_helpers.put(home, epoch, batch)
    home_helpers.run(ledger, [1, 2])
    assert plan(ledger) == "replay"
    for how, epochs, expected in STEPS:
        if how not in ("kept", "no folder yet"):
            damage(ledger, how)
        for epoch in epochs:
            history[epoch] = draw_changes(rng)
            home_helpers.put(home, epoch, history[epoch])
        home_helpers.run(ledger, epochs)
        assert plan(ledger) == expected, (how, epochs)
        assert (triangle_plan(ledger) == "resume") == (expected == "resume" and live_for is None), (how, epochs)
        if how == "no folder can be made":
            graph_cache.cache_folder(home).unlink()
            continue
        check(spark, ledger, history, live_for)
        there = {path.name for path in graph_cache.cache_folder(home).iterdir()} - {"here"}
        assert len(there) <= 2 and graph_cache.cached_graph_key(ledger, ledger.revisions.require_published()) in there


@pytest.mark.slow
def test_rollback_compaction_and_a_moved_home(tmp_path: Path, spark: SparkSession) -> None:
    rng = random.Random(seeds.one(12))
    home, ledger = home_helpers.make(tmp_path / "home", "[retention]\nepochs = 2\n")
    history: History = {}
    for epochs in ((1, 2, 3), (4,)):
        for epoch in epochs:
            history[epoch] = draw_changes(rng, 60)
            home_helpers.put(home, epoch, history[epoch])
        home_helpers.run(ledger, epochs)
    compact(ledger, spark, grace=0)
    history[5] = draw_changes(rng)
    home_helpers.put(home, 5, history[5])
    home_helpers.run(ledger, [5])
    assert plan(ledger) == "resume"  # the same contents, in other snapshots
    rollback.roll_back(ledger, 2)
    history[5] = draw_changes(rng)
    home_helpers.put(home, 5, history[5])
    home_helpers.run(ledger, [5])
    assert plan(ledger) == "resume"  # from what the run of revision 2 has left
    found = Warehouse(spark, home).read_table("trussness", ledger.revisions.require_published()).collect()
    for epoch in (3, 4, 5):
        state: dict[tuple[int, int, int], int] = {}
        for r in found:
            if r.epoch <= epoch:
                state[r.a, r.b, r.k] = state.get((r.a, r.b, r.k), 0) + r.diff
        expected = reference.trussness(reference.edges(history, epoch))
        assert {key: n for key, n in state.items() if n} == {(*e, k): 1 for e, k in expected.items()}, epoch
