"""Indexes for what has failed, which is little of a long history, for the audits of all epochs, and for the batches and
totals of some."""

from altneu.pipeline.state.migrations import create_indexes

revision, down_revision = "v0011", "v0010"
SHOWS = {
    "checks": ("ix_checks_failed", "ix_checks_audits"),
    "batches": ("ix_batches_epoch",),
    "totals": ("ix_totals_epoch",),
}


def upgrade() -> None:
    for table, names in SHOWS.items():
        create_indexes(table, *names)
