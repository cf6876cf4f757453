"""The views that search for triangles on request: triangles, support and communities.

A kernel computes them in one task, or Spark by joins where there are many edges. Their rows have no order, like those
of `views`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ..home import memory_budget
from ..state.records import Revision
from .engine_protocol import R, Tables
from .vertex_names import RowFilter, replace_with_names
from .views import require_answerable, require_forward, sum_at_epoch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame


def list_communities(tables: Tables[R], revision: Revision, epoch: int, k: int, only: RowFilter | None = None) -> R:
    """List the k-truss communities of an epoch: src, dst, community (1 is the one with the most edges).

    A community is a class of edges of the k-truss that chains of triangles within it join; a vertex may be in several.
    Source: Huang et al. 2014. They are computed in one task, with about 55 bytes for each edge of the k-truss.
    """
    require_answerable(tables.home, revision, epoch)
    inside = tables.select_rows(
        f"SELECT * FROM {{stored}} WHERE k >= {k}", stored=tables.read_table("trussness", revision)
    )
    edges = tables.select_rows("SELECT a, b FROM {stored}", stored=sum_at_epoch(tables, inside, epoch, "a", "b"))
    communities = tables.apply_in_one_task(edges, _compute_communities, "src bigint, dst bigint, community bigint")
    return replace_with_names(tables, revision, communities, ["src", "dst"], only)


def _compute_communities(edges: pa.Table) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    import altneu.algorithms.graph.kernels.communities

    # communities of equal size are ordered by their first edges
    a, b = _edge_ends(edges.sort_by([("a", "ascending"), ("b", "ascending")]))
    classes = altneu.algorithms.graph.kernels.communities.truss_communities(a, b, np.full(a.size, 2), 2)
    _, label, sizes = np.unique(classes, return_inverse=True, return_counts=True)
    place = np.empty(sizes.size, np.int64)
    place[np.argsort(-sizes, kind="stable")] = np.arange(1, sizes.size + 1)
    return pa.table({"src": a, "dst": b, "community": place[label]})


def list_triangles(
    tables: Tables[R], revision: Revision, epoch: int, since: int | None = None, only: RowFilter | None = None
) -> R:
    """List the triangles of an epoch: a, b, c, diff (1).

    With `since`, list the triangles that came (1) and went (-1) since that epoch. `only` selects the rows of some
    vertices.
    """
    require_forward(tables.home, revision, epoch if since is None else since, epoch)
    now = _edges_at(tables, revision, epoch)
    before = None if since is None else _edges_at(tables, revision, since)
    if tables.distributed:
        frames = cast("tuple[DataFrame, DataFrame | None]", (now, before))
        triangles = cast(R, _triangles_by_joins(*frames))
    else:
        sides = [_triangles_in_one_task(tables, edges) for edges in (now, before) if edges is not None]
        query = "SELECT a, b, c, 1 AS diff FROM {now}" + " UNION ALL SELECT a, b, c, -1 FROM {before}" * (
            len(sides) - 1
        )
        triangles = tables.select_rows(query, **dict(zip(("now", "before"), sides, strict=False)))
    net = (
        "SELECT a, b, c, n AS diff FROM (SELECT a, b, c, CAST(sum(diff) AS BIGINT) AS n FROM {found} GROUP BY a, b, c) "
        "net WHERE n <> 0"
    )
    return replace_with_names(tables, revision, tables.select_rows(net, found=triangles), ["a", "b", "c"], only)


def _triangles_in_one_task(tables: Tables[R], edges: R) -> R:
    return tables.apply_in_one_task(edges, _enumerate_triangles, "a bigint, b bigint, c bigint")


def _enumerate_triangles(edges: pa.Table) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    from altneu.algorithms.graph.kernels.triangles import enumerate_triangles

    corners = np.concatenate([np.empty((0, 3), np.int64), *enumerate_triangles(*_edge_ends(edges))])
    return pa.table({name: corners[:, place] for place, name in enumerate("abc")})


def _triangles_by_joins(now: DataFrame, before: DataFrame | None = None) -> DataFrame:
    """List the triangles that differ between two sets of edges (a, b, c, diff), by a delta query."""
    from pyspark.sql import functions as F

    from altneu.algorithms.graph.triangles import triangle_changes

    index = now.limit(0) if before is None else before
    changed = now.unionByName(index.withColumn("diff", -F.col("diff")))
    delta = changed.groupBy("a", "b").agg(F.sum("diff").alias("diff")).where("diff <> 0").select(*_endless_interval())
    return triangle_changes(index.select(*_endless_interval()), delta, broadcast=False)


def count_support(tables: Tables[R], revision: Revision, epoch: int, only: RowFilter | None = None) -> R:
    """Count the triangles of each edge of an epoch: src, dst, support.

    This needs one task with about 200 bytes for each edge. Where a task does not have the memory, a distributed engine
    counts them in cells.
    """
    require_answerable(tables.home, revision, epoch)
    edges = _edges_at(tables, revision, epoch)
    size = memory_budget.max_cell_edges(tables.home.config)
    if tables.distributed and (count := _count_stored_edges(tables, revision)) > size:
        support = cast(R, _support_in_cells(cast("DataFrame", edges), count, size))
    else:
        support = tables.apply_in_one_task(edges, _compute_support, "src bigint, dst bigint, support bigint")
    return replace_with_names(tables, revision, support, ["src", "dst"], only)


def _count_stored_edges(tables: Any, revision: Revision) -> int:
    """Return the number of rows in the table `edges`, from its metadata."""
    return int(tables.snapshot_size("edges", revision.snapshots["edges"]).rows)


def _support_in_cells(edges: DataFrame, count: int, size: int) -> DataFrame:
    from altneu.algorithms.graph.bsp import count_support

    counted = edges.join(count_support(edges, count, size), ["a", "b"], "left").fillna(0, ["n"])
    return counted.selectExpr("a AS src", "b AS dst", "n AS support")


def _compute_support(edges: pa.Table) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    from altneu.algorithms.graph.kernels.triangles import count_triangles

    a, b = _edge_ends(edges)
    return pa.table({"src": a, "dst": b, "support": count_triangles(a, b)[3].astype(np.int64)})


def _edge_ends(edges: pa.Table) -> tuple[Any, Any]:
    import numpy as np

    a, b = (np.ascontiguousarray(edges[name].to_numpy(), np.int64) for name in ("a", "b"))
    return a, b


def _edges_at(tables: Tables[R], revision: Revision, epoch: int) -> R:
    """Return the edges of an epoch: a, b, diff (1)."""
    query = (
        "SELECT a, b, n AS diff FROM (SELECT a, b, CAST(sum(diff) AS BIGINT) AS n FROM {stored} "
        f"WHERE epoch <= {epoch} AND until > {epoch} GROUP BY a, b) alive WHERE n <> 0"
    )
    return tables.select_rows(query, stored=tables.read_table("edges", revision))


def _endless_interval() -> list[Column]:
    """Return the columns that turn a set of edges into intervals that never end."""
    from pyspark.sql import functions as F

    from altneu.algorithms.algebra.time_lattice import FOREVER

    zero, ever = F.lit(0).cast("bigint"), F.lit(FOREVER)
    return [F.col("a"), F.col("b"), zero.alias("epoch"), ever.alias("until"), F.col("diff")]
