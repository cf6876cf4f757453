"""A run has a lease; a revision records the ranges of revisions that rollbacks have taken back."""

import sqlalchemy as sa

from altneu.pipeline.state.migrations import add_columns

revision, down_revision = "v0005", "v0004"
SHOWS = {"runs": ("owner",), "ledger": ("hidden",)}


def upgrade() -> None:
    add_columns("runs", sa.Column("owner", sa.String(128)))
    add_columns("ledger", sa.Column("hidden", sa.JSON))
