"""Changes of branches and tags of a home's tables without Spark: each adds one metadata file to a table, and no rows.

They are for commands that otherwise need only SQL (a rollback) or only read (`altneu doctor`). As with Spark, a commit
is refused where the table has changed since it was read.
"""

from __future__ import annotations

import json

from ..home.home import Home
from ..state import filesystem, home_identity
from . import catalogs, iceberg
from .branches import Branches
from .ref_changes import Step
from .table_schemas import CHANGES


def open_branches(home: Home) -> Branches:
    """Return the branches of all tables of a home. A new home has no tables yet."""
    identity = home_identity.find_identity(home)
    if identity is None:
        return Branches((), lambda table: _missing_table_error(table))
    catalog = catalogs.open_catalog(home, identity)
    changes = RefsOnlyWriter(catalog)

    def load_table(table: str) -> iceberg.IcebergTable:
        location = catalog.metadata_locations(table)[table]
        return iceberg.IcebergTable(table, location, json.loads(filesystem.read_file(location)), changes)

    return Branches(sorted({*catalog.metadata_locations()} - {CHANGES}), load_table)


def _missing_table_error(table: str) -> iceberg.IcebergTable:
    raise KeyError(table)


class RefsOnlyWriter(iceberg.TableWriter):
    """A writer that changes only branches and tags."""

    def __init__(self, catalog: catalogs.Catalog) -> None:
        self._catalog = catalog

    def commit_steps(self, name: str, location: str, steps: list[Step]) -> None:
        if not self._catalog.commit_steps(name, location, steps):
            raise iceberg.CommitConflict
