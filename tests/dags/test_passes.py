"""DAG runs of single epochs that go together: who begins a run, of which epochs, what the others do meanwhile and what
they say at the end. A real Airflow: `test_passes_real`, by `--all`."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from altneu.pipeline.errors import RunFailed, RunInProgress
from altneu.pipeline.home.home import Home
from altneu.pipeline.run import approval, planning, runner
from altneu.pipeline.run.run_context import RunContext
from altneu.pipeline.run.stages import ingest as ingest_stage
from altneu.pipeline.state import clock, process_identity, runs
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import RunState
from altneu.pipeline.tasks import base, run_batching, run_tasks
from altneu.pipeline.tasks.base import PlannedRun
from tests import home_helpers
from tests.ledger_only import LedgerOnly
from tests.postgres import DATABASE_KINDS

from .test_epoch import AFTER_PLAN, BEFORE_PUBLISH, DAY, begun, skipped, up

Load = Callable[..., dict[str, Any]]
DAYS = 6


@pytest.fixture
def week(tmp_path: Path) -> tuple[Home, Ledger, int]:
    """Six days, nothing published."""
    home, ledger = home_helpers.make(tmp_path / "home", '[epochs]\nevery = "1d"\n')
    first = home.schedule.epoch_of(DAY)
    for day in range(DAYS):
        home_helpers.put(home, first + day, up((1, 2 + day), (2 + day, 30)))
    return home, ledger, first


Week = tuple[Home, Ledger, int]


def waiting(home: Home, epochs: Iterable[int]) -> run_batching.Count:
    """Airflow, when these epochs have DAG runs that wait or run."""
    dates = {home.schedule.start_of(epoch) for epoch in epochs}
    return lambda asked: len(dates & set(asked))


def plan(home: Home, epoch: int, others: Iterable[int] | None = (), **how: Any) -> tuple[PlannedRun | None, str]:
    """What the task does, and its log. `others`: the epochs of the other DAG runs; None: a run by hand."""
    lines: list[str] = []
    count = None if others is None else waiting(home, others)
    return run_batching.plan_epoch(
        str(home.path), epoch, lines.append, count, **{"again": others is None} | how
    ), "\n".join(lines)


def epochs(ledger: Ledger, planned: PlannedRun) -> list[int]:
    return list(ledger.runs.get(planned["run_id"]).epochs)


def publish(home: Home, planned: PlannedRun) -> base.PublishedRun:
    for name in BEFORE_PUBLISH:
        run_tasks.execute_stage_task(str(home.path), planned, name)
    return run_tasks.publish_run(str(home.path), planned)


@pytest.mark.parametrize(
    ("own", "others", "toml", "taken"),
    [
        (0, None, "", [0]),  # by hand
        (0, [], "", [0]),
        (0, [1, 2, 3, 4, 5], "", [0, 1, 2, 3, 4, 5]),
        (5, [5, 4, 3, 0], "", [0, 3, 4, 5]),  # backwards, and epochs 1 and 2 have no DAG run
        (2, [3, 9], "", [2, 3]),  # 9 has not landed
        (4, [0, 1, 2], "[ingest]\nmax_revision_mb = 0.0001\n", [0, 4]),  # two files at most, of 42 bytes
        (4, [0, 1, 2], "[ingest]\nmax_revision_mb = 0.00001\n", [4]),  # its own one always
    ],
)
def test_whom_a_run_takes_along(
    ledger_only: LedgerOnly, week: Week, own: int, others: list[int] | None, toml: str, taken: list[int]
) -> None:
    home, ledger, first = week
    (home.path / "altneu.toml").write_text(f'[epochs]\nevery = "1d"\n{toml}')
    wait = None if others is None else [first + other for other in others]
    planned, said = plan(home, first + own, wait)
    assert planned is not None and epochs(ledger, planned) == [first + each for each in taken]
    assert ("own" in planned) is (len(taken) > 1) is ("other DAG runs" in said)
    assert sorted(base.skippable_epochs(ledger, planned)) == [first + each for each in taken if each != own]
    assert publish(home, planned)["revision"] == 1
    # each of the others finds its epoch published, and says by whom
    for each in taken:
        again, said = plan(home, first + each, wait)
        assert again is None and f"by run {planned['run_id']} as revision 1" in said
    assert ledger.revisions.get().revision == 1


def test_a_catch_up_takes_along_what_the_schedule_will_make_runs_for(
    ledger_only: LedgerOnly, week: Week, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of the catch-up plans six landed days: the first is published, the second plans, the third has a run that
    failed, and the last is not over, or is beyond the end of the schedule."""
    home, ledger, first = week
    start_of = home.schedule.start_of
    home_helpers.run(ledger, [first])
    every = waiting(home, range(first, first + 3))
    catch_up = run_batching.CatchUp(start_of(first + 1), None, every)
    monkeypatch.setattr(clock, "read_clock", lambda: start_of(first + 5) + timedelta(hours=23))
    planned, said = plan(home, first + 1, [], catch_up=catch_up)
    assert planned is not None and epochs(ledger, planned) == [first + 1, first + 3, first + 4]
    assert "with the epochs of 2 other DAG runs" in said
    monkeypatch.setattr(clock, "read_clock", lambda: datetime.now(UTC))
    ended = run_batching.CatchUp(start_of(first + 1), start_of(first + 3), every)
    for wanted, those in ((catch_up, {3, 4, 5}), (ended, {3})):
        dates = [start_of(first + day) for day in range(DAYS)]
        assert wanted.dates_to_come(dates) == {dates[day] for day in those}


