"""The digests of landed files, which are stored so that an unchanged file is read only once."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from .database_session import DatabaseSession
from .schema import digests


@dataclass(eq=False)
class DigestStore:
    """The rows of the table `digests`."""

    database: DatabaseSession

    def read_all(self) -> dict[str, tuple[str, str]]:
        """Return the stored digests: path of a landed file → (stamp, digest)."""
        return {row.path: (row.stamp, row.digest) for row in self.database.read_rows(sa.select(digests))}

    def put(self, by_path: dict[str, tuple[str, str]]) -> None:
        """Store digests of files, where the database can be written. Another process may store the same ones at
        once."""
        if not by_path:
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
                connection.execute(add.on_conflict_do_update(index_elements=["path"], set_=renew), rows)
        except sa.exc.OperationalError as error:
            if "readonly" not in str(error.orig):
                raise
