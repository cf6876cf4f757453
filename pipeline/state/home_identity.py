"""The identity of a home: the name of its catalog and the place of its tables, stored in its database.

Iceberg lists tables by the name of their catalog. The name of a home's catalog is drawn once and stored, so that a
password, a host name or a path may change. The place for which the tables were made is stored with it, because their
metadata contain whole paths. A home at another place cannot be opened before `altneu relocate` (`storage.relocate`) has
rewritten these paths, so a copy never reads or writes the files of the original.

The earliest homes stored no identity: the name of their catalog was made from the database's URI and the warehouse. It
is found by the tables, and the next run stores it. Readers store nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import sqlalchemy as sa

from ..errors import AltneuError, Unavailable, UsageError
from ..home.home import Home
from ..home.uris import sqlite_uri
from . import clock, database, filesystem, versions
from .ledger import Ledger
from .schema import homes, ledger

FORMAT = 1  # the format of homes that this version makes; it reads all formats up to this one
PREFIX = "altneu_"
REST_PREFIX = "altneu_rest_"  # the prefix of the catalog of a home whose tables are listed in a REST catalog
UNTOLD = "postgresql"  # the place of a database whose server does not identify itself

tables = sa.table(  # the table of Iceberg's JDBC catalog
    "iceberg_tables",
    sa.column("catalog_name", sa.String),
    sa.column("table_namespace", sa.String),
    sa.column("table_name", sa.String),
    sa.column("metadata_location", sa.String),
    sa.column("previous_metadata_location", sa.String),
)


@dataclass(frozen=True)
class Identity:
    """The catalog of a home, and the places for which its tables were made. `is_stored`: whether the database has
    it."""

    catalog: str
    warehouse: str
    database: str
    is_stored: bool = True


class HomeMoved(UsageError):
    """The home is at another place than the one that its tables' metadata name."""


def open_ledger(home: Home, *, writes: bool = False) -> Ledger:
    """Open the ledger of a home. With `writes`, its database is brought up to date.

    Raises `AltneuError` where the home is not what its database or its tables were made for.
    """
    with database.shared_engine(home.database):
        verify_identity(home)
        return Ledger(home, writes)


def verify_identity(home: Home) -> None:
    """Raise `AltneuError` where the home is not what its database or its tables were made for. Nothing is written."""
    identity = find_identity(home)
    if identity is None:
        refuse_lost_database(home)
    else:
        require_unmoved(home, identity)


def require_identity(home: Home) -> Identity:
    """Return the identity of a home whose tables are to be opened. A new home gets one. Raises `HomeMoved`."""
    with database.shared_engine(home.database):
        identity = find_identity(home) or claim_identity(home)
        require_unmoved(home, identity)
        return identity


def claim_identity(home: Home) -> Identity:
    """Store the identity of a home, a new one if it has none, and return it. Concurrent processes get the same one."""
    identity = find_identity(home)
    if identity is not None and identity.is_stored:
        return identity
    catalog = identity.catalog if identity else new_catalog(REST_PREFIX if home.config.storage.catalog else PREFIX)
    with database.open_connection(home.database) as connection:
        versions.prepare_database(connection.engine, writes=True)
        with contextlib.suppress(sa.exc.IntegrityError):  # another process was first
            connection.execute(homes.insert().values(identity_row(home, catalog, database_place(connection))))
            connection.commit()
    stored = find_identity(home)
    assert stored is not None
    return stored


def new_catalog(prefix: str = PREFIX) -> str:
    return prefix + uuid.uuid4().hex[:12]


def identity_row(home: Home, catalog: str, here: str) -> dict[str, Any]:
    """Make the row to store for a home whose tables are at its warehouse, and whose database is at `here`."""
    places = {"warehouse": home.warehouse, "database": here}
    return {"id": 1, "catalog": catalog, "format": FORMAT, **places, "made_at": clock.timestamp()}


