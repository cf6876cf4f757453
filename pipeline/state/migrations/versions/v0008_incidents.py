"""Incidents have notes; an index finds the results of one check."""

import sqlalchemy as sa
from alembic import op

from altneu.pipeline.state.migrations import create_table

revision, down_revision = "v0008", "v0007"
SHOWS = {"notes": ("opened", "until")}


def upgrade() -> None:
    create_table(
        "notes",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("suite", sa.String(64), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("opened", sa.String(64), nullable=False),
        sa.Column("by", sa.String(128)),
        sa.Column("because", sa.Text),
        sa.Column("until", sa.String(32)),
        sa.Column("at", sa.String(32), nullable=False),
    )
    if "ix_checks_suite_name" not in {index["name"] for index in sa.inspect(op.get_bind()).get_indexes("checks")}:
        op.create_index("ix_checks_suite_name", "checks", ["suite", "name"])
