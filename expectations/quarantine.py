"""Suite `quarantine`: the malformed rows of a run. The suite `volumes` judges how many there are."""

from __future__ import annotations

from .model import Expectation

SUITE = "quarantine"
_BUG = "the row is kept and does no harm; report it with the rows below"

EXPECTATIONS = [
    Expectation(
        SUITE,
        "a quarantined row has a reason",
        "warning",
        "A person who fixes the file needs to know what is wrong with the row.",
        _BUG,
        on="quarantine",
        kind="ExpectColumnValueLengthsToBeBetween",
        args={"column": "reason_text", "min_value": 1},
    ),
    Expectation(
        SUITE,
        "a quarantined row has a file",
        "warning",
        "A person who fixes the row needs to know which file it is in.",
        _BUG,
        on="quarantine",
        kind="ExpectColumnValuesToNotBeNull",
        args={"column": "file"},
    ),
]
