"""A table's metadata, written again for another place: all that leads from its metadata file, with other paths.

Iceberg's metadata name whole paths: metadata files name lists of manifests, these the manifests, these the data files.
Snapshots, branches, tags and field ids stay, and no row is read or written, but for the lists of places of rows that
were taken out of plain tables: they name the data files. Where files are read, what they are called
and what is done about the data files say `relocate` and `copied`.

Source: the Iceberg table specification (table metadata, manifest lists, manifests).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from ..errors import AltneuError
from ..state import filesystem
from . import avro_patch
from .table_schemas import CERTIFICATES

DELETED = 2  # the status of a manifest's entry whose file is gone
DELETES = 1  # the content of a manifest of delete files, which list places of rows


class DamagedTable(AltneuError):
    """A file that a table needs is missing, or is not what it should be."""


class MetadataRewriter(ABC):
    """One table, `namespace/name`, whose metadata file is at `location`, on its way into the folder `new`."""

    def __init__(self, new: str, table: str, location: str) -> None:
        self.new, self.table, self.location = new, table, location
        self.old = ""  # the folder that the metadata name
        self._manifests: dict[str, tuple[str, int]] = {}  # as it was → as it is, with its bytes
        self._places: dict[str, tuple[str, int, int]] = {}  # the same of lists of places, and the bytes that it had

    @abstractmethod
    def read_metadata_file(self, location: str) -> bytes:
        """A file of metadata, by the location that metadata name."""

    @abstractmethod
    def write_metadata_file(self, former: str, kind: str, content: bytes) -> str:
        """Store a file (kind: metadata, list, manifest, places) that takes the place of another; its location."""

    @abstractmethod
    def require_data_file(self, location: str, size: int | None) -> None:
        """The table needs this file, of so many bytes, beside its metadata. None: it may be missing."""

    @abstractmethod
    def damaged_error(self, location: str) -> DamagedTable:
        """What to say of a file that is missing or is not what it should be."""

    def relocated_properties(self, properties: dict[str, str]) -> dict[str, str]:
        """The table's properties at the new place."""
        return properties

    def rewrite_unless_damaged(self, say: Callable[[str], None]) -> str | None:
        """`metadata`; None, and it is said, of a cache that is damaged: the next run makes it again."""
        try:
            return self.rewrite_metadata()
        except DamagedTable:
            if self.table.rpartition("/")[2] != CERTIFICATES:
                raise
            say(f"{CERTIFICATES} is damaged and left behind: it is a cache, and the next run makes it again")
            return None

    def rewrite_metadata(self) -> str:
        """Write the table's metadata again, and all that it leads to; its new metadata file."""
        found: dict[str, Any] = json.loads(self.read_metadata_file(self.location))
        self.old = found["location"].rstrip("/")
        found["location"] = self.new
        found["metadata-log"] = []  # they name the old place
        found["properties"] = self.relocated_properties(found.get("properties", {}))
        for snapshot in found.get("snapshots", ()):
            if "manifest-list" not in snapshot:
                raise AltneuError(f"table {self.table}: a snapshot of Iceberg's first format.", "altneu rebuild")
            snapshot["manifest-list"] = self._rewrite_manifest_list(snapshot["manifest-list"])
        for kind in ("statistics", "partition-statistics"):
            for each in found.get(kind, ()):
                self.require_data_file(each["statistics-path"], None)
                each["statistics-path"] = self.new_location(each["statistics-path"])
        return self.write_metadata_file(self.location, "metadata", json.dumps(found).encode())

    def _rewrite_manifest_list(self, location: str) -> str:
        """Write a list of manifests again, and those of them that are not yet; its location."""
        path, deletes = "", set[str]()

        def remember_path(old: str) -> str:
            nonlocal path
            path = old
            return old

        def remember_content(content: int) -> int:
            deletes.update([path] if content == DELETES else ())
            return content

        self._rewrite_avro(
            location, {("manifest_path",): remember_path, ("content",): remember_content}
        )  # the path comes before the content

        def rewrite_entry(old: str) -> str:
            if remember_path(old) not in self._manifests:
                self._manifests[old] = self._rewrite_manifest(old, deletes=old in deletes)
            return self._manifests[old][0]

        changes: dict[tuple[str, ...], avro_patch.Change] = {
            ("manifest_path",): rewrite_entry,
            ("manifest_length",): lambda length: self._manifests[path][1],
        }
        return self.write_metadata_file(location, "list", self._rewrite_avro(location, changes))

    def _rewrite_manifest(self, location: str, *, deletes: bool) -> tuple[str, int]:
        """Write a manifest (of data files, or of lists of places) again; its location and bytes."""
        entry: dict[str, Any] = {}

        def remember_status(value: int) -> int:
            entry["status"] = value
            return value

        def rewrite_entry(old: str) -> str:
            entry["file"] = old
            return (
                self._rewrite_position_deletes(old)
                if deletes and entry["status"] != DELETED
                else self.new_location(old)
            )

        def require_size(size: int) -> int:
            if entry["status"] == DELETED:
                return size
            if not deletes:
                self.require_data_file(entry["file"], size)
                return size
            _, new, former = self._places[entry["file"]]
            if former != size:
                raise self.damaged_error(entry["file"])
            return new

        def rewrite_bound(value: bytes) -> bytes:
            """The least or the greatest of the data files that a list names, or of the places."""
            old = self.old.encode() + b"/"
            return f"{self.new}/".encode() + value.removeprefix(old) if value.startswith(old) else value

        changes: dict[tuple[str, ...], avro_patch.Change] = {
            ("status",): remember_status,
            ("data_file", "file_path"): rewrite_entry,
            ("data_file", "file_size_in_bytes"): require_size,
        }
        if deletes:
            changes |= {
                ("data_file", "referenced_data_file"): self.new_location,
                ("data_file", "lower_bounds", "value"): rewrite_bound,
                ("data_file", "upper_bounds", "value"): rewrite_bound,
            }
        content = self._rewrite_avro(location, changes)
        return self.write_metadata_file(location, "manifest", content), len(content)

    def _rewrite_position_deletes(self, location: str) -> str:
        """Write a list of places of rows again, once; its location."""
        if location not in self._places:
            import pyarrow as pa
            import pyarrow.parquet as pq

            former = self.read_metadata_file(location)
            try:
                rows = pq.ParquetFile(pa.BufferReader(former)).read()
            except pa.ArrowInvalid:
                raise self.damaged_error(location) from None
            column = rows.column_names.index("file_path")
            moved = pa.array([self.new_location(each) for each in rows["file_path"].to_pylist()], pa.string())
            sink = pa.BufferOutputStream()
            pq.write_table(rows.set_column(column, rows.schema.field(column), moved), sink, compression="zstd")
            content = sink.getvalue().to_pybytes()
            self._places[location] = self.write_metadata_file(location, "places", content), len(content), len(former)
        return self._places[location][0]

    def relative_path(self, location: str) -> str:
        """A file of the table by its path from the table's folder."""
        old, path = filesystem.normalize_location(self.old) + "/", filesystem.normalize_location(location)
        if not path.startswith(old):
            raise AltneuError(f"table {self.table}: {location} is not in {self.old}.", "altneu rebuild")
        return path.removeprefix(old)

    def new_location(self, location: str) -> str:
        """Where a file of the table is at the new place."""
        return f"{self.new}/{self.relative_path(location)}"

    def _rewrite_avro(self, location: str, changes: dict[tuple[str, ...], avro_patch.Change]) -> bytes:
        try:
            return avro_patch.rewrite_values(self.read_metadata_file(location), changes)
        except avro_patch.NotAvro:
            raise self.damaged_error(location) from None
