"""Laws 2, 3, 4 and 10 where no task can hold the graph and the trussness is maintained by region, and where no task
sees the home's folder: with every edge its certificate is left in a table, the next run goes on from there, and proves
what it changes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from altneu.algorithms.graph import truss_local_update
from altneu.algorithms.graph.graph_cache_task import GraphCacheLocation
from altneu.algorithms.graph.kernels.certificate_counts import count_certificate
from altneu.algorithms.graph.truss_plan import TrussCheckpoint
from altneu.pipeline.errors import RunFailed, Unavailable
from altneu.pipeline.home import memory_budget
from altneu.pipeline.home.home import Home
from altneu.pipeline.local import doctor
from altneu.pipeline.maintenance import move, move_target, rollback
from altneu.pipeline.run import planning, runner
from altneu.pipeline.run.choices import plan_choices
from altneu.pipeline.run.forecast import forecast_run
from altneu.pipeline.run.stages import truss
from altneu.pipeline.state import filesystem
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.stage_results import AuditFacts, TrussFacts
from altneu.pipeline.storage import graph_cache, relocate, truss_checkpoint_table
from altneu.pipeline.storage.iceberg import IcebergTable
from altneu.pipeline.storage.table_schemas import CERTIFICATES
from altneu.pipeline.storage.warehouse import Warehouse
from tests.laws.world import LawWorld

LIMIT = "[truss]\nlimit_edges = 3\n"
ROLLING = '[audit]\nmode = "rolling 2"\n'


def use_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on no task can hold the graph, but any region of it."""
    monkeypatch.setattr(memory_budget, "max_cell_edges", lambda config: 3)
    monkeypatch.setattr(plan_choices, "REGION", 0)
    limit_region(monkeypatch, 10**6)


