"""Helpers for the migration scripts in `versions/`.

Each script names its version (`revision`), the version before it, and what it adds (`SHOWS`: table → columns and
indexes). A database without a stored version is recognised by these.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from altneu.pipeline.state import schema


def add_columns(table: str, *columns: sa.Column[Any]) -> None:
    """Add the columns that do not exist. Before versions were stored, a process may have been stopped between them."""
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)}
    for column in columns:
        if column.name not in there:
            op.add_column(table, column)


def create_table(name: str, *columns: sa.Column[Any], later_name: str | None = None) -> None:
    """Make a table, unless it exists, perhaps under the name that a later script gives it."""
    existing = sa.inspect(op.get_bind()).get_table_names()
    if name not in existing and later_name not in existing:
        op.create_table(name, *columns)


def rename_table(former: str, name: str) -> None:
    """Rename a table that has its former name; its rows stay."""
    existing = sa.inspect(op.get_bind()).get_table_names()
    if former in existing and name not in existing:
        op.rename_table(former, name)


def rename_column(table: str, former: str, name: str) -> None:
    """Rename a column that has its former name; its values stay."""
    if former in {column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)}:
        op.alter_column(table, former, new_column_name=name)


def create_indexes(table: str, *names: str) -> None:
    """Make indexes of `schema`, unless they exist. A long history takes seconds."""
    for index in schema.metadata.tables[table].indexes:
        if index.name in names:
            index.create(op.get_bind(), checkfirst=True)
