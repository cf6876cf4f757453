"""The data classes of expectations: a rule of Great Expectations with the explanations that a person needs, and its
result.

`on` names the frame on which it is checked (`frame_builder.py` builds the frames), `needs` the given frames without
which it is skipped. `kind` and `args` are the Great Expectations class and its arguments. Within a suite names are
unique and stable, because the ledger stores them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

Severity = Literal["critical", "warning", "info"]


@dataclass(frozen=True)
class Expectation:
    """One check. `remedy` says what to do if it fails; `{epoch}` in it becomes the epoch's label."""

    suite: str
    name: str
    severity: Severity
    meaning: str
    remedy: str
    on: str
    kind: str
    args: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    show: tuple[str, ...] = ()  # the columns of an offending row that are kept; empty: all of them
    says: str = ""  # the text for an offending row, with columns of `show` in braces; empty: their names and values
    unjudged: str = ""  # the text for a column that has nothing to judge
    per_epoch: bool = False  # one result for each epoch of the frame


def no_difference(suite: str, on: str, remedy: str, kind: str, name: str, meaning: str) -> Expectation:
    """Return the check that the column `kind` of the frame `on`, a number of differences, is 0 at each epoch."""
    rule, args = "ExpectColumnValuesToBeInSet", {"column": kind, "value_set": [0]}
    return Expectation(suite, name, "critical", meaning, remedy, on, rule, args, per_epoch=True)


class Check(TypedDict):
    """The result of a check at an epoch, passed or not, as the ledger stores it. `rows` has some wrong rows, as
    JSON."""

    epoch: int
    suite: str
    name: str
    severity: Severity
    passed: bool
    meaning: str
    remedy: str
    observed: str
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class Verdict:
    """The result of Great Expectations: `wrong` of `total` rows are wrong, and `rows` has up to 20 of them."""

    expectation: Expectation
    passed: bool
    wrong: int
    total: int
    rows: list[dict[str, Any]]
    judged: bool = True
