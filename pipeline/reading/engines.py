"""Which engine answers from the tables: DuckDB in this process while little is stored, else Spark.

What is stored is known from the tables' metadata, before a row is read. Each engine starts when it is first needed.
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

# Rows that are stored in the tables concerned. DuckDB reads and adds up 3 million a second on two cores; of views that
# are computed from all edges it lists what it finds in memory (`support` and communities some 200 bytes an edge).
LITTLE, LITTLE_WORK = 20_000_000, 2_000_000

A = TypeVar("A")


@dataclass
class Engines:
    """The engines of a home. `spark`: gives the tables by Spark."""

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
        """What an engine answers from some tables at some revisions (none: of rows that are here already). `works`:
        computed from all edges, not read off.

        A condition that DuckDB might understand in another way than Spark is for Spark; where DuckDB is asked for by
        name it is a `UsageError`.
        """
        if read and (
            self.engine is Engine.spark
            or not (self.engine is Engine.duckdb or self._is_little(read, tables, works=works))
        ):
            return by_spark(self.spark())
        import duckdb

        from ..storage.duckdb_tables import UncertainCondition

        try:
            return by_duckdb(self.duckdb)
        except (UncertainCondition, duckdb.OutOfRangeException) as error:
            if self.engine is not Engine.duckdb:
                return by_spark(self.spark())
            why = (
                f"only Spark can tell what a condition means with {error}"
                if isinstance(error, UncertainCondition)
                else error
            )
            raise UsageError(f"{why}.", "--engine spark") from None

    def _is_little(self, read: Sequence[Revision], tables: tuple[str, ...], *, works: bool) -> bool:
        from ..state import filesystem

        if filesystem.local_path(self.home.warehouse) is None:
            return False
        stored = sum(self.duckdb.count_stored_rows(row, tables) for row in read)
        return stored <= (LITTLE_WORK if works else LITTLE)
