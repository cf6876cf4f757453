"""The copy of a home's database into another one, SQLite or PostgreSQL, in one transaction.

The target gets the tables of this version, every row of the source, and an identity of its own (`home_identity`). Rows
of an earlier attempt of the same copy are replaced; otherwise the target has to be empty. The digests of landed files
are not copied, because the copy has other files.
"""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from ..errors import UsageError
from . import database, versions
from .schema import digests, homes, metadata, version

ROWS = 5_000  # rows that are held in memory at once
LEFT_OUT = {homes.name, version.name, digests.name}
LOCK = 4_182_005  # the number of PostgreSQL's advisory lock for a copy into a database


def refuse_other_home(uri: str, catalog: str) -> None:
    """Raise `UsageError` where a database holds a home other than that of `catalog`. Nothing is written."""
    url = sa.make_url(uri)
    if url.get_backend_name() == "sqlite":  # the caller has checked the folder
        return
    with database.open_connection(uri) as connection:
        existing = set(sa.inspect(connection).get_table_names())
        stored = connection.execute(sa.select(homes.c.catalog)).scalar() if homes.name in existing else None
        others = [name for name in ("runs", "iceberg_tables") if name in existing]
        rows = [name for name in others if connection.execute(sa.text(f"SELECT 1 FROM {name}")).first()]
        if stored not in (None, catalog) or (stored is None and rows):
            raise _other_home_error(uri)


def _other_home_error(uri: str) -> UsageError:
    what = f"the database {database.redact_uri(uri)} belongs to another home."
    return UsageError(what, "make an empty database (createdb), and name it instead")


def copy_database(source: str, target: str, catalog: str, finish: Callable[[sa.Connection], None]) -> int:
    """Copy one database into another.

    Args:
        source: The URI of the database to copy.
        target: The URI of the database to copy into.
        catalog: The name of the catalog of the new home.
        finish: Adds the rows that belong to the target only, in the same transaction.

    Returns:
        The number of rows that were copied.

    Raises:
        Unavailable: A database does not answer.
        UsageError: The target belongs to another home.
    """
    copied = 0
    with database.translate_errors(target), database.shared_engine(target) as engine:
        versions.prepare_database(engine, writes=True)
        with database.open_connection(source) as former, engine.begin() as connection:
            if former.dialect.name == "sqlite":
                former.exec_driver_sql("BEGIN")  # so that all tables are read as of one moment
            else:
                former = former.execution_options(isolation_level="REPEATABLE READ")
            if connection.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
            if connection.execute(sa.select(homes.c.catalog)).scalar() not in (None, catalog):
                raise _other_home_error(target)
            connection.execute(homes.delete())
            for table in reversed(metadata.sorted_tables):
                if table.name not in LEFT_OUT:
                    connection.execute(table.delete())
            connection.execute(digests.delete())
            for table in metadata.sorted_tables:
                if table.name not in LEFT_OUT:
                    copied += _copied_rows(former, connection, table)
            finish(connection)
    return copied


def _copied_rows(former: sa.Connection, connection: sa.Connection, table: sa.Table) -> int:
    into, copied = table.to_metadata(sa.MetaData()), 0
    for column in into.columns:
        if isinstance(column.type, sa.JSON):
            column.type = sa.JSON(none_as_null=True)  # a null of SQL is copied as one, not as a null of JSON
    for part in former.execution_options(yield_per=ROWS).execute(sa.select(table)).partitions(ROWS):
        connection.execute(into.insert(), [dict(row._mapping) for row in part])
        copied += len(part)
    number = table.autoincrement_column
    if connection.dialect.name == "postgresql" and number is not None:
        last = connection.execute(sa.select(sa.func.max(number))).scalar()
        sequence = sa.func.pg_get_serial_sequence(table.name, number.name)
        if last is not None:
            connection.execute(sa.select(sa.func.setval(sequence, last)))
    return copied
