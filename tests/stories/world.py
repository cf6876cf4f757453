"""A home and a model of it: what was landed, published and asked, in plain Python, and what readers must then see.

The model shares no logic with the product: a batch is its rows, a revision the batches and settings it was published
with, and the truth of an epoch is recomputed by `tests.reference`. `StoryWorld.check` compares every kind of reader
with it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from altneu.pipeline.landing.epoch_states import list_epoch_rows
from altneu.pipeline.reading import views
from altneu.pipeline.reading.graph import Graph
from altneu.pipeline.report import epoch_document
from altneu.pipeline.state.records import Revision
from altneu.pipeline.state.schema import totals
from altneu.pipeline.storage.warehouse import Warehouse
from altneu.pipeline.tasks import airflow_page
from tests import home_helpers, maintained, reference
from tests.reference import Edge, PatternEdge, Row

File = tuple[Row, ...]
Batch = tuple[File, ...]
MOTIF = "a->b where w > 0, b-c"
SINGLE = ("vertices", "edges", "triangles", "max_trussness")


def positive(value: int | None) -> bool:
    return value is not None and value > 0


def anything(value: int | None) -> bool:
    return True


PATTERN: list[PatternEdge] = [("a", "b", True, positive), ("b", "c", False, anything)]


@dataclass(frozen=True)
class Settings:
    """What may change between revisions; all of it needs a rebuild."""

    live_for: int | None = None
    positive: bool = False  # where = "w > 0"
    motif: bool = False

    def toml(self) -> str:
        window = "" if self.live_for is None else f"live_for = {self.live_for}\n"
        where = 'where = "w > 0"\n' if self.positive else ""
        motif = f'[motifs]\ntail = "{MOTIF}"\n' if self.motif else ""
        return f"[edges]\n{window}{where}{motif}"


@dataclass(frozen=True)
class Truth:
    """A published revision: its batches by epoch (none: removed) and its settings."""

    batches: dict[int, Batch] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)

    def history(self) -> dict[int, list[Row]]:
        return {epoch: [row for file in batch for row in file] for epoch, batch in self.batches.items()}

    def where(self) -> Any:
        return positive if self.settings.positive else anything

    def edges(self, epoch: int) -> set[Edge]:
        return reference.edges(self.history(), epoch, self.settings.live_for, self.where())

    def totals(self, epoch: int) -> dict[str, Any]:
        graph = self.edges(epoch)
        sizes = Counter(reference.trussness(graph).values())
        motifs = {}
        if self.settings.motif:
            found = reference.motif(PATTERN, self.history(), epoch, self.settings.live_for, self.where())
            motifs = {"tail": found[0]}
        return {**reference.totals(graph), "trusses": dict(sorted(sizes.items())), "motifs": motifs}

    def vertices(self, epoch: int) -> dict[int, tuple[int, ...]]:
        """Vertex → degree, triangles, and the motif's occurrences where it is counted."""
        graph = self.edges(epoch)
        near = reference.neighbours(graph)
        corners = Counter(v for triangle in reference.triangles(graph) for v in triangle)
        if not self.settings.motif:
            return {v: (len(near[v]), corners[v]) for v in near}
        _, tails = reference.motif(PATTERN, self.history(), epoch, self.settings.live_for, self.where())
        return {v: (len(near[v]), corners[v], tails.get(v, 0)) for v in near}

    def results(self, epochs: range) -> dict[tuple[int, str, int | None, int | None], int]:
        """What `maintained.select_maintained` should say of some epochs, edge by edge and vertex by vertex."""
        wanted: Counter[Any] = Counter()
        for epoch in epochs:
            graph = self.edges(epoch)
            for (a, b), k in reference.trussness(graph).items():
                wanted[epoch, "edge", a, b] = 1
                wanted[epoch, "trussness_of_edge", a, b] = k
                wanted.update([(epoch, "degree_at_vertex", a, None), (epoch, "degree_at_vertex", b, None)])
            for corners in reference.triangles(graph):
                wanted.update((epoch, "triangles_at_vertex", v, None) for v in corners)
        return dict(wanted)


RESULTS = {"edge", "trussness_of_edge", "degree_at_vertex", "triangles_at_vertex"}


