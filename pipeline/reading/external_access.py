"""The information that another program needs to read the published tables: catalog, tables, and the tag of a revision.

The tables themselves are not read. A tag has exactly the rows of its revision, in every table; `main` has those of the
newest revision.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from ..errors import AltneuError
from ..home.home import Home
from ..state import home_identity
from ..state.ledger import Ledger
from ..state.records import encode_snapshots
from ..state.revisions import exact_revisions
from ..storage import catalogs
from ..storage.table_schemas import visibility_condition


@dataclass(frozen=True)
class ExternalAccess:
    """How another program reads a revision.

    `catalog` has the catalog's name and the options of Iceberg's clients, without passwords. `tag` is None for a
    revision that shares its tables with later ones. `tables` has the metadata file of each table. Every revision is in
    the snapshots of `snapshots`, as the rows for which the condition `rows` holds.
    """

    catalog: dict[str, str]
    namespace: str
    revision: int
    published_at: str
    tag: str | None
    frontier: int
    tags: list[str]
    tables: dict[str, str]
    snapshots: dict[str, str]
    rows: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def external_access(ledger: Ledger, revision: int | None = None) -> ExternalAccess:
    """Return how another program reads a revision (default: the newest).

    Raises:
        AltneuError: Nothing is published, or the revision has expired.
    """
    home = ledger.home
    row = ledger.revisions.require_published(revision)
    assert row.frontier is not None
    identity = home_identity.require_identity(home)
    tagged = sorted(exact_revisions(ledger.revisions.list_all()))
    if not row.snapshots:
        raise AltneuError(
            f"revision {row.revision} cannot be read any more: a compaction kept only the newest ones.", "altneu status"
        )
    return ExternalAccess(
        _catalog_properties(home, identity.catalog),
        catalogs.catalog_namespace(home),
        row.revision,
        row.published_at,
        catalogs.tag_name(row.revision) if row.revision in tagged else None,
        row.frontier,
        [catalogs.tag_name(each) for each in tagged],
        {
            table: where
            for table, where in sorted(catalogs.open_catalog(home, identity).metadata_locations().items())
            if table in row.snapshots
        },
        encode_snapshots(row.snapshots),
        visibility_condition(row),
    )


def _catalog_properties(home: Home, name: str) -> dict[str, str]:
    rest = home.config.storage.catalog
    if rest is not None:
        return {"type": "rest", "name": name, "uri": rest.uri} | (
            {"warehouse": rest.warehouse} if rest.warehouse else {}
        )
    uri = sa.make_url(home.database)
    java = catalogs.jdbc_options(uri.set(password=None).render_as_string(), home.warehouse)["uri"]
    return {
        "type": "jdbc",
        "name": name,
        "uri": uri.render_as_string(hide_password=True),
        "jdbc": java.partition("?busy_timeout")[0],
        "warehouse": home.warehouse,
    }
