"""Where a home's tables are, and under which name: its identity, in its database beside the ledger.

Iceberg's catalog keeps tables by the catalog's name. That of a home is drawn once and stored, so that a password, a
host's name or a path may change. With it stands the place for which the tables were made: their metadata name whole
paths. A home at another place is not opened before `altneu relocate` (`relocate.py`) has written these again, so a copy
never reads or writes the original's files.

Homes of before there were homes have a name that was made of the database's URI and the warehouse; it is looked up
where the tables are, and stored by the next run. Reading stores nothing.
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
from . import database, filesystem, lease, versions
from .ledger import Ledger
from .schema import homes, ledger

FORMAT = 1  # of homes that this version makes; it reads all up to it
PREFIX = "altneu_"
REST = "altneu_rest_"  # so the catalogs of homes begin whose tables are listed by a REST catalog
UNTOLD = "postgresql"  # the place of a database whose server does not say which it is

tables = sa.table(  # Iceberg's own
    "iceberg_tables",
    sa.column("catalog_name", sa.String),
    sa.column("table_namespace", sa.String),
    sa.column("table_name", sa.String),
    sa.column("metadata_location", sa.String),
    sa.column("previous_metadata_location", sa.String),
)


@dataclass(frozen=True)
class Identity:
    """A home's catalog, and the places for which its tables were made. `stored`: in the database."""

    catalog: str
    warehouse: str
    database: str
    stored: bool = True


class HomeMoved(UsageError):
    """The home is at another place than its tables' metadata say."""


def open_ledger(home: Home, *, writes: bool = False) -> Ledger:
    """A home's ledger. Raises like `verify_identity`. `writes`: its database is brought up to date."""
    with database.shared_engine(home.database):
        verify_identity(home)
        return Ledger(home.database, writes)


def verify_identity(home: Home) -> None:
    """Raise `AltneuError` where the home is not what its database or its tables were made for. Makes nothing."""
    identity = find_identity(home)
    if identity is None:
        refuse_lost_database(home)
    else:
        require_unmoved(home, identity)


def require_identity(home: Home) -> Identity:
    """The home's identity, for whoever opens its tables; a new home is given one. Raises like `open_ledger`."""
    with database.shared_engine(home.database):
        identity = find_identity(home) or claim_identity(home)
        require_unmoved(home, identity)
        return identity


def claim_identity(home: Home) -> Identity:
    """Store the home's identity, a new one when it has none; of several processes that do so, all get the same."""
    identity = find_identity(home)
    if identity is not None and identity.stored:
        return identity
    catalog = identity.catalog if identity else new_catalog(REST if home.config.storage.catalog else PREFIX)
    with database.open_connection(home.database) as connection:
        versions.prepare_database(connection.engine, writes=True)
        with contextlib.suppress(sa.exc.IntegrityError):  # another process was first
            connection.execute(homes.insert().values(identity_row(home, catalog, database_place(connection))))
            connection.commit()
    found = find_identity(home)
    assert found is not None
    return found


def new_catalog(prefix: str = PREFIX) -> str:
    return prefix + uuid.uuid4().hex[:12]


def identity_row(home: Home, catalog: str, here: str) -> dict[str, Any]:
    """What is stored of a home whose tables are where it is, and whose database is `here`."""
    places = {"warehouse": home.warehouse, "database": here}
    return {"id": 1, "catalog": catalog, "format": FORMAT, **places, "made_at": lease.timestamp()}


def find_identity(home: Home) -> Identity | None:
    """The home's identity as it is stored, or as it is found by the tables; None for a home without tables. Stores
    nothing. Raises `UsageError` for a home of a later version."""
    uri = home.database
    url = sa.make_url(uri)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        return None
    with database.open_connection(uri) as connection:
        there = set(sa.inspect(connection).get_table_names())
        if "home" in there and (found := _read_stored_identity(home, connection)) is not None:
            return found
        if "iceberg_tables" not in there:
            return None
        listed = connection.execute(sa.select(tables).where(tables.c.catalog_name.startswith(PREFIX))).all()
        named: dict[str, dict[str, str]] = {}
        for each in listed:
            locations = named.setdefault(each.catalog_name, {})
            locations[f"{each.table_namespace}/{each.table_name}"] = each.metadata_location
        if not named:
            return None
        pins: dict[str, str] = {}
        if "ledger" in there:
            newest = sa.select(ledger.c.snapshots).order_by(ledger.c.revision.desc()).limit(1)
            pins = connection.execute(newest).scalar() or {}
        places = {name: next(warehouse_of(*each) for each in found.items()) for name, found in named.items()}
        former = {name: _former_catalog_file(home, name, warehouse) for name, warehouse in places.items()}
        several = len(named) > 1  # a past change of credentials has left empty tables under another name
        catalog = max(
            named, key=lambda name: several and (_count_pinned_snapshots(home, named[name], pins), former[name])
        )
        where = former[catalog] if connection.dialect.name == "sqlite" else database_place(connection)
        return Identity(catalog, places[catalog], where, stored=False)


def _read_stored_identity(home: Home, connection: sa.Connection) -> Identity | None:
    """The row of the table `home`. Its format is looked at first: the rest may be another version's."""
    version = connection.execute(sa.select(homes.c.format)).scalar()
    if version is None:
        return None
    if version > FORMAT:
        raise UsageError(
            f"{home.path} is a home of a later version of altneu (format {version}; this one knows up to {FORMAT}).",
            "update altneu, or use a home of this version: altneu --home DIR …",
        )
    found = connection.execute(sa.select(homes)).one()
    return Identity(found.catalog, found.warehouse, found.database)


