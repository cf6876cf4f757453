"""Results of rounds in tables of their own, so that an executor that is lost costs a round and no more.

A run that works in rounds (`algorithms.bsp`) keeps what they make in tables `rounds_RUN_N` beside the home's own:
what is said in all rounds of an epoch, in one. It forgets a table when a later one has it all, and drops what is left
when it is through. No reader knows these tables.
What a killed run has left goes with `drop_abandoned_rounds`: when another run works in rounds, and in a compaction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType

from algorithms.bsp import PartitionLayout

from ..state.home_identity import ROUNDS
from ..state.ledger import Ledger
from .session import count_cores
from .table_schemas import quote_identifier
from .warehouse import Warehouse

# By itself Iceberg reads a table of a few megabytes in one task, which alone would copy every row for all cells.
SPLITS = {"split-size": 2 << 20, "file-open-cost": 256 << 10}
# A row group is read as a whole, and a heap of some gigabyte has other things to hold. A drop of the table looks for
# all metadata that it ever had, and prints a stack of errors for what a commit has deleted.
ROWS = {"write.parquet.row-group-size-bytes": str(16 << 20), "write.metadata.delete-after-commit.enabled": "false"}
# Parquet looks only at every hundredth row how much memory it holds, and a pack is up to half a megabyte.
PACKS = ROWS | {"write.parquet.page-row-limit": "1", "write.parquet.row-group-check-min-record-count": "1"}
_NAME = re.compile(ROUNDS + r"(.+)_\d+")


class RoundTables:
    """Where the rounds of one run lie (`algorithms.bsp.RoundStore`)."""

    layout: PartitionLayout | None = None

    def __init__(self, warehouse: Warehouse, run_id: str) -> None:
        self._warehouse, self._run_id = warehouse, run_id
        self._made = 0
        self._kept = list[tuple[DataFrame, str]]()

    @cached_property
    def parallel_tasks(self) -> int:
        """How many work at once."""
        return count_cores(self._warehouse.spark)

    def persist_rows(self, rows: DataFrame, after: DataFrame | None = None) -> DataFrame:
        """Write rows to a table, a new one or that of `after`, and return them as read from it; EXECUTES."""
        name = self._add_table(rows) if after is None else next(name for frame, name in self._kept if frame is after)
        rows.writeTo(self._warehouse.table_name(name)).append()
        found = self._warehouse.spark.read.options(**SPLITS).table(self._warehouse.table_name(name))
        self._kept = [*(each for each in self._kept if each[0] is not after), (found, name)]
        return found

    def _add_table(self, rows: DataFrame) -> str:
        """A new table for them."""
        self._made += 1
        name = f"{ROUNDS}{self._run_id}_{self._made}"
        columns = ", ".join(f"{quote_identifier(field.name)} {field.dataType.simpleString()}" for field in rows.schema)
        packed = any(isinstance(field.dataType, BinaryType) for field in rows.schema)
        self._warehouse.create_table(name, columns, PACKS if packed else ROWS)
        return name

    def drop_rows(self, rows: DataFrame) -> None:
        """Drop the table of these rows."""
        for frame, name in self._kept:
            if frame is rows:
                self._warehouse.drop_table(name)
        self._kept = [each for each in self._kept if each[0] is not rows]

    def drop_all(self) -> None:
        """Drop all that is left."""
        for _, name in self._kept:
            self._warehouse.drop_table(name)
        self._kept.clear()


@contextmanager
def round_tables(warehouse: Warehouse, ledger: Ledger, run_id: str) -> Iterator[RoundTables]:
    """A place for the rounds of a run, empty at first, gone at the end."""
    drop_abandoned_rounds(warehouse, ledger, run_id)
    tables = RoundTables(warehouse, run_id)
    try:
        yield tables
    finally:
        tables.drop_all()


def drop_abandoned_rounds(warehouse: Warehouse, ledger: Ledger, run_id: str | None = None) -> int:
    """Drop what runs that nobody works on have left, and this one; how many tables."""
    found = [(name, match[1]) for name in warehouse.round_table_names() if (match := _NAME.fullmatch(name))]
    alive = ledger.list_active_runs() - {run_id} if found else set[str]()
    left = [name for name, run in found if run not in alive]
    for name in left:
        warehouse.drop_table(name)
    return len(left)
