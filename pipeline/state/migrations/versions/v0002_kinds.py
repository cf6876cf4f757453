"""Runs have kinds, heartbeats, and what their parent was when they began; a compaction folds epochs."""

import sqlalchemy as sa

from altneu.pipeline.state.migrations import add_columns

revision, down_revision = "v0002", "v0001"
SHOWS = {"runs": ("kind", "beat_at", "base"), "ledger": ("since",)}


def upgrade() -> None:
    kinds = sa.Column("kind", sa.String(16)), sa.Column("beat_at", sa.String(32)), sa.Column("base", sa.JSON)
    add_columns("runs", *kinds)
    add_columns("ledger", sa.Column("since", sa.BigInteger))
