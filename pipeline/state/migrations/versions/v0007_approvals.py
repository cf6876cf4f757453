"""A run may be held until a person approves or rejects it."""

import sqlalchemy as sa

from altneu.pipeline.state.migrations import create_table

revision, down_revision = "v0007", "v0006"
SHOWS = {"approvals": ("verdict", "because")}


def upgrade() -> None:
    create_table(
        "approvals",
        sa.Column("run_id", sa.String(64), primary_key=True),
        sa.Column("verdict", sa.String(16), nullable=False),
        sa.Column("person", sa.String(256)),
        sa.Column("because", sa.Text),
        sa.Column("at", sa.String(32), nullable=False),
    )
