"""What a stage needs to go on from the graph that the run before has kept: the graph, and the edges that have moved."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from algorithms.graph_cache_task import CachedGraph, GraphCacheLocation, absent_reason

from ..home import memory_budget
from ..storage import graph_cache
from .run_context import RunContext


def parent_graph_key(run: RunContext) -> str | None:
    """The name of the graph that the parent's run has left, where this run adds to its edges."""
    return graph_cache.cached_graph_key(run.ledger, run.parent) if run.appends_to("edges") else None


def find_graph(run: RunContext, files: GraphCacheLocation | None) -> CachedGraph | None:
    """Return the parent's graph cache, or None where it is missing or too large for a task."""
    key = parent_graph_key(run)
    at = graph_cache.cached_epoch(run.home, key) if key else None
    if (
        files is None
        or key is None
        or at is None
        or graph_cache.cached_edge_count(run.home, key) > memory_budget.max_task_edges(run.home.config)
    ):
        return None
    return CachedGraph(files, key, at)


def execute_plan(run: RunContext, changes: DataFrame) -> DataFrame | None:
    """The result of a plan from a kept graph, persisted; EXECUTES. None, and it is said: there is none."""
    changes = changes.persist()
    why = absent_reason(changes)
    if why is None:
        return changes
    changes.unpersist()
    run.say(f"{why}: from the tables")
    return None


def changed_edges(run: RunContext, at: int, first: int) -> DataFrame:
    """The edge intervals that begin or end from `first` on, and `fresh`: those that a graph as of epoch `at`, which the
    parent's run has left, has not seen."""
    if first > at and run.home.config.edges.live_for is None:
        rows = run.read_delta("edges")  # nothing that was stored before begins or ends after it
    else:
        span = first, max(at, run.frontier)
        rows = run.read_after("edges").where(F.col("epoch").between(*span) | F.col("until").between(*span))
    return rows.withColumn("fresh", F.col("revision") == run.revision)
