"""The published graph for programs: the views of `altneu show` as Arrow tables, pandas, Polars or Spark DataFrames.

    from altneu import Graph

    graph = Graph("path/of/the/home")
    graph.pandas.vertices(top=10)
    graph.arrow.edges(as_of="2004-05-15", where="trussness >= 5")
    graph.explain("edge", 12, 47)

    graph.edges(as_of="2004-05-15").where("trussness >= 5").show()    # a Spark DataFrame
    graph.register()
    graph.spark.sql("SELECT trussness, count(*) FROM altneu_edges GROUP BY trussness").show()

`graph.arrow`, `graph.pandas` and `graph.polars` have every view, and hold its rows in memory. While little is stored,
DuckDB computes them in this process, without Java; otherwise Spark does (`Graph(home, engine=…)` forces one of them).
The views of `graph` itself are computed by Spark.

Every call reads one revision as a whole: the newest, unless `revision` names another, or `published_at` the moment at
which it was the newest. `graph.edges(as_of="2004-05-15", published_at="2026-05-01T12:00")` is what was true on that day
as it was known at that moment. Epochs are labels, dates or
integers, and vertices have the names of the landed files. Every view also takes `where` (SQL), `sort` (a column; with a
minus the greatest value comes first), `top` and `limit`. Errors are those of the command line, as
`altneu.pipeline.errors.AltneuError`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypedDict, TypeVar, Unpack

from ..errors import UsageError
from ..home.home import Home
from ..state.home_identity import open_ledger
from ..state.ledger import Ledger
from ..state.records import Revision
from .arguments import READERS, read_argument, read_epoch, read_number, read_vertex, read_words
from .engines import Engines
from .published_moment import choose_revision
from .query_executor import Answer, run_query, translate_condition_errors
from .query_model import Engine, Question

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ..storage.warehouse import Warehouse
    from .engine_protocol import R, Tables

Epoch = str | int | date
Moment = str | date | datetime  # without a time zone it is in UTC
Vertex = str | int
F = TypeVar("F")  # the kind of table that a view returns
CORNERS = {"vertex": 1, "edge": 2, "triangle": 3}  # what can be explained, and how many vertices name it


class Narrowing(TypedDict, total=False):
    """The arguments that every view takes."""

    where: str
    sort: str
    top: int
    limit: int


class Views(Generic[F]):
    """Every view of `altneu show`, as one kind of table."""

    def _answer_question(self, question: Question) -> F:
        raise NotImplementedError

    def totals(
        self,
        *,
        all_epochs: bool = False,
        revision: int | None = None,
        as_of: Epoch | None = None,
        published_at: Moment | None = None,
        **narrow: Unpack[Narrowing],
    ) -> F:
        """Return the totals of one epoch or of all.

        The columns are epoch, label, revision, vertices, edges, triangles, max_trussness, transitivity, and the motifs.
        """
        return self._ask_view(
            "totals", as_of=as_of, revision=revision, published_at=published_at, all_epochs=all_epochs, **narrow
        )

    def trusses(
        self,
        *,
        all_epochs: bool = False,
        revision: int | None = None,
        as_of: Epoch | None = None,
        published_at: Moment | None = None,
        **narrow: Unpack[Narrowing],
    ) -> F:
        """Return the sizes of every k-truss: epoch, label, k, edges (of trussness >= k), exactly (of trussness k)."""
        return self._ask_view(
            "trusses", as_of=as_of, revision=revision, published_at=published_at, all_epochs=all_epochs, **narrow
        )

    def vertices(
        self,
        as_of: Epoch | None = None,
        revision: int | None = None,
        vertex: Vertex | Sequence[Vertex] = (),
        published_at: Moment | None = None,
        **narrow: Unpack[Narrowing],
    ) -> F:
        """Return every vertex: vertex, degree, triangles, clustering, and a column for each motif."""
        return self._ask_view(
            "vertices", as_of=as_of, revision=revision, published_at=published_at, vertex=vertex, **narrow
        )

    def edges(
        self,
        as_of: Epoch | None = None,
        revision: int | None = None,
        vertex: Vertex | Sequence[Vertex] = (),
        edge: tuple[Vertex, Vertex] | None = None,
        published_at: Moment | None = None,
        **narrow: Unpack[Narrowing],
    ) -> F:
        """Return every edge: src, dst, trussness. As numbers, src < dst."""
        return self._ask_view(
            "edges", as_of=as_of, revision=revision, published_at=published_at, vertex=vertex, edge=edge, **narrow
        )

    def support(
        self,
        as_of: Epoch | None = None,
        revision: int | None = None,
        vertex: Vertex | Sequence[Vertex] = (),
        edge: tuple[Vertex, Vertex] | None = None,
        published_at: Moment | None = None,
        **narrow: Unpack[Narrowing],
    ) -> F:
        """Count the triangles of each edge on request: src, dst, support."""
        return self._ask_view(
            "support", as_of=as_of, revision=revision, published_at=published_at, vertex=vertex, edge=edge, **narrow
        )

    def triangles(
        self,
        as_of: Epoch | None = None,
        revision: int | None = None,
        first: Epoch | None = None,
        last: Epoch | None = None,
        vertex: Vertex | Sequence[Vertex] = (),
        edge: tuple[Vertex, Vertex] | None = None,
        published_at: Moment | None = None,
        **narrow: Unpack[Narrowing],
    ) -> F:
        """List the triangles on request: a, b, c, diff (1), one row per triangle.

        With epochs `first` and `last`, list the triangles that came (1) and went (-1) between them.
        """
        arguments: dict[str, Any] = {
            "as_of": as_of,
            "revision": revision,
            "published_at": published_at,
            "vertex": vertex,
            "edge": edge,
        }
        return self._ask_view("triangles", span=(first, last), **arguments, **narrow)

    def communities(
        self,
        k: int | None = None,
        as_of: Epoch | None = None,
        revision: int | None = None,
        vertex: Vertex | Sequence[Vertex] = (),
        edge: tuple[Vertex, Vertex] | None = None,
        published_at: Moment | None = None,
        **narrow: Unpack[Narrowing],
    ) -> F:
        """List the communities of the k-truss (default: the greatest k), the largest first: src, dst, community.

        `triangle_views.list_communities` defines a community.
        """
        return self._ask_view(
            "communities",
            k=k,
            as_of=as_of,
            revision=revision,
            published_at=published_at,
            vertex=vertex,
            edge=edge,
            **narrow,
        )

    def changes(
        self,
        first: Epoch | None = None,
        last: Epoch | None = None,
        *,
        revision: int | None = None,
        k: int | None = None,
        vertex: Vertex | Sequence[Vertex] = (),
        edge: tuple[Vertex, Vertex] | None = None,
        since_revision: int | None = None,
        all_epochs: bool = False,
        published_at: Moment | None = None,
        **narrow: Unpack[Narrowing],
    ) -> F:
        """Return the diffs that turn the edges of epoch `first` into those of `last`: src, dst, trussness, diff.

        With `k`, return the edges that entered or left the k-truss: src, dst, diff. With `since_revision` instead of
        epochs, return what `changes_since` returns.
        """
        arguments: dict[str, Any] = {
            "revision": revision,
            "published_at": published_at,
            "k": k,
            "vertex": vertex,
            "edge": edge,
        }
        arguments |= {"since_revision": since_revision, "all_epochs": all_epochs}
        return self._ask_view("changes", span=(first, last), **arguments, **narrow)

    def changes_since(
        self,
        old: int,
        new: int | None = None,
        *,
        all_epochs: bool = False,
        vertex: Vertex | Sequence[Vertex] = (),
        edge: tuple[Vertex, Vertex] | None = None,
        **narrow: Unpack[Narrowing],
    ) -> F:
        """Return the diffs that a consumer of revision `old` applies to have revision `new` (default: the newest).

        Revision 0 is the empty state. `views.select_changes_since` describes the columns.
        """
        arguments: dict[str, Any] = {"since_revision": read_number("old", old), "all_epochs": all_epochs}
        arguments["revision"] = None if new is None else read_number("new", new)
        return self.changes(vertex=vertex, edge=edge, **arguments, **narrow)

    def query(
        self,
        name: str,
        as_of: Epoch | None = None,
        revision: int | None = None,
        *,
        since_revision: int | None = None,
        all_epochs: bool = False,
        published_at: Moment | None = None,
        **narrow: Unpack[Narrowing],
    ) -> F:
        """Return the rows of a declared query: its columns, and `copies` where a row may occur several times.

        With `since_revision`, return the diffs that a consumer of that revision applies: the columns, and `diff`.
        """
        arguments: dict[str, Any] = {"as_of": as_of, "since_revision": since_revision, "all_epochs": all_epochs}
        arguments |= {"revision": revision, "published_at": published_at}
        return self._ask_view("query", span=(read_words("name", name),), **arguments, **narrow)

    def quarantine(
        self,
        first: Epoch | None = None,
        last: Epoch | None = None,
        revision: int | None = None,
        published_at: Moment | None = None,
        **narrow: Unpack[Narrowing],
    ) -> F:
        """Return the malformed rows of one epoch, or of a range: epoch, file, line, reason, text."""
        return self._ask_view("quarantine", span=(first, last), revision=revision, published_at=published_at, **narrow)

    def checks(self, first: Epoch | None = None, last: Epoch | None = None, **narrow: Unpack[Narrowing]) -> F:
        """Return the results of the checks.

        The columns are epoch, label, result (passed, warns, fails), suite, check, observed, first.
        """
        return self._ask_view("checks", span=(first, last), **narrow)

    def results(self, first: Epoch | None = None, last: Epoch | None = None, **narrow: Unpack[Narrowing]) -> F:
        """Return every stored result of a check, the newest first.

        The columns are epoch, label, revision, at, result, suite, name, observed, run, published.
        """
        return self._ask_view("results", span=(first, last), **narrow)

    def _ask_view(
        self,
        view: str,
        span: Sequence[Epoch | None] = (),
        vertex: Vertex | Sequence[Vertex] = (),
        **rest: Any,
    ) -> F:
        ends = (read_argument(name, epoch) for name, epoch in zip(("first", "last"), span, strict=False))
        arguments = {name: read_argument(name, value) if name in READERS else value for name, value in rest.items()}
        vertices = read_argument("vertex", vertex) or ()
        return self._answer_question(
            Question(view, span=tuple(end for end in ends if end), vertices=vertices, **arguments)
        )


class _InMemoryViews(Views[F]):
    """The views as tables in memory, made from Arrow tables by a function."""

    def __init__(self, graph: Graph, made: Callable[[pa.Table], F]) -> None:
        self._graph, self._make_view = graph, made

    def _answer_question(self, question: Question) -> F:
        with translate_condition_errors(question.where):
            return self._make_view(self._graph.ask(question).to_arrow())


class Graph(Views["DataFrame"]):
    """The published graph of a home, whose own views are Spark DataFrames.

    Args:
        home: The folder of the home.
        spark: A session with Iceberg; by default that of the home's settings, which starts when it is needed.
        engine: The engine of the views in memory.
    """

    def __init__(self, home: Path | str, spark: SparkSession | None = None, engine: Engine | str = Engine.auto) -> None:
        if not isinstance(home, (str, os.PathLike)):
            raise UsageError(f"home={home!r} is not a path.", 'Graph(".altneu")')
        if str(engine) not in set(Engine):
            raise UsageError(f"there is no engine {str(engine)!r}.", f"one of {', '.join(Engine)}")
        start = self._start_session if spark is None else lambda: spark
        self._open_graph(open_ledger(Home.open(home)), start, Engine(engine))

    @classmethod
    def for_ledger(cls, ledger: Ledger, start: Callable[[], SparkSession], engine: Engine = Engine.auto) -> Self:
        """Return the graph of the home of a ledger, with a function that starts a session."""
        graph = cls.__new__(cls)
        graph._open_graph(ledger, start, engine)
        return graph

    def _open_graph(self, ledger: Ledger, start: Callable[[], SparkSession], engine: Engine) -> None:
        self.home, self.ledger = ledger.home, ledger
        self._start = start
        self._engines = Engines(self.home, lambda: self._warehouse, engine)

    def _start_session(self) -> SparkSession:
        from ..storage.session import master_of, start_session

        return start_session(master_of(self.home), self.home.config.spark.conf)

    @cached_property
    def spark(self) -> SparkSession:
        return self._start()

    @cached_property
    def _warehouse(self) -> Warehouse:
        from ..storage.warehouse import Warehouse

        return Warehouse(self.spark, self.home)

    def ask(self, question: Question) -> Answer:
        """Answer a question. Every view and `altneu show` are based on this."""
        return run_query(self.ledger, question, self._engines)

    def _answer_question(self, question: Question) -> DataFrame:
        answer = run_query(self.ledger, question, replace(self._engines, engine=Engine.spark))
        if answer.frame is not None:
            return answer.frame
        columns = ", ".join(f"`{name}` {type_}" for name, type_ in answer.sql_types().items())
        return self.spark.createDataFrame([dict(row) for row in answer.iterate_rows()], columns)

    @property
    def arrow(self) -> Views[pa.Table]:
        """Return the views as Arrow tables."""
        return _InMemoryViews(self, lambda table: table)

    @property
    def pandas(self) -> Views[pd.DataFrame]:
        """Return the views as pandas DataFrames."""
        return _InMemoryViews(self, lambda table: table.to_pandas())

    @property
    def polars(self) -> Views[pl.DataFrame]:
        """Return the views as Polars DataFrames. Raise `UsageError` where Polars is not installed."""
        try:
            import polars
        except ImportError:
            raise UsageError("Polars is not installed.", "pip install polars") from None
        return _InMemoryViews(self, lambda table: polars.from_arrow(table))

    def explain(
        self,
        thing: str,
        *vertices: Vertex,
        as_of: Epoch | None = None,
        revision: int | None = None,
        published_at: Moment | None = None,
    ) -> dict[str, Any]:
        """Return which landed rows a vertex, an edge or a triangle follows from, as `altneu explain --format json`.

        Args:
            thing: "vertex", "edge" or "triangle".
            *vertices: The vertex, or the ends of the edge, or the corners of the triangle.
            as_of: The epoch (default: the frontier).
            revision: The revision (default: the newest).
            published_at: The moment at which it was the newest, in its place.
        """
        from . import explain, views

        row = self.revision(revision, published_at)
        assert row.frontier is not None
        names = [read_vertex("vertices", vertex) for vertex in vertices]
        if thing not in CORNERS:
            raise UsageError(f"{thing!r} cannot be explained.", f"one of {', '.join(CORNERS)}")
        if len(set(names)) != CORNERS[thing] or len(names) != CORNERS[thing]:
            count = "one vertex" if CORNERS[thing] == 1 else f"{CORNERS[thing]} different vertices"
            raise UsageError(f"{thing} takes {count}, not {' '.join(names)}.", "altneu explain --help")
        epoch = row.frontier if as_of is None else self.home.schedule.parse_epoch(read_epoch("as_of", as_of))
        views.require_answerable(self.home, row, epoch)

        def explain_in(tables: Tables[R]) -> explain.Document:
            document: explain.Document = getattr(explain, f"explain_{thing}")(
                tables, row, epoch, *([names] if names[1:] else names)
            )
            return document

        return self._engines.choose_and_run(
            [row], explain.READS, works=False, by_duckdb=explain_in, by_spark=explain_in
        )

    def explain_query(
        self,
        name: str,
        values: Mapping[str, Any],
        *,
        as_of: Epoch | None = None,
        revision: int | None = None,
        published_at: Moment | None = None,
    ) -> dict[str, Any]:
        """Return which landed rows a row of a declared query follows from, as `altneu explain query --format json`.

        Args:
            name: The query.
            values: Columns of the row with their values.
            as_of: The epoch (default: the frontier).
            revision: The revision (default: the newest).
            published_at: The moment at which it was the newest, in its place.
        """
        from . import query_explanation, query_results

        row = self.revision(revision, published_at)
        assert row.frontier is not None
        query = query_results.require_query(self.ledger, row, name)
        epoch = row.frontier if as_of is None else self.home.schedule.parse_epoch(read_epoch("as_of", as_of))
        known = {
            query_explanation.find_column(query, column): "null" if value is None else str(value)
            for column, value in values.items()
        }

        def explain_in(tables: Tables[R]) -> dict[str, Any]:
            return query_explanation.explain_query_row(tables, row, definitions, query.name, epoch, known)

        definitions = query_results.published_queries(self.ledger, row)
        read = ("upserts", *(table for table in ("arcs", "trussness") if table in row.snapshots))
        return self._engines.choose_and_run([row], read, works=False, by_duckdb=explain_in, by_spark=explain_in)

    def __repr__(self) -> str:
        row = self.ledger.revisions.get()
        if row.frontier is None:
            return f"Graph({str(self.home.path)!r}): nothing is published"
        from .views import select_totals

        now = select_totals(self.ledger)[0]
        return (
            f"Graph({str(self.home.path)!r}): revision {row.revision}, frontier {now['label']}: "
            f"{now['vertices']:,} vertices, {now['edges']:,} edges, {now['triangles']:,} triangles, "
            f"greatest trussness {now['max_trussness']}"
        )

    def revision(self, revision: int | None = None, published_at: Moment | None = None) -> Revision:
        """Return a revision, by its number or a moment (default: the newest). Raise `AltneuError` where nothing was
        published."""
        number, moment = read_argument("revision", revision), read_argument("published_at", published_at)
        return self.ledger.revisions.require_published(choose_revision(self.ledger, number, moment))

    def collection(self, table: str, revision: int | None = None, published_at: Moment | None = None) -> DataFrame:
        """Return a table of diff triples as it is stored, at all epochs, including those after the frontier.

        The tables are those of `table_schemas.TABLES` and `MOTIFS`.
        """
        row = self.revision(revision, published_at)
        if row.snapshots and table not in row.snapshots:
            raise UsageError(f"there is no table {table!r} at revision {row.revision}.", ", ".join(row.collections))
        return self._warehouse.read_table(table, row)

    def register(
        self,
        prefix: str = "altneu_",
        as_of: Epoch | None = None,
        revision: int | None = None,
        published_at: Moment | None = None,
    ) -> list[str]:
        """Create views in the session for Spark SQL, and return their names. They do not follow later revisions.

        The views are `{prefix}totals` (all epochs), `{prefix}vertices` and `{prefix}edges` (as of an epoch, by default
        the frontier), and the collections as `{prefix}diffs_…`.
        """
        number = self.revision(revision, published_at).revision
        frames: dict[str, Any] = {
            "totals": self.totals(all_epochs=True, revision=number),
            "vertices": self.vertices(as_of, number),
            "edges": self.edges(as_of, number),
            **{f"diffs_{table}": self.collection(table, number) for table in self.revision(number).collections},
        }
        for name, frame in frames.items():
            frame.createOrReplaceTempView(prefix + name)
        return [prefix + name for name in frames]
