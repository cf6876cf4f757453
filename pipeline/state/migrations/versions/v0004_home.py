"""A home has an identity: the name of its catalog, and the places for which its tables were made."""

import sqlalchemy as sa

from altneu.pipeline.state.migrations import create_table

revision, down_revision = "v0004", "v0003"
SHOWS = {"home": ("id", "catalog")}


def upgrade() -> None:
    create_table(
        "home",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("catalog", sa.String(64), nullable=False),
        sa.Column("format", sa.Integer, nullable=False),
        sa.Column("warehouse", sa.Text, nullable=False),
        sa.Column("database", sa.Text, nullable=False),
        sa.Column("made_at", sa.String(32), nullable=False),
    )
