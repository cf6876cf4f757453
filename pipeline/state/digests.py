"""The digests of landed files, so that an unchanged file is read once."""

from __future__ import annotations

import sqlalchemy as sa

from .database_session import Store
from .schema import digests


class Digests(Store):
    """The rows of `digests`."""

    def known_digests(self) -> dict[str, tuple[str, str]]:
        """Path → (stamp, digest) of every landed file read before."""
        return {row.path: (row.stamp, row.digest) for row in self.read_rows(sa.select(digests))}

    def put_digests(self, found: dict[str, tuple[str, str]]) -> None:
        """Remember them, where the database can be written; others may be about to remember the same ones."""
        if not found:
            return
        # in one order for all writers, so that none waits for one that waits for it
        rows = [{"path": path, "stamp": stamp, "digest": digest} for path, (stamp, digest) in sorted(found.items())]
        if self.engine.dialect.name == "postgresql":  # imported where it is: status needs neither
            from sqlalchemy.dialects.postgresql import insert
        else:
            from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment]
        add = insert(digests)
        renew = {name: add.excluded[name] for name in ("stamp", "digest")}
        try:
            with self.engine.begin() as connection:
                connection.execute(add.on_conflict_do_update(index_elements=["path"], set_=renew), rows)
        except sa.exc.OperationalError as error:
            if "readonly" not in str(error.orig):
                raise
