"""Suite `quarantine`: the malformed rows of this run. How many they are is the business of `volumes`."""

from __future__ import annotations

from .model import Expectation

SUITE = "quarantine"
_BUG = "the row is kept and did no harm; report it with the rows below"

EXPECTATIONS = [
    Expectation(
        SUITE,
        "a quarantined row has a reason",
        "warning",
        "Whoever fixes the file needs to know what was wrong with the row.",
        _BUG,
        on="quarantine",
        kind="ExpectColumnValueLengthsToBeBetween",
        args={"column": "reason_text", "min_value": 1},
    ),
    Expectation(
        SUITE,
        "a quarantined row has a file",
        "warning",
        "Whoever fixes the file needs to know which one it is.",
        _BUG,
        on="quarantine",
        kind="ExpectColumnValuesToNotBeNull",
        args={"column": "file"},
    ),
]
