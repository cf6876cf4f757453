"""The tiers of a table, so that its data files stay few by themselves, as in a log-structured merge tree.

A tier is the rows of consecutive revisions that were written to files together. A run that appends rows to a table
merges its newest tiers: it reads them again and writes them with its own rows into one file. It does so as soon as
`MERGED_TIERS` of them are to be merged, because merging costs a run a few tenths of a second. A tier is to be merged
while it is not larger than all newer ones together. So a table of n revisions has O(log n) tiers, and each row is
written O(log n) times. What would be more than `MERGED_ROWS` is left to `altneu compact`, so that no run waits for it.

Since tiers are ranges of revisions, the files of the merged ones are those with `revision` greater than the newest
revision of the last tier that stays. No manifest is read for that: the summary of a snapshot lists the tiers below
its own one (`PROPERTY`). This module needs neither Spark nor files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .horizons import Horizon

PROPERTY = "altneu.tiers"  # in a snapshot's summary: "40:16000,44:400", the `last` and `rows` of each tier
MIXED = "altneu.mixed-rows"  # in the same place, if there are some: what `count_mixed_rows` returns
MERGED_TIERS = 7  # so many tiers are merged at least
MERGED_ROWS = 250_000  # a run merges so many stored rows at most: less than a CPU second
SCATTERED = 8  # with more files than that, a snapshot without known tiers is written again


class Tier(NamedTuple):
    """A tier of a snapshot: `rows` rows, none of them of a later revision than `last_revision`."""

    last_revision: int
    rows: int


def snapshot_tiers(summary: Mapping[str, str], newest: int) -> list[Tier]:
    """Return the tiers of a snapshot, oldest first.

    Args:
        summary: The summary of the snapshot. Where it lists no tiers, all rows of the snapshot are one tier.
        newest: A revision such that the snapshot has no rows of a later one.
    """
    listed = [each.partition(":") for each in summary.get(PROPERTY, "").split(",") if each]
    below = [Tier(int(last), int(rows)) for last, _, rows in listed]
    own = int(summary.get("total-records") or 0) - sum(tier.rows for tier in below)
    return [*below, Tier(newest, own)] if own else below


def count_mixed_rows(summary: Mapping[str, str]) -> int:
    """Count the rows of a snapshot in whose files rows that have ended may be among others, so that no run skips them.

    An earlier version of altneu has written them, or a rollback, so that their snapshot listed no tiers.

    >>> count_mixed_rows({"total-records": "7"}), count_mixed_rows({"total-records": "7", PROPERTY: ""})
    (7, 0)
    >>> count_mixed_rows({"total-records": "9", PROPERTY: "4:7", MIXED: "7"})
    7
    """
    return int((summary.get(MIXED) if PROPERTY in summary else summary.get("total-records")) or 0)


def tiers_to_keep(tiers: Sequence[Tier], least: int, most: int) -> list[Tier]:
    """Return the tiers, oldest first, that a commit of further rows leaves as they are; it merges the newer ones.

    >>> tiers_to_keep([Tier(4, 400), Tier(6, 200), Tier(7, 100)], 2, 999)  # each is larger than all newer ones
    [Tier(last_revision=4, rows=400), Tier(last_revision=6, rows=200), Tier(last_revision=7, rows=100)]
    >>> tiers_to_keep([Tier(4, 400), Tier(6, 100), Tier(7, 100)], 2, 999)  # the newer two are equal
    [Tier(last_revision=4, rows=400)]
    >>> tiers_to_keep([Tier(4, 400), Tier(6, 100), Tier(7, 100)], 3, 999)
    [Tier(last_revision=4, rows=400), Tier(last_revision=6, rows=100), Tier(last_revision=7, rows=100)]
    >>> tiers_to_keep([Tier(4, 200), Tier(6, 100), Tier(7, 100)], 3, 999)  # the first is not larger than the rest
    []
    >>> tiers_to_keep([Tier(4, 200), Tier(6, 100), Tier(7, 100)], 2, 300)
    [Tier(last_revision=4, rows=200)]
    """
    kept, newer = len(tiers), 0
    for place in reversed(range(len(tiers))):
        if newer + tiers[place].rows > most:
            break
        if tiers[place].rows <= newer:
            kept = place
        newer += tiers[place].rows
    return list(tiers[:kept] if len(tiers) - kept >= least else tiers)


class FilePlan(NamedTuple):
    """How a commit of further rows writes the files of a table.

    `kept_tiers`: the tiers that stay. `rewrite_after`: the rows of revisions greater than this one are written again,
    together with the further rows; None: no rows are. `horizon`: the rows from it on and those before it are written to
    files of their own, so that the next run skips the latter; None: they are not told apart. `mixed`: how many rows
    stay in files in which they were not told apart (`count_mixed_rows`).
    """

    kept_tiers: list[Tier]
    rewrite_after: int | None
    horizon: Horizon | None = None
    mixed: int = 0

    @property
    def tier_properties(self) -> dict[str, str]:
        """What the summary of the snapshot says of its tiers."""
        tiers = {PROPERTY: ",".join(f"{tier.last_revision}:{tier.rows}" for tier in self.kept_tiers)}
        return tiers | ({MIXED: str(self.mixed)} if self.mixed else {})


REWRITE_ALL = FilePlan([], None)  # all rows of the table are written again


def plan_files(summary: Mapping[str, str], newest: int, horizon: Horizon | None = None) -> FilePlan:
    """Plan a commit of further rows on a snapshot. See `snapshot_tiers` and `FilePlan` for the arguments."""
    tiers = snapshot_tiers(summary, newest)
    kept = tiers_to_keep(tiers, MERGED_TIERS, MERGED_ROWS)
    if PROPERTY not in summary and int(summary.get("total-data-files") or 0) > SCATTERED:
        # an earlier version of altneu wrote it, or Spark wrote it in many tasks
        kept = [tier for tier in tiers if tier.rows > MERGED_ROWS]
    mixed = count_mixed_rows(summary) if kept else 0
    if kept == tiers:
        return FilePlan(kept, None, mixed=mixed)
    return FilePlan(kept, kept[-1].last_revision if kept else 0, horizon, mixed)


def plan_compaction(summary: Mapping[str, str], newest: int, files: int) -> FilePlan | None:
    """Plan the compaction of a snapshot that is to have about `files` files. None: it is written as a whole.

    The oldest tier stays if it is large and larger than all others together, and in no more than `files` files, where
    each other tier may have two (`FilePlan.horizon`). So each row of a large table is written by O(log n) of n
    compactions.
    """
    tiers = snapshot_tiers(summary, newest)
    first, newer = (tiers[0].rows, sum(tier.rows for tier in tiers[1:])) if tiers else (0, 0)
    scattered = int(summary.get("total-data-files") or 0) - 2 * (len(tiers) - 1) > files
    if count_mixed_rows(summary) or scattered or first <= max(MERGED_ROWS, newer) or not newer:
        return None
    return FilePlan(tiers[:1], tiers[0].last_revision)
