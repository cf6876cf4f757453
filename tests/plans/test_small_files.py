"""A revision is a small file in every table: how many there are must not become the cost of a query."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from altneu.pipeline.storage import file_tiers
from altneu.pipeline.storage.warehouse import PROPERTIES, Warehouse
from tests import home_helpers


def test_many_revisions_are_few_manifests_and_few_tasks(tiny: SparkSession, tmp_path: Path) -> None:
    home, _ = home_helpers.make(tmp_path / "home")
    warehouse = Warehouse(tiny, home)
    warehouse.ensure_tables()
    name, base = warehouse.table_name("degrees"), warehouse.load_metadata("degrees").first_snapshot()
    for number in range(9):
        row = tiny.range(1).selectExpr("id AS vertex", "1L AS epoch", f"{number}L AS revision", "1L AS diff")
        base = warehouse.write_to_branch("degrees", f"r{number}", base, row)
        warehouse.load_metadata("degrees").commit_steps(
            [("replaceBranch", "main", base), ("removeBranch", f"run_r{number}")]
        )
    whole = tiny.table(name)
    assert whole.count() == 9 == warehouse.snapshot_size("degrees", base).files
    assert tiny.table(f"{name}.manifests").count() <= int(PROPERTIES["commit.manifest.min-count-to-merge"])
    assert whole.rdd.getNumPartitions() == 1


@pytest.mark.law(9, 11)
def test_runs_merge_small_files_and_change_no_row(
    tiny: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a run that is thrown away, and one that builds on an earlier snapshot, as after a rollback."""
    monkeypatch.setattr(file_tiers, "MERGED_TIERS", 2)
    home, _ = home_helpers.make(tmp_path / "home")
    warehouse = Warehouse(tiny, home)
    warehouse.ensure_tables()
    first = warehouse.load_metadata("degrees").first_snapshot()
    heads, holds = {0: first}, {0: list[int]()}  # revision → its snapshot, and the revisions of its rows

    def append(revision: int, on: int, name: str) -> int:
        rows = tiny.range(0, 3, 1, 1).selectExpr(
            "id AS vertex", "1L AS epoch", f"{revision}L AS revision", "1L AS diff"
        )
        return warehouse.write_to_branch("degrees", name, heads[on], rows, revision - 1)

    append(1, 0, "lost")
    for revision, on in [(1, 0), (2, 1), (3, 2), (4, 3), (5, 2), (6, 5), (7, 6), (8, 7), (9, 8)]:
        heads[revision] = append(revision, on, f"r{revision}")
        holds[revision] = [*holds[on], *[revision] * 3]
        assert warehouse.count_added_rows("degrees", heads[revision]) == 3
        written = warehouse.written_size("degrees", heads[revision], heads[on])
        assert (written.files, written.rows) == (1, 3) and written.bytes > 0
    for revision, head in heads.items():
        assert warehouse.snapshot_size("degrees", head).files <= 3
        rows = warehouse.read_snapshot("degrees", head).collect()
        assert sorted(row.revision for row in rows) == holds[revision]
    assert [warehouse.snapshot_size("degrees", heads[revision]).files for revision in (7, 8, 9)] == [3, 2, 1]
    assert not list((tmp_path / "home" / "warehouse").rglob("*.crc"))


def test_a_table_of_an_earlier_version_gets_todays_settings(tiny: SparkSession, tmp_path: Path) -> None:
    home, _ = home_helpers.make(tmp_path / "home")
    Warehouse(tiny, home).ensure_tables()
    warehouse = Warehouse(tiny, home)
    for name in PROPERTIES:
        tiny.sql(f"ALTER TABLE {warehouse.table_name('edges')} UNSET TBLPROPERTIES ('{name}')")
    assert not PROPERTIES.keys() & warehouse.load_metadata("edges").properties().keys()
    warehouse.ensure_tables()
    assert PROPERTIES.items() <= warehouse.load_metadata("edges").properties().items()
