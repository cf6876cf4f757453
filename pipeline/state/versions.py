"""The versions of the database's tables: which one a database has, which ones this code knows, and the migrations.

The scripts in `migrations/versions/` are Alembic's: `v0001_…` makes the first tables, and each later script adds
something that may be null, or an index, or renames a table. A new database gets the tables of `schema.metadata` at
once; a test compares the two. A database from before versions were stored has the newest version whose tables, columns
and indexes all exist in it.

Only writers bring a database up to date (`upgrade_database`): one process at a time, in one transaction, so that the
database always has the old version or the new one. A reader of an older database works as long as it needs nothing that
is missing there; otherwise the error names the command (`raise_if_outdated`). A database of a later version is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import sqlalchemy as sa

from ..errors import UsageError
from .database import redact_uri
from .schema import metadata, version

if TYPE_CHECKING:
    from alembic.config import Config

SCRIPTS = Path(__file__).parent / "migrations"
LOCK = 4_182_004  # the number of PostgreSQL's advisory lock for migrations
_LACKING = re.compile(r"no such (table|column)|UndefinedTable|UndefinedColumn")


class DatabaseOutdated(UsageError):
    """A reader needs a table or a column that an older database does not have."""


@cache
def known_versions() -> tuple[str, ...]:
    """Return the versions that this code knows, oldest first."""
    return tuple(sorted(file.stem.partition("_")[0] for file in SCRIPTS.glob("versions/v*.py")))


def newest_version() -> str:
    """Return the version of the databases that this code makes."""
    return known_versions()[-1]


def stored_version(connection: sa.Connection) -> str | None:
    """Return the version that a database stores; None: it stores none. Raises `UsageError` for an unknown version."""
    if not sa.inspect(connection).has_table(version.name):
        return None
    stored = connection.execute(sa.select(version.c.version_num)).scalar()
    if stored is None or stored in known_versions():
        return stored
    raise UsageError(
        f"a later version of altneu has written the database {redact_uri(str(connection.engine.url))} (its tables "
        f"have version {stored}; this version knows up to {newest_version()}).",
        "update altneu, or use a home of this version: altneu --home DIR …",
    )


def database_version(connection: sa.Connection) -> str | None:
    """Return the version of a database; None: it has no tables yet. Raises `UsageError` for an unknown version."""
    stored = stored_version(connection)
    return stored or (version_of_tables(connection) if sa.inspect(connection).has_table("runs") else None)


def prepare_database(engine: sa.Engine, *, writes: bool) -> None:
    """Prepare a database for use: a new one gets its tables. Raises `UsageError` for one of a later version.

    With `writes`, an older database is brought up to date.
    """
    with engine.connect() as connection:
        stored = stored_version(connection)
        if stored == newest_version() or (not writes and (stored or sa.inspect(connection).has_table("runs"))):
            return
    upgrade_database(engine)


def upgrade_database(engine: sa.Engine) -> str | None:
    """Bring a database up to date, and return the version that it had; None: it was new.

    If another process does the same, this one waits for it.
    """
    with _lock_for_migration(engine) as connection:
        former = stored_version(connection)
        if former is None and not sa.inspect(connection).has_table("runs"):
            metadata.create_all(connection)
            connection.execute(version.insert().values(version_num=newest_version()))
            return None
        if former == newest_version():
            return former
        from alembic import command

        config = _migration_config(connection)
        if former is None:
            former = version_of_tables(connection)
            command.stamp(config, former)
        command.upgrade(config, "head")
        metadata.create_all(connection)  # tables that a process had not made yet when it was stopped
        return former


def version_of_tables(connection: sa.Connection) -> str:
    """Return the newest version whose additions are in a database, with those of all versions before it."""
    inspector = sa.inspect(connection)
    names_by_table = {
        table: {each["name"] for each in (*inspector.get_columns(table), *inspector.get_indexes(table))}
        for table in inspector.get_table_names()
    }
    newest = known_versions()[0]
    for number, script in _load_scripts().items():
        if any(not set(names) <= names_by_table.get(table, set()) for table, names in script.SHOWS.items()):
            break
        newest = number
    return newest


def raise_if_outdated(engine: sa.Engine, error: sa.exc.DBAPIError) -> None:
    """Raise `DatabaseOutdated` where a query has failed because the database is of an older version."""
    if not _LACKING.search(f"{type(error.orig).__name__} {error.orig}"):
        return
    with engine.connect() as connection:
        stored = database_version(connection)
    if stored != newest_version():
        raise DatabaseOutdated(
            f"an earlier version of altneu has made the database {redact_uri(str(engine.url))}, which does not have "
            f"what this command needs (its tables have version {stored}; this version needs {newest_version()}).",
            "altneu doctor   (brings it up to date, as the next run does)",
        ) from None


@contextmanager
def _lock_for_migration(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Hold a transaction in which no other process migrates the database; a second process waits."""
    with engine.connect() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
        yield connection
        connection.commit()


def _migration_config(connection: sa.Connection | None = None) -> Config:
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


@cache
def _load_scripts() -> dict[str, ModuleType]:
    """Load the migration scripts, in order: version → module."""
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(_migration_config()).walk_revisions()
    return {script.revision: script.module for script in reversed(list(scripts))}
