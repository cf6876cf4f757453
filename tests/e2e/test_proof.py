"""Runs that are proved instead of recomputed: faults that are planted between the stages are found wherever the run has
changed something; damage elsewhere by the part of the vertices that is recounted, within as many runs as there are
parts, and not before: each mode finds what it promises. What is said of which damage is in tests/unit/test_proving.py
and tests/laws/test_landed.py, without runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from altneu.algorithms.graph.proof_records import COLLECTIONS, Proof, UnprovedEdge
from altneu.pipeline.errors import CheckFailed
from altneu.pipeline.maintenance.compact import compact
from altneu.pipeline.run import planning, runner
from altneu.pipeline.state import schema as books
from altneu.pipeline.state.epoch_status import AuditVerdict, list_epoch_statuses
from altneu.pipeline.state.stage_results import AuditFacts
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers, reference, seeds
from tests.builders import draw_batch, make_clique
from tests.e2e.test_faults import Scene, altered, twice, without

pytestmark = pytest.mark.usefixtures("tiny")
LAST = 4  # the epoch of the run that is examined


BATCH: dict[str, Any] = {"vertices": range(14), "size": 40, "deletes": 1 / 3, "loops": False}


@pytest.fixture(scope="module")
def scene(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A home whose fourth run has reached its audit."""
    home, ledger = home_helpers.make(
        tmp_path_factory.mktemp("proof") / "home", '[audit]\nmode = "local"\n[edges]\nlive_for = 6\n'
    )
    rng = random.Random(seeds.one(4))
    for epoch in range(LAST):
        home_helpers.put(home, epoch, draw_batch(rng, **BATCH))
    home_helpers.run(ledger, range(LAST))
    facts = ledger.stages.get_facts(ledger.revisions.get().run_id, AuditFacts)
    assert (facts.mode, facts.proved, facts.epochs) == ("local", LAST, [])
    assert {
        list_epoch_statuses(ledger, ledger.revisions.get()).status_of(epoch).audit.verdict for epoch in range(LAST)
    } == {AuditVerdict.PROVED}  # type: ignore[union-attr]
    home_helpers.put(home, LAST, draw_batch(rng, **BATCH)[:20] + make_clique(*range(100, 104)))
    run_id = runner.begin_run(ledger, planning.plan_epochs(ledger, [LAST]))
    assert run_id
    for name in ("ingest", "edges", "triangles", "truss"):
        runner.execute_stage(ledger, run_id, name)
    yield Scene(home, ledger, Warehouse(spark, home), run_id)


def judged(scene: Scene) -> set[str]:
    """The checks of the proof that fail when the run is audited."""
    with pytest.raises(CheckFailed, match="Nothing was published"):
        runner.execute_stage(scene.ledger, scene.run_id, "audit")
    found = scene.ledger.checks.select(run_id=scene.run_id)
    assert {row.epoch for row in found if row.suite == "incremental_versus_full"}, "rows that differ are looked for"
    return {row.name for row in found if row.suite == "proof" and not row.passed}


ROWS, LANDED = "stored rows are those that are proved", "edges follow from the landed rows"
TABLES: dict[str, tuple[str, Callable[[DataFrame], DataFrame], set[str]]] = {
    "a lost edge": ("edges", without("a = 100 AND b = 101"), {ROWS, LANDED}),
    "an edge twice": ("edges", twice("a = 100 AND b = 101"), {ROWS, LANDED}),
    "an edge that will end early": ("edges", altered("a = 100 AND b = 101", until="until - 1"), {LANDED}),
    "a degree": ("degrees", altered("vertex = 100", diff="diff + 1"), {ROWS}),
    "a lost count": ("triangle_counts", without("vertex = 102"), {ROWS}),
    "counts of two vertices": ("triangle_counts", altered("vertex = 102", vertex="103"), {ROWS}),
    "a trussness": ("trussness", altered("a = 100 AND b = 101", k="k + 1"), {ROWS}),
    "a trussness an epoch late": ("trussness", altered("a = 100 AND b = 101", epoch="epoch + 1"), {ROWS}),
    "a row of long ago": (
        "trussness",
        lambda table: table.withColumn("k", F.expr("if(revision = 1, k + 1, k)")),
        set(),  # that part of the proof was given by the run before; this run has not touched it
    ),
}
ALWAYS = ("a lost edge", "a row of long ago")


@pytest.mark.law(10)
@pytest.mark.parametrize("fault", [f if f in ALWAYS else pytest.param(f, marks=pytest.mark.slow) for f in TABLES])
def test_what_a_run_has_written_wrong_is_found(scene: Scene, fault: str) -> None:
    table, change, checks = TABLES[fault]
    before = scene.change(table, change)
    try:
        if checks:
            assert judged(scene) == checks
        else:
            runner.execute_stage(scene.ledger, scene.run_id, "audit")
    finally:
        scene.restore(table, before)


