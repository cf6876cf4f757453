"""`altneu relocate`: rewrite the metadata of a copied or moved home's tables for the place where the home is now.

Iceberg's metadata contain whole paths: metadata files name lists of manifests, these name manifests, and these name
data files. All files that the tables' present state needs are rewritten beside the old ones, under new names, with the
new paths; snapshots, branches, tags and field ids stay (`metadata_rewriter`). Then one SQL transaction lets the catalog
name the new files, under a new name of the catalog, and stores the place. If the command is stopped before, nothing has
changed, and it can be repeated; `altneu compact` removes what it had written. Files are read where the home is now,
never where it was: a copy does not touch the original.
"""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa

from ..errors import AltneuError, UsageError
from ..home.home import Home
from ..state import database, filesystem, home_identity, versions
from ..state.schema import homes
from .metadata_rewriter import DamagedTable, MetadataRewriter
from .table_schemas import CERTIFICATES

NAMESPACES = sa.table("iceberg_namespace_properties", sa.column("catalog_name", sa.String))


@dataclass(frozen=True)
class RelocateResult:
    """The old and the new place of the tables, and the numbers of tables and of files that were rewritten."""

    old_warehouse: str
    new_warehouse: str
    tables: int
    files: int


def relocate_home(
    home: Home, *, original_gone: bool = False, say: Callable[[str], None] = lambda text: None
) -> RelocateResult:
    """Rewrite the metadata of a home's tables for its present place.

    `original_gone`: nobody uses the former database of the tables any more. `say` prints a message of progress. Raises
    `UsageError` where this would take the tables or the database of another home.
    """
    if home.config.storage.catalog is not None:
        raise UsageError(
            "the tables of this home are listed in a REST catalog by their whole paths, so they cannot be relocated.",
            "leave [storage] warehouse as it was (the rest of the home may move); to copy the home: altneu move DIR",
        )
    identity = home_identity.find_identity(home)
    if identity is None:
        home_identity.refuse_lost_database(home)
        return RelocateResult(home.warehouse, home.warehouse, 0, 0)
    warehouse, other = home_identity.detect_moves(home, identity)
    _refuse_other_home(home, identity, warehouse=warehouse, other=other, original_gone=original_gone)
    if not warehouse and not other:
        return RelocateResult(home.warehouse, home.warehouse, 0, 0)
    located, written = table_locations(home, identity), 0
    new = dict(located)
    if warehouse:
        for number, (table, location) in enumerate(located.items()):
            say(f"{table} ({number + 1} of {len(located)})")
            moving = _TableRelocation(home.warehouse, table, location)
            metadata = moving.rewrite_unless_damaged(say)
            if metadata is None:
                del new[table]
            else:
                new[table] = metadata
            written += moving.written_files
    _commit_relocation(home, identity, {table: located[table] for table in new}, new)
    return RelocateResult(identity.warehouse, home.warehouse, len(located), written)


def _refuse_other_home(
    home: Home, identity: home_identity.Identity, *, warehouse: bool, other: bool, original_gone: bool
) -> None:
    settings = home.path / "altneu.toml"
    if warehouse and not other and _has_tables(identity.warehouse):
        raise UsageError(
            f"the database {database.redact_uri(home.database)} belongs to the tables in {identity.warehouse}, which "
            "still exist: a copy needs a database of its own.",
            f"to replace those tables: mv {identity.warehouse} {identity.warehouse}.old, then altneu relocate; "
            f"for a copy: copy the database, set it as [storage] database in {settings}, then altneu relocate",
        )
    if other and not warehouse:
        former = (
            filesystem.local_path(identity.database) if identity.database and ":" not in identity.database else None
        )
        if former is not None and former.exists():
            raise UsageError(
                f"the tables in {home.warehouse} belong to the database {former}, which still exists: a copy needs "
                "tables of its own.",
                f"copy the tables, set their new place as [storage] warehouse in {settings}, then: altneu relocate",
            )
        if not original_gone:
            home_identity.require_unmoved(home, identity)


def _has_tables(warehouse: str) -> bool:
    try:
        return any(name.endswith(".metadata.json") for name in filesystem.list_sizes(warehouse))
    except OSError:
        return False


