"""The data files of a snapshot with their numbers of rows and the bounds of their columns, by Iceberg's metadata alone.

Manifests never change, so each is read once by a process. This module needs no Spark. Source: the Iceberg table
specification (manifest lists, manifests, bounds in their binary form).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ..state import filesystem
from . import avro_files
from .metadata_rewriter import DELETED

DATA = 0  # the content of a manifest that lists data files, and no delete files


class DataFile(NamedTuple):
    """A data file: its number of rows, and field id → the greatest value of the column, as Iceberg encodes it."""

    rows: int
    greatest: Mapping[int, bytes]

    def reaches(self, field: int, least: int) -> bool:
        """Tell whether a row may have at least this value in a column of longs."""
        bound = self.greatest.get(field)
        return bound is None or int.from_bytes(bound, "little", signed=True) >= least


def list_data_files(manifest_list: str) -> Iterator[DataFile]:
    """Yield the data files of the snapshot with this manifest list. Raises `OSError` where it cannot be read."""
    for manifest in _read_records(manifest_list):
        if manifest.get("content", DATA) == DATA:
            yield from _read_manifest(manifest["manifest_path"])


@lru_cache(maxsize=1000)
def _read_manifest(location: str) -> tuple[DataFile, ...]:
    entries = (entry["data_file"] for entry in _read_records(location) if entry["status"] != DELETED)
    return tuple(
        DataFile(entry["record_count"], {each["key"]: each["value"] for each in entry["upper_bounds"] or ()})
        for entry in entries
    )


def _read_records(location: str) -> list[dict[str, Any]]:
    return avro_files.parse_avro(filesystem.read_file(location)).records