def test_a_pass_has_a_maximum(ledger_only: LedgerOnly, week: Week, monkeypatch: pytest.MonkeyPatch) -> None:
    home, ledger, first = week
    monkeypatch.setattr(run_batching, "MAX_EPOCHS", 3)
    planned, _ = plan(home, first + 5, range(first, first + DAYS))
    assert planned is not None and epochs(ledger, planned) == [first, first + 1, first + 5]


def test_only_what_is_missing_or_changed_is_taken_along(ledger_only: LedgerOnly, week: Week) -> None:
    home, ledger, first = week
    home_helpers.run(ledger, [first + 1, first + 2])
    home_helpers.put(home, first + 2, up((7, 8)))
    planned, _ = plan(home, first, range(first, first + 4))
    assert planned is not None and epochs(ledger, planned) == [first, first + 2, first + 3]


@pytest.mark.parametrize("many", [0, 1, 7, 99, 100, 101, 250])
def test_which_dates_have_a_run_is_found_by_counts(many: int) -> None:
    """One question names at most a hundred dates; a block of dates takes some seven more."""
    dates = [DAY + timedelta(days=day) for day in range(250)]
    for wanted in (set(dates[:many]), set(dates[-many:]) if many else set(), set(dates[:many:3])):
        asked: list[int] = []

        def count(some: Sequence[datetime], wanted: set[datetime] = wanted, asked: list[int] = asked) -> int:
            asked.append(len(some))
            return len(wanted & set(some))

        assert run_batching.dates_with_runs(dates, count) == wanted
        assert max(asked) <= 100
        if wanted != set(dates[:many:3]):
            assert len(asked) <= 20


# -- meanwhile ----------------------------------------------------------------------------------------------------


def test_while_a_run_is_at_work_no_other_begins(ledger_only: LedgerOnly, week: Week) -> None:
    """Whatever its epochs are; a compaction disturbs nobody."""
    home, ledger, first = week
    ledger.runs.create("compact", 0, epochs=[], config={}, kind=planning.RunKind("compact"))
    leader, _ = plan(home, first, [first + 1])
    assert leader is not None
    for epoch, others in ((first + 1, [first]), (first + 3, []), (first + 3, None)):
        with pytest.raises(RunInProgress, match=f"run {leader['run_id']} of 2 epoch.* is in progress") as refused:
            plan(home, epoch, others)
        assert refused.value.run_id == leader["run_id"]
        assert run_batching.poll_run(str(home.path), refused.value.run_id, 60)[0] == "waiting"
    assert [run.run_id for run in ledger.runs.list_all() if run.state is RunState.RUNNING] == [
        "compact",
        leader["run_id"],
    ]
    publish(home, leader)
    assert run_batching.poll_run(str(home.path), leader["run_id"], 60) == (
        "over",
        f"run {leader['run_id']} is published",
    )
    assert plan(home, first + 1)[0] is None
    assert plan(home, first + 3)[0] is not None


