"""Suite `triangle_counts`: the number of triangles of each vertex at the checked epoch."""

from __future__ import annotations

from .model import Expectation

SUITE = "triangle_counts"
_BUG = "altneu audit {epoch}; nothing of this run is published: run it again, and report it if it fails again"

EXPECTATIONS = [
    Expectation(
        SUITE,
        "a vertex has one count",
        "critical",
        "The vertex is the key of the triangle counts.",
        _BUG,
        on="vertices",
        needs=("triangle_counts_at",),
        kind="ExpectColumnValuesToBeInSet",
        args={"column": "triangle_rows", "value_set": [1]},
    ),
    Expectation(
        SUITE,
        "a count is not negative",
        "critical",
        "A negative number of triangles means a retraction without its insertion, or a diff with the wrong sign.",
        _BUG,
        on="vertices",
        needs=("triangle_counts_at",),
        kind="ExpectColumnValuesToBeBetween",
        args={"column": "triangles", "min_value": 0},
    ),
    Expectation(
        SUITE,
        "a count fits the vertex's degree",
        "critical",
        "A vertex with d edges is in at most d(d-1)/2 triangles, and in none without edges.",
        _BUG,
        on="vertices",
        needs=("triangle_counts_at", "degrees_at"),
        kind="ExpectColumnValuesToBeNull",
        args={"column": "too_many_triangles"},
    ),
    Expectation(
        SUITE,
        "the counts sum to three times the triangles",
        "critical",
        "Every triangle has three corners, so the counts of all vertices add up to three times the total.",
        _BUG,
        on="sums",
        needs=("triangle_counts_at", "totals"),
        kind="ExpectColumnPairValuesToBeEqual",
        args={"column_A": "sum_of_counts", "column_B": "three_times_the_triangles"},
        show=("epoch", "sum_of_counts", "three_times_the_triangles"),
    ),
]
