"""A person decides in Airflow: the task `approve` asks as Airflow asks, and is answered as its page answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.errors import RunFailed
from pipeline.home.directory import Home
from pipeline.home.settings import Publish
from pipeline.run import planning, runner
from pipeline.state.ledger import Ledger
from pipeline.state.records import RunState
from pipeline.tasks import orchestration
from tests import homes

from .test_epoch import DAY, light, states, tiny, up

__all__ = ["light", "tiny"]
Load = Callable[..., dict[str, Any]]
Tiny = tuple[Home, Ledger, int]
ADA = SimpleNamespace(get_id=lambda: "1", get_name=lambda: "ada")


def asking(home: Home, approve: str = "always") -> None:
    (home.path / "altneu.toml").write_text(f'[epochs]\nevery = "1d"\n[publish]\napprove = "{approve}"\n')


@contextmanager
def answers(*chosen: str, before: Callable[[], None] = lambda: None) -> Iterator[list[str]]:
    """Answer the questions that come up, one after the other, by the function behind Airflow's page; their texts.
    `before`: what happens before the first answer."""
    from airflow.api_fastapi.core_api.datamodels.hitl import UpdateHITLDetailPayload
    from airflow.api_fastapi.core_api.routes.public.hitl import update_hitl_detail
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    told: list[str] = []
    failed: list[BaseException] = []
    done = threading.Event()

    def answer() -> None:
        waiting = list(chosen)
        while waiting and not done.is_set():
            time.sleep(0.1)
            with create_session() as session:
                query = select(TaskInstance).where(
                    TaskInstance.task_id == "approve", TaskInstance.state == "awaiting_input"
                )
                for ti in session.scalars(query):
                    if ti.hitl_detail is None or ti.hitl_detail.response_received:
                        continue
                    if not told:
                        before()
                    told.append(ti.hitl_detail.body)
                    payload = UpdateHITLDetailPayload(
                        chosen_options=[waiting.pop(0)], params_input={"because": "looked at it"}
                    )
                    update_hitl_detail(ti.dag_id, ti.run_id, "approve", payload, ADA, session, ti.map_index)
                    break

    def guarded() -> None:
        try:
            answer()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        done.set()
        thread.join(20)
    assert not failed, failed


def test_nothing_is_asked_where_nothing_has_to_be_approved(light: None, airflow: None, load: Load, tiny: Tiny) -> None:
    home, ledger, _ = tiny
    asking(home, "on warning")
    run = load(home.path)["altneu_epoch"].test(logical_date=DAY)
    assert (run.state, states(run)["approve"], ledger.at().revision) == ("success", "success", 1)


def test_approved_and_rejected(light: None, airflow: None, load: Load, tiny: Tiny) -> None:
    home, ledger, first = tiny
    asking(home)
    with answers("Reject") as told:
        run = load(home.path)["altneu_epoch"].test(logical_date=DAY)
    assert (states(run)["approve"], states(run)["publish"], states(run)["assets"]) == ("success", "skipped", "skipped")
    (held,) = ledger.runs()
    assert (held.state, held.error) == (RunState.REJECTED, "rejected by ada: looked at it")
    assert ledger.at().revision == 0 and planning.plan(home, ledger, lambda epoch: True).run == (first, first + 1)
    assert f"altneu diff {held.run_id}" in told[0] and "/altneu/reports/epoch=2004-04-15.html" in told[0]

    with answers("Approve") as told:
        run = load(home.path)["altneu_epoch"].test(logical_date=DAY)
    assert (run.state, states(run)["publish"], ledger.at().revision, len(told)) == ("success", "success", 1, 1)
    said = ledger.approval(ledger.at().run_id)
    assert said is not None and said.words() == "approved by ada: looked at it"


def test_overtaken_it_is_asked_for_again(light: None, airflow: None, load: Load, tiny: Tiny) -> None:
    home, ledger, first = tiny
    asking(home)

    def another() -> None:
        by_command = Home(home.path, Home.open(home.path).config.model_copy(update={"publish": Publish()}))
        runner.run(by_command, ledger, planning.plan_epochs(by_command, ledger, [first + 1]))

    with answers("Approve", "Approve", before=another) as told:
        run = load(home.path)["altneu_epoch"].test(logical_date=DAY)
    assert (run.state, len(told), ledger.at().revision) == ("success", 2, 2)
    one, two = told
    assert one != two and ledger.at().run_id in two and sorted(ledger.batches()) == [first, first + 1]


def test_publish_does_not_publish_what_nobody_has_seen(light: None, tiny: Tiny) -> None:
    """Overtaken after the approval: computed again, held, and the task says what to do."""
    home, ledger, first = tiny
    asking(home)
    path = str(home.path)
    planned = orchestration.plan(path, [first])
    assert planned is not None
    for stage in (each.name for each in runner.STAGES if each.before_publish):
        orchestration.stage(path, planned, stage)
    held, question = orchestration.ask(path, planned, pages=False)
    assert question is not None and held == planned
    orchestration.decide(path, held, True, "ada", None)
    by_command = Home(home.path, Home.open(home.path).config.model_copy(update={"publish": Publish()}))
    runner.run(by_command, ledger, planning.plan_epochs(by_command, ledger, [first + 1]))
    with pytest.raises(RunFailed, match=r"computed again as run .*, which is held") as refused:
        orchestration.publish(path, held)
    assert ledger.at().revision == 1 and "clear the task approve" in str(refused.value.next)
    again, question = orchestration.ask(path, planned, pages=False)  # the task is cleared: the same run, no third one
    assert question is not None and again["run_id"] == ledger.held()[-1].run_id and len(ledger.held()) == 2
    orchestration.decide(path, again, True, "ada", None)
    assert orchestration.publish(path, again)["revision"] == 2


def test_decided_by_a_command_meanwhile(light: None, tiny: Tiny, tmp_path: Path) -> None:
    home, _, first = tiny
    asking(home)
    homes.put(home, first, up((1, 2), (2, 3)))
    path = str(home.path)
    planned = orchestration.plan(path, [first])
    assert planned is not None
    for stage in (each.name for each in runner.STAGES if each.before_publish):
        orchestration.stage(path, planned, stage)
    orchestration.ask(path, planned, pages=False)
    orchestration.decide(path, planned, False, "bob", None)  # as `altneu discard` does
    with pytest.raises(Exception, match="it was rejected by bob"):
        orchestration.decide(path, planned, True, "ada", None)
    with pytest.raises(RunFailed, match="it was rejected by bob"):
        orchestration.publish(path, planned)
