"""The history of vertices: diff triples of their measures as rows that hold from one epoch until another.

Law      At every epoch a vertex has at most one row, which has the sums of its diffs up to then; for the trussness, the
         greatest k of which the vertex has an edge.
Shapes   Triples: vertex, epoch, measure (int), k, diff, as `kernels.vertex_history_kernel` takes them.
         Rows: vertex, epoch, until, trussness, and a column for each measure after the first.
Cost     One shuffle, on the vertex; a task holds its part of the triples, 40 bytes each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from altneu.algorithms.graph.kernels.intervals import to_longs

_TRIPLE = ("vertex", "epoch", "measure", "k", "diff")


def vertex_rows(triples: DataFrame, measures: Sequence[str]) -> DataFrame:
    """Return the history of each vertex. `measures` are the names of the columns; the first is the trussness."""
    sums = triples.groupBy(*_TRIPLE[:-1]).agg(F.sum("diff").alias("diff")).where("diff <> 0")
    inside = sums.repartition("vertex").sortWithinPartitions("vertex", "epoch")
    columns = ["vertex", "epoch", "until", *measures]
    schema = ", ".join(f"`{name}` bigint" for name in columns)
    return inside.selectExpr(*(f"CAST({name} AS bigint) AS {name}" for name in _TRIPLE)).mapInArrow(
        _history_task(columns), schema
    )


def _history_task(columns: list[str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def build_history(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from altneu.algorithms.graph.kernels.vertex_history_kernel import history_rows

        parts = [batch for batch in batches if batch.num_rows]
        if parts:
            vertex, epoch, measure, k, diff = to_longs(pa.Table.from_batches(parts), _TRIPLE)
            who, since, until, values = history_rows(vertex, epoch, measure, k, diff, len(columns) - 3)
            arrays = [who, since, until, *(values[:, place].copy() for place in range(values.shape[1]))]
            yield from pa.table(dict(zip(columns, arrays, strict=True))).to_batches(max_chunksize=1 << 20)

    return build_history
