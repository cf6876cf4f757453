"""Fingerprints of stored tables, by epoch.

Law     `of_tables` is linear in the rows: that of a run's rows added to that of the tables before is that of the
        tables after (law 11). The hash of a row is of its data columns: those of `ALWAYS` in this order, as kernels
        make it, and then of every other, by the order of names, its name and its value, and nothing where it is null:
        a value column that is declared later leaves the fingerprints of older rows as they are.
Cost    One Spark job: one scan of each table, one row by table and epoch comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from algorithms.edges import steps
from algorithms.fingerprint import lanes, of_row, sums

from ..state.contents import Prints
from .warehouse import INTERVALS, Warehouse, quoted

ALWAYS = {  # the bigint columns of a table that are never null
    "upserts": ("src", "dst"),
    "names": ("id",),
    "edges": ("a", "b"),
    "degrees": ("vertex",),
    "triangle_counts": ("vertex",),
    "trussness": ("a", "b", "k"),
    "motif_edges": ("a", "b"),
    "motif_counts": ("vertex",),
}
TIME = ("epoch", "revision", "diff", "until")  # columns that say when and how often; the others are data
WIDE = ("degrees", "triangle_counts", "motif_counts")  # whose diffs are counts: they may add up to more than 2**31


def of_tables(read: Callable[[str], DataFrame], warehouse: Warehouse, tables: Iterable[str]) -> Prints:
    """Fingerprints of what `read` gives of each table, by epoch; EXECUTES. Epochs whose rows cancel are left out."""
    found: Prints = {table: {} for table in tables}
    kinds: dict[bool, list[DataFrame]] = {}
    for table in found:
        kinds.setdefault(table in WIDE, []).append(_halves(table, read(table), warehouse.column_names(table)))
    summed = [reduce(DataFrame.unionByName, rows).groupBy("_table", "epoch").agg(*sums()) for rows in kinds.values()]
    for row in reduce(DataFrame.unionByName, summed).collect() if summed else ():
        if each := of_row(row):
            found[row["_table"]][row["epoch"]] = each
    return {table: dict(sorted(by_epoch.items())) for table, by_epoch in found.items()}


def data_columns(columns: Iterable[str]) -> list[str]:
    """Those of a table that are data."""
    return [column for column in columns if column not in TIME]


def _halves(table: str, rows: DataFrame, columns: Iterable[str]) -> DataFrame:
    """Of each diff triple the halves of its hashes, for `sums`; `_table` and `epoch`."""
    data = data_columns(columns)
    triples = steps(rows, data) if table in INTERVALS else rows
    diff = F.col("diff").cast("decimal(20, 0)") if table in WIDE else F.col("diff")
    return triples.select(F.lit(table).alias("_table"), "epoch", *lanes(hashed(table, data), diff))


def hashed(table: str, data: Sequence[str]) -> list[Column]:
    """What the hash of a row is made of."""
    always = ALWAYS.get(table, ())
    hashes = [F.col(column) for column in always]
    for column in sorted(set(data) - set(always)):
        value = F.col(quoted(column))
        hashes += [F.when(value.isNotNull(), F.lit(column)), value]
    return hashes