def table_locations(home: Home, identity: home_identity.Identity) -> dict[str, str]:
    """Return the metadata files of a home's tables, as the database lists them: `namespace/name` → location."""
    t = home_identity.tables
    query = sa.select(t).where(t.c.catalog_name == identity.catalog).order_by(t.c.table_name)
    with database.open_connection(home.database) as connection:
        if not sa.inspect(connection).has_table(t.name):
            return {}
        rows = connection.execute(query).all()
    catalog_rows = [
        row for row in rows if row.table_name == CERTIFICATES or not row.table_name.startswith(home_identity.ROUNDS)
    ]
    return {f"{row.table_namespace}/{row.table_name}": row.metadata_location for row in catalog_rows}


def _commit_relocation(home: Home, identity: home_identity.Identity, old: dict[str, str], new: dict[str, str]) -> None:
    """Commit the new place: all tables in one transaction, if no other process has changed them."""
    name, t = home_identity.new_catalog(), home_identity.tables
    with database.open_connection(home.database) as connection:
        versions.prepare_database(connection.engine, writes=True)
        in_catalog = t.c.catalog_name == identity.catalog
        for table in old:
            namespace, _, short = table.rpartition("/")
            where = in_catalog & (t.c.table_namespace == namespace) & (t.c.table_name == short)
            unchanged = t.c.metadata_location == old[table]
            values = {"catalog_name": name, "metadata_location": new[table], "previous_metadata_location": None}
            if connection.execute(t.update().where(where & unchanged).values(values)).rowcount != 1:
                raise AltneuError("another process has changed the tables meanwhile.", "altneu relocate")
        spaces = NAMESPACES.update().where(NAMESPACES.c.catalog_name == identity.catalog)
        if sa.inspect(connection).has_table(NAMESPACES.name):
            connection.execute(spaces.values(catalog_name=name))
        connection.execute(homes.delete())
        row = home_identity.identity_row(home, name, home_identity.database_place(connection))
        connection.execute(homes.insert().values(row))
        connection.commit()


class _TableRelocation(MetadataRewriter):
    """A table that is in `warehouse` already. Its metadata are written beside those that name the former place."""

    def __init__(self, warehouse: str, table: str, location: str) -> None:
        super().__init__(f"{warehouse.rstrip('/')}/{table}", table, location)
        self.old_folder = f"{home_identity.warehouse_of(table, location)}/{table}"
        self.written_files, self._token = 0, str(uuid.uuid4())
        self._present_files = filesystem.list_sizes(self.new_folder)

    def read_metadata_file(self, location: str) -> bytes:
        here = self.new_location(location)
        try:
            return filesystem.read_file(here)
        except OSError:
            raise self.damaged_error(location) from None

    def write_metadata_file(self, former: str, kind: str, content: bytes) -> str:
        base = posixpath.basename(former)
        if kind == "places":
            stem, dot, ending = self.new_location(former).rpartition(".")
            location = f"{stem}-{self._token}{dot}{ending}"
        else:
            name = {
                "metadata": f"{base.split('-')[0]}-{self._token}.metadata.json",  # Iceberg increments this number
                "list": f"{'-'.join(base.split('-')[:2])}-1-{self._token}.avro",
                "manifest": f"{self._token}-m{len(self._manifests)}.avro",
            }[kind]
            location = f"{self.new_folder}/metadata/{name}"
        try:
            filesystem.write_file(location, content)
        except OSError as error:
            raise AltneuError(
                f"{location} cannot be written: {error.strerror or error}. Nothing was changed.",
                "make room on the disk, or make the folder writable; then: altneu relocate",
            ) from None
        self.written_files += 1
        return location

    def require_data_file(self, location: str, size: int | None) -> None:
        """Raise `DamagedTable` where a data file is missing or has another size."""
        if size is not None and self._present_files.get(self.relative_path(location)) != size:
            raise self.damaged_error(location)

    def damaged_error(self, location: str) -> DamagedTable:
        return DamagedTable(
            f"this home is incomplete: {self.new_location(location)} is missing or damaged. Nothing was changed.",
            "copy the home again, the database first, while no compaction is in progress; then: altneu relocate",
        )
