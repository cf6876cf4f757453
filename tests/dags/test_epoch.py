"""Real runs of `altneu_epoch` on a tiny home: published, again, changed, asked by parameter, and a lost
race."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from altneu.pipeline.errors import UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.reading import views
from altneu.pipeline.run import planning, stages
from altneu.pipeline.state.epoch_status import list_epoch_statuses
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import EMPTY
from altneu.pipeline.state.runs import RunStore
from altneu.pipeline.tasks import base, dag_epochs, maintenance, run_batching, run_tasks
from altneu.pipeline.tasks.base import PlannedRun
from tests import home_helpers
from tests.ledger_only import LedgerOnly

Load = Callable[..., dict[str, Any]]
BEFORE_PUBLISH = [stage.name for stage in stages.STAGES if stage.before_publish]
DAY = datetime(2004, 4, 15, tzinfo=UTC)


def up(*pairs: tuple[int, int]) -> list[tuple[int, int, None, str, int]]:
    return [(src, dst, None, "upsert", 0) for src, dst in pairs]


def begun(ledger: Ledger, epoch: int) -> PlannedRun:
    """A run of an epoch, begun whatever others are under way: by another Airflow, say."""
    planned = run_tasks.begin_run(ledger, planning.plan_epochs(ledger, [epoch]), base.ignore_message)
    assert planned is not None
    return planned


@pytest.fixture
def tiny(tmp_path: Path) -> tuple[Home, Ledger, int]:
    """A triangle on the first day, a fourth vertex that closes another one on the second."""
    home, ledger = home_helpers.make(tmp_path / "home", '[epochs]\nevery = "1d"\n')
    first = home.schedule.epoch_of(DAY)
    home_helpers.put(home, first, up((1, 2), (2, 3), (1, 3)))
    home_helpers.put(home, first + 1, up((3, 4), (2, 4)))
    return home, ledger, first


def test_a_real_day_is_published_once_its_poisoned_file_is_gone(
    spark: SparkSession, airflow: None, load: Load, tiny: tuple[Home, Ledger, int]
) -> None:
    home, ledger, first = tiny
    poisoned = home.landing / "epoch=2004-04-15" / "more.csv.gz"
    poisoned.write_bytes(b"no gzip at all")
    errors: list[str] = []
    dag = load(home.path)["altneu_epoch"]
    dag.get_task("ingest").on_failure_callback = [lambda context: errors.append(str(context["exception"]))]
    run = dag.test(logical_date=DAY)
    assert (run.state, states(run)["ingest"], states(run)["publish"]) == ("failed", "failed", "upstream_failed")
    assert "more.csv.gz" in errors[0] and "next: " in errors[0]
    assert ledger.revisions.get().revision == 0

    poisoned.unlink()
    run = load(home.path)["altneu_epoch"].test(logical_date=DAY)
    assert run.state == "success"
    assert set(states(run).values()) == {"success"}
    assert ledger.revisions.get().frontier == first
    assert [row["triangles"] for row in views.select_totals(ledger, all_epochs=True)] == [1]
    audit = list_epoch_statuses(ledger, ledger.revisions.get()).status_of(first).audit
    assert audit and (audit.verdict, audit.revision) == ("equal", 1)


def test_by_parameter_and_after_a_new_landing(
    ledger_only: LedgerOnly, airflow: None, load: Load, tiny: tuple[Home, Ledger, int]
) -> None:
    home, ledger, first = tiny

    def go(**how: Any) -> Any:
        return load(home.path)["altneu_epoch"].test(**how)

    assert skipped(go(logical_date=None, run_conf={"epoch": "2004-04-15"})) == set()
    assert sorted(ledger.outputs.published_batches()) == [first]
    assert skipped(go(logical_date=DAY)) == AFTER_LANDED
    home_helpers.put(home, first, up((1, 2), (2, 3)))
    assert skipped(go(logical_date=DAY)) == set()  # an edge less: other epochs
    assert ledger.revisions.get().revision == 2


def test_a_range_in_one_pass(
    ledger_only: LedgerOnly, airflow: None, load: Load, tiny: tuple[Home, Ledger, int]
) -> None:
    home, ledger, first = tiny

    def go(**conf: Any) -> Any:
        return load(home.path)["altneu_backfill"].test(logical_date=None, run_conf=conf)

    assert skipped(go()) == {"next"}
    assert (ledger.revisions.get().revision, sorted(ledger.outputs.published_batches())) == (1, [first, first + 1])
    assert skipped(go(first="2004-04-15", last=first)) == AFTER_PLAN | {"rest", "next"}
    assert skipped(go(first="2004-04-16", again=True)) == {"next", "epochs"}
    assert ledger.revisions.get().revision == 2


@pytest.mark.slow
def test_a_run_that_names_no_epoch_that_is_there_fails(
    ledger_only: LedgerOnly, airflow: None, load: Load, tiny: tuple[Home, Ledger, int]
) -> None:
    home, _, _ = tiny
    run = load(home.path)["altneu_epoch"].test(logical_date=None)  # no date and no parameter
    assert (run.state, states(run)["landed"]) == ("failed", "failed")
    run = load(home.path)["altneu_backfill"].test(logical_date=None, run_conf={"first": "2004-05-01"})
    assert (run.state, states(run)["plan"]) == ("failed", "failed")


def test_a_large_range_goes_in_parts(tiny: tuple[Home, Ledger, int]) -> None:
    """Each run takes what `max_revision_mb` allows and names the rest, until there is none."""
    home, ledger, first = tiny
    file = home.path / "altneu.toml"
    file.write_text(file.read_text() + "[ingest]\nmax_revision_mb = 0.00001\n")
    planned = run_tasks.plan_range(str(home.path), "2004-04-15", None, True)
    assert planned is not None and list(ledger.runs.get(planned["run_id"]).epochs) == [first]
    assert planned["rest"] == {"first": "2004-04-16", "last": None, "again": True, "accept": False}
    planned = run_tasks.plan_range(str(home.path), *planned["rest"].values())
    assert planned is not None and "rest" not in planned
    assert list(ledger.runs.get(planned["run_id"]).epochs) == [first + 1]


@pytest.mark.slow  # test_waiting_for_the_landing has gaps, test_by_parameter_and_after_a_new_landing what is skipped
def test_a_gap_of_the_history_is_skipped(
    ledger_only: LedgerOnly, airflow: None, load: Load, tiny: tuple[Home, Ledger, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, _, _ = tiny
    look = dag_epochs.check_landing
    scheduled = lambda *a, **k: look(*a, **{**k, "manual": False})  # noqa: E731
    monkeypatch.setattr(dag_epochs, "check_landing", scheduled)
    run = load(home.path)["altneu_epoch"].test(logical_date=DAY - timedelta(days=1))
    assert run.state == "success"
    assert skipped(run) == AFTER_LANDED  # all at once, the report too: its task would run although all else is skipped


def test_a_run_waits_for_its_landing(
    ledger_only: LedgerOnly, airflow: None, load: Load, tiny: tuple[Home, Ledger, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deferred until the folder comes: the trigger lands it at its second look, as another process would."""
    home, ledger, first = tiny
    looks: list[str] = []
    look = dag_epochs.check_landing

    def landing(*args: Any, **kwargs: Any) -> dag_epochs.LandingState:
        found = look(*args, **kwargs)
        looks.append(found.state)
        if len(looks) == 2:
            home_helpers.put(home, first + 2, up((1, 4)))
        return found

    monkeypatch.setattr(dag_epochs, "check_landing", landing)
    dag = load(home.path)["altneu_epoch"]
    dag.get_task("landed").interval = 0.01
    run = dag.test(logical_date=DAY + timedelta(days=2))
    assert run.state == "success" and skipped(run) == set()
    assert looks == ["waiting", "waiting", "landed"]
    assert sorted(ledger.outputs.published_batches()) == [first + 2]


