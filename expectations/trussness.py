"""Suite `trussness`: the largest k such that the edge is in the k-truss, for every edge at the checked epoch."""

from __future__ import annotations

from .model import Expectation

SUITE = "trussness"
_BUG = "altneu audit {epoch}; nothing of this run is published: run it again, and report it if it fails again"

EXPECTATIONS = [
    Expectation(
        SUITE,
        "k is at least 2",
        "critical",
        "Every edge is in the 2-truss, so that a smaller k is not a trussness.",
        _BUG,
        on="edge_set",
        needs=("trussness_at",),
        kind="ExpectColumnValuesToBeBetween",
        args={"column": "k", "min_value": 2},
    ),
    Expectation(
        SUITE,
        "an edge has one k",
        "critical",
        "When the trussness of an edge changes, the old value is retracted: two values at once mean a lost retraction.",
        _BUG,
        on="edge_set",
        needs=("trussness_at",),
        kind="ExpectColumnValuesToBeInSet",
        args={"column": "k_rows", "value_set": [1]},
    ),
    Expectation(
        SUITE,
        "a trussness is there once",
        "critical",
        "Summed over all revisions, the trussness of an edge exists exactly once.",
        _BUG,
        on="edge_set",
        needs=("trussness_at",),
        kind="ExpectColumnValuesToBeInSet",
        args={"column": "k_copies", "value_set": [1]},
    ),
    Expectation(
        SUITE,
        "every edge has a trussness",
        "critical",
        "Each edge of the edge set has a trussness; these edges have none.",
        _BUG,
        on="edge_set",
        needs=("trussness_at", "edges_at"),
        kind="ExpectColumnValuesToNotBeNull",
        args={"column": "k_rows"},
    ),
    Expectation(
        SUITE,
        "every trussness has its edge",
        "critical",
        "Only edges of the edge set have a trussness; these pairs are not edges.",
        _BUG,
        on="edge_set",
        needs=("trussness_at", "edges_at"),
        kind="ExpectColumnValuesToNotBeNull",
        args={"column": "edge_rows"},
    ),
    Expectation(
        SUITE,
        "every k-truss is large enough",
        "critical",
        "In a k-truss each vertex has at least k-1 neighbours, so at least k(k-1)/2 edges have trussness k or more.",
        _BUG,
        on="trusses",
        needs=("trussness_at",),
        kind="ExpectColumnPairValuesAToBeGreaterThanB",
        args={"column_A": "edges_with_k_or_more", "column_B": "at_least", "or_equal": True},
    ),
]
