"""Suite `upserts`: the rows that a run has landed, and the stored rows of the epochs that it touched."""

from __future__ import annotations

from .model import Expectation, Frame, equals_column, has_value, is_between, is_null, is_one_of

SUITE = "upserts"
_FIX = "fix the file in the landing, then: altneu run {epoch}"
_BUG = "nothing is lost: run altneu run {epoch} again; if it fails again, report it with the rows below"

_upserts = Frame(SUITE, "upserts", _BUG)
_upserts_columns = Frame(SUITE, "upserts_columns", _BUG)
_upserts_net = Frame(SUITE, "upserts_net", _BUG)


def _column_exists(column: str, why: str) -> Expectation:
    return _upserts.require(
        f"{column} is there", f"Every stored upsert has a value of {column}: {why}.", has_value(column)
    )


EXPECTATIONS = [
    _upserts_columns.require(
        "columns have their declared types",
        "The table of upserts has the columns that altneu.toml declares, with their types, and no others.",
        equals_column("type", "declared", ignore_row_if="neither"),
        remedy="compare [values] in altneu.toml with the rows below; a value column cannot change its type once it has "
        "data",
    ),
    _column_exists("src", "it is one end of the edge"),
    _column_exists("dst", "it is one end of the edge"),
    _column_exists("op", "without it nothing says whether the row sets or deletes a value"),
    _column_exists("seq", "it orders the upserts of one key within an epoch"),
    _column_exists("epoch", "it says when the row is valid"),
    _upserts.require(
        "op is upsert or delete",
        "An upsert sets the value of its key or deletes it; there is no third operation.",
        is_one_of("op", "upsert", "delete"),
    ),
    _upserts.require(
        "epoch is one of this run",
        "A run writes only upserts of the epochs for which it was started.",
        is_null("foreign"),
        needs=("volumes",),
    ),
    _upserts.require(
        "each row is added once",
        "A landed row is stored with a diff of +1; a greater diff would count it twice.",
        is_one_of("diff", 1),
    ),
    _upserts.warn_unless("file is named", "Every upsert can be traced to the file that brought it.", has_value("file")),
    _upserts.warn_unless(
        "line counts from 1",
        "Every upsert can be traced to its line; the first line of a file is 1.",
        is_between("line", 1),
    ),
    _upserts.warn_unless(
        "one value per key and seq",
        "Within an epoch seq decides which upsert of a key is the last one. These rows have the same key and seq, but "
        "different contents: the greatest value is taken, and a value before a delete.",
        is_null("rivals"),
        remedy="give the rows different seq values, then: altneu run {epoch}",
    ),
    _upserts.warn_unless(
        "numbers are finite",
        "Comparisons with NaN or infinity may surprise: a filter on such a value may keep rows that you want to drop.",
        is_null("not_finite"),
        remedy=_FIX,
    ),
    _upserts.note_unless(
        "upserts carry their values",
        "The row sets its key but leaves a declared value column empty; a filter on that column takes it as absent.",
        is_null("no_value"),
        remedy="nothing, if the column may be empty; otherwise " + _FIX,
    ),
    _upserts.note_unless(
        "no self-loops",
        "A row whose two ends are the same vertex makes no edge: it is stored, but has no effect.",
        is_null("self_loop"),
        remedy="nothing, if the source has such rows; otherwise " + _FIX,
    ),
    _upserts_net.require(
        "a landed row is stored at most once",
        "Summed over all revisions, each landed row is stored once, or not at all if it was replaced.",
        is_one_of("copies", 0, 1),
    ),
]