def _former_catalog_file(home: Home, catalog: str, warehouse: str) -> str:
    """The SQLite file whose home gave its catalog this name, before there were homes; "" when it is none of those
    that come to mind: the one of now, and the one beside the tables. Paths stood in its name as they are."""
    beside = f"{warehouse.rpartition('/')[0]}/altneu.db"
    uris = {home.database: home.database, unquote(home.database): home.database}
    uris |= {f"sqlite:///{beside}": sqlite_uri(beside)}
    uris |= {given: given for given in (home.config.storage.database,) if given}
    for named, uri in uris.items():
        for tables_at in (home.warehouse, home.config.storage.warehouse, warehouse):
            if catalog == PREFIX + hashlib.sha256(f"{named} {tables_at}".encode()).hexdigest()[:8]:
                return str(Path(sa.make_url(uri).database or "").resolve())
    return ""


ROUNDS = "rounds_"  # how tables begin that are no state of a home, and may go at any moment (`storage.rounds`)


def list_table_locations(connection: sa.Connection, catalog: str, *named: str) -> dict[str, str]:
    """Each table of a catalog, `namespace.table`, with the metadata file that is in force; without those of rounds, but
    for those that are named."""
    mine = sa.select(tables).where(tables.c.catalog_name == catalog)
    found = connection.execute(mine)
    rows = [row for row in found if row.table_name in named or not row.table_name.startswith(ROUNDS)]
    return {f"{row.table_namespace}.{row.table_name}": row.metadata_location for row in rows}


def warehouse_of(table: str, location: str) -> str:
    """The warehouse of a table, `namespace/name`, by where its metadata file is."""
    return location.rsplit(f"/{table}/metadata/", 1)[0]


def _count_pinned_snapshots(home: Home, locations: dict[str, str], pins: dict[str, str]) -> int:
    """How many of the snapshots that the ledger pins are in these tables, read where the home is now."""
    found = 0
    for table, location in locations.items():
        pin = pins.get(table.rpartition("/")[2])
        here = home.warehouse + location.removeprefix(warehouse_of(table, location))
        try:
            snapshots = json.loads(filesystem.read_file(here)).get("snapshots", []) if pin else []
        except (OSError, ValueError):
            continue
        found += any(str(snapshot["snapshot-id"]) == pin for snapshot in snapshots)
    return found


def database_place(connection: sa.Connection) -> str:
    """Where a database is, whatever it is called from outside: a file, or a database of a cluster."""
    if connection.dialect.name == "sqlite":
        return str(Path(connection.engine.url.database or "").resolve())
    try:
        with connection.begin_nested():
            cluster = connection.execute(sa.text("SELECT system_identifier FROM pg_control_system()")).scalar()
            name = connection.execute(sa.text("SELECT current_database()")).scalar()
    except sa.exc.DBAPIError:  # not allowed here
        return UNTOLD
    return f"postgresql:{cluster}/{name}"


def detect_moves(home: Home, identity: Identity) -> tuple[bool, bool]:
    """Is the warehouse, is the database another than the home's tables were made for?"""
    with database.open_connection(home.database) as connection:
        here = database_place(connection)
    known = UNTOLD not in (here, identity.database)
    other = known and not (identity.database and filesystem.is_same_location(identity.database, here))
    return not filesystem.is_same_location(identity.warehouse, home.warehouse), other


def require_unmoved(home: Home, identity: Identity) -> None:
    """Raise `HomeMoved` when the home is not where its tables' metadata say, with the command that helps."""
    warehouse, other = detect_moves(home, identity)
    if warehouse:
        raise HomeMoved(
            f"this home was copied, moved or mounted elsewhere: its tables were made in {identity.warehouse}, and are "
            f"looked for in {home.warehouse} now.",
            "altneu relocate   (their metadata name whole paths: it writes them for this place)",
        )
    if other:
        raise HomeMoved(
            f"the database of this home was {identity.database or 'another one'} when its tables in {home.warehouse} "
            f"were made; now it is {database.redact_uri(home.database)}. Two databases on the same "
            f"tables would destroy "
            "them.",
            "altneu relocate --original-gone   (if nobody works with the former one any more); else copy the tables, "
            f"name their place under [storage] warehouse in {home.path / 'altneu.toml'}, and: altneu relocate",
        )


def refuse_lost_database(home: Home) -> None:
    """For a home whose database knows of no tables: raise `AltneuError` when its warehouse holds rows."""
    refuse_full_warehouse(home, f"the database of this home, {database.redact_uri(home.database)}, is lost or empty")


def refuse_full_warehouse(home: Home, lost: str) -> None:
    """For a home whose tables are not known any more (`lost`): raise `AltneuError` when its warehouse holds rows."""
    warehouse = filesystem.local_path(home.warehouse)
    if warehouse is not None:
        full = any(warehouse.glob("*/*/data/*.parquet"))
        away = f"mv {warehouse} {warehouse}.lost"
    else:
        full = any(re.fullmatch(r"[^/]+/[^/]+/data/.*\.parquet", name) for name in list_warehouse_files(home))
        away = "name another place under [storage] warehouse"
    if full:
        raise AltneuError(
            f"{lost}, while {filesystem.normalize_location(home.warehouse)} is full: without it nobody "
            f"knows which rows are published.",
            f"put it back from a backup; or start again from the landing: {away}; altneu backfill --all",
        )


def list_warehouse_files(home: Home) -> dict[str, filesystem.FileEntry]:
    """Every file of a home's warehouse. Raises `Unavailable` when that cannot be read."""
    try:
        return filesystem.list_files(home.warehouse)
    except OSError as error:
        raise Unavailable(
            f"[storage] warehouse = {home.warehouse}: {filesystem.format_store_error(error)}", "altneu doctor"
        ) from error
