"""`altneu relocate`: make the tables of a copied or moved home name the place where the home is now.

Iceberg's metadata name whole paths: metadata files name lists of manifests, these the manifests, these the data files.
All that lead from the tables' present state are rewritten next to the old ones, under new names, with the new paths;
snapshots, branches, tags and field ids stay, and no row is read or written. Then one SQL transaction points the catalog
at them, under a name of its own, and notes the place. Stopped before it, nothing has changed, and the command is simply
typed again; what it had written is removed by `altneu compact`. Files are read where the home is now, never where
it was: a copy does not touch the original.

Source: the Iceberg table specification (table metadata, manifest lists, manifests).
"""

from __future__ import annotations

import json
import posixpath
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from ..errors import AltneuError, UsageError
from ..home.directory import Home
from ..state import database, files, place, versions
from ..state.schema import homes
from . import avro

NAMESPACES = sa.table("iceberg_namespace_properties", sa.column("catalog_name", sa.String))
DELETED = 2  # the status of a manifest's entry whose file is gone
DELETES = 1  # the content of a manifest of delete files: we write none


@dataclass(frozen=True)
class Relocated:
    """From where to where, and how many tables and files were rewritten."""

    old: str
    new: str
    tables: int
    files: int


def relocate(home: Home, original_gone: bool = False, say: Callable[[str], None] = lambda text: None) -> Relocated:
    """See the first lines. Raises `UsageError` where that would take something from another home."""
    if home.config.storage.catalog is not None:
        raise UsageError(
            "the tables of this home are listed in a REST catalog, by their whole paths: they cannot be relocated.",
            "leave [storage] warehouse as it was (the rest of the home may move); or land the batches in a new home",
        )
    identity = place.look(home)
    if identity is None:
        place.refuse_lost_database(home)
        return Relocated(home.warehouse, home.warehouse, 0, 0)
    warehouse, other = place.moved(home, identity)
    _refuse_theft(home, identity, warehouse, other, original_gone)
    if not warehouse and not other:
        return Relocated(home.warehouse, home.warehouse, 0, 0)
    located, written = locations(home, identity), 0
    new = dict(located)
    if warehouse:
        for number, (table, location) in enumerate(located.items()):
            say(f"{table} ({number + 1} of {len(located)})")
            moving = _Moving(home.warehouse, table, location)
            new[table] = moving.metadata()
            written += moving.written
    _commit(home, identity, located, new)
    return Relocated(identity.warehouse, home.warehouse, len(located), written)


def _refuse_theft(home: Home, identity: place.Identity, warehouse: bool, other: bool, original_gone: bool) -> None:
    settings = home.path / "altneu.toml"
    if warehouse and not other and _tables_at(identity.warehouse):
        raise UsageError(
            f"the database {database.shown(home.database)} serves the tables in {identity.warehouse}, which are still "
            "there: a copy needs a database of its own.",
            f"if these tables take their place: mv {identity.warehouse} {identity.warehouse}.old, and altneu relocate; "
            f"for a copy: copy the database, name it under [storage] database in {settings}, and altneu relocate",
        )
    if other and not warehouse:
        former = files.local(identity.database) if identity.database and ":" not in identity.database else None
        if former is not None and former.exists():
            raise UsageError(
                f"the tables in {home.warehouse} are those of the database {former}, which is still there: a copy "
                "needs tables of its own.",
                f"copy the tables, name the copy's place under [storage] warehouse in {settings}, and: altneu relocate",
            )
        if not original_gone:
            place.check(home, identity)


def _tables_at(warehouse: str) -> bool:
    try:
        return any(name.endswith(".metadata.json") for name in files.sizes(warehouse))
    except OSError:
        return False


def locations(home: Home, identity: place.Identity) -> dict[str, str]:
    """Table, `namespace/name` → its metadata file, as the database has it."""
    t = place.tables
    query = sa.select(t).where(t.c.catalog_name == identity.catalog).order_by(t.c.table_name)
    with database.connected(home.database) as connection:
        if not sa.inspect(connection).has_table(t.name):
            return {}
        found = connection.execute(query).all()
    return {f"{row.table_namespace}/{row.table_name}": row.metadata_location for row in found}


def _commit(home: Home, identity: place.Identity, old: dict[str, str], new: dict[str, str]) -> None:
    """The one moment at which the home is at its new place: all in one transaction, if nobody else has done it."""
    name, t = place.new_catalog(), place.tables
    with database.connected(home.database) as connection:
        versions.ready(connection.engine, writes=True)
        mine = t.c.catalog_name == identity.catalog
        for table in old:
            namespace, _, short = table.rpartition("/")
            where = mine & (t.c.table_namespace == namespace) & (t.c.table_name == short)
            unchanged = t.c.metadata_location == old[table]
            values = {"catalog_name": name, "metadata_location": new[table], "previous_metadata_location": None}
            if connection.execute(t.update().where(where & unchanged).values(values)).rowcount != 1:
                raise AltneuError("another process has changed the tables meanwhile.", "altneu relocate")
        spaces = NAMESPACES.update().where(NAMESPACES.c.catalog_name == identity.catalog)
        if sa.inspect(connection).has_table(NAMESPACES.name):
            connection.execute(spaces.values(catalog_name=name))
        connection.execute(homes.delete())
        row = place.row(home, name, place.database_place(connection))
        connection.execute(homes.insert().values(row))
        connection.commit()


