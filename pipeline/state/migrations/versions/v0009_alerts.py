"""Sent alerts are recorded, each message once for each channel."""

import sqlalchemy as sa

from altneu.pipeline.state.migrations import create_table

revision, down_revision = "v0009", "v0008"
SHOWS = {"alerts": ("channel", "sent_at")}


def upgrade() -> None:
    create_table(
        "alerts",
        sa.Column("suite", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(256), primary_key=True),
        sa.Column("opened", sa.String(256), primary_key=True),
        sa.Column("channel", sa.String(128), primary_key=True),
        sa.Column("said", sa.String(16), primary_key=True),
        sa.Column("epoch", sa.BigInteger),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("claimed_at", sa.String(32), nullable=False),
        sa.Column("sent_at", sa.String(32)),
    )
