"""What is published, for programs: the views of `altneu show` as Spark DataFrames, and as views of Spark SQL.

    from pipeline.api import Graph

    graph = Graph("path/of/the/home")
    graph.edges(as_of="2004-05-15").where("trussness >= 5").show()
    graph.register()
    graph.spark.sql("SELECT trussness, count(*) FROM altneu_edges GROUP BY trussness").show()

Every call reads one ledger row, the newest unless `revision` names another: whole revisions only, whatever is published
meanwhile. Epochs are labels or integers. Errors are those of the command line, as `pipeline.errors.AltneuError`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from . import views
from .config import Home
from .errors import AltneuError
from .ledger import Revision
from .place import opened
from .spark import master_of, session
from .warehouse import Warehouse

Epoch = str | int


class Graph:
    """The published graph of a home. `spark`: a session with Iceberg; by default the one of the home's settings."""

    def __init__(self, home: Path | str, spark: SparkSession | None = None) -> None:
        self.home = Home.open(home)
        self.ledger = opened(self.home)
        self.spark = spark or session(master_of(self.home), self.home.config.conf)
        self._warehouse = Warehouse(self.spark, self.home)

    def revision(self, revision: int | None = None) -> Revision:
        """The ledger row of a revision (default: the newest). Raises `AltneuError` before anything is published."""
        row = self.ledger.at(revision)
        if row.frontier is None:
            raise AltneuError("nothing is published yet.", "altneu backfill --all")
        return row

    def totals(self, all_epochs: bool = False, revision: int | None = None) -> DataFrame:
        """epoch, label, revision, vertices, edges, triangles, max_trussness, transitivity, and the motifs; one epoch or
        all."""
        rows = views.totals(self.home, self.ledger, revision=revision, all_epochs=all_epochs)
        columns = "epoch bigint, label string, revision bigint, vertices bigint, edges bigint, triangles bigint"
        motifs = "".join(f", `{name}` bigint" for name in self.ledger.motifs(self.ledger.at(revision)))
        columns += f", max_trussness bigint, transitivity double{motifs}"
        return self.spark.createDataFrame([row | row["motifs"] for row in rows], columns)

    def vertices(self, as_of: Epoch | None = None, revision: int | None = None) -> DataFrame:
        """vertex, degree, triangles, clustering, and a column for each motif."""
        row = self.revision(revision)
        return views.as_of(self._warehouse, row, "vertices", self._epoch(as_of, row), self.ledger.motifs(row))

    def edges(self, as_of: Epoch | None = None, revision: int | None = None) -> DataFrame:
        """src, dst, trussness; src < dst (as numbers)."""
        row = self.revision(revision)
        return views.as_of(self._warehouse, row, "edges", self._epoch(as_of, row))

    def support(self, as_of: Epoch | None = None, revision: int | None = None) -> DataFrame:
        """src, dst, support: how many triangles each edge is in, counted on request."""
        row = self.revision(revision)
        return views.support(self._warehouse, row, self._epoch(as_of, row))

    def triangles(self, as_of: Epoch | None = None, revision: int | None = None) -> DataFrame:
        """a, b, c, diff (1), listed on request: one row per triangle."""
        row = self.revision(revision)
        return views.triangles(self._warehouse, row, self._epoch(as_of, row))

    def communities(self, k: int, as_of: Epoch | None = None, revision: int | None = None) -> DataFrame:
        """src, dst, community: the k-truss communities, the largest first; see `views.communities`."""
        row = self.revision(revision)
        return views.communities(self._warehouse, row, self._epoch(as_of, row), k)

    def changes(self, first: Epoch, last: Epoch, revision: int | None = None) -> DataFrame:
        """src, dst, trussness, diff: what turns the edges of epoch `first` into those of `last`."""
        row = self.revision(revision)
        return views.changes(self._warehouse, row, self._epoch(first, row), self._epoch(last, row))

    def changes_since(self, old: int, new: int | None = None, all_epochs: bool = False) -> DataFrame:
        """What a consumer of revision `old` (0: who has nothing) applies to have `new`; see `views.changes_since`."""
        return views.changes_since(self._warehouse, self.ledger.at(old), self.revision(new), all_epochs)

    def collection(self, table: str, revision: int | None = None) -> DataFrame:
        """A table of diff triples as stored (`warehouse.TABLES`, `MOTIFS`): all epochs, also those to come."""
        return self._warehouse.at(table, self.revision(revision))

    def register(self, prefix: str = "altneu_", as_of: Epoch | None = None, revision: int | None = None) -> list[str]:
        """Make views in the session for Spark SQL; return their names. They stay at the revision of now.

        `{prefix}totals` (all epochs), `{prefix}vertices` and `{prefix}edges` (as of an epoch, default the frontier),
        and the collections under `{prefix}diffs_…`.
        """
        at = self.revision(revision).revision
        frames: dict[str, Any] = {
            "totals": self.totals(all_epochs=True, revision=at),
            "vertices": self.vertices(as_of, at),
            "edges": self.edges(as_of, at),
            **{f"diffs_{table}": self.collection(table, at) for table in self.revision(at).snapshots},
        }
        for name, frame in frames.items():
            frame.createOrReplaceTempView(prefix + name)
        return [prefix + name for name in frames]

    def _epoch(self, given: Epoch | None, row: Revision) -> int:
        assert row.frontier is not None
        if given is None:
            return row.frontier
        return given if isinstance(given, int) else self.home.schedule.epoch(given)