def find_identity(home: Home) -> Identity | None:
    """Return the stored identity of a home, or the one that its tables show; None: it has no tables yet.

    Nothing is written. Raises `UsageError` for a home of a later version.
    """
    uri = home.database
    url = sa.make_url(uri)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        return None
    with database.open_connection(uri) as connection:
        existing = set(sa.inspect(connection).get_table_names())
        if "home" in existing and (stored := _read_stored_identity(home, connection)) is not None:
            return stored
        if "iceberg_tables" not in existing:
            return None
        listed = connection.execute(sa.select(tables).where(tables.c.catalog_name.startswith(PREFIX))).all()
        named: dict[str, dict[str, str]] = {}
        for row in listed:
            locations = named.setdefault(row.catalog_name, {})
            locations[f"{row.table_namespace}/{row.table_name}"] = row.metadata_location
        if not named:
            return None
        pins: dict[str, str] = {}
        if "ledger" in existing:
            newest = sa.select(ledger.c.snapshots).order_by(ledger.c.revision.desc()).limit(1)
            pins = connection.execute(newest).scalar() or {}
        places = {name: next(warehouse_of(*item) for item in locations.items()) for name, locations in named.items()}
        former = {name: _former_catalog_file(home, name, warehouse) for name, warehouse in places.items()}
        several = len(named) > 1  # an earlier change of credentials has left empty tables under another name
        catalog = max(
            named, key=lambda name: several and (_count_pinned_snapshots(home, named[name], pins), former[name])
        )
        where = former[catalog] if connection.dialect.name == "sqlite" else database_place(connection)
        return Identity(catalog, places[catalog], where, is_stored=False)


def _read_stored_identity(home: Home, connection: sa.Connection) -> Identity | None:
    """Read the row of the table `home`. The format is checked first, because a later version may have other columns."""
    version = connection.execute(sa.select(homes.c.format)).scalar()
    if version is None:
        return None
    if version > FORMAT:
        raise UsageError(
            f"a later version of altneu made {home.path} (format {version}; this version knows up to {FORMAT}).",
            "update altneu, or use a home of this version: altneu --home DIR …",
        )
    row = connection.execute(sa.select(homes)).one()
    return Identity(row.catalog, row.warehouse, row.database)


def _former_catalog_file(home: Home, catalog: str, warehouse: str) -> str:
    """Return the SQLite file from whose path an early home made the name of its catalog; "": it is not known.

    The database of now and the one beside the tables are tried. The name was made from paths that were not encoded.
    """
    beside = f"{warehouse.rpartition('/')[0]}/altneu.db"
    uris = {home.database: home.database, unquote(home.database): home.database}
    uris |= {f"sqlite:///{beside}": sqlite_uri(beside)}
    uris |= {given: given for given in (home.config.storage.database,) if given}
    for named, uri in uris.items():
        for tables_at in (home.warehouse, home.config.storage.warehouse, warehouse):
            if catalog == PREFIX + hashlib.sha256(f"{named} {tables_at}".encode()).hexdigest()[:8]:
                return str(Path(sa.make_url(uri).database or "").resolve())
    return ""


# the prefix of tables that are no state of a home, and may be dropped at any moment (`storage.bsp_round_tables`)
ROUNDS = "rounds_"


def list_table_locations(connection: sa.Connection, catalog: str, *named: str) -> dict[str, str]:
    """List the tables of a catalog, `namespace.table`, with their current metadata files.

    Tables of rounds are left out, except those in `named`.
    """
    mine = sa.select(tables).where(tables.c.catalog_name == catalog)
    listed = connection.execute(mine)
    rows = [row for row in listed if row.table_name in named or not row.table_name.startswith(ROUNDS)]
    return {f"{row.table_namespace}.{row.table_name}": row.metadata_location for row in rows}


def warehouse_of(table: str, location: str) -> str:
    """Return the warehouse of a table, `namespace/name`, by the location of its metadata file."""
    return location.rsplit(f"/{table}/metadata/", 1)[0]


