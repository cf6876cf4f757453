"""The first tables: runs and their stages, the ledger, batches, totals, checks, digests."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "v0001", None
SHOWS = {"runs": ("run_id", "parent", "epochs", "state", "config")}


def upgrade() -> None:
    op.create_table(
        "runs",
        sa.Column("run_id", sa.String(64), primary_key=True),
        sa.Column("parent", sa.BigInteger, nullable=False),
        sa.Column("epochs", sa.JSON, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("config", sa.JSON, nullable=False),
        sa.Column("started_at", sa.String(32), nullable=False),
        sa.Column("finished_at", sa.String(32)),
    )
    op.create_table(
        "ledger",
        sa.Column("revision", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("parent", sa.BigInteger, nullable=False),
        sa.Column("run_id", sa.String(64), sa.ForeignKey("runs.run_id"), nullable=False, unique=True),
        sa.Column("frontier", sa.BigInteger, nullable=False),
        sa.Column("snapshots", sa.JSON, nullable=False),
        sa.Column("config_digest", sa.String(16), nullable=False),
        sa.Column("mark", sa.String(16)),
        sa.Column("published_at", sa.String(32), nullable=False),
    )
    op.create_table(
        "batches",
        sa.Column("run_id", sa.String(64), primary_key=True),
        sa.Column("epoch", sa.BigInteger, primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("files", sa.Integer, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("bad_rows", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "totals",
        sa.Column("run_id", sa.String(64), primary_key=True),
        sa.Column("measure", sa.String(16), primary_key=True),
        sa.Column("k", sa.BigInteger, primary_key=True),
        sa.Column("epoch", sa.BigInteger, primary_key=True),
        sa.Column("diff", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "stages",
        sa.Column("run_id", sa.String(64), primary_key=True),
        sa.Column("stage", sa.String(16), primary_key=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("started_at", sa.String(32), nullable=False),
        sa.Column("seconds", sa.Float),
        sa.Column("facts", sa.JSON, nullable=False),
    )
    op.create_table(
        "checks",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("run_id", sa.String(64), index=True),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False, index=True),
        sa.Column("suite", sa.String(64), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("severity", sa.String(16), nullable=False),
        sa.Column("passed", sa.Boolean, nullable=False),
        sa.Column("meaning", sa.Text, nullable=False),
        sa.Column("remedy", sa.Text, nullable=False),
        sa.Column("observed", sa.Text, nullable=False),
        sa.Column("rows", sa.JSON, nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
    )
    op.create_table(
        "digests",
        sa.Column("path", sa.String(1024), primary_key=True),
        sa.Column("stamp", sa.String(128), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
    )
