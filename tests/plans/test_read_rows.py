"""A run chooses by the rows that it reads: a long history that has ended changes neither its plans nor its engines."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from altneu.pipeline.checking import audit_engine
from altneu.pipeline.home.home import Home
from altneu.pipeline.run import read_rows
from altneu.pipeline.run.choices.plan_choice import Scope
from altneu.pipeline.run.stages import held_rows
from altneu.pipeline.state import filesystem
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage import file_bounds, session
from altneu.pipeline.storage.horizons import Horizon, next_horizon, split_at_horizon
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers, seeds
from tests.canonical import make_history

HISTORY, WINDOW, ROWS = 40, 2, 20
FEW = 400  # between the rows that are alive and those that are stored


def put_rows(home: Home, epoch: int, rng: random.Random) -> None:
    rows = [(rng.randrange(30), rng.randrange(30), None, "upsert", 0) for _ in range(ROWS)]
    home_helpers.put(home, epoch, rows)


def publish_long_history(path: Path) -> None:
    home, ledger = home_helpers.make(path, f"[edges]\nlive_for = {WINDOW}\n")
    rng = random.Random(seeds.one())
    for epoch in range(HISTORY):
        put_rows(home, epoch, rng)
    home_helpers.run(ledger, range(HISTORY))


@pytest.fixture(scope="module")
def long_history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, Ledger]:
    folder = tmp_path_factory.mktemp("long")
    return make_history(spark, folder / "made", publish_long_history).copy(folder / "home")


def test_choices_after_a_long_history_are_those_of_its_small_graph(
    long_history: tuple[Home, Ledger], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, ledger = long_history
    chosen: list[float | None] = []
    audited: list[bool] = []
    held: list[tuple[int, int]] = []
    monkeypatch.setattr(session, "FEW_ROWS", FEW)
    monkeypatch.setattr(audit_engine, "MOST_ROWS", FEW)
    sized = session.size_plans

    @contextmanager
    def record_sizes(spark: SparkSession, rows: float | None) -> Iterator[None]:
        chosen.append(rows)
        with sized(spark, rows):
            yield

    def read_and_record(run: Any, **options: Any) -> Any:
        rows = held_rows.read_held_rows(run, **options)
        audited.append(rows is not None)
        held.append((held_rows.count_held_rows(run, whole=False)[0], run.count_read_rows()))
        return rows

    monkeypatch.setattr(session, "size_plans", record_sizes)
    monkeypatch.setattr("altneu.pipeline.run.stages.audit.read_held_rows", read_and_record)
    monkeypatch.setattr("altneu.pipeline.run.choices.plan_choices.FULL_SECONDS", 1e9)  # the run is proved
    before = read_rows.count_rows_before_run(ledger, Scope(ledger.revisions.get(), (HISTORY,)))
    put_rows(home, HISTORY, random.Random(seeds.one(1)))
    row = home_helpers.run(ledger, [HISTORY])
    assert row is not None
    warehouse = Warehouse(spark, home)
    stored = sum(warehouse.snapshot_size(table, row.snapshots[table]).rows for table in read_rows.TABLES)
    assert audited == [True]
    ((rows, read),) = held  # besides what the run has written: of one in 32 vertices
    assert read // 32 < rows < read
    assert 0 < before < FEW < stored
    ingest, edges, triangles, truss, audit, *others = chosen
    assert all(rows is not None and 0 < rows <= FEW for rows in (ingest, edges, triangles, truss))
    assert audit == stored and others == [None, None]  # where Spark audits, it reads rows of the whole history


def test_without_the_graph_of_the_last_run_all_of_its_trussness_is_read(
    long_history: tuple[Home, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, ledger = long_history
    parent = ledger.revisions.get()
    assert parent.frontier is not None
    scope = Scope(parent, (parent.frontier + 1,))
    known = read_rows.count_rows_before_run(ledger, scope)
    monkeypatch.setattr("altneu.pipeline.storage.graph_cache.cached_epoch", lambda home, key: None)
    assert read_rows.count_rows_before_run(ledger, scope) > known
    assert read_rows.run_horizon(ledger, scope, "edges") == Horizon("until", scope.first_changed_epoch)
    assert read_rows.run_horizon(ledger, scope, "trussness") is None


@pytest.mark.law(9, 11)
def test_rows_before_the_horizon_are_in_files_that_are_skipped(
    tiny: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written at once, and merged by runs: the counted rows are those from the horizon on, and no row changes."""
    monkeypatch.setattr("altneu.pipeline.storage.file_tiers.MERGED_TIERS", 2)
    home, _ = home_helpers.make(tmp_path / "home", "[edges]\nlive_for = 3\n")
    warehouse, rng = Warehouse(tiny, home), random.Random(seeds.one())
    warehouse.ensure_tables()
    base, rows = warehouse.first_snapshot("edges"), list[tuple[int, ...]]()
    for revision, epochs in enumerate([range(12), *([epoch] for epoch in range(12, 18))], 1):
        new = [
            (rng.randrange(9), 9, epoch + 1 + rng.randrange(3), epoch, revision, 1)
            for epoch in epochs
            for _ in range(4)
        ]
        horizon = next_horizon("edges", epochs[-1], 3)
        assert horizon is not None
        frame = tiny.createDataFrame(
            new, "a bigint, b bigint, until bigint, epoch bigint, revision bigint, diff bigint"
        )
        frame = split_at_horizon(frame, horizon, 2) if len(epochs) > 1 else frame.coalesce(1)
        base, rows = warehouse.write_to_branch("edges", f"r{revision}", base, frame, revision - 1, horizon), rows + new
        merged = warehouse.count_merged_files("edges", base)
        alive = sum(row[2] >= horizon.lower_bound for row in rows)
        counted = warehouse.count_rows("edges", base, horizon)
        assert alive <= counted <= len(rows) and (counted == alive or (len(epochs) == 1 and not merged))
    assert sorted(map(tuple, warehouse.read_snapshot("edges", base).collect())) == sorted(rows)
    assert warehouse.count_rows("edges", base, Horizon("until", 0)) == warehouse.count_rows("edges", base, None)
    file_bounds._read_manifest.cache_clear()
    monkeypatch.setattr(filesystem, "read_file", raise_error)
    assert warehouse.load_metadata("edges").count_rows(base, Horizon("until", 99)) == len(rows)  # unknown: all


def raise_error(location: str) -> bytes:
    raise OSError(location)