def _count_pinned_snapshots(home: Home, locations: dict[str, str], pins: dict[str, str]) -> int:
    """Count the snapshots that the ledger pins and these tables have. Files are read at the home's present place."""
    count = 0
    for table, location in locations.items():
        pin = pins.get(table.rpartition("/")[2])
        present_location = home.warehouse + location.removeprefix(warehouse_of(table, location))
        try:
            snapshots = json.loads(filesystem.read_file(present_location)).get("snapshots", []) if pin else []
        except (OSError, ValueError):
            continue
        count += any(str(snapshot["snapshot-id"]) == pin for snapshot in snapshots)
    return count


def database_place(connection: sa.Connection) -> str:
    """Return the place of a database, whichever host name or path leads to it: a file, or a database of a cluster."""
    if connection.dialect.name == "sqlite":
        return str(Path(connection.engine.url.database or "").resolve())
    try:
        with connection.begin_nested():
            cluster = connection.execute(sa.text("SELECT system_identifier FROM pg_control_system()")).scalar()
            name = connection.execute(sa.text("SELECT current_database()")).scalar()
    except sa.exc.DBAPIError:  # this user has no permission to ask
        return UNTOLD
    return f"postgresql:{cluster}/{name}"


def detect_moves(home: Home, identity: Identity) -> tuple[bool, bool]:
    """Tell whether the warehouse, and whether the database, is another one than the home's tables were made for."""
    with database.open_connection(home.database) as connection:
        here = database_place(connection)
    known = UNTOLD not in (here, identity.database)
    other = known and not (identity.database and filesystem.is_same_location(identity.database, here))
    return not filesystem.is_same_location(identity.warehouse, home.warehouse), other


def require_unmoved(home: Home, identity: Identity) -> None:
    """Raise `HomeMoved`, with the command that helps, where the home is not at the place that its metadata name."""
    warehouse, other = detect_moves(home, identity)
    if warehouse:
        raise HomeMoved(
            f"this home was copied, moved or mounted elsewhere: its tables were made in {identity.warehouse}, but "
            f"their place is {home.warehouse} now.",
            "altneu relocate   (their metadata contain whole paths: it rewrites them for this place)",
        )
    if other:
        raise HomeMoved(
            f"the database of this home was {identity.database or 'another one'} when its tables in {home.warehouse} "
            f"were made; now it is {database.redact_uri(home.database)}. Two databases on the same tables would "
            "destroy them.",
            "altneu relocate --original-gone   (if nobody uses the former database any more); otherwise copy the "
            f"tables, set their place as [storage] warehouse in {home.path / 'altneu.toml'}, then: altneu relocate",
        )


def refuse_lost_database(home: Home) -> None:
    """Raise `AltneuError` where the warehouse of a home has rows, but its database lists no tables."""
    refuse_full_warehouse(home, f"the database of this home, {database.redact_uri(home.database)}, is lost or empty")


def refuse_full_warehouse(home: Home, lost: str) -> None:
    """Raise `AltneuError` where the warehouse of a home has rows, but its tables are not listed any more.

    `lost` begins the message: it says what has lost them.
    """
    warehouse = filesystem.local_path(home.warehouse)
    if warehouse is not None:
        full = any(warehouse.glob("*/*/data/*.parquet"))
        away = f"mv {warehouse} {warehouse}.lost"
    else:
        full = any(re.fullmatch(r"[^/]+/[^/]+/data/.*\.parquet", name) for name in list_warehouse_files(home))
        away = "set another place as [storage] warehouse"
    if full:
        raise AltneuError(
            f"{lost}, but {filesystem.normalize_location(home.warehouse)} contains rows: without the list of tables "
            "it is unknown which rows are published.",
            f"restore it from a backup; or start again from the landing: {away}; altneu backfill --all",
        )


def list_warehouse_files(home: Home) -> dict[str, filesystem.FileEntry]:
    """List every file of a home's warehouse. Raises `Unavailable` where it cannot be read."""
    try:
        return filesystem.list_files(home.warehouse)
    except OSError as error:
        raise Unavailable(
            f"[storage] warehouse = {home.warehouse}: {filesystem.format_store_error(error)}", "altneu doctor"
        ) from error
