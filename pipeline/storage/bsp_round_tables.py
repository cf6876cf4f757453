"""The tables for the results of rounds, so that the loss of an executor costs one round only.

A run that works in rounds (`altneu.algorithms.graph.bsp`) writes their results to tables `rounds_RUN_N` beside the
home's tables. The messages of all rounds of an epoch are in one table. The run drops a table when a later one contains
all of it, and the rest at its end. No reader knows these tables. `drop_abandoned_rounds` drops the tables of a killed
run, when another run works in rounds, and in a compaction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType

from altneu.algorithms.graph.bsp import PartitionLayout
from altneu.algorithms.sql_text import quote_identifier

from ..state.home_identity import ROUNDS
from ..state.ledger import Ledger
from .session import count_cores
from .warehouse import Warehouse

# By default Iceberg reads a table of a few megabytes in one task, which alone would copy every row for all cells.
SPLITS = {"split-size": 2 << 20, "file-open-cost": 256 << 10}
# A row group is read as a whole, so it has to be small beside a heap of about a gigabyte. Dropping a table looks for
# all metadata files that it ever had, and would print errors for those that a commit has deleted.
ROWS = {"write.parquet.row-group-size-bytes": str(16 << 20), "write.metadata.delete-after-commit.enabled": "false"}
# Parquet checks its memory only at every hundredth row, and a packed row has up to half a megabyte.
PACKS = ROWS | {"write.parquet.page-row-limit": "1", "write.parquet.row-group-check-min-record-count": "1"}
_NAME = re.compile(ROUNDS + r"(.+)_\d+")


class RoundTables:
    """The tables of the rounds of one run (an `altneu.algorithms.graph.bsp.RoundStore`)."""

    layout: PartitionLayout | None = None

    def __init__(self, warehouse: Warehouse, run_id: str) -> None:
        self._warehouse, self._run_id = warehouse, run_id
        self._table_count = 0
        self._tables_in_use = list[tuple[DataFrame, str]]()

    @cached_property
    def parallel_tasks(self) -> int:
        """Return the number of tasks that run at once."""
        return count_cores(self._warehouse.spark)

    def persist_rows(self, rows: DataFrame, after: DataFrame | None = None) -> DataFrame:
        """Write rows to a new table, or append them to that of `after`, and return the table's rows; EXECUTES."""
        name = (
            self._add_table(rows)
            if after is None
            else next(name for frame, name in self._tables_in_use if frame is after)
        )
        rows.writeTo(self._warehouse.table_name(name)).append()
        stored = self._warehouse.spark.read.options(**SPLITS).table(self._warehouse.table_name(name))
        self._tables_in_use = [*(each for each in self._tables_in_use if each[0] is not after), (stored, name)]
        return stored

    def _add_table(self, rows: DataFrame) -> str:
        """Make a table for these rows, and return its name."""
        self._table_count += 1
        name = f"{ROUNDS}{self._run_id}_{self._table_count}"
        columns = ", ".join(f"{quote_identifier(field.name)} {field.dataType.simpleString()}" for field in rows.schema)
        packed = any(isinstance(field.dataType, BinaryType) for field in rows.schema)
        self._warehouse.create_table(name, columns, PACKS if packed else ROWS)
        return name

    def drop_rows(self, rows: DataFrame) -> None:
        """Drop the table of these rows."""
        for frame, name in self._tables_in_use:
            if frame is rows:
                self._warehouse.drop_table(name)
        self._tables_in_use = [each for each in self._tables_in_use if each[0] is not rows]

    def drop_all(self) -> None:
        """Drop all remaining tables of the run."""
        for _, name in self._tables_in_use:
            self._warehouse.drop_table(name)
        self._tables_in_use.clear()


@contextmanager
def round_tables(warehouse: Warehouse, ledger: Ledger, run_id: str) -> Iterator[RoundTables]:
    """Hold the tables for the rounds of a run: none at the beginning, and all are dropped at the end."""
    drop_abandoned_rounds(warehouse, ledger, run_id)
    tables = RoundTables(warehouse, run_id)
    try:
        yield tables
    finally:
        tables.drop_all()


def drop_abandoned_rounds(warehouse: Warehouse, ledger: Ledger, run_id: str | None = None) -> int:
    """Drop the tables of rounds of runs that no process works on, and of `run_id`. Return the number of tables."""
    tables = [(name, match[1]) for name in warehouse.round_table_names() if (match := _NAME.fullmatch(name))]
    alive = ledger.runs.list_active() - {run_id} if tables else set[str]()
    abandoned = [name for name, run in tables if run not in alive]
    for name in abandoned:
        warehouse.drop_table(name)
    return len(abandoned)
