"""The rows whose values have changed most at an epoch, for the report."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from altneu.algorithms.sql_text import window_clause

from ...reading.vertex_names import replace_with_names
from ...state.stage_results import Top
from ..run_context import RunContext

TOP, REPORTED = 5, 400  # rows per epoch, and epochs per run, that are kept


def find_most_changed(run: RunContext, table: DataFrame, data: list[str], amount: str, name: str) -> Top:
    """Find the rows whose value has changed most at each epoch; EXECUTES.

    Args:
        run: The run; only its `REPORTED` newest epochs are looked at.
        table: Rows with the column `epoch` and the columns `data`.
        data: The columns that identify a row, which contain vertices.
        amount: How much a row of the table changes the value, as SQL.
        name: The name of the value.

    Returns:
        For each epoch at most `TOP` rows, the greatest change first.
    """
    epochs = sorted(run.epochs)[-REPORTED:]
    rows = table.where(f"epoch IN ({', '.join(map(str, epochs))})" if epochs else "false")
    if (
        run.parent.frontier is None and len(run.epochs) == 1
    ):  # in a first load every key has one row, and there may be many
        sums = rows.selectExpr("epoch", *data, f"{amount} AS {name}")
    else:
        sums = rows.groupBy("epoch", *data).agg(F.expr(f"sum({amount}) AS {name}"))
    place = f"row_number() {window_clause(['epoch'], [f'abs({name}) DESC', *data])} AS place"
    top = sums.where(f"{name} <> 0").selectExpr("*", place).where(f"place <= {TOP}")
    readable = replace_with_names(run.warehouse, run.unpublished_revision(), top, data)
    changes: dict[str, list[dict[str, int | str]]] = {}
    for row in sorted(readable.collect(), key=lambda row: (row.epoch, row.place)):
        changes.setdefault(str(row.epoch), []).append({**{c: row[c] for c in data}, name: row[name]})
    return changes
