"""Parts of Spark's SQL as text.

Where a plan is made of texts (`selectExpr`, `F.expr`), PySpark calls the JVM once for each text; of Column operators it
calls once for each name, operator and alias, which is most of the price of a query over few rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def quote_identifier(name: str) -> str:
    """Quote the name of a column for Spark.

    >>> quote_identifier("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def quote_identifiers(names: Iterable[str]) -> list[str]:
    """Quote the names of some columns."""
    return [quote_identifier(name) for name in names]


def quote_text(text: str) -> str:
    """Write a text as a constant for Spark.

    >>> quote_text("a day")
    "'a day'"
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def window_clause(key: Sequence[str], order: Sequence[str]) -> str:
    """Return the window of a key's rows. `order` are texts such as `epoch` or `seq DESC`.

    >>> window_clause(["a"], ["epoch"])
    'OVER (PARTITION BY `a` ORDER BY epoch)'
    """
    return f"OVER (PARTITION BY {', '.join(quote_identifiers(key))} ORDER BY {', '.join(order)})"
