"""The errors of conditions that DuckDB does not evaluate. Importing them imports neither DuckDB nor sqlglot."""

from __future__ import annotations


class UncertainCondition(ValueError):
    """The meaning of a condition is certain only for Spark."""


class Refused(ValueError):
    """No engine accepts a condition: it cannot be parsed, or names a column that does not exist."""