@pytest.mark.slow  # tests/unit/test_proving.py has totals in the default tier
@pytest.mark.parametrize("measure", ["triangles", "edges", "truss"])
def test_wrong_totals_are_found(scene: Scene, measure: str) -> None:
    mine = (books.totals.c.run_id == scene.run_id) & (books.totals.c.measure == measure)
    with scene.ledger.database.engine.begin() as connection:
        connection.execute(books.totals.update().where(mine).values(diff=books.totals.c.diff + 1))
    try:
        assert judged(scene) == {"totals are those that are proved"}
    finally:
        with scene.ledger.database.engine.begin() as connection:
            connection.execute(books.totals.update().where(mine).values(diff=books.totals.c.diff - 1))


def judge_with_proof(scene: Scene, change: Callable[[Proof], Proof]) -> set[str]:
    """The checks of the proof that fail when the run has recorded another proof."""
    proof = scene.ledger.outputs.get_proof(scene.run_id)
    assert proof is not None and proof.steps and not proof.wrong
    scene.ledger.outputs.put_proof(scene.run_id, change(proof).to_json())
    try:
        return judged(scene)
    finally:
        scene.ledger.outputs.put_proof(scene.run_id, proof.to_json())


def test_a_proof_that_fails_blocks(scene: Scene) -> None:
    wrong = {"wrong": 1, "listed_edges": [UnprovedEdge(100, 101, 4, "too low")]}
    assert judge_with_proof(scene, lambda proof: replace(proof, **wrong)) == {"trussness values are proved"}


@pytest.mark.slow  # tests/unit/test_proving.py has other rows in the default tier
def test_a_proof_of_another_state_blocks(scene: Scene) -> None:
    def move(proof: Proof) -> Proof:
        return replace(proof, base={**proof.base, "trussness": proof.base["trussness"] + proof.base["edges"]})

    assert judge_with_proof(scene, move) == {ROWS}


@pytest.mark.slow  # damage of long ago, which this run passes with, is in the default tier
def test_a_run_without_a_fault_passes(scene: Scene) -> None:
    facts = runner.execute_stage(scene.ledger, scene.run_id, "audit")
    assert isinstance(facts, AuditFacts) and (facts.critical, facts.mode, facts.epochs) == (0, "local", [])


@pytest.mark.slow
def test_an_epoch_without_a_batch_is_proved_too(spark: SparkSession, tmp_path: Path) -> None:
    """Edges expire at an epoch at which nothing lands: what is wrong there alone is found."""
    home, ledger = home_helpers.make(tmp_path / "home", '[audit]\nmode = "local"\n[edges]\nlive_for = 3\n')
    for epoch in (0, 10):
        home_helpers.put(home, epoch, [(a, b, None, "upsert", 0) for a in range(4) for b in range(a + 1, 4)])
    home_helpers.run(ledger, [0])
    run_id = runner.begin_run(ledger, planning.plan_epochs(ledger, [10]))
    assert run_id
    for name in ("ingest", "edges", "triangles", "truss"):
        runner.execute_stage(ledger, run_id, name)
    scene = Scene(home, ledger, Warehouse(spark, home), run_id)
    before = scene.change("trussness", altered("a = 1 AND b = 2 AND epoch = 3", epoch="epoch + 1"))
    assert judged(scene) == {ROWS}
    wrong = [row for row in ledger.checks.select(run_id=run_id) if row.suite == "proof" and not row.passed]
    assert {row.epoch for row in wrong} == {3}
    scene.restore("trussness", before)
    runner.execute_stage(ledger, run_id, "audit")


@pytest.mark.parametrize("toml", ["", pytest.param("[edges]\nlive_for = 2\n", marks=pytest.mark.slow)])
def test_a_correction_without_effect_is_published_beside_a_new_epoch(
    spark: SparkSession, tmp_path: Path, toml: str
) -> None:
    """The graph is another one at the epoch of the correction than at the last one before the new epoch."""
    home, ledger = home_helpers.make(tmp_path / "home", toml)
    for epoch in range(3):
        home_helpers.put(home, epoch, [(epoch, epoch + 1, None, "upsert", 0)])
    home_helpers.run(ledger, range(3))
    home_helpers.put(home, 1, [(1, 2, None, "upsert", 0), (5, 5, None, "upsert", 0)])
    home_helpers.put(home, 3, [(7, 8, None, "upsert", 0)])
    assert home_helpers.run(ledger, [1, 3]) is not None


