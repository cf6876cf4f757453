"""The Iceberg tables have fingerprints, and runs have proofs."""

import sqlalchemy as sa

from altneu.pipeline.state.migrations import create_table

revision, down_revision = "v0006", "v0005"
SHOWS = {"fingerprints": ("fingerprint",), "proofs": ("proof",)}


def upgrade() -> None:
    create_table(
        "fingerprints",
        sa.Column("run_id", sa.String(64), primary_key=True),
        sa.Column("collection", sa.String(32), primary_key=True),
        sa.Column("epoch", sa.BigInteger, primary_key=True),
        sa.Column("fingerprint", sa.String(32), nullable=False),
    )
    create_table(
        "proofs",
        sa.Column("run_id", sa.String(64), primary_key=True),
        sa.Column("proof", sa.Text, nullable=False),
    )
