"""Suite `degrees`: the number of edges of each vertex at the checked epoch."""

from __future__ import annotations

from .model import Frame, equals_column, is_between, is_null, is_one_of

SUITE = "degrees"
_BUG = "altneu audit {epoch}; nothing of this run is published: run it again, and report it if it fails again"

_vertices = Frame(SUITE, "vertices", _BUG, needs=("degrees_at",))
_sums = Frame(SUITE, "sums", _BUG, needs=("degrees_at", "edges_at"))

EXPECTATIONS = [
    _vertices.require("a vertex has one degree", "The vertex is the key of the degrees.", is_one_of("degree_rows", 1)),
    _vertices.require(
        "a degree is at least 1",
        "A vertex without edges is not listed; a negative degree means that a diff is lost or doubled.",
        is_between("degree", 1),
    ),
    _vertices.require(
        "a degree is the number of the vertex's edges",
        "Counting each vertex's edges in the edge set gives its maintained degree.",
        is_null("wrong_degree"),
        needs=("degrees_at", "edges_at"),
    ),
    _sums.require(
        "the degrees sum to twice the edges",
        "Every edge has two ends.",
        equals_column("sum_of_degrees", "twice_the_edges"),
        show=("epoch", "sum_of_degrees", "twice_the_edges"),
    ),
]
