"""Suite `quarantine`: the malformed rows of a run. The suite `volumes` judges how many there are."""

from __future__ import annotations

from .model import Frame, Rule, has_value

SUITE = "quarantine"
_BUG = "the row is kept and does no harm; report it with the rows below"

_quarantine = Frame(SUITE, "quarantine", _BUG)

EXPECTATIONS = [
    _quarantine.warn_unless(
        "a quarantined row has a reason",
        "A person who fixes the file needs to know what is wrong with the row.",
        Rule(kind="ExpectColumnValueLengthsToBeBetween", args={"column": "reason_text", "min_value": 1}),
    ),
    _quarantine.warn_unless(
        "a quarantined row has a file",
        "A person who fixes the row needs to know which file it is in.",
        has_value("file"),
    ),
]
