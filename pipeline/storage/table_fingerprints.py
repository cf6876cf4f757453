"""Fingerprints of stored tables, by epoch.

Law     `table_fingerprints` is linear in the rows: that of a run's rows added to that of the tables before is that of
        the tables after (law 11). The hash of a row is of its data columns: those of `ALWAYS` in this order, as kernels
        make it, and then of every other, by the order of names, its name and its value, and nothing where it is null:
        a value column that is declared later leaves the fingerprints of older rows as they are.
Cost    One Spark job: one scan of each table, one row by table and epoch comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from algorithms.edge_derivation import interval_steps
from algorithms.fingerprint import Fingerprint, from_lane_sums, hash_lanes, lane_sums

from ..state.fingerprint_sums import Prints
from ..state.records import Revision
from .table_schemas import INTERVALS, quote_identifier
from .warehouse import Warehouse

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


def table_fingerprints(read: Callable[[str], DataFrame], warehouse: Warehouse, tables: Iterable[str]) -> Prints:
    """Fingerprints of what `read` gives of each table, by epoch; EXECUTES. Epochs whose rows cancel are left out."""
    return _fingerprints_by_epoch(read, {table: warehouse.column_names(table) for table in tables})


def published_fingerprints(warehouse: Warehouse, row: Revision) -> Prints:
    """Compute the fingerprints of a revision's tables with the columns that they were written with, whatever the
    settings say now; EXECUTES. Raises `AltneuError` when a compaction has expired the revision."""
    frames = {table: warehouse.read_as_written(table, row) for table in row.collections}
    return _fingerprints_by_epoch(frames.__getitem__, {table: rows.columns for table, rows in frames.items()})


def revision_fingerprints(
    read: Callable[[str], DataFrame], warehouse: Warehouse, tables: Iterable[str], revisions: Sequence[int]
) -> dict[int, Prints]:
    """Compute the fingerprints that each of some consecutive revisions, oldest first, has: of its own rows and
    of all before it; EXECUTES."""
    columns = {table: warehouse.column_names(table) for table in tables}
    diffs: dict[int, list[tuple[str, int, Fingerprint]]] = {}
    bucket = F.greatest("revision", F.lit(revisions[0]).cast("bigint"))
    for row in _sum_hashes(lambda table: read(table).withColumn("revision", bucket), columns, ["epoch", "revision"]):
        diffs.setdefault(row["revision"], []).append((row["_table"], row["epoch"], from_lane_sums(row)))
    sums: Prints = {table: {} for table in columns}
    found = {}
    for revision in revisions:
        for table, epoch, each in diffs.get(revision, ()):
            sums[table][epoch] = sums[table].get(epoch, Fingerprint()) + each
        found[revision] = {table: {e: each for e, each in sums[table].items() if each} for table in sums}
    return found


def _fingerprints_by_epoch(read: Callable[[str], DataFrame], columns: Mapping[str, Iterable[str]]) -> Prints:
    found: Prints = {table: {} for table in columns}
    for row in _sum_hashes(read, columns, ["epoch"]):
        if each := from_lane_sums(row):
            found[row["_table"]][row["epoch"]] = each
    return {table: dict(sorted(by_epoch.items())) for table, by_epoch in found.items()}


def _sum_hashes(
    read: Callable[[str], DataFrame], columns: Mapping[str, Iterable[str]], by: Sequence[str]
) -> Sequence[Row]:
    """One row of `sums` by table and `by`; in one job. Sums that may be large are decimals, and slower."""
    kinds: dict[bool, list[DataFrame]] = {}
    for table in columns:
        kinds.setdefault(table in WIDE, []).append(_hash_halves(table, read(table), columns[table], by))
    summed = [reduce(DataFrame.unionByName, rows).groupBy("_table", *by).agg(*lane_sums()) for rows in kinds.values()]
    return reduce(DataFrame.unionByName, summed).collect() if summed else []


def _hash_halves(table: str, rows: DataFrame, columns: Iterable[str], by: Sequence[str]) -> DataFrame:
    """Return the halves of the hashes of each diff triple, for `sums`, with the columns `_table` and `by`."""
    data = [column for column in columns if column not in TIME]
    triples = (
        interval_steps(rows, [*data, *(column for column in by if column != "epoch")]) if table in INTERVALS else rows
    )
    diff = F.col("diff").cast("decimal(20, 0)") if table in WIDE else F.col("diff")
    return triples.select(F.lit(table).alias("_table"), *by, *hash_lanes(hashed_columns(table, data), diff))


def hashed_columns(table: str, data: Sequence[str]) -> list[Column]:
    """What the hash of a row is made of."""
    always = ALWAYS.get(table, ())
    hashes = [F.col(column) for column in always]
    for column in sorted(set(data) - set(always)):
        value = F.col(quote_identifier(column))
        hashes += [F.when(value.isNotNull(), F.lit(column)), value]
    return hashes