@pytest.mark.parametrize("kind", DATABASE_KINDS)
def test_of_many_that_plan_at_once_one_begins(
    ledger_only: LedgerOnly, tmp_path: Path, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None has seen another at its first look, and each takes its time between the second look and the end."""
    look = runs._refuse_second_run

    def slowly(running: Iterable[Any]) -> None:
        seen = list(running)
        time.sleep(0.2)
        look(seen)

    monkeypatch.setattr(runs.RunStore, "refuse_concurrent", lambda store: None)
    monkeypatch.setattr(runs, "_refuse_second_run", slowly)
    toml = '[epochs]\nevery = "1d"\n'
    if kind == "postgresql":
        toml += f'[storage]\ndatabase = "{request.getfixturevalue("postgres")}"\n'
    home, ledger = home_helpers.make(tmp_path / "home", toml)
    first = home.schedule.epoch_of(DAY)
    for day in range(8):
        home_helpers.put(home, first + day, up((1, 2 + day)))
    base.open_ledger(str(home.path))
    together = threading.Barrier(8, timeout=60)

    def work(day: int) -> str:
        together.wait()
        try:
            planned, _ = plan(home, first + day, range(first, first + 8))
            return planned["run_id"] if planned else "nothing"
        except RunInProgress as other:
            return other.run_id

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(work, range(8)))
    (run,) = ledger.runs.list_all()
    assert found == {run.run_id} and len(run.epochs) == 8


def test_who_plans_while_another_publishes_plans_again(
    ledger_only: LedgerOnly, week: Week, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other has published between the look at the ledger and the begin: nothing is begun on the old revision."""
    home, ledger, first = week
    look = runs.RunStore.refuse_concurrent

    def and_then(self: runs.RunStore) -> None:
        look(self)
        monkeypatch.setattr(runs.RunStore, "refuse_concurrent", look)
        home_helpers.run(ledger, [first, first + 1])

    monkeypatch.setattr(runs.RunStore, "refuse_concurrent", and_then)
    with pytest.raises(RunInProgress, match="revision 1 was published meanwhile") as refused:
        plan(home, first, [first + 1])
    assert run_batching.poll_run(str(home.path), refused.value.run_id, 60)[0] == "over"
    assert plan(home, first)[0] is None and len(ledger.runs.list_all()) == 1


ENDS = {
    "killed": None,
    "failed": ("failed", "ingest: Spark is away"),
    "interrupted": ("interrupted", "interrupted during truss"),
}


@pytest.mark.parametrize("how", ENDS)
def test_when_the_leader_is_gone_another_does_the_work(
    ledger_only: LedgerOnly, week: Week, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    home, ledger, first = week
    every = range(first, first + DAYS)
    leader, _ = plan(home, first + 5, every)
    assert leader is not None
    run_tasks.execute_stage_task(str(home.path), leader, "ingest")
    end = ENDS[how]
    if end is None:
        later = clock.read_clock() + timedelta(seconds=process_identity.SILENCE + 1)
        monkeypatch.setattr(clock, "read_clock", lambda: later)
    else:
        ledger.runs.finish(leader["run_id"], RunState(end[0]), end[1])
    assert run_batching.poll_run(str(home.path), leader["run_id"], 60)[0] == "over"
    second, _ = plan(home, first + 4, every)
    assert second is not None and epochs(ledger, second) == list(every)
    assert publish(home, second)["revision"] == 1
    # the leader is tried again, where it was: it finds that all is published, and nothing is published twice
    assert "superseded" in run_tasks.execute_stage_task(str(home.path), leader, "edges")
    assert run_tasks.publish_run(str(home.path), leader)["revision"] is None
    assert plan(home, first + 5, every)[0] is None
    assert ledger.revisions.get().revision == 1 and sorted(ledger.outputs.published_batches()) == list(every)


def test_a_cleared_run_publishes_the_difference_and_takes_nobody_along_that_is_published(
    ledger_only: LedgerOnly, week: Week
) -> None:
    home, ledger, first = week
    every = range(first, first + DAYS)
    leader, _ = plan(home, first, every)
    assert leader is not None
    publish(home, leader)
    home_helpers.put(home, first + 2, up((7, 8)))
    cleared, _ = plan(home, first + 2, every, again=True)
    assert cleared is not None and epochs(ledger, cleared) == [first + 2]
    assert publish(home, cleared)["revision"] == 2
    assert plan(home, first, every, again=True)[1].count(f"by run {leader['run_id']} as revision 1") == 1


def test_the_trigger_says_when_the_other_run_is_over(ledger_only: LedgerOnly, week: Week) -> None:
    from altneu.pipeline.scheduling.plan_operator import RunTrigger

    home, ledger, first = week
    leader = begun(ledger, first)
    name, kwargs = RunTrigger(str(home.path), leader["run_id"], 60.0, 0.01).serialize()
    assert name == "altneu.pipeline.scheduling.plan_operator.RunTrigger"

    async def fired(**other: Any) -> dict[str, Any]:
        async for event in RunTrigger(**{**kwargs, **other}).run():
            return dict(event.payload)
        raise AssertionError

    async def both() -> dict[str, Any]:
        waiting = asyncio.create_task(fired())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        ledger.runs.finish(leader["run_id"], RunState.FAILED, "gone")
        return await waiting

    assert asyncio.run(both())["state"] == "over"
    assert asyncio.run(fired(run_id="never"))["state"] == "error"


def test_a_dag_run_waits_for_the_run_before_and_then_says_who_published(
    ledger_only: LedgerOnly, airflow: None, load: Load, week: Week, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, ledger, first = week
    leader, _ = plan(home, first, [first + 1])
    assert leader is not None
    looked = run_batching.poll_run
    looks: list[str] = []

    def look(path: str, run_id: str, patience: float) -> Any:
        looks.append(run_id)
        if len(looks) == 2:
            publish(home, leader)
        return looked(path, run_id, patience)

    monkeypatch.setattr(run_batching, "poll_run", look)
    dag = load(home.path)["altneu_epoch"]
    dag.get_task("plan").interval = 0.01
    run = dag.test(logical_date=DAY + timedelta(days=1))
    assert run.state == "success" and skipped(run) == AFTER_PLAN
    assert looks == [leader["run_id"]] * len(looks) and len(looks) >= 2
    assert ledger.revisions.get().revision == 1


# -- a person decides ---------------------------------------------------------------------------------------------


def ask(home: Home, epoch: int, every: Iterable[int], **how: Any) -> PlannedRun:
    (home.path / "altneu.toml").write_text('[epochs]\nevery = "1d"\n[publish]\napprove = "always"\n')
    planned, _ = plan(home, epoch, every, **how)
    assert planned is not None
    for name in BEFORE_PUBLISH:
        run_tasks.execute_stage_task(str(home.path), planned, name)
    assert run_tasks.request_approval(str(home.path), planned, pages=False)[1] is not None
    return planned


def test_a_person_is_asked_once_for_all(ledger_only: LedgerOnly, week: Week) -> None:
    home, ledger, first = week
    every = range(first, first + 3)
    planned = ask(home, first, every)
    with pytest.raises(RunInProgress, match="which has epoch 2004-04-16, is held until somebody decides") as held_up:
        plan(home, first + 1, every)
    look = run_batching.poll_run(str(home.path), held_up.value.run_id, 60)
    assert look[0] == "waiting" and "held until somebody decides" in look[1]
    assert run_batching.poll_run(str(home.path), held_up.value.run_id, -1)[0] == "late"
    run_tasks.record_decision(str(home.path), planned, approved=True, person="ada", because=None)
    assert run_tasks.publish_run(str(home.path), planned)["revision"] == 1
    assert f"by run {planned['run_id']} as revision 1" in plan(home, first + 1, every)[1]
    assert len(ledger.runs.list_all()) == 1


@pytest.mark.parametrize("then", ["nothing", "landed again", "cleared", "another revision"])
def test_what_a_person_has_rejected_is_not_asked_again_by_the_others(
    ledger_only: LedgerOnly, week: Week, then: str
) -> None:
    home, ledger, first = week
    every = range(first, first + 3)
    planned = ask(home, first, every)
    run_tasks.record_decision(str(home.path), planned, approved=False, person="ada", because="half is missing")
    if then == "landed again":
        home_helpers.put(home, first + 1, up((7, 8)))
    if then == "another revision":
        by_command = Home(home.path, home.config.model_copy(update={"publish": Home.open(home.path).config.publish}))
        row = home_helpers.hold(Ledger(by_command), [first + 5])
        approval.approve_run(Ledger(by_command), row, None, None)
        runner.publish_held_run(Ledger(by_command), row.run_id)
    again, said = plan(home, first + 1, every, again=then == "cleared")
    if then == "nothing":
        assert again is None and f"run {planned['run_id']}, which had epoch 2004-04-16, was rejected by ada" in said
        assert "next: clear this whole run" in said
    else:
        assert again is not None and first + 1 in epochs(ledger, again)


# -- an epoch whose batch is wrong --------------------------------------------------------------------------------


def wrong_at(monkeypatch: pytest.MonkeyPatch, *bad: int) -> None:
    """An ingest that finds these batches wrong."""
    from altneu.pipeline.run.stages import ingest

    before = ingest.ingest

    def work(run: RunContext) -> Any:
        wrong = {e: RunFailed(f"landing/{e}: broken. Nothing was published.", "fix it") for e in run.epochs if e in bad}
        if wrong:
            run.exclude_epochs(wrong)
        return before(run)

    monkeypatch.setattr(ingest_stage, "ingest", work)


ALWAYS = ((0, [0]), (1, [0]), (2, []), (3, [1, 2]), (0, [0, 1, 2, 3]))


@pytest.mark.parametrize(
    ("own", "bad"),
    [
        (own, bad) if (own, bad) in ALWAYS else pytest.param(own, bad, marks=pytest.mark.slow)
        for bad in ([], [0], [3], [1, 2], [0, 1, 2, 3])
        for own in range(4)
    ],
    ids=str,
)
def test_the_others_are_published_and_what_is_wrong_fails_by_itself(
    ledger_only: LedgerOnly, week: Week, monkeypatch: pytest.MonkeyPatch, own: int, bad: list[int]
) -> None:
    """As Airflow does it: every DAG run plans when the one before is over, the first of them `own`."""
    home, ledger, first = week
    wrong_at(monkeypatch, *(first + day for day in bad))
    open_ = {first + day for day in range(4)}
    failed: dict[int, str] = {}
    for day in [own, *(day for day in range(4) if day != own)]:
        epoch = first + day
        planned, said = plan(home, epoch, open_)
        if planned is None:
            assert "published as landed, by run" in said
        else:
            try:
                publish(home, planned)
            except RunFailed as error:
                failed[day] = error.what
                assert epochs(ledger, planned) == [epoch]  # its own, and no other's, is on record
        open_.discard(epoch)
    assert sorted(failed) == bad and all(f"landing/{first + day}" in said for day, said in failed.items())
    assert sorted(ledger.outputs.published_batches()) == [first + day for day in range(4) if day not in bad]
    assert ledger.revisions.get().revision == (len(bad) < 4)  # one revision for all that is good
    from altneu.pipeline.landing.epoch_states import list_epoch_rows

    states = {row["epoch"]: row["state"] for row in list_epoch_rows(ledger)[1]}
    assert [states[first + day] for day in range(4)] == ["failed" if d in bad else "published" for d in range(4)]


@pytest.mark.parametrize("asks", [False, True])
def test_a_leader_that_is_overtaken_does_not_fail_for_what_is_wrong_with_another(
    ledger_only: LedgerOnly, week: Week, monkeypatch: pytest.MonkeyPatch, asks: bool
) -> None:
    """The leader is killed before it has read the batches; another leads, without the broken one; the leader is tried
    again. Its own epoch is published: that of the others is theirs to run, or to fail with."""
    home, ledger, first = week
    if asks:
        (home.path / "altneu.toml").write_text('[epochs]\nevery = "1d"\n[publish]\napprove = "always"\n')
    every = range(first, first + DAYS)
    leader, _ = plan(home, first + 5, every)
    assert leader is not None
    ledger.runs.finish(leader["run_id"], RunState.INTERRUPTED, "killed")
    wrong_at(monkeypatch, first + 2)
    second, _ = plan(home, first + 4, every)
    assert second is not None
    for name in BEFORE_PUBLISH:
        run_tasks.execute_stage_task(str(home.path), second, name)
    if asks:
        assert run_tasks.request_approval(str(home.path), second, pages=False)[1] is not None
        run_tasks.record_decision(str(home.path), second, approved=True, person="Ada", because=None)
    assert run_tasks.publish_run(str(home.path), second)["revision"] == 1
    runs = ledger.runs.list_all()
    assert "superseded" in run_tasks.execute_stage_task(str(home.path), leader, "ingest")
    if asks:
        assert run_tasks.request_approval(str(home.path), leader, pages=False) == (leader, None)
    assert run_tasks.publish_run(str(home.path), leader)["revision"] is None
    assert sorted(ledger.outputs.published_batches()) == [epoch for epoch in every if epoch != first + 2]
    assert len(ledger.runs.list_all()) == len(runs)


def test_what_was_left_out_is_shown_as_failed_at_once(
    ledger_only: LedgerOnly, week: Week, monkeypatch: pytest.MonkeyPatch
) -> None:
    from altneu.pipeline.landing.epoch_states import list_epoch_rows

    home, ledger, first = week
    wrong_at(monkeypatch, first + 1)
    planned, _ = plan(home, first, [first + 1])
    assert planned is not None
    done = publish(home, planned)
    assert (done["epochs"], done["labels"]) == ([first], ["2004-04-15"])
    shown = {row["epoch"]: (row["state"], row["error"]) for row in list_epoch_rows(ledger)[1]}
    assert shown[first][0] == "published"
    assert shown[first + 1] == ("failed", f"landing/{first + 1}: broken. Nothing was published.")
    # the process dies between two stages: the run goes on with what is left of it
    assert ledger.runs.get(planned["run_id"]).epochs == (first,)


def test_a_pass_whose_audit_fails_is_not_tried_again_as_one(
    ledger_only: LedgerOnly, week: Week, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose fault it is nobody knows: each of its epochs goes alone, and the others go together."""
    home, ledger, first = week
    planned, _ = plan(home, first, [first + 1, first + 2])
    assert planned is not None
    check = {"epoch": first + 1, "suite": "edges", "name": "no zero diffs", "severity": "critical", "passed": False}
    words = {"meaning": "", "remedy": "", "observed": "1 of 1 rows", "rows": []}
    ledger.checks.put(planned["run_id"], 1, [{**check, **words}])  # type: ignore[list-item, typeddict-item]
    ledger.runs.finish(planned["run_id"], RunState.FAILED, "audit: 1 critical check(s) failed")
    every = range(first, first + DAYS)
    alone, _ = plan(home, first + 2, every)
    assert alone is not None and epochs(ledger, alone) == [first + 2]
    publish(home, alone)
    others, _ = plan(home, first + 3, every)
    assert others is not None and epochs(ledger, others) == [first + 3, first + 4, first + 5]
    assert len(ledger.runs.list_all()) == 3
