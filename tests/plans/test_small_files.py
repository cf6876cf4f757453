"""A revision is a small file in every table: how many there are must not become the cost of a query."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

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


def test_a_table_of_an_earlier_version_gets_todays_settings(tiny: SparkSession, tmp_path: Path) -> None:
    home, _ = home_helpers.make(tmp_path / "home")
    Warehouse(tiny, home).ensure_tables()
    warehouse = Warehouse(tiny, home)
    for name in PROPERTIES:
        tiny.sql(f"ALTER TABLE {warehouse.table_name('edges')} UNSET TBLPROPERTIES ('{name}')")
    assert not PROPERTIES.keys() & warehouse.load_metadata("edges").properties().keys()
    warehouse.ensure_tables()
    assert PROPERTIES.items() <= warehouse.load_metadata("edges").properties().items()
