"""Suite `edges`: the edge intervals that a run changes, and the edge set as of the checked epoch."""

from __future__ import annotations

from .model import (
    Expectation,
    Frame,
    equals_column,
    exceeds_column,
    has_value,
    is_between,
    is_none_of,
    is_null,
    is_one_of,
)

SUITE = "edges"
_BUG = "altneu audit {epoch}; nothing of this run is published: run it again, and report it if it fails again"

_edge_delta = Frame(SUITE, "edge_delta", _BUG)
_edge_delta_columns = Frame(SUITE, "edge_delta_columns", _BUG)
_edge_set = Frame(SUITE, "edge_set", _BUG, needs=("edges_at",))


def _column_exists(column: str) -> Expectation:
    return _edge_delta.require(
        f"{column} of a changed interval is there",
        f"A changed edge interval without {column} cannot be assigned to an edge and an epoch.",
        has_value(column),
    )


EXPECTATIONS = [
    _edge_delta_columns.require(
        "columns have their declared types",
        "The table of edges has its columns, with their types, and no others.",
        equals_column("type", "declared", ignore_row_if="neither"),
        remedy="altneu doctor; the table was changed by something other than altneu",
    ),
    *map(_column_exists, ("a", "b", "epoch", "until", "diff")),
    _edge_delta.require(
        "a is less than b in every changed interval",
        "An edge is stored once, as (a, b) with a < b, and never joins a vertex to itself.",
        exceeds_column("b", "a", ignore_row_if="either_value_is_missing"),
    ),
    _edge_delta.require(
        "every changed interval ends after it begins",
        "An edge lives from epoch to just before until; an interval that ends when it begins, or earlier, is a fault.",
        exceeds_column("until", "epoch", ignore_row_if="either_value_is_missing"),
    ),
    _edge_delta.require(
        "no zero diffs", "A diff of 0 changes nothing and should not have been written.", is_none_of("diff", 0)
    ),
    _edge_delta.require(
        "diffs are +1 or -1",
        "An edge comes or goes once; a greater step counts it several times.",
        is_between("diff", -1, 1),
    ),
    _edge_delta.require(
        "changed intervals of an edge do not overlap",
        "Within one run an edge changes at most once at any epoch; two overlapping changes are a doubled diff.",
        is_null("overlaps"),
    ),
    _edge_delta.require(
        "every changed edge has an upsert in a batch of this run",
        "An edge changes only when an upsert of its two ends landed, and not before that upsert's epoch.",
        is_null("unexplained"),
        needs=("upserts_net",),
    ),
    _edge_set.require(
        "a is less than b in the edge set",
        "An edge is stored once, as (a, b) with a < b, and never joins a vertex to itself.",
        exceeds_column("b", "a", ignore_row_if="either_value_is_missing"),
    ),
    _edge_set.require(
        "an edge is in the edge set once",
        "Summed over all revisions, each edge exists exactly once. A lost or a doubled diff changes this number.",
        is_one_of("copies", 1),
    ),
    _edge_set.require(
        "the edge set lists an edge once", "The pair (a, b) is the key of the edge set.", is_one_of("edge_rows", 1)
    ),
]
