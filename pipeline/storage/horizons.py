"""The horizon of a run in each table: only the rows from it on, and of diff triples the sum of those before it, matter.

A run whose first epoch is f reads the rows of a table in which one column of time is at least some number. Why nothing
else matters is said by `algorithms.algebra.horizon`. Here the number serves files: a writer of many rows puts those
before the horizon of the next run into files of their own (`split_at_horizon`), and Iceberg skips files by the bounds
of the column. `IcebergTable.count_rows` counts the rows of the others, by which runs choose their plans.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .table_schemas import INTERVALS


class Horizon(NamedTuple):
    """The rows of a table whose `column` is at least `lower_bound`."""

    column: str
    lower_bound: int

    @property
    def condition(self) -> str:
        """The condition for the rows from the horizon on, in the SQL of Spark and of DuckDB."""
        return f"{self.column} >= {self.lower_bound}"


def table_horizon(table: str, first: int, live_for: int | None) -> Horizon | None:
    """Return the horizon of a run whose first epoch is `first`, or None where every row of the table may matter.

    >>> table_horizon("edges", 7, 3), table_horizon("upserts", 7, 3)
    (Horizon(column='until', lower_bound=7), Horizon(column='epoch', lower_bound=4))
    >>> table_horizon("trussness", 7, 3)
    Horizon(column='epoch', lower_bound=7)
    """
    if table in INTERVALS:
        return Horizon("until", first)
    if table == "names" or (table == "upserts" and live_for is None):
        return None
    return Horizon("epoch", first - (live_for or 0) if table == "upserts" else first)


def next_horizon(table: str, frontier: int, live_for: int | None) -> Horizon | None:
    """Return the horizon of a run that follows the frontier, or None where all rows of the table are on one side of it.

    Only intervals, and what expires after a window, can lie after the frontier.

    >>> next_horizon("edges", 6, None), next_horizon("degrees", 6, None), next_horizon("degrees", 6, 3)
    (Horizon(column='until', lower_bound=7), None, Horizon(column='epoch', lower_bound=7))
    """
    may_lie_after = table in INTERVALS or (live_for is not None and table not in ("trussness", "quarantine"))
    return table_horizon(table, frontier + 1, live_for) if may_lie_after else None


def split_at_horizon(rows: DataFrame, horizon: Horizon, partitions: int) -> DataFrame:
    """Put the rows from a horizon on into `partitions` partitions, and those before it into as many others."""
    share = F.pmod(F.hash(rows[rows.columns[0]]), F.lit(partitions))
    place = F.when(F.expr(horizon.condition), share).otherwise(share + partitions)
    return rows.repartitionById(2 * partitions, place)
