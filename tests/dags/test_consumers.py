"""The tasks of a consumer, with an Airflow of plain dictionaries: what each policy does with a correction."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.test_delivery_cursors import ClaimWorld

MONDAY = 12_520  # 2004-04-12
EPOCH = "2004-04-12"


class Asked(BaseException):
    """The task waits for a person."""


class Store(dict[str, Any]):
    """The state store of an asset."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


class Run:
    """A run of the consumer `report`: `states` are those of all runs, by run and task."""

    def __init__(self, name: str, states: dict[str, dict[str, str]], store: Store, kind: str = "asset_triggered"):
        self.name, self.states, self.store, self.kind = name, states, store, kind
        self.xcoms: dict[str, Any] = {}
        states.setdefault(name, {})

    def context(self, task: str) -> dict[str, Any]:
        ti = SimpleNamespace(
            dag_id="report",
            run_id=self.name,
            task_id=task,
            xcom_push=lambda key, value: self.xcoms.update({key: value}),
            xcom_pull=lambda task_ids, key: self.xcoms[key],
            get_task_states=lambda dag_id, run_ids: {run: self.states.get(run, {}) for run in run_ids},
        )
        dag_run = SimpleNamespace(dag_id="report", partition_key=EPOCH, run_type=self.kind)
        stores = type("Stores", (), {"__getitem__": lambda _, asset: self.store})()
        return {"ti": ti, "dag_run": dag_run, "asset_state_store": stores, "task": SimpleNamespace()}


class Scene:
    """A home with a processed epoch, and the tasks of a consumer of it."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from altneu.pipeline.scheduling import consumers

        self.consumers, self.patch = consumers, monkeypatch
        self.world, self.states, self.store = ClaimWorld(path, '[epochs]\nevery = "1d"\n'), dict[str, Any](), Store()
        self.home = str(self.world.home.path)
        parent = consumers.ApprovalOperator
        monkeypatch.setattr(parent, "execute", self._wait)
        monkeypatch.setattr(parent, "execute_complete", lambda *_: None)
        self.approval = consumers.CorrectionApproval(home=self.home, unit="epochs", change=None)
        self.world.publish(MONDAY)
        first = self.run("first")
        assert self.find(first, "reprocess")["kind"] == "new"
        self.confirm(first)

    def _wait(self, *_: Any) -> None:
        raise Asked

    def run(self, name: str, kind: str = "asset_triggered") -> Run:
        return Run(name, self.states, self.store, kind)

    def find(self, run: Run, policy: str) -> Any:
        """The task `changes`; None: it waits for another run."""
        context = run.context("changes")
        self.patch.setattr(self.consumers, "get_current_context", lambda: context)
        policies = self.consumers.CorrectionPolicy
        found = self.consumers._find_changes(self.home, "epochs", policies(policy), context["asset_state_store"])
        if found.is_done:
            run.states[run.name]["changes"] = "success"
        return found.xcom_value

    def confirm(self, run: Run) -> None:
        run.states[run.name]["process"] = "success"
        self.consumers._confirm_change(self.home, "epochs", run.context("process"))

    def ask(self, run: Run, change: Any) -> Any:
        self.approval.change = change
        return self.approval.execute(run.context("approve"))

    def answer(self, run: Run, option: str) -> Any:
        return self.approval.execute_complete(run.context("approve"), {"chosen_options": [option]})


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path, monkeypatch)


def test_a_correction_waits_for_a_person_who_is_asked_again_when_it_grows(scene: Scene) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    scene.world.publish(MONDAY)
    asked = scene.run("asked")
    with pytest.raises(Asked):
        scene.ask(asked, scene.find(asked, "hold"))
    assert "| 2004-04-12 | corrected |" in scene.approval.body and "revisions 2 to 2" in scene.approval.body
    asked.states["asked"]["approve"] = "awaiting_input"
    scene.world.publish(MONDAY)
    with pytest.raises(AirflowSkipException):  # the run that waits takes it along
        scene.find(scene.run("later"), "hold")
    with pytest.raises(Asked):
        scene.answer(asked, "Approve")
    assert "revisions 2 to 3" in scene.approval.body
    change = scene.answer(asked, "Approve")
    assert (change["since"], change["revision"]) == (1, 3)
    scene.confirm(asked)
    with pytest.raises(AirflowSkipException):  # cleared
        scene.find(asked, "hold")


def test_a_rejected_correction_is_stale_and_in_the_next_one(scene: Scene) -> None:
    scene.world.publish(MONDAY)
    asked = scene.run("asked")
    with pytest.raises(Asked):
        scene.ask(asked, scene.find(asked, "hold"))
    scene.answer(asked, "Reject")
    assert scene.store == {f"stale {EPOCH}": {"since": 1, "revision": 2, "kind": "corrected", "ranges": EPOCH}}
    scene.world.publish(MONDAY)
    change = scene.find(scene.run("next"), "hold")
    assert (change["since"], change["revision"]) == (1, 3)


def test_what_is_stale_is_processed_by_hand(scene: Scene) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    for revision in (2, 3):
        scene.world.publish(MONDAY)
        with pytest.raises(AirflowSkipException, match="is stale"):
            scene.find(scene.run(f"of {revision}"), "mark stale")
        assert scene.store[f"stale {EPOCH}"]["revision"] == revision
    change = scene.find(scene.run("by hand", kind="manual"), "mark stale")
    assert (change["since"], change["revision"], change["by_hand"]) == (1, 3, True)
    assert scene.ask(scene.run("by hand"), change) == change, "whoever starts a run has decided"


def test_a_run_waits_for_the_one_that_processes_the_partition(scene: Scene) -> None:
    scene.world.publish(MONDAY)
    one, other = scene.run("one"), scene.run("other")
    assert scene.find(one, "reprocess")["revision"] == 2
    scene.world.publish(MONDAY)
    assert scene.find(other, "reprocess") is None
    one.states["one"]["process"] = "failed"
    change = scene.find(other, "reprocess")
    assert (change["since"], change["revision"]) == (1, 3)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({"changes": "success", "process": "success"}, "success"),
        ({"changes": "success", "process": "up_for_retry"}, "running"),
        ({"changes": "success"}, "running"),
        ({"changes": "success", "approve": "awaiting_input"}, "waiting"),
        ({"changes": "success", "process": "upstream_failed"}, None),
        ({"changes": "running"}, None),  # cleared: it claims again
        ({}, None),
    ],
)
def test_the_state_of_another_run(scene: Scene, states: dict[str, str], expected: str | None) -> None:
    run = scene.run("x")
    scene.states["x"] = states
    token = json.dumps(["report", "x", "process"])
    assert scene.consumers._read_run_state(run.context("changes")["ti"], token) == expected
