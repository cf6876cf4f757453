"""The rows whose values have changed most at an epoch, for the report."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ...reading.vertex_names import replace_with_names
from ...state.stage_results import Top
from ..run_context import RunContext

TOP, REPORTED = 5, 400  # rows per epoch, and epochs per run, that are kept


def find_most_changed(run: RunContext, table: DataFrame, data: list[str], amount: Column, name: str) -> Top:
    """Find the rows whose value has changed most at each epoch; EXECUTES.

    Args:
        run: The run; only its `REPORTED` newest epochs are looked at.
        table: Rows with the column `epoch` and the columns `data`.
        data: The columns that identify a row, which contain vertices.
        amount: How much a row of the table changes the value.
        name: The name of the value.

    Returns:
        For each epoch at most `TOP` rows, the greatest change first.
    """
    epochs = sorted(run.epochs)[-REPORTED:]
    rows = table.where(F.col("epoch").isin(epochs))
    if (
        run.parent.frontier is None and len(run.epochs) == 1
    ):  # in a first load every key has one row, and there may be many
        sums = rows.select("epoch", *data, amount.alias(name))
    else:
        sums = rows.groupBy("epoch", *data).agg(F.sum(amount).alias(name))
    order = Window.partitionBy("epoch").orderBy(F.abs(name).desc(), *data)
    top = sums.where(F.col(name) != 0).withColumn("place", F.row_number().over(order)).where(F.col("place") <= TOP)
    readable = replace_with_names(run.warehouse, run.unpublished_revision(), top, data)
    changes: dict[str, list[dict[str, int | str]]] = {}
    for row in sorted(readable.collect(), key=lambda row: (row.epoch, row.place)):
        changes.setdefault(str(row.epoch), []).append({**{c: row[c] for c in data}, name: row[name]})
    return changes
