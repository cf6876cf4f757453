"""The interface between views and engines: the tables as a revision pins them, and queries over them.

A view is written once, in SQL that Spark and DuckDB understand in the same way. A query names a relation in braces:
`select_rows("SELECT src FROM {edges} WHERE dst = 1", edges=rows)`. `Warehouse` is Spark, and `DuckTables` is DuckDB in
this process. A test compares the rows of both for every view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..home.home import Home
from ..state.records import Revision

if TYPE_CHECKING:
    import pyarrow as pa

R = TypeVar("R")  # rows that are computed when they are read


class Tables(Protocol[R]):
    """The tables of a home in one engine. `distributed` tells whether a query may need more than one task."""

    home: Home
    distributed: bool

    def read_table(self, table: str, revision: Revision) -> R:
        """Read a table at a revision. Raise `AltneuError` when a compaction has expired the revision."""
        ...

    def empty_rows(self, table: str) -> R: ...

    def select_rows(self, query: str, **relations: R) -> R: ...

    def columns_of(self, rows: R) -> list[str]: ...

    def collect_rows(self, rows: R) -> list[dict[str, Any]]:
        """Compute and return all rows."""
        ...

    def apply_in_one_task(self, rows: R, function: Callable[[pa.Table], pa.Table], schema: str) -> R:
        """Apply a function to all rows at once; without rows it may not be called.

        Args:
            rows: The rows.
            function: A function from an Arrow table to another.
            schema: The columns of its result, with their types in SQL.
        """
        ...

    def quote_identifier(self, column: str) -> str:
        """Return a column's name as it is written in a query."""
        ...

    def text_literal(self, text: str) -> str:
        """Return a text as it is written in a query."""
        ...

    def translate_condition(self, text: str, types: Mapping[str, str]) -> str:
        """Translate a condition of Spark SQL over columns of these types for a query.

        Raises:
            ValueError: The engine might understand the condition in another way; the error says why.
        """
        ...