class StoryWorld:
    """The home, the model, and what has happened so far."""

    def __init__(self, spark: SparkSession, ids: str, retention: str) -> None:
        self.spark, self.ids, self.retention = spark, ids, retention
        self.path = Path(tempfile.mkdtemp(prefix="altneu-story-"))
        self.settings = Settings()
        self.landed: dict[int, Batch] = {}
        self.truths: dict[int, Truth] = {0: Truth()}
        self.damaged: set[int] = set()  # revisions whose totals somebody has written over
        self.held: Counter[Any] = Counter()  # of a consumer who follows `changes_since`
        self.held_at = 0
        self.looked: tuple[int, dict[str, int]] | None = None  # the snapshots that were compared last
        self.configure(self.settings)

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def configure(self, settings: Settings) -> None:
        self.settings = settings
        own = f'[vertices]\nids = "{self.ids}"\n[values]\nw = "long"\n[audit]\nepochs = "all"\n'
        self.home, self.ledger = home_helpers.make(self.path / "home", own + settings.toml() + self.retention)

    @property
    def newest(self) -> Truth:
        return self.truths[max(self.truths)]

    # -- the landing --------------------------------------------------------------------------------------------

    def land(self, epoch: int, batch: Batch) -> None:
        folder = self.home.landing / f"epoch={epoch}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for number, rows in enumerate(batch):
            lines = ["src,dst,w,op,seq"]
            lines += [f"{src},{dst},{'' if w is None else w},{op},{seq}" for src, dst, w, op, seq in rows]
            (folder / f"{number}.csv").write_text("\n".join(lines) + "\n")
        self.landed[epoch] = batch

    def remove(self, epoch: int) -> None:
        shutil.rmtree(self.home.landing / f"epoch={epoch}")
        del self.landed[epoch]

    # -- publishing: the model's side -----------------------------------------------------------------------------

    def changed(self) -> list[int]:
        """The landed epochs that are not published as they are."""
        there = self.newest.batches
        return [e for e, batch in sorted(self.landed.items()) if not same(there.get(e), batch)]

    def published(self, epochs: list[int]) -> None:
        """The newest revision has the batches of these epochs as they are landed now."""
        batches = {**self.newest.batches, **{epoch: self.landed.get(epoch, ()) for epoch in epochs}}
        self._is(Truth(batches, self.settings))

    def rolled_back(self, revision: int) -> None:
        self._is(self.truths[revision])

    def _is(self, truth: Truth) -> None:
        revision = self.ledger.revisions.get().revision
        assert revision == max(self.truths) + 1, f"revision {revision} after {max(self.truths)}"
        self.truths[revision] = truth

    def damage(self, measure: str, wrong: int) -> None:
        """Write over a total of the newest revision, at its frontier, as somebody with a client of SQL might."""
        row = self.ledger.revisions.get()
        place = {"run_id": row.run_id, "measure": measure, "k": 0, "epoch": row.frontier}
        where = [totals.c[name] == value for name, value in place.items()]
        with self.ledger.database.engine.begin() as connection:
            if not connection.execute(totals.update().where(*where).values(diff=totals.c.diff + wrong)).rowcount:
                connection.execute(totals.insert().values(**place, diff=wrong))
        self.damaged.add(row.revision)

    def unchanged(self) -> None:
        assert self.ledger.revisions.get().revision == max(self.truths), "a revision that nobody published"

    # -- readers ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Every kind of reader of the newest revision sees the truth, and the same."""
        row = self.ledger.revisions.get()
        self.unchanged()
        self._grid(row)
        if row.frontier is None:
            return
        self._totals(row)
        self._pages(row)
        if (row.revision, row.snapshots) == self.looked:
            return
        self._tables(row)
        self._graph(row)
        self._consumer(row)
        self.looked = row.revision, row.snapshots

    def check_old(self) -> None:
        """So does every reader of an older revision that is kept; totals are kept of all."""
        for row in self.ledger.revisions.list_all():
            if row.revision not in self.damaged:
                self._totals(row)
            if row.snapshots:
                self._tables(row)

    def _epochs(self, row: Revision) -> range:
        assert row.frontier is not None
        first = min(self.truths[row.revision].batches)
        return range(first if row.since is None else max(first, row.since), row.frontier + 1)

    def _totals(self, row: Revision) -> None:
        truth = self.truths[row.revision]
        found = views.select_totals(self.ledger, revision=row.revision, all_epochs=True)
        assert row.frontier == max(truth.batches), (row.revision, row.frontier, truth.batches.keys())
        assert [point["epoch"] for point in found] == list(range(min(truth.batches), row.frontier + 1))
        for point in found:
            wanted = truth.totals(point["epoch"])
            assert {name: point[name] for name in wanted} == wanted, (row.revision, point["epoch"])

    def _pages(self, row: Revision) -> None:
        truth = self.newest
        for epoch, batch in truth.batches.items():
            page = epoch_document(self.ledger, epoch)
            wanted = truth.totals(epoch)
            graph = page["graph"]
            values = {name: graph["measures"][name]["value"] for name in SINGLE}
            assert values == {name: wanted[name] for name in SINGLE}, epoch
            assert {k["k"]: k["exactly"] for k in graph["trusses"] if k["exactly"]} == wanted["trusses"], epoch
            assert {motif["name"]: motif["value"] for motif in graph["motifs"]} == wanted["motifs"], epoch
            before = truth.totals(epoch - 1)
            changes = {name: graph["measures"][name]["change"] for name in SINGLE}
            assert changes == {name: wanted[name] - before[name] for name in SINGLE}, epoch
            assert page["landed"]["rows"] == sum(map(len, batch)), epoch
            assert all(check["passed"] for check in page["audit"]["checks"]), (epoch, page["audit"])
            assert page["state"] not in ("wrong", "empty", "running"), (epoch, page["state"])

    def _grid(self, row: Revision) -> None:
        """What `status` shows, and Airflow's page."""
        _, rows = list_epoch_rows(self.ledger)
        states = {entry["epoch"]: entry["state"] for entry in rows}
        assert set(states) == {*self.landed, *self.newest.batches}
        for epoch, state in states.items():
            told = state if state not in ("failed", "interrupted", "running", "folded") else "missing or changed"
            assert told in self._states(epoch), (epoch, state)
        page = {entry["epoch"]: entry for entry in airflow_page.epoch_grid(str(self.home.path))["epochs"]}
        assert set(page) == set(states)
        for epoch in self.newest.batches:
            wanted = self.newest.totals(epoch)
            names = ("edges", "triangles", "max_trussness", "motifs")
            assert {name: page[epoch][name] for name in names} == {name: wanted[name] for name in names}, epoch

    def _states(self, epoch: int) -> tuple[str, ...]:
        there, landed = self.newest.batches.get(epoch), self.landed.get(epoch)
        if landed is None:
            return ("published",) if there == () else ("gone",)
        if there is not None and same(there, landed):
            return ("published",)
        return ("missing" if there is None else "changed", "missing or changed")

    def _tables(self, row: Revision) -> None:
        """Every edge and vertex at every epoch that the revision answers for, out of the tables."""
        warehouse, epochs = Warehouse(self.spark, self.home), self._epochs(row)
        found = maintained.select_maintained(lambda table: warehouse.read_table(table, row), list(epochs)).collect()
        numbers = self._numbers(warehouse, row)
        named = {}
        for r in found:
            if r.what in RESULTS:
                ends = [None if end is None else numbers(end) for end in (r.a, r.b)]
                a, b = sorted(ends) if r.b is not None else ends
                named[r.epoch, r.what, a, b] = r.value
        assert named == self.truths[row.revision].results(epochs), row.revision

    def _numbers(self, warehouse: Warehouse, row: Revision) -> Any:
        if self.ids == "integer":
            return lambda number: number
        book = {r.id: int(r["name"]) for r in warehouse.read_table("names", row).collect()}
        return book.__getitem__

    def _graph(self, row: Revision) -> None:
        """`altneu.Graph` and so `show`: edges and vertices at the frontier."""
        assert row.frontier is not None
        graph, truth = Graph(self.home.path, self.spark), self.newest
        edges = {(*sorted((int(e.src), int(e.dst))), e.trussness) for e in graph.edges().collect()}
        assert edges == {(a, b, k) for (a, b), k in reference.trussness(truth.edges(row.frontier)).items()}
        columns = ["vertex", "degree", "triangles", *(["tail"] if truth.settings.motif else [])]
        vertices = {int(v[0]): tuple(v[1:]) for v in graph.vertices().select(*columns).collect()}
        assert vertices == truth.vertices(row.frontier)

    def _consumer(self, row: Revision) -> None:
        """Who applies the changes since the revision that he has, has the newest one."""
        kept = {r.revision for r in self.ledger.revisions.list_all() if r.snapshots}
        if self.held_at and self.held_at not in kept:  # compacted away under him: he begins again
            self.held, self.held_at = Counter(), 0
        for r in Graph(self.home.path, self.spark).changes_since(self.held_at).collect():
            self.held[(*sorted((int(r.src), int(r.dst))), r.trussness)] += r["diff"]
        self.held_at = row.revision
        assert row.frontier is not None
        truth = reference.trussness(self.newest.edges(row.frontier))
        assert {key: n for key, n in self.held.items() if n} == {(a, b, k): 1 for (a, b), k in truth.items()}


def same(one: Batch | None, other: Batch | None) -> bool:
    """Equal files, in whatever order."""
    return one is not None and other is not None and sorted(map(repr, one)) == sorted(map(repr, other))
