"""Motifs: small patterns of edges, counted at every vertex and maintained by the generic delta query.

Law      At every epoch the count of a motif at a vertex is the number of its occurrences at that epoch that the vertex
         is in (`motif_patterns`). The change is that of the delta query: one rule for each edge of the pattern (law 5).
Shapes   Relations: relation, a, b, epoch, until, diff: signed validity intervals; the relation `-` are the edges.
         Result: diff triples motif, vertex, epoch, diff.
Cost     In one task (`kernels/motif_delta`): 300 bytes for each interval, and Spark's copy of it; time follows the
         change and the occurrences found, plus one look at every interval. In joins (`delta_query`), for relations that
         no task can hold: some shuffles of all of them for every edge of a pattern.
Source   Seed 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from altneu.algorithms.algebra import incremental
from altneu.algorithms.algebra.collection import Collection
from altneu.algorithms.algebra.incremental import Change
from altneu.algorithms.algebra.query import Atom, Query
from altneu.algorithms.algebra.time_lattice import Total
from altneu.algorithms.graph.kernels.intervals import make_disjoint, to_longs
from altneu.algorithms.graph.motif_patterns import Pattern, list_relations

Motifs = Mapping[str, Sequence[Pattern]]
SCHEMA = "motif string, vertex bigint, epoch bigint, diff bigint"
_INTERVAL = ["a", "b", "epoch", "until", "diff"]


def motif_changes(motifs: Motifs, before: DataFrame, change: DataFrame) -> DataFrame:
    """Return what `change` does to the counts, in one task. `before` must have rows; `motif_counts` needs none."""
    neu = F.lit(False).alias("neu"), F.lit(True).alias("neu")
    rows = before.select("relation", *_INTERVAL, neu[0]).unionByName(change.select("relation", *_INTERVAL, neu[1]))
    return rows.coalesce(1).mapInArrow(_motif_task(motifs), SCHEMA)


def motif_counts(motifs: Motifs, relations: DataFrame) -> DataFrame:
    """Return the counts from an empty graph: every occurrence of the whole history is enumerated, in one task."""
    rows = relations.select("relation", *_INTERVAL, F.lit(None).cast("boolean").alias("neu"))
    return rows.coalesce(1).mapInArrow(_motif_task(motifs), SCHEMA)


def motif_changes_in_joins(motifs: Motifs, before: DataFrame | None, change: DataFrame) -> DataFrame:
    """Return what `change` does to the counts, by joins of Spark. `before` None: the graph was empty."""
    time = Total("epoch")

    def relation_of(rows: DataFrame, name: str) -> Collection:
        relation_rows = rows.where(F.col("relation") == name).select(*_INTERVAL)
        if not name.startswith("->"):
            turned = F.col("b").alias("a"), F.col("a").alias("b")
            relation_rows = relation_rows.unionByName(
                relation_rows.select(*turned, *map(F.col, relation_rows.columns[2:]))
            )
        return Collection.from_intervals(relation_rows, time)

    old = change.limit(0) if before is None else before
    changes = {name: Change(relation_of(old, name), relation_of(change, name)) for name in list_relations(motifs)}
    parts = [
        _at_vertices(name, incremental.query(_pattern_query(pattern), changes).delta)
        for name, patterns in motifs.items()
        for pattern in patterns
    ]
    sums = reduce(DataFrame.unionByName, parts).groupBy("motif", "vertex", "epoch").agg(F.sum("diff").alias("diff"))
    return sums.where("diff <> 0")


def _pattern_query(pattern: Pattern) -> Query:
    """Return the query of a pattern, with new names for the vertices.

    The names in a pattern may be those of times, or differ by case alone.
    """
    own = {vertex: f"v{i}" for i, vertex in enumerate(pattern.vertices)}
    atoms = tuple(Atom(edge.relation, (own[edge.a], own[edge.b])) for edge in pattern.edges)
    less_than = tuple((own[a], own[b]) for a, b in pattern.less_than)
    return Query(atoms, less_than, tuple(combinations(own.values(), 2)))


def _at_vertices(name: str, occurrences: Collection) -> DataFrame:
    vertex = F.explode(F.array(*occurrences.data)).alias("vertex")
    return occurrences.df.select(F.lit(name).alias("motif"), vertex, "epoch", "diff")


def _motif_task(motifs: Motifs) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from altneu.algorithms.graph.kernels.motif_delta import Rows, vertex_changes

        parts = list(batches)
        if not parts:
            return
        table = pa.Table.from_batches(parts)
        before: dict[str, Rows] = {}
        change: dict[str, Rows] = {}
        for name in pc.unique(table["relation"]).to_pylist():
            relation_rows = table.filter(pc.equal(table["relation"], name))
            neu = pc.fill_null(relation_rows["neu"], False)
            a, b, start, until = make_disjoint(*to_longs(relation_rows.filter(pc.invert(neu)), _INTERVAL))
            before[name] = a, b, start, until, np.ones(a.size, np.int64)
            added = to_longs(relation_rows.filter(neu), _INTERVAL)
            change[name] = added[0], added[1], added[2], added[3], added[4]
        afresh = table["neu"].null_count > 0
        for name, changes in vertex_changes(motifs, before, None if afresh else change).items():
            columns = [pa.repeat(pa.scalar(name), changes[0].size), *changes]
            yield from pa.table(columns, ["motif", "vertex", "epoch", "diff"]).to_batches(max_chunksize=1 << 20)

    return run_task
