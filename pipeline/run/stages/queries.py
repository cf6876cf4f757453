"""The stage `queries`: it maintains the results of the declared queries (`queries/NAME.sql`).

A query none of whose relations has changed costs nothing. One whose text is new or changed, and any of a rebuild, is
computed from the stored rows by Spark's joins. Every other one is computed from the changes of its relations. The
stage works from the texts that the run has recorded, not from the files as they are by now.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from altneu.algorithms import maintained_query as maintained
from altneu.algorithms.algebra import incremental
from altneu.algorithms.algebra.candidate_limit import CandidateLimit, TooManyCandidates
from altneu.algorithms.algebra.collection import Collection
from altneu.algorithms.algebra.incremental import Change
from altneu.algorithms.algebra.reduce import running_sums
from altneu.algorithms.algebra.time_lattice import EPOCH, FOREVER
from altneu.algorithms.algebra.upserts import keyed_changes
from altneu.algorithms.graph import edge_derivation
from altneu.algorithms.spark_conf import configured
from altneu.algorithms.sql_query import CompiledQuery, Relation, compile_query
from altneu.algorithms.sql_text import quote_identifier

from ...errors import RunFailed
from ...home import memory_budget
from ...home.queries import ARCS, EDGES, LANDED_ROWS, VERTICES, QueryDefinition, known_relations
from ...landing import predicate_validation
from ...reading.explain import name_vertices
from ...state.stage_results import EdgesFacts, IngestFacts, QueriesFacts, QueryRun, TrussFacts
from ...storage.session import PLANNED_ONCE
from ...storage.table_schemas import value_columns
from ..query_changes import ANEW, DELTA, NOTHING
from ..run_context import RunContext
from .query_errors import translate_query_errors
from .recomputed_queries import recompute_query

TableReader = Callable[[str], DataFrame]
TABLES_OF = {LANDED_ROWS: "upserts", ARCS: ARCS, EDGES: EDGES, VERTICES: VERTICES}
_COUNTS = {"degree": "degrees", "triangles": "triangle_counts"}  # column of `vertices` → the table that has it in diff
FEW_CHANGES = 10_000  # up to so many changed rows most of the time goes into planning
AT_ONCE = 2  # so many queries with few changes are maintained at the same time
MOST_PAIRS = 1_000_000_000  # of rows that the first join of a new query may list: some minutes of a machine


def maintain_queries(run: RunContext) -> QueriesFacts:
    with _configure_planning(run, ARCS, run.get_result(IngestFacts).changed_rows):
        arcs = _maintain_arcs(run) if ARCS in run.warehouse.collections else None
    with _configure_planning(run, VERTICES, run.get_result(EdgesFacts).rows):
        vertices = _maintain_vertices(run) if VERTICES in run.warehouse.collections else 0
    maintainer = _Maintainer(run, {ARCS: arcs or 0, VERTICES: vertices})
    try:
        queries = maintainer.maintain_all()
    finally:
        maintainer.release_changes()
    return QueriesFacts(rows=sum(each.rows for each in queries.values()), arcs=arcs, queries=queries)


def _configure_planning(run: RunContext, table: str, changed: int) -> AbstractContextManager[None]:
    """Run the block with plans for the changes that a table gets from a number of changed rows."""
    few = run.extends_published(table) and changed <= FEW_CHANGES
    return configured(run.spark, PLANNED_ONCE) if few else nullcontext()


def _maintain_arcs(run: RunContext) -> int:
    """Write the changes of the values in force, and return the number of changed intervals."""
    appends = run.extends_published(ARCS)
    changed = run.get_result(IngestFacts).changed_rows
    if appends and not changed:
        return run.write_rows(ARCS, None)
    config = run.home.config
    delta = run.read_delta("upserts") if appends else run.read_after("upserts")
    rows = edge_derivation.arc_changes(
        run.read_before_since("upserts") if appends else None,
        delta,
        list(config.values),
        config.edges.live_for,
        config.edge_condition,
        broadcast=changed <= memory_budget.max_broadcast_rows(config),
    )
    with predicate_validation.name_conditions(run.home):
        return run.write_rows(ARCS, rows)


def _maintain_vertices(run: RunContext) -> int:
    """Write the changes of the vertices with their degrees and triangles, and return the number of changed rows."""
    appends = run.extends_published(VERTICES)
    changed = run.get_result(EdgesFacts).rows
    if appends and not changed:
        return run.write_rows(VERTICES, None)

    def read_counts(read: TableReader) -> Collection:
        counts = [read(table).select("vertex", F.lit(table).alias("of"), "epoch", "diff") for table in _COUNTS.values()]
        return Collection(counts[0].unionByName(counts[1]), EPOCH)

    counts = read_counts(run.read_delta if appends else run.read_after)
    sums = {name: F.when(F.col("of") == table, F.col("diff")).otherwise(F.lit(0)) for name, table in _COUNTS.items()}
    if appends:
        few = 2 * changed <= memory_budget.max_broadcast_rows(run.home.config)
        change = Change(read_counts(run.read_before), counts)
        rows = incremental.running_sums(change, ["vertex"], sums, broadcast=few).delta
    else:
        rows = running_sums(counts, ["vertex"], sums)
    return run.write_rows(VERTICES, rows.df)


@dataclass(frozen=True)
class _Task:
    """A query, how the run maintains it, and from how many changed rows of the relations that it reads."""

    definition: QueryDefinition
    query: CompiledQuery
    way: str
    changes: Mapping[str, int]

    @property
    def changed_rows(self) -> int:
        return sum(self.changes.values())

    @property
    def is_small(self) -> bool:
        return self.way != ANEW and self.changed_rows <= FEW_CHANGES


class _Maintainer:
    """The maintenance of the queries of one run. `changed` are the numbers of changed rows of `arcs` and `vertices`."""

    def __init__(self, run: RunContext, changed: Mapping[str, int]) -> None:
        self.run, self.changed = run, changed
        self.done: dict[str, QueryRun] = {}
        self.values = [quote_identifier(name) for name in value_columns(run.home)]
        self.deltas: dict[str, DataFrame] = {}  # the changes of relations, stored for the queries that read them
        self.lock = threading.Lock()  # for `deltas`

    @cached_property
    def all_relations(self) -> dict[str, Relation]:
        """Return the relations that the queries of the run may read."""
        return known_relations(self.run.home, self.run.maintained_queries)

    def release_changes(self) -> None:
        """Give the memory of the stored changes back."""
        for rows in self.deltas.values():
            rows.unpersist()

    def maintain_all(self) -> dict[str, QueryRun]:
        """Maintain the declared relations and the queries, each after those that it reads."""
        names, left = list(self.run.maintained_queries), dict(self.run.maintained_queries)
        while left:
            ready = [each for each in left.values() if not set(each.relations) & set(left)]
            for each in ready:
                del left[each.name]
            alone = [each for each in ready if each.has_landed or each.is_recomputed]
            self.done |= {each.name: self.write_alone(each) for each in alone}
            self.maintain_side_by_side([self.plan_task(each) for each in ready if each not in alone])
        return {name: self.done[name] for name in names}

    def write_alone(self, definition: QueryDefinition) -> QueryRun:
        """Write the changes of a declared relation, or of a query that is recomputed."""
        return recompute_query(self.run, definition) if definition.is_recomputed else self.maintain_relation(definition)

    def maintain_side_by_side(self, tasks: Sequence[_Task]) -> None:
        """Maintain queries of which none reads another, those with few changes in several threads."""
        self.done |= {task.definition.name: self.maintain(task) for task in tasks if not task.is_small}
        small = [task for task in tasks if task.is_small]
        with configured(self.run.spark, PLANNED_ONCE), ThreadPoolExecutor(AT_ONCE) as pool:
            results = pool.map(self.maintain, small)
            self.done |= {task.definition.name: result for task, result in zip(small, results, strict=True)}

    def plan_task(self, definition: QueryDefinition) -> _Task:
        query = compile_query(definition.text, self.all_relations)
        changes = {name: self.count_changed_rows(query, name) for name in query.relations}
        return _Task(definition, query, self.choose_way(definition, changes), changes)

    def maintain(self, task: _Task) -> QueryRun:
        """Write the changes of a query's result, and of its state, if it has one."""
        started, name = time.monotonic(), task.definition.name
        with translate_query_errors(name):
            rows = self.write_nothing(task.definition) if task.way == NOTHING else self.write_counted(task)
        if task.way != NOTHING:
            self.run.say(f"query {name}: {task.way}, {rows:,} changed rows")
        return QueryRun(way=task.way, rows=rows, seconds=round(time.monotonic() - started, 2))

    def maintain_relation(self, relation: QueryDefinition) -> QueryRun:
        """Write the changes of the rows in force of a declared relation."""
        started, run, table = time.monotonic(), self.run, relation.state_table
        appends = run.extends_published(relation.table)
        changed = run.get_result(IngestFacts).relations.get(relation.name, 0)
        way = ANEW if not appends else DELTA if changed else NOTHING
        rows = None
        if way != NOTHING:
            rows = keyed_changes(
                run.read_before(table) if appends else None,
                run.read_delta(table) if appends else run.read_after(table),
                relation.key,
                [name for name in relation.columns if name not in relation.key],
                broadcast=changed <= memory_budget.max_broadcast_rows(run.home.config),
            ).df
        count = run.write_rows(relation.table, rows)
        return QueryRun(way=way, rows=count, seconds=round(time.monotonic() - started, 2))

    def choose_way(self, definition: QueryDefinition, changes: Mapping[str, int]) -> str:
        if not self.run.appends_to(definition.table) or self.run.parent.frontier is None:
            return ANEW
        return DELTA if any(changes.values()) else NOTHING

    def count_changed_rows(self, query: CompiledQuery, relation: str) -> int:
        """Return how many stored rows of a relation the run has changed."""
        if relation in self.done:
            return self.done[relation].rows
        if relation == LANDED_ROWS:
            return self.run.get_result(IngestFacts).changed_rows
        if relation in self.changed:
            return self.changed[relation]
        if _reads_trussness(query):
            return self.run.get_result(TrussFacts).rows
        return self.run.get_result(EdgesFacts).rows

    def write_nothing(self, definition: QueryDefinition) -> int:
        for table in definition.columns_by_table:
            self.run.write_rows(table, None)
        return 0

    def write_counted(self, task: _Task) -> int:
        """Write the changes of a query, and refuse it where one of its joins would list too many rows."""
        few = memory_budget.max_broadcast_rows(self.run.home.config)
        limit = CandidateLimit(MOST_PAIRS, few, task.changed_rows, self.count_possible_matches(task.query))
        try:
            return self.write_changes(task, limit, broadcast=task.way == DELTA and task.changed_rows <= few)
        except TooManyCandidates as error:
            raise self.describe_hub(task.definition, error) from error
        finally:
            limit.release()

    def write_changes(self, task: _Task, limit: CandidateLimit, *, broadcast: bool) -> int:
        run, query, definition = self.run, task.query, task.definition
        core = self.compute_core(task, limit, broadcast=broadcast)
        if not query.is_grouped:
            return run.write_rows(definition.table, maintained.select_result(query, core).df)
        table = definition.state_table
        if not run.write_rows(table, maintained.state_changes(query, core).df):
            return run.write_rows(definition.table, None)
        state = Change(self.read_state(query, table, run.read_before), self.read_state(query, table, run.read_delta))
        return run.write_rows(definition.table, maintained.result_changes(query, state, broadcast=broadcast).df)

    def compute_core(self, task: _Task, limit: CandidateLimit, *, broadcast: bool) -> Collection:
        query, run = task.query, self.run
        if task.way == ANEW:
            after = {name: self.read_intervals(query, name, run.read_after) for name in query.relations}
            return maintained.core_from_scratch(query, after, limit)
        before = {name: self.read_intervals(query, name, run.read_before) for name in query.relations}
        read_changes = self.read_stored_changes if broadcast else self.read_changes
        delta = {name: read_changes(query, name) for name, changed in task.changes.items() if changed}
        return maintained.core_changes(query, before, delta, broadcast=broadcast, limit=limit)

    def count_possible_matches(self, query: CompiledQuery) -> int:
        """Return how many rows a row may meet in a join: those of the largest relation, or one by a whole key."""
        if maintained.joins_whole_keys(query, {name: each.key for name, each in self.all_relations.items()}):
            return 1
        sizes = self.run.unpublished_revision().snapshots
        tables = {self.table_of(name) for name in query.relations}
        return max(self.run.warehouse.snapshot_size(table, sizes[table]).rows for table in tables)

    def describe_hub(self, definition: QueryDefinition, error: TooManyCandidates) -> RunFailed:
        """Return the error for a join of hubs, with the name of the one where most of the pairs are."""
        columns, values = list(error.hub), list(error.hub.values())
        if self.run.home.config.vertices.ids == "string":
            types = [self.all_relations[name.partition(".")[0]].columns[name.partition(".")[2]] for name in columns]
            ends = [place for place, type_ in enumerate(types) if type_ == "vertex"]
            revision = self.run.unpublished_revision()
            names = name_vertices(self.run.warehouse, revision, [values[place] for place in ends])
            for place, name in zip(ends, names, strict=True):
                values[place] = name
        hub = " and ".join(f"{column} = {value}" for column, value in zip(columns, values, strict=True))
        return RunFailed(
            f"query {definition.name} would look at {error.candidates:,} pairs of rows, {error.of_hub:,} of them where "
            f"{hub}; {error.max_candidates:,} are the most. Nothing was published.",
            f"filter the rows that queries/{definition.name}.sql joins, or move it away",
        )

    def table_of(self, relation: str) -> str:
        """Return the table that has the rows of a relation."""
        return self.run.maintained_queries[relation].table if relation in self.done else TABLES_OF[relation]

    def read_state(self, query: CompiledQuery, table: str, read: TableReader) -> Collection:
        return Collection(read(table).select(*maintained.state_columns(query), "epoch", "diff"), EPOCH)

    def read_changes(self, query: CompiledQuery, relation: str) -> DataFrame:
        return self.read_intervals(query, relation, self.run.read_delta)

    def read_stored_changes(self, query: CompiledQuery, relation: str) -> DataFrame:
        """Read the changes of a relation, which the first query that reads them stores for the others."""
        name = f"{relation} with trussness" if relation == EDGES and _reads_trussness(query) else relation
        with self.lock:
            if name not in self.deltas:
                self.deltas[name] = self.read_changes(query, relation).persist()
            return self.deltas[name]

    def read_intervals(self, query: CompiledQuery, relation: str, read: TableReader) -> DataFrame:
        """Read a relation as signed intervals, as `maintained_query` takes them."""
        if relation in self.done:
            definition = self.run.maintained_queries[relation]
            quoted_columns = map(quote_identifier, definition.columns)
            return read(definition.table).select(*quoted_columns, *_interval(F.lit(FOREVER)))
        if relation == LANDED_ROWS:
            columns = ["src", "dst", *self.values, "op", "seq", "epoch"]
            rows = read("upserts").select(*columns, "diff")
            if read != self.run.read_before:  # the lines of a file that has changed are stored again
                rows = rows.groupBy(*columns).agg(F.sum("diff").alias("diff")).where("diff <> 0")
            return rows.select(*columns, *_interval(F.lit(FOREVER)))
        if relation == ARCS:
            return read(ARCS).select("src", "dst", *self.values, *_interval(F.col("until")))
        if relation == VERTICES:
            return read(VERTICES).select("vertex", *_COUNTS, *_interval(F.lit(FOREVER)))
        ends = [F.col("a").alias("src"), F.col("b").alias("dst")]
        if _reads_trussness(query):
            return read("trussness").select(*ends, F.col("k").alias("trussness"), *_interval(F.lit(FOREVER)))
        nothing = F.lit(None).cast("bigint").alias("trussness")
        return read(EDGES).select(*ends, nothing, *_interval(F.col("until")))


def _reads_trussness(query: CompiledQuery) -> bool:
    return query.uses_column(EDGES, "trussness")


def _interval(until: Column) -> list[Column]:
    columns = F.col("epoch"), until.cast("bigint"), F.col("diff")
    names = maintained.EPOCH_COLUMN, maintained.UNTIL_COLUMN, maintained.DIFF_COLUMN
    return [column.alias(name) for column, name in zip(columns, names, strict=True)]
