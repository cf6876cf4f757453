"""The choice of the engine that answers from the tables: DuckDB in this process while little is stored, else Spark.

The number of stored rows is known from the tables' metadata, before a row is read. Each engine starts when it is first
needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from ..errors import UsageError
from ..home.home import Home
from ..state.records import Revision
from .query_model import Engine

if TYPE_CHECKING:
    from ..storage.duckdb_tables import DuckTables
    from ..storage.warehouse import Warehouse

# The number of stored rows up to which DuckDB answers. It reads and sums 3 million rows a second on two cores. Views
# that are computed from all edges hold their result in memory (`support` and communities some 200 bytes an edge).
LITTLE, LITTLE_WORK = 20_000_000, 2_000_000

A = TypeVar("A")


@dataclass
class Engines:
    """The engines of a home. `spark` is a function that returns the tables in Spark."""

    home: Home
    spark: Callable[[], Warehouse]
    engine: Engine = Engine.auto

    @cached_property
    def duckdb(self) -> DuckTables:
        from ..storage.duckdb_tables import DuckTables

        return DuckTables(self.home)

    def choose_and_run(
        self,
        read: Sequence[Revision],
        tables: tuple[str, ...],
        *,
        works: bool,
        by_duckdb: Callable[[DuckTables], A],
        by_spark: Callable[[Warehouse], A],
    ) -> A:
        """Choose an engine, and return its answer.

        Args:
            read: The revisions that are read, or none where the rows are in memory already.
            tables: The tables that are read.
            works: Whether the answer is computed from all edges.
            by_duckdb: A function that answers from the tables in DuckDB.
            by_spark: A function that answers from the tables in Spark.

        Raises:
            UsageError: DuckDB is asked for by name, and might understand a condition in another way than Spark.
                Otherwise Spark answers in this case.
        """
        if read and (
            self.engine is Engine.spark
            or not (self.engine is Engine.duckdb or self._is_little(read, tables, works=works))
        ):
            return by_spark(self.spark())
        import duckdb

        from ..storage.condition_errors import UncertainCondition

        try:
            return by_duckdb(self.duckdb)
        except (UncertainCondition, duckdb.OutOfRangeException) as error:
            if self.engine is not Engine.duckdb:
                return by_spark(self.spark())
            why = (
                f"only Spark can evaluate a condition with {error}" if isinstance(error, UncertainCondition) else error
            )
            raise UsageError(f"{why}.", "--engine spark") from None

    def _is_little(self, read: Sequence[Revision], tables: tuple[str, ...], *, works: bool) -> bool:
        from ..state import filesystem

        if filesystem.local_path(self.home.warehouse) is None:
            return False
        stored = sum(self.duckdb.count_stored_rows(row, tables) for row in read)
        return stored <= (LITTLE_WORK if works else LITTLE)
