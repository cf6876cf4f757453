"""Fingerprints of stored tables, by epoch.

Law     `table_fingerprints` is linear in the rows: the fingerprints of the rows of a run, added to those of the tables
        before it, are those of the tables after it (law 11). The hash of a row is made of its data columns: those of
        `ALWAYS` in this order, as kernels hash them, then every other column by name, with its name and its value, but
        nothing where it is null. So a value column that is declared later does not change older fingerprints.
Cost    One Spark job: one scan of each table, which returns one row for each table and epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from altneu.algorithms.fingerprint import Fingerprint, from_lane_sums, hash_lanes, lane_sums
from altneu.algorithms.graph.edge_derivation import interval_steps
from altneu.algorithms.sql_text import quote_identifier

from ..home.queries import is_query_table
from ..state.fingerprint_sums import Prints
from ..state.records import Revision
from .table_schemas import ALWAYS, INTERVALS, TIME
from .warehouse import Warehouse

# tables whose diffs are counts, which may add up to more than 2**31
WIDE_TABLES = ("degrees", "triangle_counts", "motif_counts")


def table_fingerprints(read: Callable[[str], DataFrame], warehouse: Warehouse, tables: Iterable[str]) -> Prints:
    """Compute the fingerprints of the rows that `read` returns for each table; EXECUTES. Epochs that cancel are left
    out."""
    return _fingerprints_by_epoch(read, {table: warehouse.column_names(table) for table in tables})


def published_fingerprints(warehouse: Warehouse, row: Revision) -> Prints:
    """Compute the fingerprints of a revision's tables; EXECUTES.

    The columns are those with which the tables were written, whatever the settings declare now. Raises `AltneuError`
    where a compaction has expired the revision.
    """
    frames = {table: warehouse.read_as_written(table, row) for table in row.collections}
    return _fingerprints_by_epoch(frames.__getitem__, {table: rows.columns for table, rows in frames.items()})


def revision_fingerprints(
    read: Callable[[str], DataFrame], warehouse: Warehouse, tables: Iterable[str], revisions: Sequence[int]
) -> dict[int, Prints]:
    """Compute the fingerprints of the tables at each of some consecutive revisions; EXECUTES.

    Args:
        read: Returns the rows of a table.
        warehouse: The tables.
        tables: The names of the tables to read.
        revisions: The revisions, oldest first. Rows of earlier ones count to the first.

    Returns:
        Revision → table → epoch → fingerprint of its rows and of all rows before it.
    """
    columns = {table: warehouse.column_names(table) for table in tables}
    diffs: dict[int, list[tuple[str, int, Fingerprint]]] = {}
    bucket = F.greatest("revision", F.lit(revisions[0]).cast("bigint"))
    for row in _sum_hashes(lambda table: read(table).withColumn("revision", bucket), columns, ["epoch", "revision"]):
        diffs.setdefault(row["revision"], []).append((row["_table"], row["epoch"], from_lane_sums(row)))
    sums: Prints = {table: {} for table in columns}
    by_revision = {}
    for revision in revisions:
        for table, epoch, each in diffs.get(revision, ()):
            sums[table][epoch] = sums[table].get(epoch, Fingerprint()) + each
        by_revision[revision] = {table: {e: each for e, each in sums[table].items() if each} for table in sums}
    return by_revision


def _fingerprints_by_epoch(read: Callable[[str], DataFrame], columns: Mapping[str, Iterable[str]]) -> Prints:
    prints: Prints = {table: {} for table in columns}
    for row in _sum_hashes(read, columns, ["epoch"]):
        if fingerprint := from_lane_sums(row):
            prints[row["_table"]][row["epoch"]] = fingerprint
    return {table: dict(sorted(by_epoch.items())) for table, by_epoch in prints.items()}


def _sum_hashes(
    read: Callable[[str], DataFrame], columns: Mapping[str, Iterable[str]], by: Sequence[str]
) -> Sequence[Row]:
    """Compute a row of `lane_sums` for each table and `by`, in one job. Large sums are decimals, which are slower."""
    kinds: dict[bool, list[DataFrame]] = {}
    for table in columns:
        kinds.setdefault(_is_wide(table), []).append(_hash_halves(table, read(table), columns[table], by))
    summed = [reduce(DataFrame.unionByName, rows).groupBy("_table", *by).agg(*lane_sums()) for rows in kinds.values()]
    return reduce(DataFrame.unionByName, summed).collect() if summed else []


def _hash_halves(table: str, rows: DataFrame, columns: Iterable[str], by: Sequence[str]) -> DataFrame:
    """Return the lanes of the hash of each diff triple, for `lane_sums`, with the columns `_table` and `by`."""
    data = [column for column in columns if column not in TIME]
    triples = (
        interval_steps(rows, [*data, *(column for column in by if column != "epoch")]) if table in INTERVALS else rows
    )
    diff = F.col("diff").cast("decimal(20, 0)") if _is_wide(table) else F.col("diff")
    return triples.select(F.lit(table).alias("_table"), *by, *hash_lanes(hashed_columns(table, data), diff))


def _is_wide(table: str) -> bool:
    return table in WIDE_TABLES or is_query_table(table)


def hashed_columns(table: str, data: Sequence[str]) -> list[Column]:
    """Return the expressions from which the hash of a row is made, for a table with these data columns."""
    always = ALWAYS.get(table, ())
    hashes = [F.col(column) for column in always]
    for column in sorted(set(data) - set(always)):
        value = F.col(quote_identifier(column))
        hashes += [F.when(value.isNotNull(), F.lit(column)), value]
    return hashes
