"""What the task `approve` asks and decides. A person's answer in a real Airflow: `test_approval_real`, by `--all`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from altneu.pipeline.errors import RunFailed
from altneu.pipeline.home.home import Home
from altneu.pipeline.home.settings import Publish
from altneu.pipeline.run import planning, runner
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.tasks import run_tasks
from tests import home_helpers
from tests.ledger_only import LedgerOnly

from .test_epoch import DAY, begun, states, tiny, up

__all__ = ["tiny"]
Load = Callable[..., dict[str, Any]]
Tiny = tuple[Home, Ledger, int]


def asking(home: Home, approve: str = "always") -> None:
    (home.path / "altneu.toml").write_text(f'[epochs]\nevery = "1d"\n[publish]\napprove = "{approve}"\n')


def test_nothing_is_asked_where_nothing_has_to_be_approved(
    ledger_only: LedgerOnly, airflow: None, load: Load, tiny: Tiny
) -> None:
    home, ledger, _ = tiny
    asking(home, "on warning")
    run = load(home.path)["altneu_epoch"].test(logical_date=DAY)
    assert (run.state, states(run)["approve"], ledger.revisions.get().revision) == ("success", "success", 1)


def test_publish_does_not_publish_what_nobody_has_seen(ledger_only: LedgerOnly, tiny: Tiny) -> None:
    """Overtaken after the approval: computed again, held, and the task says what to do."""
    home, ledger, first = tiny
    asking(home)
    path = str(home.path)
    planned = begun(ledger, first)
    for stage in (each.name for each in runner.STAGES if each.before_publish):
        run_tasks.execute_stage_task(path, planned, stage)
    held, question = run_tasks.request_approval(path, planned, pages=False)
    assert question is not None and held == planned
    run_tasks.record_decision(path, held, approved=True, person="ada", because=None)
    by_command = Home(home.path, Home.open(home.path).config.model_copy(update={"publish": Publish()}))
    runner.execute_run(Ledger(by_command), planning.plan_epochs(Ledger(by_command), [first + 1]))
    with pytest.raises(RunFailed, match=r"computed again as run .*, which is held") as refused:
        run_tasks.publish_run(path, held)
    assert ledger.revisions.get().revision == 1 and "clear the task approve" in str(refused.value.next)
    again, question = run_tasks.request_approval(
        path, planned, pages=False
    )  # the task is cleared: the same run, no third one
    assert (
        question is not None
        and again["run_id"] == ledger.runs.list_held()[-1].run_id
        and len(ledger.runs.list_held()) == 2
    )
    run_tasks.record_decision(path, again, approved=True, person="ada", because=None)
    assert run_tasks.publish_run(path, again)["revision"] == 2


def test_decided_by_a_command_meanwhile(ledger_only: LedgerOnly, tiny: Tiny, tmp_path: Path) -> None:
    home, ledger, first = tiny
    asking(home)
    home_helpers.put(home, first, up((1, 2), (2, 3)))
    path = str(home.path)
    planned = begun(ledger, first)
    for stage in (each.name for each in runner.STAGES if each.before_publish):
        run_tasks.execute_stage_task(path, planned, stage)
    run_tasks.request_approval(path, planned, pages=False)
    run_tasks.record_decision(path, planned, approved=False, person="bob", because=None)  # as `altneu discard` does
    with pytest.raises(Exception, match="it was rejected by bob"):
        run_tasks.record_decision(path, planned, approved=True, person="ada", because=None)
    with pytest.raises(RunFailed, match="it was rejected by bob"):
        run_tasks.publish_run(path, planned)


def test_nobody_decides_in_time(ledger_only: LedgerOnly, tiny: Tiny) -> None:
    """The task fails for good and says how to go on: the run stays held and can be decided later."""
    from airflow.sdk.exceptions import AirflowFailException

    from altneu.pipeline.scheduling.approval import Approval

    home, ledger, first = tiny
    asking(home)
    path = str(home.path)
    planned = begun(ledger, first)
    for stage in (each.name for each in runner.STAGES if each.before_publish):
        run_tasks.execute_stage_task(path, planned, stage)
    held, _ = run_tasks.request_approval(path, planned, pages=False)
    task = Approval(
        task_id="approve", home=path, planned=held, subject="Publish?", response_timeout=timedelta(hours=5), pages=False
    )
    context = {"ti": SimpleNamespace(xcom_pull=lambda **asked: held, dag_id="altneu_epoch", run_id="r")}
    event = {"error": "nobody", "error_type": "timeout"}
    with pytest.raises(AirflowFailException, match=f"within 5:00:00. Run {held['run_id']} stays held.*") as failed:
        task.execute_complete(context, event)
    assert f"next: altneu publish {held['run_id']}" in str(failed.value)
    assert ledger.revisions.get().revision == 0 and [run.run_id for run in ledger.runs.list_held()] == [held["run_id"]]
    run_tasks.record_decision(path, held, approved=True, person="ada", because="late, but right")
    assert run_tasks.publish_run(path, held)["revision"] == 1


def test_only_who_may_approve_does_and_the_difference_is_kept(
    ledger_only: LedgerOnly, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    from altneu.pipeline.scheduling.approval import Approval

    home, ledger, first = tiny
    rule = '{ when = "rows > 0", by = ["ada"] }'
    (home.path / "altneu.toml").write_text(f'[epochs]\nevery = "1d"\n[publish]\napprove = {rule}\n')
    path = str(home.path)
    planned = begun(ledger, first)
    for stage in (each.name for each in runner.STAGES if each.before_publish):
        run_tasks.execute_stage_task(path, planned, stage)
    held, question = run_tasks.request_approval(path, planned, pages=False)
    assert question is not None and "[publish] approve when rows > 0" in question["body"]
    markdown = run_tasks.describe_difference(path, held)
    title = f"### What readers would see change: revision 0 → run {held['run_id']}"
    assert markdown is not None and markdown.startswith(title)
    asked: list[str] = []
    task = Approval(task_id="approve", home=path, planned=held, subject="Publish?", pages=False)
    monkeypatch.setattr(task, "_request_approval", lambda context, planned: asked.append(planned["run_id"]))
    context = {"ti": SimpleNamespace(xcom_pull=lambda **asked: held, dag_id="altneu_epoch", run_id="r")}
    event = {"chosen_options": [task.APPROVE], "responded_by_user": {"id": "7", "name": "bob"}, "params_input": {}}
    task.execute_complete(context, event)
    assert asked == [held["run_id"]] and ledger.runs.list_held()
    assert run_tasks.may_decide(path, "bob", approved=False)
    by_id = {"id": "ada", "name": "Ada Lovelace"}  # the settings name her by her id
    event |= {"responded_by_user": by_id, "params_input": {"because": "it is so"}, "responded_at": datetime.now(UTC)}
    task.execute_complete(context, event)
    assert (decision := ledger.approvals.get(held["run_id"])) is not None and decision.person == "ada"
    assert run_tasks.publish_run(path, held)["revision"] == 1
    assert run_tasks.describe_difference(path, held) is None
