"""The conditions under which a row breaks a rule, in SQL that Spark and DuckDB understand alike.

A rule without such a row holds, and Great Expectations need not be asked. Where there is one, or a condition cannot be
evaluated, Great Expectations judges the rule and names the rows. A condition may be stricter than the rule, never more
lenient; a test compares both for every class of rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .model import Expectation
from .relations import open_cursor

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame


def wrong_row(rule: Expectation, quote: Callable[[str], str]) -> str:
    """Return the condition for the rows that break a rule. `quote` writes the name of a column."""
    args = rule.args
    match rule.kind:
        case "ExpectColumnValuesToBeNull":
            return f"{quote(args['column'])} IS NOT NULL"
        case "ExpectColumnValuesToNotBeNull":
            return f"{quote(args['column'])} IS NULL"
        case "ExpectColumnValuesToBeInSet" | "ExpectColumnValuesToNotBeInSet":
            negated = "NOT " if rule.kind == "ExpectColumnValuesToBeInSet" else ""
            return f"{quote(args['column'])} {negated}IN ({', '.join(map(repr, args['value_set']))})"
        case "ExpectColumnValuesToBeBetween" | "ExpectColumnValueLengthsToBeBetween":
            column = quote(args["column"])
            value = column if rule.kind == "ExpectColumnValuesToBeBetween" else f"length({column})"
            limits = ((sign, args.get(limit)) for sign, limit in (("<", "min_value"), (">", "max_value")))
            return " OR ".join(f"{value} {sign} {limit}" for sign, limit in limits if limit is not None)
        case "ExpectColumnPairValuesToBeEqual" | "ExpectColumnPairValuesAToBeGreaterThanB":
            a, b = quote(args["column_A"]), quote(args["column_B"])
            greater = ">=" if args.get("or_equal") else ">"
            sign = "=" if rule.kind == "ExpectColumnPairValuesToBeEqual" else greater
            ignored = {
                "neither": "false",
                "either_value_is_missing": "true",
                "both_values_are_missing": f"{a} IS NULL AND {b} IS NULL",
            }
            ignores = args.get("ignore_row_if", "both_values_are_missing")
            return f"NOT coalesce({a} {sign} {b}, {ignored[ignores]})"
    raise NotImplementedError(rule.kind)


def columns_of(rule: Expectation) -> list[str]:
    """Return the columns that a rule looks at."""
    return [rule.args[name] for name in ("column", "column_A", "column_B") if name in rule.args]


def doubtful_rules(frame: DataFrame | pd.DataFrame, rules: Sequence[Expectation]) -> tuple[list[Expectation], int]:
    """Return the rules that may not hold, and the number of rows; EXECUTES one aggregation."""
    import pandas as pd

    known = [rule for rule in rules if set(columns_of(rule)) <= set(frame.columns)]
    if isinstance(frame, pd.DataFrame):
        total, *wrong = _count_in_pandas(frame, known)
    else:
        total, *wrong = _count_in_spark(frame, known)
    fine = {id(rule) for rule, count in zip(known, wrong, strict=True) if not count}
    return [rule for rule in rules if id(rule) not in fine], total


def _count_in_spark(frame: DataFrame, rules: Sequence[Expectation]) -> Sequence[int]:
    from pyspark.sql import functions as F

    conditions = (wrong_row(rule, "`{}`".format) for rule in rules)
    counts = (F.expr(f"count_if({condition})").alias(str(place)) for place, condition in enumerate(conditions))
    (row,) = frame.agg(F.count("*").alias("total"), *counts).collect()
    return row


def _count_in_pandas(frame: pd.DataFrame, rules: Sequence[Expectation]) -> Sequence[int]:
    import duckdb

    wanted = dict.fromkeys(column for rule in rules for column in columns_of(rule))
    conditions = (wrong_row(rule, '"{}"'.format) for rule in rules)
    counts = "".join(f", count_if({condition})" for condition in conditions)
    if not wanted:
        return [len(frame)]
    with open_cursor() as cursor:
        cursor.register("frame", frame[list(wanted)])
        try:
            (row,) = cursor.execute(f"SELECT count(*){counts} FROM frame").fetchall()
        except duckdb.Error:  # values of another kind than the rule expects
            return [len(frame)] * (1 + len(rules))
    return row
