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
    frame: str
    kind: str
    args: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    show: tuple[str, ...] = ()  # the columns of an offending row that are kept; empty: all of them
    row_text: str = ""  # the text for an offending row, with columns of `show` in braces; empty: their names and values
    unjudged: str = ""  # the text for a column that has nothing to judge
    per_epoch: bool = False  # one result for each epoch of the frame


class Rule(TypedDict):
    """A class of Great Expectations, and its arguments."""

    kind: str
    args: Mapping[str, Any]


def is_null(column: str) -> Rule:
    return Rule(kind="ExpectColumnValuesToBeNull", args={"column": column})


def has_value(column: str) -> Rule:
    return Rule(kind="ExpectColumnValuesToNotBeNull", args={"column": column})


def is_one_of(column: str, *values: Any) -> Rule:
    return Rule(kind="ExpectColumnValuesToBeInSet", args={"column": column, "value_set": [*values]})


def is_none_of(column: str, *values: Any) -> Rule:
    return Rule(kind="ExpectColumnValuesToNotBeInSet", args={"column": column, "value_set": [*values]})


def is_between(column: str, least: int, most: int | None = None) -> Rule:
    """Require `least` or more and, if `most` is given, `most` or less."""
    limits = {"min_value": least} | ({} if most is None else {"max_value": most})
    return Rule(kind="ExpectColumnValuesToBeBetween", args={"column": column} | limits)


def equals_column(column: str, other: str, **options: Any) -> Rule:
    args = {"column_A": column, "column_B": other, **options}
    return Rule(kind="ExpectColumnPairValuesToBeEqual", args=args)


def exceeds_column(column: str, other: str, **options: Any) -> Rule:
    args = {"column_A": column, "column_B": other, **options}
    return Rule(kind="ExpectColumnPairValuesAToBeGreaterThanB", args=args)


@dataclass(frozen=True)
class Frame:
    """A frame that a suite checks, with the remedy and the needs that most of these checks share."""

    suite: str
    name: str
    remedy: str
    needs: tuple[str, ...] = ()

    def require(self, name: str, meaning: str, rule: Rule, **fields: Any) -> Expectation:
        """Return a critical check. `fields` are further ones of `Expectation`."""
        return self._make_check(name, "critical", meaning, rule, fields)

    def warn_unless(self, name: str, meaning: str, rule: Rule, **fields: Any) -> Expectation:
        return self._make_check(name, "warning", meaning, rule, fields)

    def note_unless(self, name: str, meaning: str, rule: Rule, **fields: Any) -> Expectation:
        return self._make_check(name, "info", meaning, rule, fields)

    def _make_check(
        self, name: str, severity: Severity, meaning: str, rule: Rule, fields: dict[str, Any]
    ) -> Expectation:
        fields = {"remedy": self.remedy, "needs": self.needs} | fields
        return Expectation(self.suite, name, severity, meaning, frame=self.name, **rule, **fields)


def no_difference(suite: str, on: str, remedy: str, kind: str, name: str, meaning: str) -> Expectation:
    """Return the check that the column `kind` of the frame `on`, a number of differences, is 0 at each epoch."""
    return Frame(suite, on, remedy).require(name, meaning, is_one_of(kind, 0), per_epoch=True)


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
class RuleResult:
    """The result of Great Expectations: `wrong` of `total` rows are wrong, and `rows` has up to 20 of them."""

    expectation: Expectation
    passed: bool
    wrong: int
    total: int
    rows: list[dict[str, Any]]
    judged: bool = True
