"""The rules of `[publish] approve`: when a run is held until a person approves, as a condition on what it changes.

A rule is a condition as `[edges] where` is one, with comparisons, AND, OR and NOT, on the numbers of `NUMBERS`. Shares
may be written in per cent: `moved > 0.5 % or warnings > 0`.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

NUMBERS = {  # number → what it counts
    "moved": "the greatest share by which a total, or a k-truss, of an epoch that is already published changes",
    "restated": "the epochs that are already published, and whose graph changes",
    "vertices": "the greatest change of this total at any epoch",
    "edges": "the greatest change of this total at any epoch",
    "triangles": "the greatest change of this total at any epoch",
    "max_trussness": "the greatest change of this total at any epoch",
    "truss_5": "the greatest change of the edges in the 5-truss at any epoch; so with every k from 2 on",
    "epochs": "the epochs of the run",
    "rows": "the landed rows of these epochs",
    "quarantined": "the malformed rows of these epochs",
    "warnings": "the checks that warn",
}
ALWAYS, ON_WARNING, NEVER = "always", "on warning", "never"
_RULES = {ALWAYS: "epochs >= 0", ON_WARNING: "warnings > 0", NEVER: "epochs < 0"}
_TRUSS = re.compile(r"truss_([2-9]|[1-9]\d{1,8})")
_PER_CENT = re.compile(r"(\d+(?:\.\d+)?)\s*%(?=\s*(?:$|\)|and\b|or\b))", re.IGNORECASE)


def parse_rule(text: str) -> str:
    """Return a rule as a condition on its numbers.

    Raises:
        ValueError: It is no such condition; the message says why.

    >>> parse_rule("moved > 0.5 % or warnings > 0")
    'moved > 0.005 or warnings > 0'
    >>> parse_rule("tri > 3")
    Traceback (most recent call last):
    ValueError: there is no number 'tri' (position 1); the numbers are: moved, restated, vertices, edges, triangles, \
max_trussness, truss_5, epochs, rows, quarantined, warnings. A rule may also be "always", "on warning" or "never"
    """
    if text in _RULES:
        return _RULES[text]
    from altneu.algorithms.sql_predicates import Condition, can_fail

    condition = _PER_CENT.sub(lambda share: f"{Decimal(share[1]) / 100:f}", text)
    read = Condition.from_text(condition)
    for column in read.columns:
        if not is_number(column.name):
            where, known = f"position {column.position}", ", ".join(NUMBERS)
            words = '. A rule may also be "always", "on warning" or "never"'
            raise ValueError(f"there is no number {column.name!r} ({where}); the numbers are: {known}{words}")
    types = {column.name: "double" for column in read.columns}
    if read.is_one_column or not types or can_fail(condition, types):
        raise ValueError("a rule compares these numbers with numbers, and joins comparisons by AND, OR and NOT")
    return condition


def is_number(name: str) -> bool:
    return name in NUMBERS or _TRUSS.fullmatch(name) is not None


def named_numbers(text: str) -> list[str]:
    """Return the numbers that a rule uses, in their order and each once."""
    from altneu.algorithms.sql_predicates import Condition

    return list(dict.fromkeys(column.name for column in Condition.from_text(parse_rule(text)).columns))


def check_rule(text: str) -> str:
    """Return a rule as it is written. Raise `ValueError` where it is none."""
    parse_rule(text)
    return text


def as_rule(value: Any) -> Any:
    """Return a rule that stands alone, without the persons who may approve, as the table that it is short for."""
    return {"when": value} if isinstance(value, str) else value