def test_the_trigger_says_what_it_found(tiny: tuple[Home, Ledger, int]) -> None:
    import asyncio

    from altneu.pipeline.scheduling.landing_sensor import LandingTrigger

    home, _, first = tiny

    def fired(epoch: int, **how: Any) -> dict[str, str]:
        asked: dict[str, Any] = {"patience": 86_400.0, "manual": True, "deadline": 0.0, "interval": 0.01} | how
        name, kwargs = LandingTrigger(home=str(home.path), epoch=epoch, **asked).serialize()
        assert name == "altneu.pipeline.scheduling.landing_sensor.LandingTrigger"
        copy = LandingTrigger(**kwargs)  # as the triggerer makes it

        async def first_event() -> dict[str, str]:
            async for event in copy.run():
                return event.payload
            raise AssertionError

        return asyncio.run(first_event())

    assert fired(first)["state"] == "landed"
    assert fired(first + 2)["state"] == "late"
    assert fired(first - 1, manual=False)["state"] == "gap"
    (home.path / "altneu.toml").write_text("[epochs\n")
    assert fired(first)["state"] == "error" and "not TOML" in fired(first)["says"]


def test_what_lands_again_is_told_once_and_run_once(
    ledger_only: LedgerOnly, airflow: None, load: Load, tiny: tuple[Home, Ledger, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By batch: a second look, a restarted triggerer and a run that has failed publish nothing again."""
    import asyncio

    from altneu.pipeline.scheduling import relanded_trigger
    from altneu.pipeline.scheduling.relanded_trigger import RelandedTrigger

    monkeypatch.setattr(relanded_trigger, "LOOKS_UNTIL_REPORTED_AGAIN", 10**6)

    home, ledger, first = tiny
    home_helpers.run(ledger, [first])  # the second day is landed, not published: a new epoch is no correction

    def told(between: Callable[[], None] = lambda: None) -> list[list[str]]:
        """What a fresh triggerer tells in twelve looks, of which the last nine come after `between`."""
        looks, over, look_at = count(1), threading.Event(), maintenance.list_corrected

        def corrected(path: str) -> dict[str, str]:
            look = next(looks)
            if look == 4:
                between()
            elif look > 12:
                over.set()
            return look_at(path)

        name, kwargs = RelandedTrigger(str(home.path), interval=0.01).serialize()
        assert name == "altneu.pipeline.scheduling.relanded_trigger.RelandedTrigger"
        heard: list[list[str]] = []

        async def listen() -> None:
            async for event in RelandedTrigger(**kwargs).run():
                heard.append(event.payload["epochs"])

        async def some_looks() -> None:
            task = asyncio.create_task(listen())
            await asyncio.to_thread(over.wait)
            task.cancel()

        with monkeypatch.context() as patch:
            patch.setattr(maintenance, "list_corrected", corrected)
            asyncio.run(some_looks())
        return heard

    assert told() == []
    assert told(lambda: home_helpers.put(home, first, up((1, 2), (2, 3)))) == [["2004-04-15"]]
    assert told() == [["2004-04-15"]]  # not lost by a restart
    monkeypatch.setattr(relanded_trigger, "LOOKS_UNTIL_REPORTED_AGAIN", 5)
    assert len(told()) > 1 and set(map(tuple, told())) == {("2004-04-15",)}  # nor by an event that Airflow has lost
    monkeypatch.setattr(relanded_trigger, "LOOKS_UNTIL_REPORTED_AGAIN", 10**6)

    def go() -> Any:
        return load(home.path)["altneu_relanded"].test(logical_date=None)

    assert skipped(go()) == set()
    assert (ledger.revisions.get().revision, sorted(ledger.outputs.published_batches()), told()) == (2, [first], [])
    assert skipped(go()) == AFTER_PLAN and ledger.revisions.get().revision == 2
    home_helpers.put(home, first, up((1, 2)))
    run = run_tasks.plan_corrected(str(home.path))
    assert run is not None and told() == []  # it is at work
    ledger.runs.finish(run["run_id"], "failed", "ingest: a broken file")
    assert told() == [] and run_tasks.plan_corrected(str(home.path)) is None
    (home.path / "altneu.toml").write_text("[epochs\n")
    assert told(lambda: (home.path / "altneu.toml").write_text('[epochs]\nevery = "1d"\n') and None) == []


@pytest.mark.slow
def test_two_real_interleaved_runs_end_equal(spark: SparkSession, tiny: tuple[Home, Ledger, int]) -> None:
    home, ledger, _ = tiny
    interleave(tiny)
    assert [row["triangles"] for row in views.select_totals(ledger, all_epochs=True)] == [1, 2]
    assert maintenance.full_audit(str(home.path), 0, "")["epochs"] == 2
    assert maintenance.full_audit(str(home.path), 0, "", named=["2004-04-16"])["epochs"] == 1
    facts = maintenance.compact_home(str(home.path), 0)
    assert facts["revisions"][1] == ledger.revisions.get().revision
    assert branches(home, spark) == ["main"]  # whatever failed runs had left has gone


def branches(home: Home, spark: SparkSession) -> list[str]:
    from altneu.pipeline.storage.warehouse import Warehouse

    query = f"SELECT name FROM {Warehouse(spark, home).table_name('edges')}.refs"
    return sorted(home_helpers.branches(row.name for row in spark.sql(query).collect()))


def test_two_interleaved_runs_end_published(ledger_only: LedgerOnly, tiny: tuple[Home, Ledger, int]) -> None:
    interleave(tiny)


def interleave(tiny: tuple[Home, Ledger, int]) -> None:
    """Both build on revision 0; whoever is second runs again on the first, in publish."""
    home, ledger, first = tiny
    path = str(home.path)
    one, two = begun(ledger, first), begun(ledger, first + 1)
    run_tasks.execute_stage_task(path, two, "ingest")
    for name in BEFORE_PUBLISH:
        run_tasks.execute_stage_task(path, one, name)
    run_tasks.execute_stage_task(path, two, "edges")
    assert run_tasks.publish_run(path, one)["reruns"] == 0

    # what two has still to do is not done in vain
    for name in ("triangles", "truss", "queries", "audit"):
        lines: list[str] = []
        says = "revision 1 was published since this run was planned: publish runs its epochs again on it"
        assert run_tasks.execute_stage_task(path, two, name, lines.append) == {"superseded": says}
        assert lines == [says]
    lines = []
    done = run_tasks.publish_run(path, two, lines.append)
    assert (done["revision"], done["reruns"], done["labels"]) == (2, 1, ["2004-04-16"])
    assert any("has the same epochs, on revision 1" in line for line in lines)

    # cleared and run again: nothing more is published
    assert run_tasks.publish_run(path, one)["revision"] == 1
    assert run_tasks.publish_run(path, two)["revision"] is None
    assert ledger.revisions.get().revision == 2
    states = [run.state for run in ledger.runs.list_all()]
    assert states == ["published", "superseded", "published"]


def test_a_conflict_at_the_last_moment(
    ledger_only: LedgerOnly, tiny: tuple[Home, Ledger, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other writer wins between our look at the ledger and our insert: the compare-and-swap finds it."""
    home, ledger, first = tiny
    path = str(home.path)
    ours = begun(ledger, first)
    for name in BEFORE_PUBLISH:
        run_tasks.execute_stage_task(path, ours, name)
    home_helpers.run(ledger, [first + 1])
    require = RunStore.require_newest_parent
    blind = [None]
    patched = lambda store, run_id: blind.pop() if blind else require(store, run_id)  # noqa: E731
    monkeypatch.setattr(RunStore, "require_newest_parent", patched)
    done = run_tasks.publish_run(path, ours)
    assert (done["revision"], done["reruns"]) == (2, 1)
    assert sorted(ledger.outputs.published_batches()) == [first, first + 1]


def test_a_wider_pass_spares_the_rerun(ledger_only: LedgerOnly, tiny: tuple[Home, Ledger, int]) -> None:
    home, ledger, first = tiny
    path = str(home.path)
    one = begun(ledger, first)
    home_helpers.run(ledger, [first, first + 1])
    done = run_tasks.publish_run(path, one)
    assert done["revision"] is None
    assert ledger.revisions.get().revision == 1


AFTER_PLAN = {"ingest", "edges", "triangles", "truss", "queries", "audit", "approve", "publish"}
AFTER_PLAN |= {"assets", "epochs", "warnings", "report"}
AFTER_LANDED = {"plan"} | AFTER_PLAN


def skipped(run: Any) -> set[str]:
    return {task for task, state in states(run).items() if state == "skipped"}


def states(run: Any) -> dict[str, str]:
    return {ti.task_id: str(ti.state) for ti in run.get_task_instances()}


# -- without Spark -------------------------------------------------------------------------------------------


def test_which_epoch(tiny: tuple[Home, Ledger, int]) -> None:
    home, _, first = tiny
    path = str(home.path)
    noon, yesterday = DAY + timedelta(hours=12), DAY - timedelta(days=1)
    assert dag_epochs.epoch_of(path, None, DAY, DAY, manual=False) == first
    assert dag_epochs.epoch_of(path, None, DAY, yesterday, manual=True) == first
    assert dag_epochs.epoch_of(path, None, noon, yesterday, manual=True) == first - 1
    assert dag_epochs.epoch_of(path, "2004-04-17", DAY, DAY, manual=True) == first + 2
    assert dag_epochs.epoch_of(path, first, None, None, manual=True) == first
    # of a schedule or a backfill the date decides; to ask for another epoch is a mistake
    assert dag_epochs.epoch_of(path, "2004-04-15", DAY, DAY, manual=False) == first
    with pytest.raises(UsageError, match=r"its date, 2004-04-15, .* asks for 2004-04-16"):
        dag_epochs.epoch_of(path, "2004-04-16", DAY, DAY, manual=False)
    # by hand, for now, on a history that has ended
    with pytest.raises(UsageError, match=r"2004-04-16; the schedule has ended with 2004-04-15"):
        dag_epochs.epoch_of(path, None, noon, DAY + timedelta(days=1), manual=True, until=DAY)
    assert dag_epochs.epoch_of(path, "2004-04-16", noon, noon, manual=True, until=DAY) == first + 1
    with pytest.raises(UsageError, match="no logical date"):
        dag_epochs.epoch_of(path, None, None, None, manual=True)
    with pytest.raises(UsageError, match="neither an integer nor a date"):
        dag_epochs.epoch_of(path, "soon", DAY, DAY, manual=True)


@pytest.mark.parametrize(
    ("named", "found"),
    [
        (["2004-04-15"], ["2004-04-15"]),
        (["2004-04-15..2004-05-01"], ["2004-04-15", "2004-04-16"]),
        (["2004-04-16", " 2004-04-15 … 2004-04-15 "], ["2004-04-15", "2004-04-16"]),
        (["12523"], ["2004-04-15"]),
        ([12523], ["2004-04-15"]),
        (["2004-04-16..2004-04-15"], "no epoch is published in the range"),
        (["2004-05-01..2004-05-02"], "no epoch is published in the range"),
        (["2004-04-17"], "after the frontier"),
        (["2004-04-14"], "a compaction has folded it"),
        (["soon"], "neither an integer nor a date"),
        (["2004-04-15.."], "neither an integer nor a date"),
    ],
)
def test_which_epochs_a_full_audit_takes(tiny: tuple[Home, Ledger, int], named: list[Any], found: Any) -> None:
    home, _, first = tiny
    revision = replace(EMPTY, revision=1, frontier=first + 1, since=first)

    def taken() -> list[str]:
        epochs = maintenance.named_epochs(home, revision, [first, first + 1], named)
        return [home.schedule.format_label(epoch) for epoch in epochs]

    if isinstance(found, list):
        assert taken() == found
    else:
        with pytest.raises(UsageError, match=found):
            taken()


def test_a_full_audit_of_named_epochs_before_anything_is_published(tiny: tuple[Home, Ledger, int]) -> None:
    home, _, _ = tiny
    assert maintenance.full_audit(str(home.path), 0, "")["epochs"] == 0
    with pytest.raises(UsageError, match="after the frontier"):
        maintenance.full_audit(str(home.path), 0, "", named=["2004-04-15"])


def test_integer_epochs_must_be_named(tmp_path: Path) -> None:
    home_helpers.make(tmp_path, "")
    assert dag_epochs.epoch_of(str(tmp_path), "7", DAY, DAY, manual=True) == 7
    with pytest.raises(UsageError, match="must name its epoch"):
        dag_epochs.epoch_of(str(tmp_path), None, DAY, DAY, manual=True)


def test_waiting_for_the_landing(tiny: tuple[Home, Ledger, int]) -> None:
    home, _, first = tiny
    path, day = str(home.path), timedelta(days=1)

    def look(epoch: int, manual: bool = False, now: datetime = DAY + 30 * day) -> dag_epochs.LandingState:
        return dag_epochs.check_landing(path, epoch, patience=day, manual=manual, now=now)

    assert look(first).state == "landed"
    late = look(first + 2)
    assert (late.state, late.label) == ("waiting", "2004-04-17")
    assert "waiting for epoch 2004-04-17" in late.says and "epoch=2004-04-17" in late.says
    assert "the newest landed is 2004-04-16" in late.says
    # before the first landed one: a gap of the history, unless somebody asked for it or it has just ended
    assert look(first - 1).state == "gap"
    assert look(first - 1, manual=True).state == "waiting"
    assert look(first - 1, now=DAY + timedelta(hours=23)).state == "waiting"


def test_an_epoch_whose_folder_has_gone_stays_published(
    ledger_only: LedgerOnly, tiny: tuple[Home, Ledger, int]
) -> None:
    home, ledger, first = tiny
    home_helpers.run(ledger, [first])
    shutil.rmtree(home.landing / "epoch=2004-04-15")
    lines: list[str] = []
    assert dag_epochs.check_landing(str(home.path), first, patience=timedelta(), manual=False).state == "landed"
    assert run_batching.plan_epoch(str(home.path), first, lines.append) is None
    assert "altneu run 2004-04-15 --remove" in lines[0]


def test_errors_say_what_to_type() -> None:
    usage = UsageError("epoch 7 is not landed.", "altneu land FILE")
    assert base.format_error(usage) == "epoch 7 is not landed.\nnext: altneu land FILE"
