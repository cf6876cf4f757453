"""Runs record that their branches are removed."""

import sqlalchemy as sa

from altneu.pipeline.state.migrations import add_columns

revision, down_revision = "v0003", "v0002"
SHOWS = {"runs": ("discarded",)}


def upgrade() -> None:
    add_columns("runs", sa.Column("discarded", sa.Boolean))
