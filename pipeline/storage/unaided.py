"""Branches and tags of a home's tables, changed without Spark: a metadata file more for each table, and no rows.

For what is SQL otherwise (a rollback) and for what only looks (`altneu doctor`). A commit is refused when the table is
not as it was when it was looked at, as those through Spark are.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ..home.directory import Home
from ..state import files, place
from . import catalogs, iceberg
from .branches import Branches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KINDS = {"createBranch": "branch", "replaceBranch": "branch", "createTag": "tag"}


def branches(home: Home) -> Branches:
    """All tables that a home has; none where it has none yet."""
    identity = place.find_identity(home)
    if identity is None:
        return Branches((), lambda table: _missing(table))
    catalog = catalogs.of(home, identity)
    changes = Unaided(catalog)

    def of(table: str) -> iceberg.Table:
        location = catalog.located(table)[table]
        return iceberg.Table(table, location, json.loads(files.read_file(location)), changes)

    return Branches(sorted(catalog.located()), of)


def _missing(table: str) -> iceberg.Table:
    raise KeyError(table)


class Unaided:
    """`iceberg.Changes` of names alone."""

    def __init__(self, catalog: catalogs.Catalog) -> None:
        self._catalog = catalog

    def commit(self, name: str, location: str, steps: list[iceberg.Step]) -> None:
        from pyiceberg.table.update import RemoveSnapshotRefUpdate, SetSnapshotRefUpdate

        updates = tuple(
            SetSnapshotRefUpdate.model_validate({"ref-name": ref, "type": KINDS[step], "snapshot-id": snapshot[0]})
            if snapshot
            else RemoveSnapshotRefUpdate.model_validate({"ref-name": ref})
            for step, ref, *snapshot in steps
        )
        if not self._catalog.commit(name, location, updates):
            raise iceberg.Overtaken

    def begin(self, name: str) -> None:
        raise NotImplementedError

    def expire(self, name: str, snapshots: set[int]) -> None:
        raise NotImplementedError

    def append(self, name: str, branch: str, rows: DataFrame) -> None:
        raise NotImplementedError

    def overwrite(self, name: str, branch: str, rows: DataFrame) -> None:
        raise NotImplementedError

    def remove(self, name: str, branch: str, keys: DataFrame) -> None:
        raise NotImplementedError
