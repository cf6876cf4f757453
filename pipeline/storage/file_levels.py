"""The levels of a table, so that its data files stay few by themselves, as in a log-structured merge tree.

A level is the rows of consecutive revisions that were written to files together. A run that appends rows to a table
merges its newest levels: it reads them again and writes them with its own rows into one file. It does so as soon as
`MERGED_LEVELS` of them are to be merged, because merging costs a run a few tenths of a second. A level is to be merged
while it is not larger than all newer ones together. So a table of n revisions has O(log n) levels, and each row is
written O(log n) times. What would be more than `MERGED_ROWS` is left to `altneu compact`, so that no run waits for it.

Since levels are ranges of revisions, the files of the merged ones are those with `revision` greater than the newest
revision of the last level that stays. No manifest is read for that: the summary of a snapshot lists the levels below
its own one (`PROPERTY`). This module needs neither Spark nor files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

PROPERTY = "altneu.levels"  # in a snapshot's summary: "40:16000,44:400", the `last` and `rows` of each level
MERGED_LEVELS = 7  # so many levels are merged at least
MERGED_ROWS = 250_000  # a run merges so many stored rows at most: less than a CPU second
SCATTERED = 8  # with more files than that, a snapshot without known levels is written again


class Level(NamedTuple):
    """A level of a snapshot: `rows` rows, none of them of a later revision than `last`."""

    last: int
    rows: int


def snapshot_levels(summary: Mapping[str, str], newest: int) -> list[Level]:
    """Return the levels of a snapshot, oldest first.

    Args:
        summary: The summary of the snapshot. Where it lists no levels, all rows of the snapshot are one level.
        newest: A revision such that the snapshot has no rows of a later one.
    """
    listed = [each.partition(":") for each in summary.get(PROPERTY, "").split(",") if each]
    below = [Level(int(last), int(rows)) for last, _, rows in listed]
    own = int(summary.get("total-records") or 0) - sum(level.rows for level in below)
    return [*below, Level(newest, own)] if own else below


def levels_to_keep(levels: Sequence[Level], least: int, most: int) -> list[Level]:
    """Return the levels, oldest first, that a commit of further rows leaves as they are; it merges the newer ones.

    >>> levels_to_keep([Level(4, 400), Level(6, 200), Level(7, 100)], 2, 999)  # each is larger than all newer ones
    [Level(last=4, rows=400), Level(last=6, rows=200), Level(last=7, rows=100)]
    >>> levels_to_keep([Level(4, 400), Level(6, 100), Level(7, 100)], 2, 999)  # the newer two are equal
    [Level(last=4, rows=400)]
    >>> levels_to_keep([Level(4, 400), Level(6, 100), Level(7, 100)], 3, 999)
    [Level(last=4, rows=400), Level(last=6, rows=100), Level(last=7, rows=100)]
    >>> levels_to_keep([Level(4, 200), Level(6, 100), Level(7, 100)], 3, 999)  # the first is not larger than the rest
    []
    >>> levels_to_keep([Level(4, 200), Level(6, 100), Level(7, 100)], 2, 300)
    [Level(last=4, rows=200)]
    """
    kept, newer = len(levels), 0
    for place in reversed(range(len(levels))):
        if newer + levels[place].rows > most:
            break
        if levels[place].rows <= newer:
            kept = place
        newer += levels[place].rows
    return list(levels[:kept] if len(levels) - kept >= least else levels)


class FilePlan(NamedTuple):
    """How a commit of further rows writes the files of a table.

    `kept`: the levels that stay. `after`: the rows of revisions greater than this one are written again, together with
    the further rows; None: no rows are.
    """

    kept: list[Level]
    after: int | None

    @property
    def listed(self) -> str:
        """The levels that stay, as `PROPERTY` lists them."""
        return ",".join(f"{level.last}:{level.rows}" for level in self.kept)


def plan_files(summary: Mapping[str, str], newest: int) -> FilePlan:
    """Plan a commit of further rows on a snapshot. See `snapshot_levels` for the arguments."""
    levels = snapshot_levels(summary, newest)
    kept = levels_to_keep(levels, MERGED_LEVELS, MERGED_ROWS)
    if PROPERTY not in summary and int(summary.get("total-data-files") or 0) > SCATTERED:
        # an earlier version of altneu wrote it, or Spark wrote it in many tasks
        kept = [level for level in levels if level.rows > MERGED_ROWS]
    if kept == levels:
        return FilePlan(kept, None)
    return FilePlan(kept, kept[-1].last if kept else 0)


def plan_compaction(summary: Mapping[str, str], newest: int, files: int) -> FilePlan | None:
    """Plan the compaction of a snapshot that is to have about `files` files. None: it is written as a whole.

    The oldest level stays if it is large and larger than all others together, and in no more than `files` files. So
    each row of a large table is written by O(log n) of n compactions.
    """
    levels = snapshot_levels(summary, newest)
    first, newer = (levels[0].rows, sum(level.rows for level in levels[1:])) if levels else (0, 0)
    scattered = int(summary.get("total-data-files") or 0) - (len(levels) - 1) > files
    if PROPERTY not in summary or scattered or first <= max(MERGED_ROWS, newer) or not newer:
        return None
    return FilePlan(levels[:1], levels[0].last)
