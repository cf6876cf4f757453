"""What a view asks of an engine: the tables as a ledger row pins them, and queries over them.

A view is written once, in SQL that Spark and DuckDB both read in the same way. In a query a relation stands as its name
in braces: `sql("SELECT src FROM {edges} WHERE dst = 1", edges=rows)`. `Warehouse` is Spark, `DuckTables` is DuckDB in
this process; a test compares the rows of both for every view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..home.home import Home
from ..state.records import Revision

if TYPE_CHECKING:
    import pyarrow as pa

R = TypeVar("R")  # rows that are computed when they are asked for


class Tables(Protocol[R]):
    """The tables of a home in one engine. `distributed`: a query may be more than one task can hold."""

    home: Home
    distributed: bool

    def read_table(self, table: str, revision: Revision) -> R:
        """A table as a ledger row pins it. Raises `AltneuError` when a compaction has expired the revision."""
        ...

    def empty_rows(self, table: str) -> R: ...

    def select_rows(self, query: str, **relations: R) -> R: ...

    def columns_of(self, rows: R) -> list[str]: ...

    def collect_rows(self, rows: R) -> list[dict[str, Any]]:
        """All rows, computed now."""
        ...

    def apply_in_one_task(self, rows: R, function: Callable[[pa.Table], pa.Table], schema: str) -> R:
        """What a function makes of all rows at once; of none it may not be asked. `schema`: its columns in SQL."""
        ...

    def quote_identifier(self, column: str) -> str:
        """A column's name within a query."""
        ...

    def text_literal(self, text: str) -> str:
        """A text within a query."""
        ...

    def translate_condition(self, text: str, types: Mapping[str, str]) -> str:
        """A condition of Spark SQL over columns of these types, within a query. Raises `ValueError` with the reason
        when the engine might understand it in another way."""
        ...
