"""A home with many small graphs, and what its readers should see at every revision.

A `LawWorld` remembers what was landed and which window was in force at each published revision; every revision that can
be read is compared, edge by edge and vertex by vertex, with the plain reference of what was landed then.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from altneu.pipeline.home.home import Home
from altneu.pipeline.maintenance import rollback
from altneu.pipeline.reading import epoch_changes, views
from altneu.pipeline.reading.graph import Graph
from altneu.pipeline.run import planning
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers, maintained, reference, seeds
from tests.builders import draw_batches
from tests.reference import Row

GRAPHS, EPOCHS = 6, 5
KINDS = ("edge", "trussness_of_edge", "triangles_at_vertex")


@dataclass
class LawWorld:
    """A home, and what its readers should see at every revision."""

    spark: SparkSession
    path: Path
    seed: int = field(default_factory=seeds.one)
    landed: dict[int, list[Row]] = field(default_factory=dict)
    live_for: int | None = None
    settings: str = ""  # more of altneu.toml, besides the window
    expected: dict[int, tuple[dict[int, list[Row]], int | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.path.mkdir()
        self.write_settings(self.live_for)

    def write_settings(self, live_for: int | None) -> None:
        self.live_for = live_for
        window = "" if live_for is None else f"[edges]\nlive_for = {live_for}\n"
        plan = f'[triangles]\nplan = "{self.rng.choice(["delta", "bulk", "resume"])}"\n'  # both hold the laws, and mix
        (self.path / "altneu.toml").write_text(window + self.settings + plan)
        self.reopen(self.path)

    def reopen(self, path: Path) -> None:
        """Go on with the home in a folder that it was moved to or whose settings have changed."""
        self.path, self.home = path, Home.open(path)
        self.ledger = Ledger(self.home)

    def draw_batch(self) -> list[Row]:
        return draw_batches(self.rng, GRAPHS, range(3, 7), 8, values=(None,), deletes=1 / 4)

    def land_batches(self, *several: int) -> None:
        for epoch in several:
            self.landed[epoch] = self.draw_batch()
            home_helpers.put(self.home, epoch, self.landed[epoch])

    def record_revision(self) -> None:
        """The newest revision has what is landed now, with the window of now."""
        self.expected[self.ledger.revisions.get().revision] = (copy.deepcopy(self.landed), self.live_for)

    def publish_epochs(self, *several: int) -> None:
        """Land a batch for each, and publish them as one revision."""
        self.land_batches(*several)
        home_helpers.run(self.ledger, several)
        self.record_revision()

    def roll_back(self, revision: int) -> None:
        rollback.roll_back(self.ledger, revision)
        self.expected[self.ledger.revisions.get().revision] = self.expected[revision]
        self.landed = copy.deepcopy(self.expected[revision][0])

    def rebuild(self, *, from_landing: bool) -> None:
        plan = planning.plan_rebuild(self.ledger, from_landing=from_landing)
        home_helpers.run_as_planned(self.ledger, plan)
        self.record_revision()

    def assert_same_as_reference(self, *revisions: int) -> None:
        """Every edge's trussness and every vertex's triangles, at every epoch that the revision answers for."""
        warehouse = Warehouse(self.spark, self.home)
        for revision in revisions:
            row = self.ledger.revisions.get(revision)
            landed, live_for = self.expected[revision]
            assert row.frontier is not None
            shown = list(range(row.since or 0, row.frontier + 1))
            kept = maintained.select_maintained(lambda table, row=row: warehouse.read_table(table, row), shown)
            found = {(r.epoch, r.what, r.a, r.b): r.value for r in kept.collect() if r.what in KINDS}
            wanted: Counter[Any] = Counter()
            for epoch in shown:
                graph = reference.edges(landed, epoch, live_for)
                for (a, b), k in reference.trussness(graph).items():
                    wanted[epoch, "trussness_of_edge", a, b] = k
                    wanted[epoch, "edge", a, b] = 1
                for corners in reference.triangles(graph):
                    wanted.update((epoch, "triangles_at_vertex", v, None) for v in corners)
            assert found == dict(wanted), (self.seed, revision)
            points = {p["epoch"]: p for p in views.select_totals(self.ledger, revision=revision, all_epochs=True)}
            for epoch in range(min(points), row.frontier + 1):  # totals answer for all epochs, folded ones too
                expected = reference.totals(reference.edges(landed, epoch, live_for))
                assert {key: points[epoch][key] for key in expected} == expected, (self.seed, revision, epoch)

    def expected_changes(self, revision: int) -> dict[int, tuple[bool, bool]]:
        """The landed epochs whose graph is another one than a revision before; whether they were there, and are."""
        (old, old_window), (new, window) = self.expected.get(revision - 1, ({}, None)), self.expected[revision]
        return {
            epoch: (epoch in old, epoch in new)
            for epoch in sorted({*old, *new})
            if (epoch in old) != (epoch in new)
            or reference.edges(old, epoch, old_window) != reference.edges(new, epoch, window)
        }

    def expected_edges(self, revision: int) -> Counter[Any]:
        """(a, b, trussness) of each edge at the frontier."""
        landed, live_for = self.expected[revision]
        frontier = self.ledger.revisions.get(revision).frontier
        assert frontier is not None
        return Counter((a, b, k) for (a, b), k in expected_trussness(landed, frontier, live_for).items())


def expected_trussness(landed: dict[int, list[Row]], epoch: int, live_for: int | None) -> dict[tuple[int, int], int]:
    return reference.trussness(reference.edges(landed, epoch, live_for))


@dataclass
class Consumer:
    """Somebody who applies what has changed since the revision that he has, once each."""

    world: LawWorld
    at: int = 0
    edges: Counter[Any] = field(default_factory=Counter)  # (src, dst, trussness) at the frontier
    triples: Counter[Any] = field(default_factory=Counter)  # (src, dst, trussness, epoch)

    def follow(self) -> None:
        """Take up what has changed, and compare: which epochs are said to have changed, and every edge."""
        world, graph = self.world, Graph(self.world.home.path).arrow
        newest = world.ledger.revisions.get().revision
        for revision in range(self.at + 1, newest + 1):
            found = epoch_changes.changed_epochs(world.ledger, revision)
            said = {each.epoch: (each.before is not None, each.after is not None) for each in found}
            assert said == world.expected_changes(revision), (world.seed, revision)
        for row in graph.changes_since(self.at).to_pylist():
            self.edges[row["src"], row["dst"], row["trussness"]] += row["diff"]
        assert self.edges_now() == dict(world.expected_edges(newest)), (world.seed, self.at, newest)
        for row in graph.changes_since(self.at, all_epochs=True).to_pylist():
            self.triples[row["src"], row["dst"], row["trussness"], row["epoch"]] += row["diff"]
        self.at = newest

    def edges_now(self) -> dict[Any, int]:
        return {key: n for key, n in self.edges.items() if n}

    def edges_at(self, epoch: int) -> dict[Any, int]:
        state: Counter[Any] = Counter()
        for (a, b, k, since), n in self.triples.items():
            state[a, b, k] += n if since <= epoch else 0
        return {key: n for key, n in state.items() if n}
