"""Tiers of small files: few of them, each row written a few times, whatever the sizes of the runs."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import pytest

from altneu.pipeline.storage import file_tiers
from altneu.pipeline.storage.file_tiers import MERGED_ROWS, MERGED_TIERS, PROPERTY, Tier


@dataclass
class Table:
    """A table by the sizes of its files: the revisions of each, oldest first, and the summary of its snapshot."""

    files: list[list[int]] = field(default_factory=list)  # file → the revision of each of its rows
    summary: dict[str, str] = field(default_factory=dict)
    written: int = 0
    longest: int = 0  # the most rows that a commit has written again

    def append(self, revision: int, rows: int) -> None:
        plan = file_tiers.plan_files(self.summary, revision - 1)
        merged = [] if plan.rewrite_after is None else [each for each in self.files if max(each) > plan.rewrite_after]
        assert all(min(each) > plan.rewrite_after for each in merged), "a file is merged as a whole"
        again = [row for each in merged for row in each]
        self.files = [each for each in self.files if each not in merged] + [[*again, *[revision] * rows]]
        self.written += len(again) + rows
        self.longest = max(self.longest, len(again))
        self.summary = {**plan.tier_properties, "total-records": str(self.count()), "total-data-files": "1"}

    def count(self) -> int:
        return sum(map(len, self.files))


@pytest.mark.parametrize("sizes", ["equal", "growing", "shrinking", "any", "a backfill between"])
def test_a_table_of_many_runs_has_few_files_and_few_rewritten_rows(sizes: str) -> None:
    rng, table = random.Random(7), Table()
    runs = {
        "equal": [10] * 400,
        "growing": list(range(1, 200)),
        "shrinking": list(range(200, 0, -1)),
        "any": [int(10 ** rng.uniform(0, 3)) for _ in range(400)],
        "a backfill between": [*[10] * 60, 20_000, *[10] * 60],
    }[sizes]
    for revision, rows in enumerate(runs, 1):
        table.append(revision, rows)
        assert len(table.files) <= MERGED_TIERS + 1 + math.log2(table.count()), revision
        tiers = file_tiers.snapshot_tiers(table.summary, revision)
        assert [tier.rows for tier in tiers] == [len(each) for each in table.files]
        assert [tier.last_revision for tier in tiers] == [max(each) for each in table.files]
    assert table.count() == sum(runs)
    assert table.written <= sum(runs) * (1 + math.log2(sum(runs) / min(runs)))
    assert len(table.files) < len(runs) / 5


def test_no_run_waits_for_many_rows() -> None:
    table = Table()
    for revision in range(1, 60):
        table.append(revision, MERGED_ROWS // 20)
    assert 0 < table.longest <= MERGED_ROWS


def test_a_snapshot_without_tiers_is_one_tier_and_is_merged_where_it_is_scattered() -> None:
    """Snapshots without listed tiers are left by earlier versions, compactions and rollbacks."""
    whole = {"total-records": "500", "total-data-files": "1"}
    assert file_tiers.snapshot_tiers(whole, 9) == [Tier(9, 500)]
    assert file_tiers.plan_files(whole, 9) == ([Tier(9, 500)], None, None, 500)
    assert file_tiers.plan_files(whole | {"total-data-files": "99"}, 9) == ([], 0, None, 0)
    large = {"total-records": str(MERGED_ROWS + 1), "total-data-files": "99"}
    kept = [Tier(9, MERGED_ROWS + 1)]
    assert file_tiers.plan_files(large, 9) == (kept, None, None, MERGED_ROWS + 1)  # this is left to `altneu compact`
    assert file_tiers.plan_files({}, 0) == ([], None, None, 0)


def test_rows_of_an_earlier_version_are_known_until_they_are_written_again() -> None:
    table = Table([[1] * (MERGED_ROWS + 1)], {"total-records": str(MERGED_ROWS + 1), "total-data-files": "1"})
    for revision in range(2, 40):
        table.append(revision, 10)
        assert file_tiers.count_mixed_rows(table.summary) == MERGED_ROWS + 1
        assert file_tiers.plan_compaction(table.summary, revision, files=2) is None  # as a whole
    small = Table([[1] * 99], {"total-records": "99", "total-data-files": "1"})
    mixed = []
    for revision in range(2, 40):
        small.append(revision, 10)
        mixed.append(file_tiers.count_mixed_rows(small.summary))
    assert mixed[0] == 99 and mixed[-1] == 0


def test_a_compaction_leaves_a_large_tier_alone() -> None:
    base = 10 * MERGED_ROWS
    summary = {"total-records": str(base + 500), "total-data-files": "4", PROPERTY: f"7:{base},9:300"}
    assert file_tiers.plan_compaction(summary, 10, files=2) == ([Tier(7, base)], 7, None, 0)
    for why, changed in {
        "it is in too many files": {"total-data-files": "9"},
        "the others have as many rows": {"total-records": str(2 * base)},
        "it is small": {"total-records": "900", PROPERTY: "7:600,9:200"},
        "nothing is newer": {"total-records": str(base), PROPERTY: f"7:{base}"},
        "what it has is not known": {PROPERTY: ""},
    }.items():
        assert file_tiers.plan_compaction(summary | changed, 10, files=2) is None, why
    assert file_tiers.plan_compaction({"total-records": str(base), "total-data-files": "1"}, 10, files=2) is None