def limit_region(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """A task may hold so many edges of a region, whatever the plan was chosen for."""
    monkeypatch.setattr(truss_local_update, "update_region", lambda *args, **how: PLAIN(*args, **{**how, "most": most}))


@pytest.fixture()
def world(tiny: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LawWorld:
    use_regions(monkeypatch)
    return LawWorld(tiny, tmp_path / "home", live_for=3, settings=LIMIT)


@pytest.fixture()
def elsewhere(tiny: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LawWorld:
    """Tasks are on other machines, and any graph is large."""
    monkeypatch.setattr(
        graph_cache, "cache_location", lambda home: GraphCacheLocation(home.path / "nowhere", "elsewhere")
    )
    monkeypatch.setattr(truss, "CERTIFIED", 1)
    return LawWorld(tiny, tmp_path / "home", live_for=3, settings=ROLLING)


def run(world: LawWorld, *epochs: int) -> list[str]:
    """What is said."""
    said: list[str] = []
    plan = planning.plan_epochs(world.ledger, epochs, remove=True)
    shown = {each.NAME: each for each in forecast_run(world.ledger, plan).decisions}
    runner.execute_run(world.ledger, plan, lambda stage, text: said.append(f"{stage}: {text}"))
    for decision in (shown["truss"], shown["audit"]):
        found = world.ledger.stages.get_facts(world.ledger.revisions.get().run_id, decision.FACTS)
        assert decision.strategy_of(found) in decision.possible_strategies, (decision, found)
    world.record_revision()
    return said


def facts_of(world: LawWorld) -> tuple[TrussFacts, AuditFacts]:
    run_id = world.ledger.revisions.get().run_id
    return world.ledger.stages.get_facts(run_id, TrussFacts), world.ledger.stages.get_facts(run_id, AuditFacts)


def certified(world: LawWorld) -> None:
    """Law 10: what the run has left is the graph at the frontier with its trussness, and both facts hold."""
    found = graph_cache.saved_checkpoint(world.ledger, world.ledger.revisions.get())
    assert found is not None
    state = truss_checkpoint_table.read_checkpoint(Warehouse(world.spark, world.home), found)
    assert state is not None and state.epoch == world.ledger.revisions.get().frontier
    rows = truss_local_update.sum_state(state.rows).collect()
    assert {(row.a, row.b, row.level + 2) for row in rows} == set(
        world.expected_edges(world.ledger.revisions.get().revision)
    )
    assert len(rows) == len({(row.a, row.b) for row in rows}) and all(row.diff == 1 for row in rows)
    names = ("a", "b", "level", "label", "own", "backing")
    a, b, level, label, own, backing = (np.array([row[name] for row in rows], np.int64) for name in names)
    counted = count_certificate(a, b, level, label)
    assert (counted.backing == backing).all() and (counted.first == own).all()
    assert (backing >= level).all() and (own <= level).all()
    assert (label > state.ends[0]).all() and (label < state.ends[1]).all()


@pytest.mark.law(4, 10)
@pytest.mark.dear("one home instead of three")
def test_a_run_goes_on_from_the_state_wherever_the_home_goes_and_by_region(
    elsewhere: LawWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a copy, under another name of the folder, where one task holds the graph and cannot keep it: no peel. Then the
    graph is too large for a task: a run of late, replaced and new epochs and of one that goes is made by region."""
    world = elsewhere
    world.publish_epochs(0, 1)
    assert facts_of(world)[0].plan == "replay"
    certified(world)
    assert_no_copy_without_room(world, tmp_path, monkeypatch)
    copy(world, tmp_path / "copy")
    (check,) = doctor._check_caches(world.ledger)
    assert re.match(rf"the table {CERTIFICATES} \(\d+ rows", check.finding), check
    rename(world, tmp_path / "renamed")
    world.land_batches(1, 3)
    assert_made_from_the_state(world, run(world, 1, 3))

    use_regions(monkeypatch)
    world.settings = LIMIT
    world.write_settings(3)
    world.land_batches(2, 4)
    remove_batch(world, 1)
    said = run(world, 1, 2, 4)
    assert_made_by_region(world, said)
    assert any("truss: hop 1: " in line for line in said)
    world.assert_same_as_reference(1, 2, 3)


@pytest.mark.slow
def test_by_region_as_by_a_peel(world: LawWorld) -> None:
    """Runs of one epoch and of several, late ones, replaced ones, one that goes, one that changes nothing; of what was
    made in parts."""
    world.publish_epochs(0, 1)
    assert set(facts_of(world)[0].methods or ()) == {"parts"}
    certified(world)
    for epochs in WIDE:
        world.land_batches(*epochs)
        said = run(world, *epochs)
        assert_made_by_region(world, said)
    assert any("truss: hop 1: " in line for line in said)
    remove_batch(world, 5)
    run(world, 5)
    assert facts_of(world)[0].plan == "region"
    certified(world)
    world.assert_same_as_reference(*range(1, len(WIDE) + 3))


@pytest.mark.slow
def test_from_the_state_as_by_a_peel(elsewhere: LawWorld) -> None:
    """The same where one task holds the graph and cannot keep it: later runs begin with no peel."""
    world = elsewhere
    world.publish_epochs(0, 1)
    for epochs in WIDE:
        world.land_batches(*epochs)
        assert_made_from_the_state(world, run(world, *epochs))
    world.assert_same_as_reference(*range(1, len(WIDE) + 2))


WIDE = [(2,), (4, 5), (3,), (1,), (6,), (5, 6)]  # the epochs of each run


def assert_made_by_region(world: LawWorld, said: list[str]) -> None:
    did, judged = facts_of(world)
    assert did.plan == "region" and did.region and did.rounds, said
    assert judged.mode == "local" and judged.proved and not judged.critical, said
    certified(world)


def assert_made_from_the_state(world: LawWorld, said: list[str]) -> None:
    did, judged = facts_of(world)
    assert (did.plan, did.graph, did.rounds, did.region) == ("state", None, None, None), said
    assert did.methods and "parts" not in did.methods, did.methods
    assert judged.mode == "rolling 2" and judged.proved and not judged.critical, said
    certified(world)


def remove_batch(world: LawWorld, epoch: int) -> None:
    shutil.rmtree(world.home.landing / f"epoch={epoch}")
    del world.landed[epoch]


def assert_no_copy_without_room(world: LawWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is no damage of the state, and no reason to leave it behind."""
    with monkeypatch.context() as full:
        full.setattr(filesystem, "write_file", partial(_full, filesystem.write_file))
        with pytest.raises(Unavailable, match="No space left"):
            copy(world, tmp_path / "copy")


@pytest.mark.slow
def test_the_state_goes_where_the_home_goes(
    elsewhere: LawWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy, another name of the folder, a revision taken back: the next run goes on from the state."""
    world = elsewhere

    def goes_on(epoch: int, plan: str = "state") -> None:
        world.land_batches(epoch)
        said = run(world, epoch)
        assert facts_of(world)[0].plan == plan, said
        certified(world)

    world.publish_epochs(0, 1)
    assert_no_copy_without_room(world, tmp_path, monkeypatch)
    copy(world, tmp_path / "copy")
    (check,) = doctor._check_caches(world.ledger)
    assert re.match(rf"the table {CERTIFICATES} \(\d+ rows", check.finding), check
    goes_on(2)
    rename(world, tmp_path / "renamed")
    goes_on(3)
    rollback.roll_back(world.ledger, world.ledger.revisions.get().revision - 1)
    del world.landed[3]
    world.record_revision()
    with monkeypatch.context() as broken:  # a run that fails takes nothing from the next one
        broken.setattr(Ledger, "publish_revision", _fail)
        world.land_batches(3)
        with pytest.raises(RunFailed, match="before it is published"):
            run(world, 3)
    goes_on(3)


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["data/*.parquet", "metadata/*-m0.avro", "metadata/snap-*.avro", "metadata/*.json"])
def test_a_damaged_state_is_left_behind(lost: str, elsewhere: LawWorld, tmp_path: Path) -> None:
    """It is a cache, and no reason to refuse the home or a run."""
    world = elsewhere
    world.publish_epochs(0, 1)
    for epoch, goes in enumerate((stay, copy, rename), 2):
        folder = Path(world.home.warehouse) / "graph" / CERTIFICATES
        for path in folder.glob(lost):
            path.unlink()
        goes(world, tmp_path / goes.__name__)
        assert (
            truss_checkpoint_table.read_checkpoint(
                Warehouse(world.spark, world.home),
                graph_cache.saved_checkpoint(world.ledger, world.ledger.revisions.get()),
            )
            is None
        )
        world.land_batches(epoch)
        said = run(world, epoch)
        assert facts_of(world)[0].plan == "replay", said
        certified(world)


def _fail(*args: object, **kwargs: object) -> None:
    raise RuntimeError("before it is published")


def _full(write: Callable[[str, bytes], None], location: str, content: bytes) -> None:
    if CERTIFICATES in location:
        raise OSError(28, "No space left on device")
    write(location, content)


def stay(world: LawWorld, folder: Path) -> None:
    """Neither, and doctor says it."""
    assert not folder.exists()
    (check,) = doctor._check_caches(world.ledger)
    assert check.finding == "none: the next run begins with the tables, which takes longer"


def copy(world: LawWorld, folder: Path) -> None:
    """`altneu move`."""
    assert move.move_home(world.home, move_target.parse_target(folder, []), lambda text: None)
    world.reopen(folder)


def rename(world: LawWorld, folder: Path) -> None:
    """By hand, and `altneu relocate`."""
    world.home.path.rename(folder)
    relocate.relocate_home(Home.open(folder))
    world.reopen(folder)


@pytest.mark.slow
def test_a_state_that_is_absent_foreign_or_wrong(elsewhere: LawWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the task begins with the tables, and leaves another one."""
    world = elsewhere
    world.publish_epochs(0, 1)
    warehouse = Warehouse(world.spark, world.home)

    def spoilt(column: str, value: str, where: str = "true") -> None:
        found = truss_checkpoint_table.read_checkpoint(
            warehouse, graph_cache.saved_checkpoint(world.ledger, world.ledger.revisions.get())
        )
        assert found is not None
        rows = found.rows.where(where).withColumn(column, F.expr(value))
        monkeypatch.setattr(
            truss_checkpoint_table,
            "read_checkpoint",
            lambda *args: TrussCheckpoint(rows, found.epoch, found.ends),
        )

    expected = {
        "the truss checkpoint of the last run is missing: computing from the tables": lambda: warehouse.drop_table(
            CERTIFICATES
        ),
        "the checkpoint has another trussness: computing from the tables": lambda: spoilt("own", "own", "level > 0"),
        "the checkpoint has other triangles: computing from the tables": lambda: spoilt("own", "own + 1"),
        " edges are wrong by the proof: computing from the tables": lambda: spoilt("backing", "0L"),
    }
    for epoch, (words, spoil) in enumerate(expected.items(), 2):
        spoil()
        world.land_batches(epoch)
        said = run(world, epoch)
        plan = facts_of(world)[0].plan
        # where so much moves that all is counted again, a wrong count does no harm
        counted_again = "edges are wrong" in words and plan == "state"
        assert counted_again or (plan == "replay" and any(words in line for line in said)), said
        monkeypatch.setattr(truss_checkpoint_table, "read_checkpoint", READ)
        certified(world)
    world.assert_same_as_reference(*range(1, 6))


@pytest.mark.slow
def test_who_sees_the_folder_keeps_graphs_in_it_again(elsewhere: LawWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere.publish_epochs(0, 1)
    certified(elsewhere)
    monkeypatch.undo()
    for epoch, plan in ((2, "state"), (3, "resume")):
        elsewhere.land_batches(epoch)
        run(elsewhere, epoch)
        did = facts_of(elsewhere)[0]
        assert (did.plan, did.certified) == (plan, None) and did.graph
    elsewhere.assert_same_as_reference(1, 2, 3)


@pytest.mark.slow
def test_what_is_not_there_or_does_not_fit_is_made_in_parts(world: LawWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state is a cache: without it, with that of another graph, with a region that is too large, all is right."""
    world.publish_epochs(0, 1)
    warehouse = Warehouse(world.spark, world.home)

    def gone() -> None:
        warehouse.drop_table(CERTIFICATES)

    def foreign() -> None:
        found = truss_checkpoint_table.read_checkpoint(
            warehouse, graph_cache.saved_checkpoint(world.ledger, world.ledger.revisions.get())
        )
        assert found is not None
        other = TrussCheckpoint(found.rows.where("level > 0"), found.epoch, found.ends)
        monkeypatch.setattr(truss_checkpoint_table, "read_checkpoint", lambda *args: other)

    def small() -> None:
        monkeypatch.setattr(truss_checkpoint_table, "read_checkpoint", READ)
        limit_region(monkeypatch, 1)

    expected = {
        "the truss checkpoint of the last run is missing: computing in partitions": gone,
        "does not have the stored trussness: computing in partitions": foreign,
        "more than the 1 edges that a task may hold: computing in partitions": small,
    }
    for epoch, (words, spoil) in enumerate(expected.items(), 2):
        spoil()
        world.land_batches(epoch)
        said = run(world, epoch)
        did, judged = facts_of(world)
        assert any(words in line for line in said), said
        assert did.plan == "replay" and set(did.methods or ()) == {"parts"} and judged.mode == "full"
    monkeypatch.undo()
    world.assert_same_as_reference(*range(1, 5))


READ, PLAIN = truss_checkpoint_table.read_checkpoint, truss_local_update.update_region


@pytest.mark.slow
def test_a_wrong_certificate_is_found(world: LawWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trussness follows it, and a proof that does not trust it: the run begins again in parts."""
    world.publish_epochs(0, 1)
    found = truss_checkpoint_table.read_checkpoint(
        Warehouse(world.spark, world.home), graph_cache.saved_checkpoint(world.ledger, world.ledger.revisions.get())
    )
    assert found is not None
    lied = found.rows.selectExpr("a", "b", "level", "label", "own", "CAST(0 AS bigint) AS backing", "diff")
    monkeypatch.setattr(
        truss_checkpoint_table,
        "read_checkpoint",
        lambda *args: TrussCheckpoint(lied, found.epoch, found.ends),
    )
    for epoch in (2, 3):
        world.land_batches(epoch)
    said = run(world, 2, 3)
    assert any(
        " edges of the checkpoint of the run before are wrong by the proof: computing in partitions" in line
        for line in said
    ), said
    did, judged = facts_of(world)
    assert set(did.methods or ()) == {"parts"} and judged.mode == "full"
    monkeypatch.undo()
    certified(world)
    world.assert_same_as_reference(1, 2)


@pytest.mark.slow
def test_the_table_is_written_anew_when_it_is_worn(world: LawWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what older runs have left goes: of the snapshots two are kept besides the first, empty one."""
    world.publish_epochs(0, 1)
    rows, metadata = [], lambda: Warehouse(world.spark, world.home).load_metadata(CERTIFICATES)
    for epoch in range(2, 9):
        world.land_batches(epoch)
        run(world, epoch)
        found = graph_cache.saved_checkpoint(world.ledger, world.ledger.revisions.get())
        assert found is not None
        rows.append(int(metadata().snapshot_summary(found.snapshot)["total-records"]))
        assert len(IcebergTable.snapshot_ids(metadata())) <= 3
    assert any(later < earlier for earlier, later in pairwise(rows)), rows
    certified(world)
