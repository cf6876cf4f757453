"""With Airflow's provider of OpenLineage the events of the tasks have the datasets, and runs are not told twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from altneu.pipeline.errors import CheckFailed
from altneu.pipeline.observability import openlineage
from altneu.pipeline.tasks import run_tasks
from altneu.pipeline.tasks.base import PlannedRun
from tests.report.seed import DAY, Seed, check
from tests.unit.test_lineage import SNAPSHOTS, publishes

Load = Callable[..., dict[str, Any]]


pytestmark = pytest.mark.needs("openlineage")


@pytest.fixture
def extracted(
    airflow: None, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Any, Any]]:
    """`extracted(task, state)`: executed with a published run, and what the provider's own extractor makes of it."""
    from airflow.providers.openlineage.extractors.manager import ExtractorManager
    from airflow.utils.state import TaskInstanceState

    from altneu.pipeline.scheduling.lineage import is_sending

    seed = Seed(tmp_path / "home")
    run_id = publishes(seed, check(DAY, "edges are unique"), check(DAY, "a < b", passed=False))
    planned = PlannedRun(run_id=run_id, label="2004-07-01", parent=0)

    def call(name: str, state: str = "success") -> tuple[Any, Any]:
        def done(*args: Any, **how: Any) -> Any:
            assert openlineage._by_tasks.get() is is_sending()
            if state == "failed":
                raise CheckFailed("it differs", "altneu audit")
            return {"run_id": run_id, "revision": 1, "epochs": [DAY], "labels": [], "reruns": 0}

        monkeypatch.setattr(run_tasks, "publish_run", done)
        monkeypatch.setattr(run_tasks, "execute_stage_task", done)
        task = load(seed.home.path)["altneu_epoch"].get_task(name)
        task.op_args = [planned]
        if state == "success":
            task.execute({})
        else:
            with pytest.raises(Exception, match="it differs"):
                task.execute({})
        run: Any = SimpleNamespace(run_id="r")
        return seed, ExtractorManager().extract_metadata(
            run, task, TaskInstanceState(state), SimpleNamespace(task=task)
        )

    return call


def names(datasets: Any) -> list[str]:
    return sorted(each.name.rpartition("/")[2] for each in datasets)


def test_the_tables_that_were_published(extracted: Callable[..., tuple[Any, Any]]) -> None:
    seed, found = extracted("publish")
    assert names(found.inputs) == ["landing"] and names(found.outputs) == sorted(SNAPSHOTS)
    edges = next(each for each in found.outputs if each.name.endswith("/edges"))
    assert (edges.namespace, edges.name) == ("file", f"{seed.home.warehouse}/graph/edges")
    assert edges.facets["version"].datasetVersion == str(SNAPSHOTS["edges"])
    assert edges.facets["symlinks"].identifiers[0].name == "graph.edges" and "columnLineage" in edges.facets


@pytest.mark.parametrize("state", ["success", "failed"])
def test_the_checks_are_assertions(extracted: Callable[..., tuple[Any, Any]], state: str) -> None:
    _, found = extracted("audit", state)
    (edges,) = found.inputs
    told = {each.assertion: each.success for each in edges.inputFacets["dataQualityAssertions"].assertions}
    assert told == {"edges are unique": True, "a < b": False} and found.outputs == []


@pytest.mark.parametrize(("name", "inputs"), [("ingest", ["landing"]), ("edges", []), ("truss", [])])
def test_what_other_stages_have_read(extracted: Callable[..., tuple[Any, Any]], name: str, inputs: list[str]) -> None:
    _, found = extracted(name)
    assert names(found.inputs) == inputs and found.outputs == []


@pytest.mark.parametrize("by_tasks", [True, False])
def test_a_run_is_not_told_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_tasks: bool) -> None:
    seed, sent = Seed(tmp_path / "home"), list[Any]()
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:1")
    monkeypatch.setattr(openlineage, "_send_events", sent.extend)
    with openlineage.send_by_tasks(by_tasks):
        openlineage.emit_run(seed.ledger, publishes(seed))
    assert len(sent) == (0 if by_tasks else 1)
    openlineage.emit_run(seed.ledger, publishes(seed))
    assert len(sent) == (1 if by_tasks else 2), "what is run by a command is told here"


def test_of_a_submission(extracted: Callable[..., tuple[Any, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    from altneu.pipeline.scheduling.spark_submit_operator import SubmittedStage

    seed, _ = extracted("publish")
    planned = json.dumps({"run_id": seed.ledger.revisions.get().run_id})
    task = SubmittedStage(task_id="publish", home=str(seed.home.path), stage="publish", planned=planned)
    assert names(task.get_openlineage_facets_on_complete(None).outputs) == sorted(SNAPSHOTS)
