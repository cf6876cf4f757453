"""Suite `upserts`: the rows that a run has landed, and the stored rows of the epochs that it touched."""

from __future__ import annotations

from .model import Expectation

SUITE = "upserts"
_FIX = "fix the file in the landing, then: altneu run {epoch}"
_BUG = "nothing is lost: run altneu run {epoch} again; if it fails again, report it with the rows below"


def _column_exists(column: str, why: str) -> Expectation:
    return Expectation(
        SUITE,
        f"{column} is there",
        "critical",
        f"Every stored upsert has a value of {column}: {why}.",
        _BUG,
        on="upserts",
        kind="ExpectColumnValuesToNotBeNull",
        args={"column": column},
    )


EXPECTATIONS = [
    Expectation(
        SUITE,
        "columns have their declared types",
        "critical",
        "The table of upserts has the columns that altneu.toml declares, with their types, and no others.",
        "compare [values] in altneu.toml with the rows below; a value column cannot change its type once it has data",
        on="upserts_columns",
        kind="ExpectColumnPairValuesToBeEqual",
        args={"column_A": "type", "column_B": "declared", "ignore_row_if": "neither"},
    ),
    _column_exists("src", "it is one end of the edge"),
    _column_exists("dst", "it is one end of the edge"),
    _column_exists("op", "without it nothing says whether the row sets or deletes a value"),
    _column_exists("seq", "it orders the upserts of one key within an epoch"),
    _column_exists("epoch", "it says when the row is valid"),
    Expectation(
        SUITE,
        "op is upsert or delete",
        "critical",
        "An upsert sets the value of its key or deletes it; there is no third operation.",
        _BUG,
        on="upserts",
        kind="ExpectColumnValuesToBeInSet",
        args={"column": "op", "value_set": ["upsert", "delete"]},
    ),
    Expectation(
        SUITE,
        "epoch is one of this run",
        "critical",
        "A run writes only upserts of the epochs for which it was started.",
        _BUG,
        on="upserts",
        needs=("volumes",),
        kind="ExpectColumnValuesToBeNull",
        args={"column": "foreign"},
    ),
    Expectation(
        SUITE,
        "each row is added once",
        "critical",
        "A landed row is stored with a diff of +1; a greater diff would count it twice.",
        _BUG,
        on="upserts",
        kind="ExpectColumnValuesToBeInSet",
        args={"column": "diff", "value_set": [1]},
    ),
    Expectation(
        SUITE,
        "file is named",
        "warning",
        "Every upsert can be traced to the file that brought it.",
        _BUG,
        on="upserts",
        kind="ExpectColumnValuesToNotBeNull",
        args={"column": "file"},
    ),
    Expectation(
        SUITE,
        "line counts from 1",
        "warning",
        "Every upsert can be traced to its line; the first line of a file is 1.",
        _BUG,
        on="upserts",
        kind="ExpectColumnValuesToBeBetween",
        args={"column": "line", "min_value": 1},
    ),
    Expectation(
        SUITE,
        "one value per key and seq",
        "warning",
        "Within an epoch seq decides which upsert of a key is the last one. These rows have the same key and seq, but "
        "different contents: the greatest value is taken, and a value before a delete.",
        "give the rows different seq values, then: altneu run {epoch}",
        on="upserts",
        kind="ExpectColumnValuesToBeNull",
        args={"column": "rivals"},
    ),
    Expectation(
        SUITE,
        "numbers are finite",
        "warning",
        "Comparisons with NaN or infinity may surprise: a filter on such a value may keep rows that you want to drop.",
        _FIX,
        on="upserts",
        kind="ExpectColumnValuesToBeNull",
        args={"column": "not_finite"},
    ),
    Expectation(
        SUITE,
        "upserts carry their values",
        "info",
        "The row sets its key but leaves a declared value column empty; a filter on that column takes it as absent.",
        "nothing, if the column may be empty; otherwise " + _FIX,
        on="upserts",
        kind="ExpectColumnValuesToBeNull",
        args={"column": "no_value"},
    ),
    Expectation(
        SUITE,
        "no self-loops",
        "info",
        "A row whose two ends are the same vertex makes no edge: it is stored, but has no effect.",
        "nothing, if the source has such rows; otherwise " + _FIX,
        on="upserts",
        kind="ExpectColumnValuesToBeNull",
        args={"column": "self_loop"},
    ),
    Expectation(
        SUITE,
        "a landed row is stored at most once",
        "critical",
        "Summed over all revisions, each landed row is stored once, or not at all if it was replaced.",
        _BUG,
        on="upserts_net",
        kind="ExpectColumnValuesToBeInSet",
        args={"column": "copies", "value_set": [0, 1]},
    ),
]
