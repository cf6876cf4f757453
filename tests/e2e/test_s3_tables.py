"""Tables in S3, on a real server: the same history as on a disk, and what maintenance, the doctor and a move make of
them."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from altneu.pipeline import landing
from altneu.pipeline.errors import AltneuError, UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.local import demo
from altneu.pipeline.maintenance import move_target
from altneu.pipeline.maintenance.compact import compact
from altneu.pipeline.maintenance.move import move_home
from altneu.pipeline.reading import views
from altneu.pipeline.run import planning, runner
from altneu.pipeline.state import filesystem, home_identity
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage import file_inventory
from altneu.pipeline.storage.relocate import relocate_home
from altneu.pipeline.storage.table_fingerprints import published_fingerprints
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers, seeds
from tests.builders import draw_batch
from tests.s3 import Store

pytestmark = pytest.mark.needs("s3 library")

BATCH: dict[str, Any] = {"vertices": range(8), "size": 14, "deletes": 0.2, "loops": False}


def shown(home: Home, spark: SparkSession) -> list[Any]:
    """All that is published: totals of every epoch, the trussness of every edge ever, fingerprints, revisions."""
    ledger = Ledger(home)
    row = ledger.revisions.get()
    warehouse = Warehouse(spark, home)
    truss = (
        warehouse.read_table("trussness", row)
        .groupBy("a", "b", "epoch", "k")
        .agg({"diff": "sum"})
        .where("sum(diff) <> 0")
    )
    prints = published_fingerprints(warehouse, row)
    assert {table: ledger.outputs.fingerprints_of(row.revision)[table] for table in prints} == prints
    return [
        views.select_totals(ledger, all_epochs=True),
        sorted(map(tuple, truss.collect())),
        prints,
        row.revision,
    ]


@pytest.mark.usefixtures("unaudited", "tiny")
def test_a_history_in_s3_is_that_on_a_disk(spark: SparkSession, tmp_path: Path, s3: str, store: Store) -> None:
    """With a correction, a compaction, a lost file and a move; with 503s and broken connections all along."""
    rng = random.Random(seeds.one())
    batches = [[draw_batch(rng, **BATCH) for _ in range(3)], [draw_batch(rng, **BATCH)]]
    faults = random.Random(seeds.one())
    store.faults = lambda method, path: faults.choices([None, "503", "cut"], [90, 5, 5])[0]
    both = [
        home_helpers.make(tmp_path / "disk"),
        home_helpers.make(tmp_path / "s3", f'[storage]\nwarehouse = "{s3}/tables"\n'),
    ]
    for home, ledger in both:
        for epoch, rows in enumerate(batches[0]):
            home_helpers.put(home, epoch, rows)
        home_helpers.run(ledger, [0, 1, 2])
        home_helpers.put(home, 1, batches[1][0])
        home_helpers.run(ledger, [1])
    assert shown(both[1][0], spark) == shown(both[0][0], spark)
    home, ledger = both[1]
    assert not list(home.path.rglob("*.parquet")), "all rows are in S3"
    compact(ledger, spark)
    assert shown(home, spark)[:2] == shown(both[0][0], spark)[:2]
    assert Warehouse(spark, home).remove_orphans("edges") == 0
    found = file_inventory.take_inventory(ledger)
    assert found.files > 20 and not found.missing_files

    store.faults = lambda method, path: None
    moved = f"{s3}/elsewhere"
    shutil.copytree(store.folder / s3.rpartition("/")[2] / "tables", store.folder / s3.rpartition("/")[2] / "elsewhere")
    (home.path / "altneu.toml").write_text(f'[storage]\nwarehouse = "{moved}"\n')
    elsewhere = Home.open(home.path)
    with pytest.raises(home_identity.HomeMoved, match=f"tables were made in {s3}/tables"):
        home_identity.open_ledger(elsewhere)
    with pytest.raises(UsageError, match="still exist: a copy needs a database of its own"):
        relocate_home(elsewhere)
    shutil.rmtree(store.folder / s3.rpartition("/")[2] / "tables")
    assert relocate_home(elsewhere).new_warehouse == moved
    assert shown(elsewhere, spark)[:2] == shown(both[0][0], spark)[:2]
    gone = {name for name in filesystem.list_sizes(moved) if re.match(r"graph/trussness/data/.*parquet", name)}
    for name in gone:
        (store.folder / s3.rpartition("/")[2] / "elsewhere" / name).unlink()
    missing = file_inventory.take_inventory(Ledger(elsewhere)).missing_files
    assert missing.keys() == {"trussness"} and set(missing["trussness"]) <= {f"{moved}/{name}" for name in gone}

    (home.path / "altneu.db").unlink()
    with pytest.raises(AltneuError, match=r"is lost or empty, but s3://.* contains rows"):
        home_identity.open_ledger(elsewhere)


def test_nothing_holds_the_keys(spark: SparkSession, tmp_path: Path, s3: str) -> None:
    """Neither the session's settings nor what is stored."""
    home, ledger = home_helpers.make(tmp_path / "home", f'[storage]\nwarehouse = "{s3}"\n')
    home_helpers.put(home, 0, [(1, 2, None, "upsert", 0)])
    home_helpers.run(ledger, [0])
    secret = os.environ["AWS_SECRET_ACCESS_KEY"]
    assert secret not in json.dumps(dict(spark.sparkContext.getConf().getAll()))
    assert secret not in str(spark.sql("SET -v").collect()) + str(spark.sql("SET").collect())
    for file in home.path.rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes(), file


