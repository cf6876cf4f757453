"""The task of an audit: it recomputes one epoch's graph from scratch and compares it with what is maintained.

Shapes  The input are rows from `audit`: the maintained ones (`PER_ROW`), and the edges by relation. The output are
        tables of `RECOUNT`: the first rows of each kind of difference with their number, and the recomputed totals.
Cost    The task holds the graph twice. Nothing here uses Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from altneu.algorithms.graph import motif_patterns
from altneu.algorithms.graph.kernels import motif_recount as motif_kernel
from altneu.algorithms.graph.kernels import triangles as triangle_kernel
from altneu.algorithms.graph.kernels import truss as truss_kernel
from altneu.algorithms.graph.kernels import trussness_check as certificate_kernel
from altneu.algorithms.graph.kernels.intervals import sort_order

from .reported_totals_check import Measure

Longs = NDArray[np.int64]
Values: TypeAlias = Longs | pa.ChunkedArray | None  # None means that all values are null
Result = tuple[Values, Values, Longs | pa.ChunkedArray]  # a, b, value; a total has neither end
Results = dict[str, Result]
MOTIF = "motif_at_vertex"
PER_ROW = ("edge", "trussness_of_edge", "degree_at_vertex", "triangles_at_vertex", MOTIF)
TOTALS = ("edges", "vertices", "triangles", "max_trussness")
DIFFERENCE, TOTAL, STORED = "difference", "total", "stored"  # the kinds of rows of a recount
DIFFERENCES = "epoch bigint, what string, a bigint, b bigint, maintained bigint, recomputed bigint, count bigint"
RECOUNT = f"kind string, {DIFFERENCES}"


def compare_epoch(
    motifs: Mapping[str, Sequence[motif_patterns.Pattern]],
    key: tuple[pa.Scalar, ...],
    stored: pa.Table,
    graph: pa.Table,
) -> pa.Table:
    """Compare the maintained results of one epoch with a recomputation, and check the trussness without peeling.

    Args:
        motifs: The patterns of each motif.
        key: The epoch, as the only element.
        stored: The maintained rows: epoch, what, a, b, k, n.
        graph: The edges: epoch, relation, a, b.

    Returns:
        The first `ROWS` differences of each kind with their number, and the recomputed totals (`RECOUNT`).
    """
    from altneu.expectations.gx_runner import ROWS

    epoch = key[0].as_py()
    maintained, recomputed = (
        maintained_results(stored),
        _recompute_results(*_pairs_of_relation(graph, motif_patterns.OWN_EDGES)),
    )
    if motifs:
        recomputed[MOTIF] = _count_motifs(motifs, graph)
    out = [_recount_table(DIFFERENCE, epoch, "", *([np.zeros(0, np.int64)] * 5))]
    for what in (*PER_ROW, *TOTALS):
        a, b, old, new = _differing_rows(maintained.get(what), recomputed.get(what))
        out.append(_recount_table(DIFFERENCE, epoch, what, *(c[:ROWS] for c in (a, b, old, new)), len(old)))
    for (what, place), value in _count_totals(recomputed, motifs).items():
        out.append(_recount_table(TOTAL, epoch, what, np.array([place]), None, None, value, 0))
    if "trussness_of_edge" in maintained:
        for what, (a, b, k) in _uncertified_edges(*maintained["trussness_of_edge"]).items():
            out.append(_recount_table(DIFFERENCE, epoch, what, a[:ROWS], b[:ROWS], k[:ROWS], None, a.size))
    return pa.concat_tables(out)


def _recount_table(kind: str, epoch: int, what: str, *columns: Values | int) -> pa.Table:
    rows = result_table(DIFFERENCES, epoch, what, *columns)
    return rows.add_column(0, "kind", pa.repeat(pa.scalar(kind), rows.num_rows))


def maintained_results(rows: pa.Table) -> Results:
    """Turn the maintained rows of one epoch into results.

    An edge that is stored twice, or with two values, must become a difference. The value of an edge is therefore its
    number of copies, and rows are not deduplicated.
    """
    results: Results = {}
    listed = {what: rows.filter(pc.equal(rows["what"], place)) for place, what in enumerate(PER_ROW)}
    for what in PER_ROW:
        a, b, k, n = (listed[what][name] for name in ("a", "b", "k", "n"))
        if len(n):
            results[what] = a, k if what == MOTIF else b, pc.multiply(k, n) if what == "trussness_of_edge" else n
    totals = {
        "edges": pc.sum(listed["edge"]["n"]),
        "vertices": pa.scalar(len(listed["degree_at_vertex"]) or None),
        "triangles": pc.sum(listed["triangles_at_vertex"]["n"]),
        "max_trussness": pc.max(listed["trussness_of_edge"]["k"]),
    }
    for what, total in totals.items():
        if total.is_valid:
            results[what] = _total_columns(total.as_py() // 3 if what == "triangles" else total.as_py())
    return results


def _recompute_results(a: Longs, b: Longs) -> Results:
    """Count and peel one graph from scratch, and return every result except zeros."""
    if not a.size:
        return {}
    total, vertices, per_vertex, _ = triangle_kernel.count_triangles(a, b)
    trussness = truss_kernel.peel(a, b)
    busy = per_vertex > 0
    ends, degrees = np.unique(np.concatenate([a, b]), return_counts=True)
    totals = {"edges": a.size, "vertices": ends.size, "triangles": total, "max_trussness": trussness.max()}
    return {
        "edge": (a, b, np.ones(a.size, np.int64)),
        "trussness_of_edge": (a, b, trussness.astype(np.int64)),
        "degree_at_vertex": (ends, None, degrees.astype(np.int64)),
        "triangles_at_vertex": (vertices[busy], None, per_vertex[busy].astype(np.int64)),
    } | {what: _total_columns(value) for what, value in totals.items() if value}


def _count_totals(fresh: Results, motifs: Mapping[str, Sequence[motif_patterns.Pattern]]) -> dict[Measure, int]:
    """Compute the totals that the SQL database should have, from the results of one graph."""
    totals: dict[Measure, int] = {(what, 0): int(fresh[what][2][0]) for what in TOTALS if what in fresh}
    if "degree_at_vertex" in fresh:
        degrees = np.asarray(fresh["degree_at_vertex"][2])
        totals["wedges", 0] = int((degrees * (degrees - 1) // 2).sum())
        sizes = np.unique(np.asarray(fresh["trussness_of_edge"][2]), return_counts=True)
        totals |= {("trusses", int(k)): int(n) for k, n in zip(*sizes, strict=True)}
    if MOTIF in fresh:
        _, places, counts = (np.asarray(column) for column in fresh[MOTIF])
        for place, patterns_ in enumerate(motifs.values()):
            totals["motifs", place] = int(counts[places == place].sum()) // len(patterns_[0].vertices)
    return {measure: value for measure, value in totals.items() if value}


def _total_columns(value: Any) -> tuple[None, None, Longs]:
    return None, None, np.array([value], np.int64)


def _count_motifs(motifs: Mapping[str, Sequence[motif_patterns.Pattern]], graph: pa.Table) -> Result:
    """Count every motif of one graph from scratch: the vertices, the indices of the motifs, and the counts."""
    relations = {}
    for name in motif_patterns.list_relations(motifs):
        relations[name] = _pairs_of_relation(graph, name)
    parts = []
    for place, motif in enumerate(motifs.values()):
        vertices, counts = motif_kernel.count_motifs(motif, relations)
        parts.append((vertices, np.full(vertices.size, place), counts))
    vertices, places, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
    return vertices, places, counts


def _differing_rows(kept: Result | None, fresh: Result | None) -> tuple[pa.ChunkedArray, ...]:
    """Return the rows on which two results differ, in order: a, b, and both values (null where there is no row)."""
    sides = []
    for place, side in enumerate((kept, fresh)):
        a, b, value = side or (None, None, np.zeros(0, np.int64))
        n = len(value)
        values = [_to_column(value if place == 0 else None, n), _to_column(value if place == 1 else None, n)]
        sides.append(pa.table([_to_column(a, n), _to_column(b, n), *values], ["a", "b", "old", "new"]))
    both = pa.concat_tables(sides).group_by(["a", "b"]).aggregate([("old", "sum"), ("new", "sum")])
    wrong = both.filter(pc.fill_null(pc.not_equal(both["old_sum"], both["new_sum"]), True))
    wrong = wrong.sort_by([("a", "ascending"), ("b", "ascending")])
    return tuple(wrong[name] for name in ("a", "b", "old_sum", "new_sum"))


def _uncertified_edges(*edges: pa.ChunkedArray) -> dict[str, tuple[Longs, Longs, Longs]]:
    """Return the edges a, b, k whose trussness is wrong: they are in too few triangles, or in a set that can rise.

    Rows that cannot be the trussness of a graph (an end is missing, an edge is there twice, k is below 2) are
    differences anyway, and are not judged here.
    """
    listed = pa.table(list(edges), ["a", "b", "k"]).drop_null()
    a, b, k = (_to_longs(listed[name]) for name in ("a", "b", "k"))
    fine = (k >= 2) & (a < b)
    a, b, k = _distinct_rows(a[fine], b[fine], k[fine])
    verdict = certificate_kernel.check_trussness(a, b, k)
    wrong = {"trussness_too_high": verdict.too_high, "trussness_too_low": verdict.too_low}
    return {what: (a[at], b[at], k[at]) for what, at in wrong.items()}


def _pairs_of_relation(graph: pa.Table, relation: str) -> tuple[Longs, Longs]:
    """Return the pairs of a relation, each once."""
    rows = graph.filter(pc.equal(graph["relation"], relation))
    a, b = _distinct_rows(_to_longs(rows["a"]), _to_longs(rows["b"]))
    return a, b


def _distinct_rows(*columns: Longs) -> tuple[Longs, ...]:
    """Sort the rows, and return one for each pair in the first two columns."""
    order = sort_order(columns)
    columns = tuple(column[order] for column in columns)
    new = np.ones(order.size, bool)
    new[1:] = (columns[0][1:] != columns[0][:-1]) | (columns[1][1:] != columns[1][:-1])
    return tuple(column[new] for column in columns)


def _to_longs(column: pa.ChunkedArray) -> Longs:
    return np.asarray(column.to_numpy(), dtype=np.int64)


def _to_column(values: Values | int, n: int) -> pa.ChunkedArray | pa.Array:
    """Return whole numbers as an Arrow column. None gives `n` nulls, and a number gives `n` copies of it."""
    if values is None or isinstance(values, int):
        return pa.repeat(pa.scalar(values, pa.int64()), n)
    return pa.array(values) if isinstance(values, np.ndarray) else values


def result_table(schema: str, epoch: int, what: str, *columns: Values | int) -> pa.Table:
    """Build a table of `schema` from columns, after the constant columns epoch and what."""
    names = [column.split(" ")[0] for column in schema.split(", ")]
    n = next(len(column) for column in columns if not (column is None or isinstance(column, int)))
    return pa.table([_to_column(epoch, n), pa.repeat(pa.scalar(what), n), *(_to_column(c, n) for c in columns)], names)
