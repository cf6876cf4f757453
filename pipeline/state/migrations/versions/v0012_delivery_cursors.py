"""The table of delivery cursors has the name of what it holds. It was `told`, with a column `teller`."""

from altneu.pipeline.state.migrations import rename_column, rename_table

revision, down_revision = "v0012", "v0011"
SHOWS = {"delivery_cursors": ("asset", "claimed_by")}


def upgrade() -> None:
    rename_table("told", "delivery_cursors")
    rename_column("delivery_cursors", "teller", "claimed_by")
