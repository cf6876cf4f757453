"""The copy of a home's tables to another place and into another catalog.

All snapshots, branches and tags are copied, and so all revisions and what held runs have written. Data files are copied
unchanged, metadata files with the paths of the new place (`metadata_rewriter`), both under their present names. So a
repeated copy gives the same files, and existing ones are not copied again. Nobody sees a table before it is listed. The
truss checkpoint (`truss_checkpoint_table`) is copied, too, if it is complete, because it may take hours to compute.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from ..errors import Unavailable, UsageError
from ..home.home import Home
from ..state import file_transfer, filesystem, home_identity
from . import catalogs
from .metadata_rewriter import DamagedTable, MetadataRewriter
from .table_schemas import CERTIFICATES, NAMESPACE

REPEAT_COMMAND = "run the same command again: files that are copied are not copied again"
_CATALOG = sa.MetaData()  # the tables of Iceberg's JDBC catalog, as it makes them
_text = sa.String(255)
ICEBERG_TABLES = sa.Table(
    "iceberg_tables",
    _CATALOG,
    sa.Column("catalog_name", _text, primary_key=True),
    sa.Column("table_namespace", _text, primary_key=True),
    sa.Column("table_name", _text, primary_key=True),
    sa.Column("metadata_location", sa.String(1000)),
    sa.Column("previous_metadata_location", sa.String(1000)),
    sa.Column("iceberg_type", sa.String(5)),
)
NAMESPACES = sa.Table(
    "iceberg_namespace_properties",
    _CATALOG,
    sa.Column("catalog_name", _text, primary_key=True),
    sa.Column("namespace", _text, primary_key=True),
    sa.Column("property_key", _text, primary_key=True),
    sa.Column("property_value", sa.String(1000)),
)


@dataclass(frozen=True)
class CopiedTables:
    """The result of a copy: `located`, table → its new metadata file, and `files`, the data files with their copies."""

    located: dict[str, str]
    files: list[file_transfer.CopyRequest]
    copied: file_transfer.CopyResult


NO_TABLES = CopiedTables({}, [], file_transfer.CopyResult())


def copy_tables(source: Home, target: Home, catalog: str, say: file_transfer.Say) -> CopiedTables:
    """Copy the files of all tables of `source` to the warehouse of `target`. Raises `Unavailable`."""
    identity = home_identity.find_identity(source)
    assert identity is not None
    listed, located = catalogs.open_catalog(source, identity), dict[str, str]()
    former = listed.metadata_locations() | listed.metadata_locations(CERTIFICATES)
    wanted: list[file_transfer.CopyRequest] = []
    existing_files = file_transfer.list_existing(target.warehouse)
    for number, (table, location) in enumerate(sorted(former.items())):
        say(f"metadata of {table} ({number + 1} of {len(former)})")
        copy = _TableCopy(source, target, table, location, catalog, existing_files)
        if (metadata := copy.rewrite_unless_damaged(say)) is not None:
            located[table] = metadata
            wanted += copy.requests.values()
    return CopiedTables(located, wanted, file_transfer.copy_files(wanted, existing_files, "rows", say))


class _TableCopy(MetadataRewriter):
    """A table whose metadata are written to the new place, and whose other files are collected in `wanted`."""

    def __init__(
        self,
        source: Home,
        target: Home,
        table: str,
        location: str,
        catalog: str,
        there: Mapping[str, filesystem.FileEntry],
    ) -> None:
        new = f"{filesystem.normalize_location(target.warehouse)}/{catalogs.catalog_namespace(target)}/{table}"
        super().__init__(new, f"{catalogs.catalog_namespace(source)}/{table}", location)
        self.requests: dict[str, file_transfer.CopyRequest] = {}
        self._owner = catalog if target.config.storage.catalog is not None else None
        self._existing_files = there

    def read_metadata_file(self, location: str) -> bytes:
        try:
            return filesystem.read_file(location)
        except FileNotFoundError:
            raise self.damaged_error(location) from None
        except OSError as error:
            raise Unavailable(
                f"{location} cannot be read: {filesystem.format_store_error(error)}.",
                f"altneu doctor; {REPEAT_COMMAND}",
            ) from error

    def write_metadata_file(self, former: str, kind: str, content: bytes) -> str:
        location = (
            f"{self.new_folder}/metadata/{posixpath.basename(former)}"
            if kind != "places"
            else self.new_location(former)
        )
        entry = self._existing_files.get(location)
        if entry is not None and entry.bytes == len(content) and _has_content(location, content):
            return location
        try:
            filesystem.write_file(location, content)
        except OSError as error:
            raise Unavailable(
                f"{location} cannot be written: {filesystem.format_store_error(error)}.",
                f"correct the cause (disk space, permissions, the store: altneu doctor), then {REPEAT_COMMAND}",
            ) from error
        return location

    def require_data_file(self, location: str, size: int | None) -> None:
        if location in self.requests:
            return
        if size is None:
            try:
                size = filesystem.stat_file(location).bytes
            except FileNotFoundError:  # statistics may be missing
                return
        self.requests[location] = file_transfer.CopyRequest(location, self.new_location(location), size)

    def rewrite_metadata(self) -> str:
        """Write the table's metadata for the new place, and return the new metadata file.

        For the truss checkpoint, verify that its files exist. A missing file of another table is noticed when it is
        copied.
        """
        written = super().rewrite_metadata()
        if self.table.rpartition("/")[2] == CERTIFICATES:
            source_files = file_transfer.list_existing(self.old_folder)
            for each in self.requests.values():
                if filesystem.normalize_location(each.source) not in source_files:
                    raise self.damaged_error(each.source)
        return written

    def relocated_properties(self, properties: dict[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in properties.items() if name != catalogs.OWNER}
        return kept | ({catalogs.OWNER: self._owner} if self._owner else {})

    def damaged_error(self, location: str) -> DamagedTable:
        return DamagedTable(
            f"{location} is missing or damaged.",
            f"altneu doctor says whether this home is complete; if a compaction has run meanwhile: {REPEAT_COMMAND}",
        )


def _has_content(location: str, content: bytes) -> bool:
    try:
        return filesystem.read_file(location) == content
    except OSError:
        return False


# -- Catalogs -----------------------------------------------------------------------------------------------------


def refuse_other_home(target: Home, catalog: str) -> None:
    """Raise `UsageError` where the REST catalog of the new home has tables of another home in the namespace."""
    rest = target.config.storage.catalog
    if rest is None:
        return
    for table, location in catalogs.RestCatalogClient(rest).metadata_locations().items():
        try:
            owner = json.loads(filesystem.read_file(location)).get("properties", {}).get(catalogs.OWNER)
        except OSError:
            owner = None
        if owner != catalog:
            raise UsageError(
                f"the namespace {rest.namespace} of {rest.uri} has a table {table} of another home.",
                "name another namespace: --to 'https://…?namespace=NAME'",
            )


def register_tables(target: Home, catalog: str, located: Mapping[str, str], connection: sa.Connection) -> None:
    """Register the tables for the new home, in its REST catalog, or in its database.

    Args:
        target: The new home.
        catalog: The name of its catalog.
        located: Table → its metadata file.
        connection: A transaction in its database.
    """
    rest = target.config.storage.catalog
    _CATALOG.create_all(connection)
    for table in (ICEBERG_TABLES, NAMESPACES):
        connection.execute(table.delete().where(table.c.catalog_name == catalog))
    if rest is not None:
        catalogs.RestCatalogClient(rest).register_tables(located)
        return
    space = {"catalog_name": catalog, "table_namespace": NAMESPACE, "iceberg_type": "TABLE"}
    rows = [{**space, "table_name": name, "metadata_location": location} for name, location in located.items()]
    connection.execute(ICEBERG_TABLES.insert(), rows)
    exists = {"property_key": "exists", "property_value": "true"}  # Iceberg records a namespace in this way
    connection.execute(NAMESPACES.insert().values(catalog_name=catalog, namespace=NAMESPACE, **exists))
