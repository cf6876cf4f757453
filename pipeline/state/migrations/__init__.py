"""What the scripts of `versions/` are made of. Each names the version (`revision`), the one before it, and what it adds
(`SHOWS`: table → columns), by which a database without a stored version is recognised."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op


def add_columns(table: str, *columns: sa.Column[Any]) -> None:
    """Add the columns that are not there: whoever added them before versions were stored may have been stopped."""
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)}
    for column in columns:
        if column.name not in there:
            op.add_column(table, column)


def create_table(name: str, *columns: sa.Column[Any]) -> None:
    """Make a table that is not there."""
    if not sa.inspect(op.get_bind()).has_table(name):
        op.create_table(name, *columns)