@pytest.mark.slow
def test_the_demo_in_s3_is_that_on_a_disk(spark: SparkSession, tmp_path: Path, s3: str) -> None:
    """Real messages, 193 epochs in one revision, all stages."""
    seen = []
    for name, toml in (("disk", ""), ("s3", f'[storage]\nwarehouse = "{s3}"\n')):
        home = demo.with_daily_epochs(home_helpers.make(tmp_path / name, toml)[0])
        demo.land_messages(home)
        ledger = home_identity.open_ledger(home, writes=True)
        assert runner.execute_run(ledger, planning.plan_run(ledger, lambda epoch: True)) is not None
        seen.append(shown(home, spark))
        assert not file_inventory.take_inventory(ledger).missing_files
    assert seen[0] == seen[1]


@pytest.mark.usefixtures("unaudited", "tiny")
def test_a_home_moves_into_s3_and_back(spark: SparkSession, tmp_path: Path, s3: str, store: Store) -> None:
    """Proved by its fingerprints there, with 503s and broken connections all along; it goes on, and comes back."""
    rng = random.Random(seeds.one())
    home, ledger = home_helpers.make(tmp_path / "home")
    for epoch in range(2):
        home_helpers.put(home, epoch, draw_batch(rng, **BATCH))
        home_helpers.run(ledger, [epoch])
    faults = random.Random(seeds.one())
    store.faults = lambda method, path: faults.choices([None, "503", "cut"], [94, 3, 3])[0]
    there = move_home(home, move_target.parse_target(tmp_path / "there", [f"{s3}/moved"]), lambda text: None)
    assert (
        there is not None
        and [*there.proved_tables] == [1, 2]
        and set(there.proved_tables[1]) == set(ledger.revisions.get().snapshots)
    )
    assert shown(there.home, spark)[:3] == shown(home, spark)[:3]
    raw = tmp_path / "raw.csv"
    raw.write_text("src,dst\n" + "".join(f"{a},{b}\n" for a, b, *_ in draw_batch(rng, **BATCH)))
    landing.land(there.home, [raw], landing.LandOptions(epoch=0))
    home_helpers.run(Ledger(there.home), [0])
    back = move_home(there.home, move_target.parse_target(tmp_path / "back", []), lambda text: None)
    assert back is not None and [*back.proved_tables] == [1, 2, 3]
    assert shown(back.home, spark) == shown(there.home, spark)
    store.faults = lambda method, path: None
    for file in (there.home.path / "altneu.toml", tmp_path / "back" / "altneu.toml"):
        assert os.environ["AWS_SECRET_ACCESS_KEY"] not in file.read_text()
