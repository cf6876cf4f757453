"""Suite `triangle_counts`: the number of triangles of each vertex at the checked epoch."""

from __future__ import annotations

from .model import Frame, equals_column, is_between, is_null, is_one_of

SUITE = "triangle_counts"
_BUG = "altneu audit {epoch}; nothing of this run is published: run it again, and report it if it fails again"

_vertices = Frame(SUITE, "vertices", _BUG, needs=("triangle_counts_at",))
_sums = Frame(SUITE, "sums", _BUG, needs=("triangle_counts_at", "totals"))

EXPECTATIONS = [
    _vertices.require(
        "a vertex has one count", "The vertex is the key of the triangle counts.", is_one_of("triangle_rows", 1)
    ),
    _vertices.require(
        "a count is not negative",
        "A negative number of triangles means a retraction without its insertion, or a diff with the wrong sign.",
        is_between("triangles", 0),
    ),
    _vertices.require(
        "a count fits the vertex's degree",
        "A vertex with d edges is in at most d(d-1)/2 triangles, and in none without edges.",
        is_null("too_many_triangles"),
        needs=("triangle_counts_at", "degrees_at"),
    ),
    _sums.require(
        "the counts sum to three times the triangles",
        "Every triangle has three corners, so the counts of all vertices add up to three times the total.",
        equals_column("sum_of_counts", "three_times_the_triangles"),
        show=("epoch", "sum_of_counts", "three_times_the_triangles"),
    ),
]
