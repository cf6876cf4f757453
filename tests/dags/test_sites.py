"""Several homes in one Airflow: the DAGs of each, its settings, wrong ones, and that a run of one touches no other."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from altneu.pipeline.errors import UsageError
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import RunKind, StageState
from altneu.pipeline.state.stage_results import QueriesFacts, QueryRun
from tests import home_helpers
from tests.ledger_only import LedgerOnly

from .test_epoch import skipped, up
from .test_page import page

__all__ = ["page"]
Load = Callable[..., dict[str, Any]]
DAY = datetime(2004, 4, 15, tzinfo=UTC)
FILE = "# the DAGs for airflow\nfrom altneu.pipeline.scheduling.sites import make\n"


@pytest.fixture
def load_file(monkeypatch: pytest.MonkeyPatch, load: Load, tmp_path: Path) -> Iterator[Callable[[str], dict[str, Any]]]:
    """Return `load_file(text)`: it gives the DAGs of a file of one's own, beside those of the environment's home."""
    monkeypatch.setenv("ALTNEU_HOME", str(tmp_path / "own"))
    patch = pytest.MonkeyPatch()

    def parsed(text: str) -> dict[str, Any]:
        from airflow.dag_processing import dagbag

        folder = tmp_path / "dags"
        folder.mkdir(exist_ok=True)
        (folder / "mine.py").write_text(FILE + text)
        load(tmp_path / "own")  # and its modules are forgotten at the end
        bag = dagbag.DagBag(folder, bundle_path=folder, bundle_name="mine")
        patch.setattr(dagbag, "BundleDagBag", lambda **_: bag)
        return {"errors": "".join(bag.import_errors.values()), **bag.dags}

    yield parsed
    patch.undo()  # before `load` undoes its own


def test_each_home_has_its_dags_and_settings(
    load_file: Callable[[str], dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from altneu.pipeline.scheduling import sites

    home_helpers.make(tmp_path / "calls", '[epochs]\nevery = "12h"\n')
    home_helpers.make(tmp_path / "mails", '[epochs]\nevery = "7d"\n')
    extra = {"home": str(tmp_path / "mails"), "submit": "cluster", "wait_hours": "3", "pool": "others"}
    monkeypatch.setenv("AIRFLOW_CONN_ALTNEU_MAILS", json.dumps({"conn_type": "generic", "extra": extra}))
    dags = load_file(
        f'make("calls", home={str(tmp_path / "calls")!r}, start="2004-04-15")\n'
        'make("mails", connection="altneu_mails", wait_hours=5)\n'
    )
    assert dags.pop("errors") == ""
    assert set(dags) == {f"{prefix}_{name}" for prefix in ("calls", "mails") for name in sites.FILES}
    calls, mails = dags["calls_epoch"], dags["mails_epoch"]
    assert (calls.catchup, mails.catchup) == (True, False)
    assert calls.get_task("landed").home == str(tmp_path / "calls")
    assert [timedelta(seconds=dag.get_task("landed").patience) for dag in (calls, mails)] == [
        timedelta(hours=24),
        timedelta(hours=5),  # what the file says comes before the connection
    ]
    assert {dag.get_task("publish").pool for dag in (mails, dags["mails_backfill"])} == {"others"}
    assert {dag.get_task(task).pool for dag in (calls,) for task in ("audit", "approve", "publish")} == {
        "altneu_stages"
    }
    audit = mails.get_task("audit")
    assert type(audit).__name__ == "SubmittedStage" and audit.application_args[0] == extra["home"]
    assert [asset.uri for asset in calls.get_task("epochs").outlets] == ["altneu://calls/epochs"]
    assert dags["mails_backfill"].get_task("next").trigger_dag_id == "mails_backfill"
    told = dags["calls_backfill"].doc_md
    assert "`calls_epoch`" in told and "altneu_epoch" not in told and "/calls`" in told


def test_the_home_of_the_environment_is_as_before(load: Load, tmp_path: Path) -> None:
    from altneu.pipeline.scheduling import sites

    home_helpers.make(tmp_path, '[epochs]\nevery = "1d"\n')
    dags = load(tmp_path)
    assert set(dags) == {f"altneu_{name}" for name in sites.FILES}
    told = [asset for task in ("assets", "epochs") for asset in dags["altneu_epoch"].get_task(task).outlets]
    assert [(asset.name, asset.uri) for asset in told] == [
        (f"altneu_{name}", f"altneu://graph/{name}") for name in (*sites.TABLES, "epochs")
    ]
    assert "The home is" not in dags["altneu_epoch"].doc_md


def test_each_query_has_an_asset_that_is_updated_when_its_result_changed(load: Load, tmp_path: Path) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    from altneu.pipeline.scheduling import dag_builder
    from altneu.pipeline.tasks.base import PublishedRun

    home, ledger = home_helpers.make(tmp_path, '[epochs]\nevery = "1d"\n')
    (home.path / "queries").mkdir()
    for name in ("rings", "week"):
        (home.path / "queries" / f"{name}.sql").write_text("SELECT src FROM arcs")
    (task, asset) = load(tmp_path)["altneu_epoch"].get_task("query_rings"), "altneu://graph/query_rings"
    assert [each.uri for each in task.outlets] == [asset] and task.upstream_task_ids == {"publish"}
    run = "r1"
    ledger.runs.create(run, 0, epochs=[1], config={}, kind=RunKind.RUN)
    facts = QueriesFacts(queries={"rings": QueryRun(way="delta", rows=3), "week": QueryRun(way="nothing")})
    ledger.stages.record(run, "queries", StageState.DONE, 0.0, facts)
    published = PublishedRun(run_id=run, revision=1, epochs=[1], labels=["1970-01-02"], reruns=0)
    events: dict[Any, Any] = defaultdict(SimpleNamespace)
    dag_builder.query_asset.function(published, "rings", outlet_events=events)
    assert {each.uri: event.extra for each, event in events.items()} == {
        asset: {"revision": 1, "epochs": ["1970-01-02"], "rows": 3}
    }
    for name, other in (("week", published), ("rings", published | {"revision": None})):
        with pytest.raises(AirflowSkipException):
            dag_builder.query_asset.function(other, name, outlet_events=events)
    assert len(events) == 1


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ('make("calls")', "the home is missing"),
        ('make("calls", home="calls")', "not an absolute path"),
        ('make("two words", home="/calls")', "a prefix consists of letters"),
        ('make("calls", home="/calls", wait_hours="soon")', "not a number of hours"),
        ('make("calls", home="/calls", every="1d")', "there is no setting every"),
        ('make("calls", connection="nowhere")', "the connection nowhere cannot be read"),
    ],
)
def test_wrong_settings_are_an_import_error(
    airflow: None, load_file: Callable[[str], dict[str, Any]], call: str, says: str
) -> None:
    found = load_file(call)
    assert says in found["errors"] and set(found) == {"errors"}


def test_a_home_that_is_not_there_yet_has_its_dags(load_file: Callable[[str], dict[str, Any]], tmp_path: Path) -> None:
    dags = load_file(f'make("calls", home={str(tmp_path / "none")!r})')
    assert "until it is fixed" in dags["calls_epoch"].doc_md and dags["errors"] == ""


def test_the_environment_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    from altneu.pipeline.scheduling import sites

    monkeypatch.setenv("ALTNEU_WAIT_HOURS", "soon")
    with pytest.raises(UsageError, match="wait_hours = 'soon' is not a number"):
        sites.site_of_environment()


@pytest.mark.usefixtures("pages")
def test_a_run_of_one_home_touches_no_other(
    ledger_only: LedgerOnly,
    airflow: None,
    load_file: Callable[[str], dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    page: ModuleType,
) -> None:
    path = "airflow.dag_processing.bundles.local.LocalDagBundle"
    bundle = {"name": "mine", "classpath": path, "kwargs": {"path": str(tmp_path / "dags")}}
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps([bundle]))
    own, ledger = home_helpers.make(tmp_path / "own", '[epochs]\nevery = "1d"\n')
    calls, of_calls = home_helpers.make(tmp_path / "calls", '[epochs]\nevery = "1d"\n')
    first = calls.schedule.epoch_of(DAY)
    for home in (own, calls):
        home_helpers.put(home, first, up((1, 2), (2, 3), (1, 3)))
    dag = load_file(f'make("calls", home={str(calls.path)!r})')["calls_epoch"]
    for task in dag.tasks:
        task.retries = 0
    run = dag.test(logical_date=DAY)
    assert (run.state, skipped(run)) == ("success", set())
    assert (of_calls.revisions.get().revision, ledger.revisions.get().revision) == (1, 0)
    assert (calls.reports / "epoch=2004-04-15.html").is_file() and not own.reports.exists()
    assert Ledger(own).runs.list_all() == []
    assert (page.home_of("calls"), "calls" in page.sites()) == (str(calls.path), True)  # as Airflow has stored the DAG
