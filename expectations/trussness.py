"""Suite `trussness`: the largest k such that the edge is in the k-truss, for every edge at the checked epoch."""

from __future__ import annotations

from .model import Frame, exceeds_column, has_value, is_between, is_one_of

SUITE = "trussness"
_BUG = "altneu audit {epoch}; nothing of this run is published: run it again, and report it if it fails again"

_edge_set = Frame(SUITE, "edge_set", _BUG, needs=("trussness_at",))
_trusses = Frame(SUITE, "trusses", _BUG, needs=("trussness_at",))

EXPECTATIONS = [
    _edge_set.require(
        "k is at least 2", "Every edge is in the 2-truss, so that a smaller k is not a trussness.", is_between("k", 2)
    ),
    _edge_set.require(
        "an edge has one k",
        "When the trussness of an edge changes, the old value is retracted: two values at once mean a lost retraction.",
        is_one_of("k_rows", 1),
    ),
    _edge_set.require(
        "a trussness is there once",
        "Summed over all revisions, the trussness of an edge exists exactly once.",
        is_one_of("k_copies", 1),
    ),
    _edge_set.require(
        "every edge has a trussness",
        "Each edge of the edge set has a trussness; these edges have none.",
        has_value("k_rows"),
        needs=("trussness_at", "edges_at"),
    ),
    _edge_set.require(
        "every trussness has its edge",
        "Only edges of the edge set have a trussness; these pairs are not edges.",
        has_value("edge_rows"),
        needs=("trussness_at", "edges_at"),
    ),
    _trusses.require(
        "every k-truss is large enough",
        "In a k-truss each vertex has at least k-1 neighbours, so at least k(k-1)/2 edges have trussness k or more.",
        exceeds_column("edges_with_k_or_more", "at_least", or_equal=True),
    ),
]
