"""Suite `edges`: the edge intervals that a run changes, and the edge set as of the checked epoch."""

from __future__ import annotations

from .model import Expectation

SUITE = "edges"
_BUG = "altneu audit {epoch}; nothing of this run is published: run it again, and report it if it fails again"


def _column_exists(column: str) -> Expectation:
    return Expectation(
        SUITE,
        f"{column} of a changed interval is there",
        "critical",
        f"A changed edge interval without {column} cannot be assigned to an edge and an epoch.",
        _BUG,
        on="edge_delta",
        kind="ExpectColumnValuesToNotBeNull",
        args={"column": column},
    )


EXPECTATIONS = [
    Expectation(
        SUITE,
        "columns have their declared types",
        "critical",
        "The table of edges has its columns, with their types, and no others.",
        "altneu doctor; the table was changed by something other than altneu",
        on="edge_delta_columns",
        kind="ExpectColumnPairValuesToBeEqual",
        args={"column_A": "type", "column_B": "declared", "ignore_row_if": "neither"},
    ),
    *map(_column_exists, ("a", "b", "epoch", "until", "diff")),
    Expectation(
        SUITE,
        "a is less than b in every changed interval",
        "critical",
        "An edge is stored once, as (a, b) with a < b, and never joins a vertex to itself.",
        _BUG,
        on="edge_delta",
        kind="ExpectColumnPairValuesAToBeGreaterThanB",
        args={"column_A": "b", "column_B": "a", "ignore_row_if": "either_value_is_missing"},
    ),
    Expectation(
        SUITE,
        "every changed interval ends after it begins",
        "critical",
        "An edge lives from epoch to just before until; an interval that ends when it begins, or earlier, is a fault.",
        _BUG,
        on="edge_delta",
        kind="ExpectColumnPairValuesAToBeGreaterThanB",
        args={"column_A": "until", "column_B": "epoch", "ignore_row_if": "either_value_is_missing"},
    ),
    Expectation(
        SUITE,
        "no zero diffs",
        "critical",
        "A diff of 0 changes nothing and should not have been written.",
        _BUG,
        on="edge_delta",
        kind="ExpectColumnValuesToNotBeInSet",
        args={"column": "diff", "value_set": [0]},
    ),
    Expectation(
        SUITE,
        "diffs are +1 or -1",
        "critical",
        "An edge comes or goes once; a greater step counts it several times.",
        _BUG,
        on="edge_delta",
        kind="ExpectColumnValuesToBeBetween",
        args={"column": "diff", "min_value": -1, "max_value": 1},
    ),
    Expectation(
        SUITE,
        "changed intervals of an edge do not overlap",
        "critical",
        "Within one run an edge changes at most once at any epoch; two overlapping changes are a doubled diff.",
        _BUG,
        on="edge_delta",
        kind="ExpectColumnValuesToBeNull",
        args={"column": "overlaps"},
    ),
    Expectation(
        SUITE,
        "every changed edge has an upsert in a batch of this run",
        "critical",
        "An edge changes only when an upsert of its two ends landed, and not before that upsert's epoch.",
        _BUG,
        on="edge_delta",
        needs=("upserts_net",),
        kind="ExpectColumnValuesToBeNull",
        args={"column": "unexplained"},
    ),
    Expectation(
        SUITE,
        "a is less than b in the edge set",
        "critical",
        "An edge is stored once, as (a, b) with a < b, and never joins a vertex to itself.",
        _BUG,
        on="edge_set",
        needs=("edges_at",),
        kind="ExpectColumnPairValuesAToBeGreaterThanB",
        args={"column_A": "b", "column_B": "a", "ignore_row_if": "either_value_is_missing"},
    ),
    Expectation(
        SUITE,
        "an edge is in the edge set once",
        "critical",
        "Summed over all revisions, each edge exists exactly once. A lost or a doubled diff changes this number.",
        _BUG,
        on="edge_set",
        needs=("edges_at",),
        kind="ExpectColumnValuesToBeInSet",
        args={"column": "copies", "value_set": [1]},
    ),
    Expectation(
        SUITE,
        "the edge set lists an edge once",
        "critical",
        "The pair (a, b) is the key of the edge set.",
        _BUG,
        on="edge_set",
        needs=("edges_at",),
        kind="ExpectColumnValuesToBeInSet",
        args={"column": "edge_rows", "value_set": [1]},
    ),
]
