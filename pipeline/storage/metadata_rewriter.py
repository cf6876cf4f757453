"""The rewriting of a table's metadata for another place: its metadata file and all metadata that it names.

Iceberg's metadata contain whole paths: metadata files name lists of manifests, these name manifests, and these name
data files. Snapshots, branches, tags and field ids stay. No rows are read or written, except the delete files of plain
tables, which list the positions of deleted rows and name their data files. The subclasses in `relocate` and
`copy_tables` decide where files are read, under which names they are written, and what happens to data files.

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

DELETED = 2  # the status of an entry of a manifest whose file is deleted
DELETES = 1  # the content of a manifest of delete files, which list positions of rows


class DamagedTable(AltneuError):
    """A file that a table needs is missing or damaged."""


class MetadataRewriter(ABC):
    """The rewriter of one table, `namespace/name`, with the metadata file `location`, for its new folder `new`."""

    def __init__(self, new: str, table: str, location: str) -> None:
        self.new, self.table, self.location = new, table, location
        self.old = ""  # the table's folder by its present metadata
        self._manifests: dict[str, tuple[str, int]] = {}  # old location → new location, its bytes
        # for delete files: old location → new location, its bytes, its former bytes
        self._places: dict[str, tuple[str, int, int]] = {}

    @abstractmethod
    def read_metadata_file(self, location: str) -> bytes:
        """Read a metadata file, by the location that the metadata contain."""

    @abstractmethod
    def write_metadata_file(self, former: str, kind: str, content: bytes) -> str:
        """Store the new version of the file `former` (kind: metadata, list, manifest, places), and return its
        location."""

    @abstractmethod
    def require_data_file(self, location: str, size: int | None) -> None:
        """Require a file that is not metadata, of `size` bytes; None: it may be missing. May raise `DamagedTable`."""

    @abstractmethod
    def damaged_error(self, location: str) -> DamagedTable:
        """Return the error for a file that is missing or damaged."""

    def relocated_properties(self, properties: dict[str, str]) -> dict[str, str]:
        """Return the properties that the table gets at the new place."""
        return properties

    def rewrite_unless_damaged(self, say: Callable[[str], None]) -> str | None:
        """Rewrite the metadata, and return the new metadata file.

        Return None, with a message, for a damaged truss checkpoint, which is a cache: the next run makes it again.
        Raises `DamagedTable` for every other damaged table.
        """
        try:
            return self.rewrite_metadata()
        except DamagedTable:
            if self.table.rpartition("/")[2] != CERTIFICATES:
                raise
            say(f"{CERTIFICATES} is damaged and is left out: it is a cache, and the next run makes it again")
            return None

    def rewrite_metadata(self) -> str:
        """Rewrite the table's metadata file and all metadata that it names. Return the new metadata file."""
        metadata: dict[str, Any] = json.loads(self.read_metadata_file(self.location))
        self.old = metadata["location"].rstrip("/")
        metadata["location"] = self.new
        metadata["metadata-log"] = []  # earlier metadata files name the old place
        metadata["properties"] = self.relocated_properties(metadata.get("properties", {}))
        for snapshot in metadata.get("snapshots", ()):
            if "manifest-list" not in snapshot:
                raise AltneuError(f"table {self.table} has a snapshot in Iceberg's first format.", "altneu rebuild")
            snapshot["manifest-list"] = self._rewrite_manifest_list(snapshot["manifest-list"])
        for kind in ("statistics", "partition-statistics"):
            for each in metadata.get(kind, ()):
                self.require_data_file(each["statistics-path"], None)
                each["statistics-path"] = self.new_location(each["statistics-path"])
        return self.write_metadata_file(self.location, "metadata", json.dumps(metadata).encode())

    def _rewrite_manifest_list(self, location: str) -> str:
        """Rewrite a list of manifests, and those of its manifests that are not rewritten yet. Return its new
        location."""
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
        )  # in each entry the path comes before the content

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
        """Rewrite a manifest of data files, or of delete files. Return its new location and its bytes."""
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
            """Change a bound of a delete file's columns: the least or greatest path of a data file, or position."""
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
        """Rewrite a delete file, once, and return its new location."""
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
        """Return the path of a file of the table from the table's folder. Raises `AltneuError` for another file."""
        old, path = filesystem.normalize_location(self.old) + "/", filesystem.normalize_location(location)
        if not path.startswith(old):
            raise AltneuError(f"table {self.table}: {location} is not in {self.old}.", "altneu rebuild")
        return path.removeprefix(old)

    def new_location(self, location: str) -> str:
        """Return the location of a file of the table at the new place."""
        return f"{self.new}/{self.relative_path(location)}"

    def _rewrite_avro(self, location: str, changes: dict[tuple[str, ...], avro_patch.Change]) -> bytes:
        try:
            return avro_patch.rewrite_values(self.read_metadata_file(location), changes)
        except avro_patch.NotAvro:
            raise self.damaged_error(location) from None
