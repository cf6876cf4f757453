"""Suite `degrees`: the number of edges of each vertex at the checked epoch."""

from __future__ import annotations

from .model import Expectation

SUITE = "degrees"
_BUG = "altneu audit {epoch}; nothing of this run is published: run it again, and report it if it fails again"

EXPECTATIONS = [
    Expectation(
        SUITE,
        "a vertex has one degree",
        "critical",
        "The vertex is the key of the degrees.",
        _BUG,
        on="vertices",
        needs=("degrees_at",),
        kind="ExpectColumnValuesToBeInSet",
        args={"column": "degree_rows", "value_set": [1]},
    ),
    Expectation(
        SUITE,
        "a degree is at least 1",
        "critical",
        "A vertex without edges is not listed; a negative degree means that a diff is lost or doubled.",
        _BUG,
        on="vertices",
        needs=("degrees_at",),
        kind="ExpectColumnValuesToBeBetween",
        args={"column": "degree", "min_value": 1},
    ),
    Expectation(
        SUITE,
        "a degree is the number of the vertex's edges",
        "critical",
        "Counting each vertex's edges in the edge set gives its maintained degree.",
        _BUG,
        on="vertices",
        needs=("degrees_at", "edges_at"),
        kind="ExpectColumnValuesToBeNull",
        args={"column": "wrong_degree"},
    ),
    Expectation(
        SUITE,
        "the degrees sum to twice the edges",
        "critical",
        "Every edge has two ends.",
        _BUG,
        on="sums",
        needs=("degrees_at", "edges_at"),
        kind="ExpectColumnPairValuesToBeEqual",
        args={"column_A": "sum_of_degrees", "column_B": "twice_the_edges"},
        show=("epoch", "sum_of_degrees", "twice_the_edges"),
    ),
]
