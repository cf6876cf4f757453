"""The inputs of a stage that resumes from the graph cache of the parent's run: the graph, and the changed edges."""

from __future__ import annotations

from pyspark.sql import DataFrame

from altneu.algorithms.graph.graph_cache_task import CachedGraph, GraphCacheLocation

from ...home import memory_budget
from ...storage import graph_cache
from ..run_context import RunContext


def parent_graph_key(run: RunContext) -> str | None:
    """Return the key of the parent's graph cache, or None where this run writes all edges again."""
    return graph_cache.cached_graph_key(run.ledger, run.parent) if run.appends_to("edges") else None


def find_graph(run: RunContext, files: GraphCacheLocation | None) -> CachedGraph | None:
    """Return the parent's graph cache, or None where it is missing or too large for a task."""
    key = parent_graph_key(run)
    cached_epoch = graph_cache.cached_epoch(run.home, key) if key else None
    if (
        files is None
        or key is None
        or cached_epoch is None
        or graph_cache.cached_edge_count(run.home, key) > memory_budget.max_task_edges(run.home.config)
    ):
        return None
    return CachedGraph(files, key, cached_epoch)


def changed_edges(run: RunContext, at: int, first: int) -> DataFrame:
    """Return the edge intervals that begin or end at epoch `first` or later.

    The column `fresh` marks those that the parent's graph cache, which is as of epoch `at`, does not contain.
    """
    if first > at and run.home.config.edges.live_for is None:
        rows = run.read_delta("edges")  # no stored interval begins or ends after `at`
    else:
        span = f"BETWEEN {first} AND {max(at, run.frontier)}"
        rows = run.read_after("edges").where(f"epoch {span} OR until {span}")
    return rows.selectExpr("*", f"revision = {run.revision} AS fresh")
