"""Law 11: the fingerprint of a revision depends on its contents alone."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.algorithms.fingerprint import Fingerprint
from altneu.pipeline.errors import CheckFailed
from altneu.pipeline.maintenance import compact as compaction
from altneu.pipeline.maintenance import rollback
from altneu.pipeline.maintenance.compact import compact
from altneu.pipeline.run import planning
from altneu.pipeline.state import fingerprint_sums, schema
from altneu.pipeline.state.fingerprint_sums import Prints
from altneu.pipeline.storage import local_frame
from altneu.pipeline.storage.arrow_fingerprints import fingerprints_by_epoch
from altneu.pipeline.storage.table_fingerprints import published_fingerprints, table_fingerprints
from altneu.pipeline.storage.table_schemas import ALWAYS, MOTIFS, TABLES
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers, seeds
from tests.canonical import NUMBERS, History
from tests.fingerprint_helpers import another_number, recompute_fingerprints
from tests.laws.world import EPOCHS, LawWorld
from tests.ledger_only import ARROW, run_without_spark
from tests.reference import Row

VALUES = '[values]\nk = "long"\nmy-weight = "double"\nnote = "string"\nseen = "boolean"\n'
MOTIF = '[motifs]\nsquare = "a-b, b-c, c-d, d-a"\n'


def drawn(rng: random.Random, table: str, column: str, type_: str) -> Any:
    if column == "until":
        return rng.choice([FOREVER, rng.randrange(4, 8)])
    if column == "epoch":
        return rng.randrange(4)
    if column == "diff":
        return rng.choice([-1, 1, 2**40] if "count" in table or table == "degrees" else [-1, 1])
    if column not in ALWAYS.get(table, ()) and column != "revision" and rng.random() < 0.3:
        return None
    if type_ == "bigint":
        return rng.choice([rng.randrange(5), rng.randrange(-(2**63), 2**63)])
    if type_ == "boolean":
        return rng.random() < 0.5
    if type_ == "double":
        return rng.choice([0.0, 1.5, -1e300, rng.random()])
    return "".join(rng.choices("aä€ b,\n😀", k=rng.choice([0, 1, 5, 40])))


@pytest.mark.law(11)
def test_of_tables_is_what_it_says(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of all types, with nulls, intervals, diffs that cancel and diffs that are counts."""
    rng = random.Random(seeds.one())
    home, _ = home_helpers.make(tmp_path / "home", VALUES + MOTIF)
    warehouse = Warehouse(spark, home)
    rows, frames, types = {}, {}, {}
    for table in [*TABLES, *MOTIFS]:
        types[table] = dict(field.rsplit(" ", 1) for field in warehouse.columns_ddl(table).split(", "))
        types[table] = {name.strip("`"): type_ for name, type_ in types[table].items()}
        drawings = types[table].items()
        some = [tuple(drawn(rng, table, *each) for each in drawings) for _ in range(rng.choice([0, 1, 60]))]
        at = list(types[table]).index("diff")
        rows[table] = some + [(*row[:at], -row[at], *row[at + 1 :]) for row in some[::3]]
        rng.shuffle(rows[table])
        frames[table] = local_frame.local_frame(spark, types[table], rows[table])
    found = table_fingerprints(frames.__getitem__, warehouse, rows)
    assert found == {table: recompute_fingerprints(table, list(types[table]), some) for table, some in rows.items()}
    for table, some in rows.items():
        columns = zip(*some, strict=True) if some else [()] * len(types[table])
        in_memory = {
            name: pa.array(column, ARROW[type_])
            for (name, type_), column in zip(types[table].items(), columns, strict=True)
        }
        assert fingerprints_by_epoch(table, pa.table(in_memory)) == found[table], table
    half = {table: some[: len(some) // 2] for table, some in rows.items()}
    parts: Prints = table_fingerprints(
        lambda table: local_frame.local_frame(spark, types[table], half[table]), warehouse, rows
    )
    rest = table_fingerprints(
        lambda table: local_frame.local_frame(spark, types[table], rows[table][len(half[table]) :]), warehouse, rows
    )
    for table in rows:
        sums: Counter[Any] = Counter()
        for each in (parts[table], rest[table]):
            for epoch, one in each.items():
                sums[epoch] = sums[epoch] + one if epoch in sums else one
        assert {epoch: one for epoch, one in sums.items() if one} == found[table], table
    assert table_fingerprints(frames.__getitem__, warehouse, []) == {}


def test_similar_rows_differ(spark: SparkSession, tmp_path: Path) -> None:
    """A null here is no null there, and no empty text; a column that is declared later changes nothing where it is
    null."""

    def one(**values: str | None) -> Fingerprint:
        declared = "".join(f'{name} = "string"\n' for name in values)
        home, _ = home_helpers.make(tmp_path / "home", f"[values]\n{declared}")
        names = ["src", "dst", *values, "op", "seq", "file", "line", "epoch", "revision", "diff"]
        types = {name: "string" if name in (*values, "op", "file") else "bigint" for name in names}
        row = [1, 2, *values.values(), "upsert", 0, "f", 1, 0, 1, 1]
        found = table_fingerprints(
            lambda table: local_frame.local_frame(spark, types, [row]), Warehouse(spark, home), ["upserts"]
        )
        return found["upserts"][0]

    pairs = [("a", None), (None, "a"), (None, None), ("", None), (None, ""), ("", ""), ("y", None), ("ya", None)]
    assert len({one(x=x, y=y) for x, y in pairs}) == len(pairs)
    assert one(x="a") == one(x="a", y=None) == one(y=None, x="a")


def record_of(world: LawWorld, revision: int | None = None) -> Prints:
    """What the ledger says of a revision (default: the newest), for what its tables answer for."""
    row = world.ledger.revisions.get(revision)
    return fingerprint_sums.fold_fingerprints(world.ledger.outputs.fingerprints_of(row.revision), row.since)


def assert_tables_have_what_is_recorded(world: LawWorld) -> None:
    """What the ledger says of each revision that can be read is what its tables hold."""
    warehouse = Warehouse(world.spark, world.home)
    for row in world.ledger.revisions.list_all():
        if row.snapshots:
            found = fingerprint_sums.fold_fingerprints(published_fingerprints(warehouse, row), row.since)
            wanted = record_of(world, row.revision)
            assert {table: wanted[table] for table in found} == found, (world.seed, row.revision)


@pytest.mark.law(11)
def test_any_history_of_the_same_batches(tmp_path: Path) -> None:
    """In any order and grouping, corrected, rolled back and forward: the same by epoch. Other batches give others."""
    with run_without_spark():
        publish_otherwise(None, tmp_path / "other", publish_all_at_once(None, tmp_path))


@pytest.mark.slow
@pytest.mark.law(11)
def test_any_history_of_the_same_batches_in_real_tables(spark: SparkSession, tmp_path: Path) -> None:
    """In real tables a history by detours has the fingerprints of tables in memory, also after a compaction."""
    with run_without_spark():
        once = publish_all_at_once(spark, tmp_path)
    other = publish_otherwise(spark, tmp_path / "other", once)
    assert compact(other.ledger, spark, grace=0).verified
    assert record_of(other) == once[2], other.seed
    assert_tables_have_what_is_recorded(other)


def publish_otherwise(spark: Any, folder: Path, once: tuple[LawWorld, dict[int, list[Row]], Prints]) -> LawWorld:
    """Publish the batches of a home of one revision in another one, by detours."""
    world, batches, expected = once
    other = LawWorld(spark, folder, seed=world.seed + 1, live_for=4)
    order = other.rng.sample(range(EPOCHS), EPOCHS)
    other.publish_epochs(*order[:2])  # both are wrong
    assert record_of(other)["upserts"] != expected["upserts"]
    for epoch in order:
        home_helpers.put(other.home, epoch, batches[epoch])
    home_helpers.run(other.ledger, order)
    right = other.ledger.revisions.get().revision
    assert record_of(other) == expected, world.seed
    rollback.roll_back(other.ledger, 1)
    assert record_of(other) == record_of(other, 1)
    rollback.roll_back(other.ledger, 0)
    assert not any(record_of(other).values())
    rollback.roll_back(other.ledger, right)
    assert record_of(other) == expected, world.seed
    return other


def publish_all_at_once(spark: Any, folder: Path) -> tuple[LawWorld, dict[int, list[Row]], Prints]:
    """A home, its batches, and the fingerprints of its one revision."""
    world = LawWorld(spark, folder / "one", live_for=4)
    world.publish_epochs(*range(EPOCHS))
    expected = record_of(world)
    assert all(expected[table] for table in ("upserts", "edges", "degrees", "trussness"))
    return world, world.landed, expected


@pytest.mark.slow
def test_a_longer_history_of_the_same_batches(spark: SparkSession, tmp_path: Path) -> None:
    """One epoch is wrong at first and put right by itself, and all is rebuilt from the landing."""
    world, batches, expected = publish_all_at_once(spark, tmp_path)
    other = LawWorld(spark, tmp_path / "other", seed=world.seed + 1, live_for=4)
    order = other.rng.sample(range(EPOCHS), EPOCHS)
    wrong = order[0]
    for group in (order[:2], order[2:]):
        for epoch in group:
            home_helpers.put(other.home, epoch, other.draw_batch() if epoch == wrong else batches[epoch])
        home_helpers.run(other.ledger, group)
    assert record_of(other)["upserts"] != expected["upserts"]
    home_helpers.put(other.home, wrong, batches[wrong])
    home_helpers.run(other.ledger, [wrong])
    right = other.ledger.revisions.get().revision
    assert record_of(other) == expected, world.seed
    rollback.roll_back(other.ledger, 1)
    rollback.roll_back(other.ledger, right)
    assert record_of(other) == expected, world.seed
    home_helpers.run_as_planned(other.ledger, planning.plan_rebuild(other.ledger, from_landing=True))
    assert not any(other.ledger.outputs.staged_fingerprints(other.ledger.revisions.get().run_id).values()), world.seed
    rollback.roll_back(other.ledger, right)
    assert compact(other.ledger, spark, grace=0).verified
    assert record_of(other) == expected, world.seed
    assert_tables_have_what_is_recorded(other)


@pytest.mark.slow
def test_compaction_proves_that_it_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """At each kept revision, with epochs that are folded, late and corrected ones; and a rebuild after it."""
    world = LawWorld(spark, tmp_path / "home", live_for=3, settings="[retention]\nepochs = 4\nrevisions = 2\n")
    for epochs in ([0, 2], [1, 3, 4], [1, 5]):
        world.publish_epochs(*epochs)
    before = record_of(world)
    assert compact(world.ledger, spark, grace=0).verified
    since = world.ledger.revisions.get().since
    assert since == 2 and record_of(world) == fingerprint_sums.fold_fingerprints(before, since)
    assert_tables_have_what_is_recorded(world)
    with world.ledger.database.engine.begin() as connection:  # as in a home of before there were fingerprints
        connection.execute(schema.fingerprints.delete())
    world.publish_epochs(3)
    after = record_of(world)
    held_by_tables = fingerprint_sums.fold_fingerprints(
        published_fingerprints(Warehouse(spark, world.home), world.ledger.revisions.get()), since
    )
    assert after == held_by_tables, world.seed
    assert compact(world.ledger, spark, grace=0).verified
    home_helpers.run_as_planned(world.ledger, planning.plan_rebuild(world.ledger, from_landing=False))
    assert record_of(world) == after
    assert (
        fingerprint_sums.fold_fingerprints(
            published_fingerprints(Warehouse(spark, world.home), world.ledger.revisions.get()), since
        )
        == after
    ), world.seed


@pytest.mark.law(9)
def test_a_compaction_that_changes_something_replaces_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: History
) -> None:
    """Also in a home of before there were fingerprints: then the old tables are read for them."""
    home, ledger = numbers.copy(tmp_path / "home")
    home, ledger = home_helpers.make(home.path, f"{NUMBERS}epochs = 2\n")
    row, fold, rng = ledger.revisions.get(), compaction.fold_rows, random.Random(seeds.one())
    losses = ["upserts", rng.choice(["edges", "degrees", "trussness"])]

    def lossy(table: str, *arguments: Any) -> DataFrame:
        found = fold(table, *arguments)
        return found.subtract(found.orderBy("epoch", *found.columns).limit(1)) if table == victim else found

    monkeypatch.setattr(compaction, "fold_rows", lossy)
    for victim in losses:  # with recorded fingerprints, and without
        what = rf"the new tables differ from the old ones at revision \d: table {victim}, epoch "
        with pytest.raises(CheckFailed, match=what) as said:
            compact(ledger, spark, grace=0)
        assert "altneu compact" in (said.value.next or "")
        assert ledger.revisions.get() == row and ledger.runs.list_all()[-1].state == "failed"
        with ledger.database.engine.begin() as connection:
            connection.execute(schema.fingerprints.delete())


@pytest.mark.slow
@pytest.mark.parametrize(("table", "column"), [("upserts", "line"), ("edges", "epoch"), ("names", "id")])
def test_a_compaction_finds_silent_damage(spark: SparkSession, tmp_path: Path, table: str, column: str) -> None:
    """Damaged files are not compacted: what is lost in them would be lost for good. (tests/e2e has the trussness.)"""
    home, ledger = home_helpers.make(tmp_path / "home", '[vertices]\nids = "string"\n')
    seed = seeds.one()
    rng = random.Random(seed)
    for epoch in range(2):
        rows = (rng.sample("abcdefg", 2) for _ in range(12))
        home_helpers.put(home, epoch, [(src, dst, None, "upsert", seq) for seq, (src, dst) in enumerate(rows)])
        home_helpers.run(ledger, [epoch])
    row = ledger.revisions.get()
    another_number(home.path, table, column, seed)
    with pytest.raises(CheckFailed, match="the stored tables are not what was published as revision 2") as said:
        compact(ledger, spark, grace=0)
    assert f"table {table}, epoch " in said.value.what and "Nothing was replaced" in said.value.what
    landing = "" if table == "edges" else " --from-landing"
    assert (said.value.next or "").endswith(f"altneu rebuild{landing}")
    assert ledger.revisions.get() == row
    home_helpers.run_as_planned(ledger, planning.plan_rebuild(ledger, from_landing=bool(landing)))
    assert compact(ledger, spark, grace=0).verified
