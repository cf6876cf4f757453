"""Spark and DuckDB audit a run alike: with random batches, values, filters, windows, motifs and names, and after any
column of any table was changed behind the back of the stages, they say the same of it, in the same words."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from altneu.pipeline.checking import audit_engine
from altneu.pipeline.errors import AltneuError, CheckFailed, UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.run import planning, runner
from altneu.pipeline.run.stages import audit as audit_stage
from altneu.pipeline.run.stages import held_rows
from altneu.pipeline.state import schema as books
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers, seeds
from tests.builders import draw_batch
from tests.e2e.test_faults import Scene
from tests.fingerprint_helpers import stage

pytestmark = pytest.mark.usefixtures("tiny")
LAST = 4  # the epoch of the run that is audited
FAULTS = {
    "bigint": ("IF({0} < 9223372036854775807, {0} + 1, 7)", "NULL"),
    "double": ("{0} + 0.5", "NULL"),
    "boolean": ("NOT {0}", "NULL"),
}
FAULTS["string"] = ("'x'", "NULL")
SETTINGS = {
    "values, a filter, a window and motifs": """
[values]
w = "long"
[edges]
live_for = 3
where = "w > -2"
[motifs]
clique = "a-b, a-c, b-c"
weighted = "a-b where w > 0, b->c"
""",
    "a part is recounted": '[audit]\nmode = "rolling 3"\n[edges]\nlive_for = 3\n',
    "names and a filter, proved": '[audit]\nmode = "local"\n[vertices]\nids = "string"\n'
    '[values]\nw = "double"\n[edges]\nwhere = "w >= 0"\n',
    "all epochs are recomputed": '[audit]\nmode = "full"\nepochs = "all"\n[values]\nw = "string"\n',
}
ALWAYS = "values, a filter, a window and motifs"


@pytest.fixture(
    scope="module", params=[n if n == ALWAYS else pytest.param(n, marks=pytest.mark.slow) for n in SETTINGS]
)
def scene(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Scene]:
    """A home with a random history, whose last run replaces a batch and has reached its audit."""
    toml = SETTINGS[request.param]
    home, ledger = home_helpers.make(tmp_path_factory.mktemp("engines") / "home", toml)
    rng = random.Random(seeds.one(11))
    named = [f"v{vertex}" for vertex in range(12)] if "ids" in toml else range(12)
    batch: dict[str, Any] = {"vertices": named, "size": 30, "deletes": 1 / 4, "values": [*range(-3, 4), None]}
    for epoch in range(LAST):
        home_helpers.put(home, epoch, draw_batch(rng, **batch))
    with pytest.MonkeyPatch.context() as patch:  # what is audited is the run after it
        patch.setattr(audit_stage, "audit_run", stage)
        home_helpers.run(ledger, range(LAST))
    for epoch in (LAST - 2, LAST):
        home_helpers.put(home, epoch, draw_batch(rng, **batch))
    run_id = runner.begin_run(ledger, planning.plan_epochs(ledger, [LAST - 2, LAST]))
    assert run_id
    for name in ("ingest", "edges", "triangles", "truss"):
        runner.execute_stage(ledger, run_id, name)
    yield Scene(home, ledger, Warehouse(spark, home), run_id)


def audit(scene: Scene, engine: str) -> tuple[str, Any]:
    """Audit the run; return how it ends, and all that is said of it, in order."""
    path = scene.home.path / "altneu.toml"
    before = path.read_text()
    has_section = before if "[audit]" in before else before + "\n[audit]\n"
    path.write_text(has_section.replace("[audit]", f'[audit]\nengine = "{engine}"'))
    try:
        facts: Any = runner.execute_stage(Ledger(Home.open(scene.home.path)), scene.run_id, "audit")
        ended = f"{facts.mode} {facts.epochs} {facts.proved} {facts.checks}"
    except CheckFailed as error:
        ended = f"{error.what} {error.next}"
    except AltneuError as error:
        return f"crashed: {error.what}", []
    finally:
        path.write_text(before)
    said = [asdict(row) for row in scene.ledger.checks.select(run_id=scene.run_id)]
    with scene.ledger.database.engine.connect() as connection:
        mine = books.fingerprints.c.run_id == scene.run_id
        prints = sorted(map(str, connection.execute(sa.select(books.fingerprints).where(mine))))
    for row in said:
        del row["id"]
        row.pop("at", None)
        row["rows"] = sorted(row["rows"], key=lambda each: json.dumps(each, sort_keys=True, default=str))
    return ended, (sorted(said, key=lambda row: json.dumps(row, sort_keys=True, default=str)), prints)


def compare_engines(scene: Scene) -> str:
    by_spark, by_duckdb = audit(scene, "spark"), audit(scene, "duckdb")
    if by_spark[0].startswith("crashed"):
        assert "critical check(s) failed" in by_duckdb[0] or by_duckdb[0].startswith("crashed"), by_duckdb[0]
        return by_duckdb[0]
    assert by_duckdb[0] == by_spark[0]
    (checks, prints), (wanted, wanted_prints) = by_duckdb[1], by_spark[1]
    assert prints == wanted_prints
    assert [check for check in checks if check not in wanted] == [check for check in wanted if check not in checks]
    assert len(checks) == len(wanted)
    return by_duckdb[0]


def test_a_run_without_a_fault(scene: Scene) -> None:
    assert "failed" not in compare_engines(scene)


def plant(scene: Scene, table: str, column: str, fault: str, rng: random.Random) -> tuple[int, Row]:
    """Change a column of a random row of the run; return the snapshot before, and the row."""
    rows = scene.rows(table)
    keys = [name for name in rows.columns if name not in ("file", "line")]
    chosen = rng.choice(rows.where("revision = 2").select(*keys).collect())

    def change(rows: DataFrame) -> DataFrame:
        same = F.lit(True)
        for key in keys:
            same = same & F.col(f"`{key}`").eqNullSafe(F.lit(chosen[key]))
        kind = dict(rows.dtypes)[column]
        wrong = F.expr(f"CAST({fault.format(f'`{column}`')} AS {kind})")
        return rows.withColumn(column, F.when(same, wrong).otherwise(F.col(f"`{column}`")))

    return scene.change(table, change), chosen


def columns_with_rows(scene: Scene) -> list[tuple[str, str, str]]:
    """Every column of every table in which the run has written, with each fault of its type."""
    found = []
    for table in scene.warehouse.collections:
        if not scene.warehouse.branch_snapshot(table, scene.run_id, 0):
            continue
        rows = scene.rows(table)
        if rows.where("revision = 2").isEmpty():
            continue
        for column, kind in rows.dtypes:
            if column != "revision":
                found += [(table, column, fault) for fault in FAULTS[kind]]
    return found


def plant_and_compare(scene: Scene, where: list[tuple[str, str, str]], rng: random.Random) -> None:
    for table, column, fault in where:
        before, row = plant(scene, table, column, fault, rng)
        try:
            ended = compare_engines(scene)
        except AssertionError as error:
            raise AssertionError(f"{table}.{column} {fault} of {row}: {error}") from error
        finally:
            scene.restore(table, before)
        trace = column in ("file", "line", "text", "reason") or table in ("quarantine", "names", "motif_edges")
        later = row.epoch > LAST and column == "epoch"  # when it ends is compared by the run that reaches that epoch
        found = "crashed" in ended or "failed" in ended
        assert found or trace or later or table == "upserts", (table, column, fault, row, ended)


def test_a_fault_in_some_column(scene: Scene) -> None:
    rng = random.Random(seeds.one(12))
    plant_and_compare(scene, rng.sample(columns_with_rows(scene), 1), rng)


def test_a_motif_that_is_not_declared(scene: Scene) -> None:
    plant_and_compare(scene, [("motif_counts", "motif", "'x'")], random.Random(14))


@pytest.mark.slow
def test_a_fault_in_every_column(scene: Scene) -> None:
    plant_and_compare(scene, columns_with_rows(scene), random.Random(seeds.one(13)))


def test_what_duckdb_may_understand_otherwise_is_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_engine, "are_files_local", lambda home: True)
    toml = '[values]\nw = "long"\n[edges]\nwhere = "{}"\n[audit]\nengine = "{}"\n'

    def choose(condition: str, engine: str) -> bool:
        home, _ = home_helpers.make(tmp_path / "home", toml.format(condition, engine))
        return audit_engine.choose_duckdb(home, rows=9, edges=9, epochs=1) is not None

    assert [choose(condition, "auto") for condition in ("w > 1", "w / 2 > 1")] == [True, False]
    assert choose("w > 1", "duckdb") and not choose("w > 1", "spark")
    with pytest.raises(UsageError, match="only Spark can evaluate a condition with 'w / 2'"):
        choose("w / 2 > 1", "duckdb")


@pytest.mark.parametrize(
    ("engine", "rows", "edges", "epochs", "audits"),
    [
        ("auto", 10_000_000, 5_000_000, 1, True),
        ("auto", 10_000_001, 9, 1, False),
        ("auto", 9, 1_000_000, 6, False),
        ("auto", 9, 6_000_000, 0, True),  # a proof recomputes no epoch
        ("duckdb", 10_000_001, 1_000_000, 6, True),
        ("spark", 9, 9, 0, False),
    ],
)
def test_duckdb_audits_what_one_process_audits_sooner(
    engine: str, rows: int, edges: int, epochs: int, audits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_engine, "are_files_local", lambda home: True)
    monkeypatch.setattr(audit_engine.memory_budget, "max_audit_edges", lambda config, epochs: 10**9)
    monkeypatch.setattr(audit_engine.memory_budget, "max_held_rows", lambda config: 10**9)
    home, _ = home_helpers.make(tmp_path / "home", f'[audit]\nengine = "{engine}"\n')
    assert (audit_engine.choose_duckdb(home, rows, edges, epochs) is not None) == audits


@pytest.mark.slow
def test_a_run_that_duckdb_may_understand_otherwise_is_audited_by_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", '[values]\nw = "long"\n[edges]\nwhere = "w / 2 > 1"\n')
    home_helpers.put(home, 0, [(1, 2, 7, "upsert", 0)])
    read = []
    monkeypatch.setattr(held_rows, "DuckTables", lambda home: read.append(home))
    home_helpers.run(ledger, [0])
    assert ledger.revisions.get().revision == 1 and not read
    (home.path / "altneu.toml").write_text((home.path / "altneu.toml").read_text() + '[audit]\nengine = "duckdb"\n')
    ledger = Ledger(Home.open(home.path))
    home_helpers.put(home, 1, [(1, 3, 7, "upsert", 0)])
    with pytest.raises(UsageError, match="only Spark can evaluate a condition with 'w / 2'"):
        home_helpers.run(ledger, [1])