@pytest.mark.slow
def test_a_home_without_fingerprints_is_proved_from_its_next_change_on(spark: SparkSession, tmp_path: Path) -> None:
    """As an earlier version has left it: nothing wrong is said of it, and nothing is claimed that was not looked at."""
    home, ledger = home_helpers.make(tmp_path / "home", '[audit]\nmode = "local"\n')
    rng = random.Random(seeds.one(6))
    for epoch in range(4):
        home_helpers.put(home, epoch, draw_batch(rng, **BATCH))
    home_helpers.run(ledger, range(3))
    with ledger.database.engine.begin() as connection:
        connection.execute(sa.delete(books.fingerprints))
    home_helpers.run(ledger, [3])
    facts = ledger.stages.get_facts(ledger.revisions.get().run_id, AuditFacts)
    assert (facts.mode, facts.proved, facts.epochs) == ("local", 1, [])
    assert set(ledger.outputs.fingerprints_of(ledger.revisions.get().revision)) >= set(COLLECTIONS), (
        "known from here on"
    )


@pytest.mark.slow
def test_an_epoch_without_a_change_is_recomputed_where_nothing_is_known(spark: SparkSession, tmp_path: Path) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", '[audit]\nmode = "local"\n')
    for epoch, rows_of in enumerate(([(1, 2, None, "upsert", 0)], [], [])):
        home_helpers.put(home, epoch, rows_of)
    home_helpers.run(ledger, [0])
    with ledger.database.engine.begin() as connection:
        connection.execute(sa.delete(books.fingerprints))
    for epoch, mode in ((1, "full"), (2, "local")):
        home_helpers.run(ledger, [epoch])
        assert ledger.stages.get_facts(ledger.revisions.get().run_id, AuditFacts).mode == mode


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["local", "rolling 3"])
def test_damage_elsewhere_is_found_by_the_parts(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    """Rows of an old revision that were changed after they were published, and that no run touches again."""
    # the plan that enumerates all triangles would notice by itself, since it writes the difference to what is stored
    home, ledger = home_helpers.make(tmp_path / "home", f'[triangles]\nplan = "delta"\n[audit]\nmode = "{mode}"\n')
    old: list[reference.Row] = [(a, b, None, "upsert", 0) for a in range(6) for b in range(a + 1, 6)]
    home_helpers.put(home, 0, old)
    home_helpers.run(ledger, [0])
    warehouse, row = Warehouse(spark, home), ledger.revisions.get()
    spoilt = warehouse.read_snapshot("triangle_counts", row.snapshots["triangle_counts"])
    spoilt = spoilt.withColumn("diff", F.expr("if(vertex = 3, diff + 1, diff)")).localCheckpoint()
    spoilt.writeTo(warehouse.table_name("triangle_counts")).overwrite(F.lit(True))
    pins = {**row.snapshots, "triangle_counts": warehouse.load_metadata("triangle_counts").main_snapshot()}
    with ledger.database.engine.begin() as connection:
        values = {"snapshots": {table: str(snapshot) for table, snapshot in pins.items()}}
        connection.execute(sa.update(books.ledger).values(**values))
    for epoch in range(1, 4):
        home_helpers.put(home, epoch, [(50 + epoch, 60 + epoch, None, "upsert", 0)])
        try:
            home_helpers.run(ledger, [epoch])
        except CheckFailed:
            names = {
                check.name
                for check in ledger.checks.select(run_id=ledger.runs.list_all()[-1].run_id)
                if not check.passed
            }
            assert "a part of the vertices is as recounted" in names
            assert "triangle counts of vertices equal a full recomputation" in names, "the rows are shown as well"
            return
    assert mode == "local", "within as many runs as there are parts"


@pytest.mark.parametrize("window", ["", pytest.param("live_for = 1", marks=pytest.mark.slow)])
def test_the_oldest_epoch_that_is_kept_can_be_corrected(spark: SparkSession, tmp_path: Path, window: str) -> None:
    """A compaction has folded what is before it: the tables have no state there, and the totals are kept."""
    home, ledger = home_helpers.make(tmp_path / "home", f"[retention]\nepochs = 2\n[edges]\n{window}\n")
    for epoch in range(3):
        home_helpers.put(home, epoch, [(epoch, epoch + 1, None, "upsert", 0), (9, epoch, None, "upsert", 0)])
    home_helpers.run(ledger, range(3))
    compact(ledger, spark, grace=0)
    assert ledger.revisions.get().since == 1
    home_helpers.put(home, 1, [(1, 4, None, "upsert", 0)])
    assert home_helpers.run(ledger, [1]) is not None
