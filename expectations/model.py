"""What an expectation is: a rule of Great Expectations with the explanations that a person needs.

`on` names the frame it is checked on (`frame_builder.py` builds them), `needs` the given frames without which it is
skipped. `kind` and `args` are the Great Expectations class and its arguments. Within a suite names are unique and
stable: the ledger keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

Severity = Literal["critical", "warning", "info"]


@dataclass(frozen=True)
class Expectation:
    """One check. `remedy` says what to do when it fails; `{epoch}` in it becomes the epoch's label."""

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
    says: str = ""  # an offending row in words: its columns of `show` in braces; empty: their names and values
    unjudged: str = ""  # what to say when the column holds nothing to judge
    per_epoch: bool = False  # one result for each epoch of the frame


def no_difference(suite: str, on: str, remedy: str, kind: str, name: str, meaning: str) -> Expectation:
    """At no epoch of the frame `on` does its column `kind`, a number of differences, hold more than 0."""
    rule, args = "ExpectColumnValuesToBeInSet", {"column": kind, "value_set": [0]}
    return Expectation(suite, name, "critical", meaning, remedy, on, rule, args, per_epoch=True)


class Check(TypedDict):
    """What a check found at an epoch, passed or not: as the ledger keeps it. `rows`: some that are wrong, as JSON."""

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
    """What Great Expectations found: `wrong` of `total` rows, and up to 20 of them."""

    expectation: Expectation
    passed: bool
    wrong: int
    total: int
    rows: list[dict[str, Any]]
    judged: bool = True
