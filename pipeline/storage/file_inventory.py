"""The inventory of the tables' files: which of them are missing, by Iceberg's metadata only, without Spark.

`take_inventory` lists what readers of any revision need: the pinned snapshots of the published tables, their manifests
and the data files. `is_missing_files` does so for one table. Both check that each file exists, but not its content.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..state import filesystem, home_identity
from ..state.ledger import Ledger
from . import avro_files, catalogs
from .metadata_rewriter import DELETED

if TYPE_CHECKING:
    from .iceberg import IcebergTable

SNAPSHOT = "snapshot {}"


@dataclass(frozen=True)
class Inventory:
    """The number of files that the readable revisions need, and the missing files of each table."""

    files: int
    missing_files: dict[str, list[str]]


def take_inventory(ledger: Ledger) -> Inventory:
    """List the missing files of the readable revisions. Raises `OSError` where the warehouse cannot be listed."""
    home = ledger.home
    identity = home_identity.find_identity(home)
    pins = ledger.runs.pinned_snapshots()
    if identity is None or not pins:
        return Inventory(0, {})
    existing_files = _list_existing(home.warehouse)
    tables = catalogs.open_catalog(home, identity).metadata_locations()
    needed: set[str] = set()
    missing: dict[str, list[str]] = {}
    for table, snapshots in sorted(pins.items()):
        lacking = [table] if table not in tables else []
        for location in _list_needed_files(tables[table], snapshots, existing_files) if table in tables else ():
            needed.add(location)
            if location not in existing_files:
                lacking.append(location)
        if lacking:
            missing[table] = sorted(set(lacking))
    return Inventory(len(needed), missing)


def is_missing_files(table: IcebergTable, snapshots: set[int]) -> bool:
    """Tell whether a file that some snapshots of a table need is missing or malformed.

    The answer is False where only Spark can read the warehouse. Raises `OSError` where the table's folder cannot be
    listed.
    """
    existing_files = _list_existing(table.location())
    if filesystem.normalize_location(table.metadata_location) not in existing_files:
        return False
    try:
        return not existing_files.issuperset(_list_needed_files(table.metadata_location, snapshots, existing_files))
    except avro_files.NotAvro:
        return True


def _list_existing(folder: str) -> set[str]:
    return {f"{filesystem.normalize_location(folder)}/{name}" for name in filesystem.list_sizes(folder)}


def _list_needed_files(metadata: str, snapshots: set[int], there: set[str]) -> Iterator[str]:
    """Yield the files that some snapshots of a table need. The files to which a missing file refers are unknown."""
    metadata = filesystem.normalize_location(metadata)
    yield metadata
    if metadata not in there:
        return
    known = {each["snapshot-id"]: each for each in json.loads(filesystem.read_file(metadata))["snapshots"]}
    manifests: set[str] = set()
    for snapshot in sorted(snapshots):
        if snapshot not in known:
            yield SNAPSHOT.format(snapshot)
            continue
        listed = filesystem.normalize_location(known[snapshot]["manifest-list"])
        yield listed
        if listed in there:
            manifests |= {filesystem.normalize_location(each["manifest_path"]) for each in _read_records(listed)}
    for manifest in sorted(manifests):
        yield manifest
        if manifest in there:
            yield from _list_data_files(manifest)


def _list_data_files(manifest: str) -> Iterator[str]:
    for entry in _read_records(manifest):
        if entry["status"] != DELETED:
            yield filesystem.normalize_location(entry["data_file"]["file_path"])


def _read_records(location: str) -> list[dict[str, Any]]:
    return avro_files.parse_avro(filesystem.read_file(location)).records
