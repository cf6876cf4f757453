"""Suite `ledger`: the published totals, compared with the tables and with each other."""

from __future__ import annotations

from .model import Expectation, Frame, equals_column, is_null

SUITE = "ledger"
_BUG = (
    "nothing of this run is published; altneu repair shows whether the published state is wrong, and publishes a "
    "recomputation if it is; if it is not: altneu rebuild"
)

_sums = Frame(SUITE, "sums", _BUG, needs=("totals",))
_motifs = Frame(SUITE, "motifs", _BUG, needs=("motifs",))


def _total_equals(name: str, meaning: str, total: str, counted: str, needs: str) -> Expectation:
    return _sums.require(
        name, meaning, equals_column(total, counted), needs=("totals", needs), show=("epoch", total, counted)
    )


EXPECTATIONS = [
    _total_equals(
        "the total of edges is the size of the edge set",
        "The published total is the number of stored edges.",
        "edges",
        "edges_counted",
        "edges_at",
    ),
    _total_equals(
        "the total of vertices is the number of degrees",
        "The published total is the number of vertices with an edge.",
        "vertices",
        "vertices_counted",
        "degrees_at",
    ),
    _total_equals(
        "the total of wedges is that of the degrees",
        "The published number of pairs of edges that meet follows from the stored degrees. The transitivity is the "
        "share of these pairs that triangles close.",
        "wedges",
        "wedges_counted",
        "degrees_at",
    ),
    _total_equals(
        "the maximum trussness is the greatest k",
        "The published maximum is the greatest trussness of an edge, and 0 if there are no edges.",
        "max_trussness",
        "greatest_k",
        "trussness_at",
    ),
    _motifs.require(
        "the totals of motifs are those of the vertices",
        "The counts of all vertices add up to the motif's total times the number of vertices in an occurrence.",
        equals_column("times_vertices", "counted"),
        show=("motif", "occurrences", "vertices_in_one", "counted"),
    ),
    _sums.require(
        "the total of triangles is possible with so many edges",
        "A graph with m edges has at most (2m)^1.5 / 6 triangles, and never a negative number.",
        is_null("impossible_triangles"),
        show=("epoch", "edges", "triangles", "impossible_triangles"),
    ),
    _sums.require(
        "the total of vertices is possible with so many edges",
        "A graph of n vertices, each of which has an edge, has between n/2 and n(n-1)/2 edges.",
        is_null("impossible_vertices"),
        show=("epoch", "edges", "vertices", "impossible_vertices"),
    ),
    _sums.require(
        "the maximum trussness is possible with so many triangles",
        "The maximum trussness k is 0 without edges and 2 without triangles; k >= 3 needs k(k-1)(k-2)/6 triangles.",
        is_null("impossible_trussness"),
        show=("epoch", "edges", "triangles", "max_trussness", "impossible_trussness"),
    ),
]
