"""Delivery cursors: how far the events of published epochs were delivered to each asset."""

import sqlalchemy as sa

from altneu.pipeline.state.migrations import create_table

revision, down_revision = "v0010", "v0009"
SHOWS = {"told": ("asset", "claimed")}


def upgrade() -> None:
    create_table(
        "told",
        sa.Column("asset", sa.String(256), primary_key=True),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("claimed", sa.BigInteger),
        sa.Column("teller", sa.Text),
        later_name="delivery_cursors",
    )
