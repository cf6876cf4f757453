"""The rewriting of a table's metadata for another place: its metadata file and all metadata that it names.

Iceberg's metadata contain whole paths: metadata files name lists of manifests, these name manifests, and these name
data files. Snapshots, branches, tags and field ids stay. No rows are read or written, except the delete files of
serving tables, which list the positions of deleted rows and name their data files. The subclasses in `relocate` and
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
from . import avro_files
from .table_schemas import CERTIFICATES

DELETED = 2  # the status of an entry of a manifest whose file is deleted
DELETES = 1  # the content of a manifest of delete files, which list positions of rows


class DamagedTable(AltneuError):
    """A file that a table needs is missing or damaged."""


class MetadataRewriter(ABC):
    """The rewriter of one table, `namespace/name`, with the metadata file `location`, for its new folder."""

    def __init__(self, new: str, table: str, location: str) -> None:
        self.new_folder, self.table, self.location = new, table, location
        self.old_folder = ""  # the table's folder by its present metadata
        self._manifests: dict[str, tuple[str, int]] = {}  # old location → new location, its bytes
        self._delete_files: dict[str, tuple[str, int, int]] = {}  # and its former bytes

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
        self.old_folder = metadata["location"].rstrip("/")
        metadata["location"] = self.new_folder
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
        file = self._read_avro(location)
        for entry in file.records:
            path = entry["manifest_path"]
            if path not in self._manifests:
                self._manifests[path] = self._rewrite_manifest(path, deletes=entry.get("content") == DELETES)
            entry["manifest_path"], entry["manifest_length"] = self._manifests[path]
        return self.write_metadata_file(location, "list", avro_files.format_avro(file))

    def _rewrite_manifest(self, location: str, *, deletes: bool) -> tuple[str, int]:
        """Rewrite a manifest of data files, or of delete files. Return its new location and its bytes."""
        file = self._read_avro(location)
        rewrite_entry = self._rewrite_delete_entry if deletes else self._rewrite_data_entry
        for entry in file.records:
            rewrite_entry(entry["data_file"], exists=entry["status"] != DELETED)
        content = avro_files.format_avro(file)
        return self.write_metadata_file(location, "manifest", content), len(content)

    def _rewrite_data_entry(self, entry: dict[str, Any], *, exists: bool) -> None:
        if exists:
            self.require_data_file(entry["file_path"], entry["file_size_in_bytes"])
        entry["file_path"] = self.new_location(entry["file_path"])

    def _rewrite_delete_entry(self, entry: dict[str, Any], *, exists: bool) -> None:
        """Rewrite the entry of a delete file, and the file itself if it exists.

        The bounds of its columns are the least and the greatest path of a data file, and position.
        """
        path, old, new = entry["file_path"], f"{self.old_folder}/".encode(), f"{self.new_folder}/".encode()
        if exists:
            entry["file_path"], size, former = self._rewrite_position_deletes(path)
            if former != entry["file_size_in_bytes"]:
                raise self.damaged_error(path)
            entry["file_size_in_bytes"] = size
        else:
            entry["file_path"] = self.new_location(path)
        if referenced := entry.get("referenced_data_file"):
            entry["referenced_data_file"] = self.new_location(referenced)
        for bound in (*(entry.get("lower_bounds") or ()), *(entry.get("upper_bounds") or ())):
            if bound["value"].startswith(old):
                bound["value"] = new + bound["value"].removeprefix(old)

    def _rewrite_position_deletes(self, location: str) -> tuple[str, int, int]:
        """Rewrite a delete file, once. Return its new location, its bytes and its former bytes."""
        if location not in self._delete_files:
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
            self._delete_files[location] = (
                self.write_metadata_file(location, "places", content),
                len(content),
                len(former),
            )
        return self._delete_files[location]

    def relative_path(self, location: str) -> str:
        """Return the path of a file of the table from the table's folder. Raises `AltneuError` for another file."""
        old, path = filesystem.normalize_location(self.old_folder) + "/", filesystem.normalize_location(location)
        if not path.startswith(old):
            raise AltneuError(f"table {self.table}: {location} is not in {self.old_folder}.", "altneu rebuild")
        return path.removeprefix(old)

    def new_location(self, location: str) -> str:
        """Return the location of a file of the table at the new place."""
        return f"{self.new_folder}/{self.relative_path(location)}"

    def _read_avro(self, location: str) -> avro_files.AvroFile:
        try:
            return avro_files.parse_avro(self.read_metadata_file(location))
        except avro_files.NotAvro:
            raise self.damaged_error(location) from None
