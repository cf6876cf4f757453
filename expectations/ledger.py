"""Suite `ledger`: the totals that a reader sees first, against the tables and against each other."""

from __future__ import annotations

from .model import Expectation

SUITE = "ledger"
_BUG = (
    "nothing of this run is published; altneu repair shows whether what was published before is wrong, and then "
    "publishes it again; otherwise: altneu rebuild"
)


def _total_equals(name: str, meaning: str, total: str, counted: str, needs: str) -> Expectation:
    return Expectation(
        SUITE,
        name,
        "critical",
        meaning,
        _BUG,
        on="sums",
        needs=("totals", needs),
        kind="ExpectColumnPairValuesToBeEqual",
        args={"column_A": total, "column_B": counted},
        show=("epoch", total, counted),
    )


EXPECTATIONS = [
    _total_equals(
        "the total of edges is the size of the edge set",
        "The total that is shown counts the edges that are stored.",
        "edges",
        "edges_counted",
        "edges_at",
    ),
    _total_equals(
        "the total of vertices is the number of degrees",
        "The total that is shown counts the vertices with an edge.",
        "vertices",
        "vertices_counted",
        "degrees_at",
    ),
    _total_equals(
        "the total of wedges is that of the degrees",
        "The pairs of edges that meet, of which the transitivity is the closed share, are those of the stored degrees.",
        "wedges",
        "wedges_counted",
        "degrees_at",
    ),
    _total_equals(
        "the maximum trussness is the greatest k",
        "The maximum that is shown is the greatest trussness of an edge, and 0 when there are no edges.",
        "max_trussness",
        "greatest_k",
        "trussness_at",
    ),
    Expectation(
        SUITE,
        "the totals of motifs are those of the vertices",
        "critical",
        "What the counts of all vertices add up to is each motif's total, times the vertices in an occurrence.",
        _BUG,
        on="motifs",
        needs=("motifs",),
        kind="ExpectColumnPairValuesToBeEqual",
        args={"column_A": "times_vertices", "column_B": "counted"},
        show=("motif", "occurrences", "vertices_in_one", "counted"),
    ),
    Expectation(
        SUITE,
        "the total of triangles is possible with so many edges",
        "critical",
        "A graph with m edges has at most (2m)^1.5 / 6 triangles, and never a negative number.",
        _BUG,
        on="sums",
        needs=("totals",),
        kind="ExpectColumnValuesToBeNull",
        args={"column": "impossible_triangles"},
        show=("epoch", "edges", "triangles", "impossible_triangles"),
    ),
    Expectation(
        SUITE,
        "the total of vertices is possible with so many edges",
        "critical",
        "A graph of n vertices that all have an edge has between n/2 and n(n-1)/2 edges.",
        _BUG,
        on="sums",
        needs=("totals",),
        kind="ExpectColumnValuesToBeNull",
        args={"column": "impossible_vertices"},
        show=("epoch", "edges", "vertices", "impossible_vertices"),
    ),
    Expectation(
        SUITE,
        "the maximum trussness is possible with so many triangles",
        "critical",
        "The maximum trussness k is 0 without edges and 2 without triangles; k >= 3 takes k(k-1)(k-2)/6 triangles.",
        _BUG,
        on="sums",
        needs=("totals",),
        kind="ExpectColumnValuesToBeNull",
        args={"column": "impossible_trussness"},
        show=("epoch", "edges", "triangles", "max_trussness", "impossible_trussness"),
    ),
]