@dataclass
class _Moving:
    """One table on its way into `warehouse`: what is read, and what was rewritten."""

    warehouse: str
    table: str  # namespace/name
    location: str  # of its metadata file, as it was
    written: int = 0
    token: str = field(default_factory=lambda: str(uuid.uuid4()))
    manifests: dict[str, tuple[str, int]] = field(default_factory=dict)  # as it was → as it is, with its bytes

    def __post_init__(self) -> None:
        self.old = f"{place.place_of(self.table, self.location)}/{self.table}"
        self.new = f"{self.warehouse.rstrip('/')}/{self.table}"
        self.here = files.sizes(self.new)

    def metadata(self) -> str:
        """Write the table's metadata again, and all that it leads to; its new metadata file."""
        found: dict[str, Any] = json.loads(self._read(self.location))
        self.old = found["location"].rstrip("/")
        found["location"] = self.new
        found["metadata-log"] = []  # they name the old place
        for snapshot in found.get("snapshots", ()):
            if "manifest-list" not in snapshot:
                raise AltneuError(f"table {self.table}: a snapshot of Iceberg's first format.", "altneu rebuild")
            name = f"snap-{snapshot['snapshot-id']}-1-{self.token}.avro"
            snapshot["manifest-list"] = self._list(snapshot["manifest-list"], name)
        for kind in ("statistics", "partition-statistics"):
            for each in found.get(kind, ()):
                each["statistics-path"] = self._moved(each["statistics-path"])
        version = posixpath.basename(self.location).split("-")[0]  # Iceberg counts on from it
        return self._write(f"{version}-{self.token}.metadata.json", json.dumps(found).encode())

    def _list(self, location: str, name: str) -> str:
        """Write a list of manifests again, and those of them that are not yet; its location."""
        path = ""

        def moved(old: str) -> str:
            nonlocal path
            path = old
            if old not in self.manifests:
                self.manifests[old] = self._manifest(old)
            return self.manifests[old][0]

        def refuse(content: int) -> int:
            if content == DELETES:
                raise AltneuError(f"table {self.table} has delete files, which altneu does not write.", "altneu doctor")
            return content

        changes: dict[tuple[str, ...], avro.Change] = {
            ("manifest_path",): moved,
            ("manifest_length",): lambda length: self.manifests[path][1],
            ("content",): refuse,
        }
        return self._write(name, self._copied(location, changes))

    def _manifest(self, location: str) -> tuple[str, int]:
        """Write a manifest again; its location and bytes. Its files have to be here, whole."""
        entry: dict[str, Any] = {}

        def note(name: str) -> avro.Change:
            def keep(value: Any) -> Any:
                entry[name] = value
                return value

            return keep

        def moved(old: str) -> str:
            entry["file"] = old
            return self._moved(old)

        def whole(size: int) -> int:
            name = self._inside(entry["file"])
            if entry["status"] != DELETED and self.here.get(name) != size:
                raise self._incomplete(f"{self.new}/{name}")
            return size

        changes: dict[tuple[str, ...], avro.Change] = {
            ("status",): note("status"),
            ("data_file", "file_path"): moved,
            ("data_file", "file_size_in_bytes"): whole,
        }
        content = self._copied(location, changes)
        return self._write(f"{self.token}-m{len(self.manifests)}.avro", content), len(content)

    # -- files --------------------------------------------------------------------------------------------------

    def _inside(self, location: str) -> str:
        """A file of the table by its path from the table's folder."""
        old, path = files.plain(self.old) + "/", files.plain(location)
        if not path.startswith(old):
            raise AltneuError(f"table {self.table}: {location} is not in {self.old}.", "altneu rebuild")
        return path.removeprefix(old)

    def _moved(self, location: str) -> str:
        return f"{self.new}/{self._inside(location)}"

    def _read(self, location: str) -> bytes:
        here = self._moved(location)
        try:
            return files.read(here)
        except OSError:
            raise self._incomplete(here) from None

    def _copied(self, location: str, changes: dict[tuple[str, ...], avro.Change]) -> bytes:
        try:
            return avro.copied(self._read(location), changes)
        except avro.NotAvro:
            raise self._incomplete(self._moved(location)) from None

    def _write(self, name: str, content: bytes) -> str:
        location = f"{self.new}/metadata/{name}"
        try:
            files.write(location, content)
        except OSError as error:
            raise AltneuError(
                f"{location} cannot be written: {error.strerror or error}. Nothing was changed.",
                "make room, or the folder writable; then: altneu relocate",
            ) from None
        self.written += 1
        return location

    def _incomplete(self, location: str) -> AltneuError:
        return AltneuError(
            f"this home is not whole: {location} is missing or damaged. Nothing was changed.",
            "copy the home again, the database first, while no compaction is at work; then: altneu relocate",
        )
