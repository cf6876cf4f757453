"""The digests of landed files and folders, which are stored so that what is unchanged is read only once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from .database_session import DatabaseSession
from .schema import digests

MAX_SINGLE_LOOKUPS = 200  # digests that are looked up one by one; beyond that all are read


@dataclass(eq=False)
class DigestStore:
    """The rows of the table `digests`."""

    database: DatabaseSession

    def read(self, paths: Collection[str] | None = None) -> dict[str, tuple[str, str]]:
        """Return the stored digests of some files (None: of all), and perhaps of others: path → (stamp, digest)."""
        rows = sa.select(digests)
        if paths is not None and len(paths) <= MAX_SINGLE_LOOKUPS:
            rows = rows.where(digests.c.path.in_(paths))
        return {path: (stamp, digest) for path, stamp, digest in self.database.read_rows(rows)}

    def put(self, by_path: dict[str, tuple[str, str]], gone: Sequence[str] = ()) -> None:
        """Store digests, and delete those of the paths `gone`, where the database can be written.

        Another process may store the same ones at once.
        """
        if not by_path and not gone:
            return
        # all writers use the same order, so that there is no deadlock
        rows = [{"path": path, "stamp": stamp, "digest": digest} for path, (stamp, digest) in sorted(by_path.items())]
        if self.database.engine.dialect.name == "postgresql":  # imported here, because `altneu status` needs neither
            from sqlalchemy.dialects.postgresql import insert
        else:
            from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment]
        add = insert(digests)
        renew = {name: add.excluded[name] for name in ("stamp", "digest")}
        try:
            with self.database.engine.begin() as connection:
                if rows:
                    connection.execute(add.on_conflict_do_update(index_elements=["path"], set_=renew), rows)
                if gone:
                    gone_row = digests.c.path == sa.bindparam("gone")
                    connection.execute(digests.delete().where(gone_row), [{"gone": path} for path in sorted(gone)])
        except sa.exc.OperationalError as error:
            if "readonly" not in str(error.orig):
                raise
