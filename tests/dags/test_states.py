"""What a person sees in the grid: red where something is wrong, skipped where nothing was done, tasks in every run; and
what those who follow the assets get."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest
import sqlalchemy as sa
from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException

from altneu.pipeline.errors import CheckFailed, LeaseLost, RevisionConflict, UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.reading import views
from altneu.pipeline.run.run_context import RunContext
from altneu.pipeline.run.stages import audit as audit_stage
from altneu.pipeline.run.stages import edges as edges_stage
from altneu.pipeline.run.stages import ingest as ingest_stage
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.stage_results import AuditFacts
from altneu.pipeline.state.totals import MEASURES
from tests import home_helpers
from tests.ledger_only import LedgerOnly

from .test_epoch import DAY, begun, skipped, states, tiny, up
from .test_imports import STAGES

__all__ = ["tiny"]
Load = Callable[..., dict[str, Any]]
Tiny = tuple[Home, Ledger, int]
HISTORY = {"ALTNEU_START": "2004-04-15", "ALTNEU_END": "2004-04-16"}


def listed(run: Any) -> list[tuple[str | None, dict[str, Any]]]:
    """Of the asset events of a run the partition (None: of the tables' assets), and the extra."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        query = sa.select(AssetEvent).where(AssetEvent.source_run_id == run.run_id)
        return [(event.partition_key, event.extra) for event in session.scalars(query)]


def events(run: Any) -> list[dict[str, Any]]:
    """The extras of the events of the tables' assets, each once."""
    extras = [extra for partition, extra in listed(run) if partition is None]
    assert len(extras) % 5 == 0
    return [extra for number, extra in enumerate(extras) if extra not in extras[:number]]


def of_epochs(run: Any) -> dict[str, dict[str, Any]]:
    """Partition → the extra of its event."""
    return {partition: extra for partition, extra in listed(run) if partition is not None}


def test_a_run_by_hand_has_tasks_on_a_history_that_has_ended(
    ledger_only: LedgerOnly, airflow: None, load: Load, tiny: Tiny
) -> None:
    """The trigger form as it comes up: now, and no epoch. Green without a task it was."""
    home, ledger, first = tiny

    def go(**how: Any) -> tuple[Any, list[str]]:
        dag = load(home.path, **HISTORY)["altneu_epoch"]
        told: list[str] = []
        dag.get_task("landed").on_failure_callback = [lambda context: told.append(str(context["exception"]))]
        return dag.test(**how), told

    run, told = go(logical_date=datetime.now(UTC).replace(microsecond=0))
    assert (run.state, states(run)["landed"]) == ("failed", "failed")
    assert "the schedule has ended with 2004-04-16" in told[0] and '{"epoch": "2004-04-16"}' in told[0]
    run, _ = go(logical_date=datetime.now(UTC).replace(microsecond=1), run_conf={"epoch": "2004-04-15"})
    assert run.state == "success" and skipped(run) == set()
    weights = {ti.task_id: ti.priority_weight for ti in run.get_task_instances()}
    ordered = [weights[task] for task in STAGES]
    assert ordered == sorted(set(ordered))  # for the pool, who has come further goes first
    assert sorted(ledger.outputs.published_batches()) == [first]


@pytest.mark.slow
def test_a_run_by_hand_for_a_date_before_the_history_has_tasks(
    ledger_only: LedgerOnly, airflow: None, load: Load, tiny: Tiny
) -> None:
    home, ledger, first = tiny
    dag = load(home.path, **HISTORY)["altneu_epoch"]
    run = dag.test(logical_date=DAY - timedelta(days=400, hours=3), run_conf={"epoch": "2004-04-16"})
    assert run.state == "success" and skipped(run) == set()
    assert sorted(ledger.outputs.published_batches()) == [first + 1]


def overtaking(monkeypatch: pytest.MonkeyPatch, ledger: Ledger, epochs: list[int]) -> None:
    """Another run publishes these epochs while ours is in its edges stage."""
    before = edges_stage.derive_edges
    once = iter([True])

    def edges(run: RunContext) -> dict[str, Any]:
        if next(once, False):
            home_helpers.run(ledger, epochs)
        return before(run)

    monkeypatch.setattr(edges_stage, "derive_edges", edges)


def test_a_run_that_publishes_nothing_updates_no_asset(
    ledger_only: LedgerOnly, airflow: None, load: Load, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, ledger, first = tiny
    overtaking(monkeypatch, ledger, [first, first + 1])
    run = load(home.path)["altneu_epoch"].test(logical_date=DAY)
    assert run.state == "success"
    assert skipped(run) == {"triangles", "truss", "queries", "audit", "assets", "epochs"}
    assert listed(run) == []


def test_an_event_lists_the_epochs_that_its_run_has_published(
    ledger_only: LedgerOnly, airflow: None, load: Load, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were planned; another run published the first meanwhile."""
    home, ledger, first = tiny
    overtaking(monkeypatch, ledger, [first])
    run = load(home.path)["altneu_backfill"].test(logical_date=None)
    assert run.state == "success"
    assert skipped(run) == {"triangles", "truss", "queries", "audit", "next"}
    assert events(run) == [{"revision": 2, "epochs": ["2004-04-16"]}]
    ((partition, extra),) = of_epochs(run).items()
    change = extra["epochs"].pop(partition)
    assert (partition, extra, change["kind"], change["before"]) == (
        "2004-04-16",
        {"since": 1, "revision": 2, "frontier": "2004-04-16", "epochs": {}},
        "new",
        None,
    )
    (point,) = views.select_totals(ledger)
    assert change["after"] == {name: point[name] for name in MEASURES}


def test_a_warning_is_red_in_a_run_that_succeeds(
    ledger_only: LedgerOnly, airflow: None, load: Load, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, _, first = tiny

    def audit(run: RunContext) -> AuditFacts:
        common = {"epoch": first, "suite": "volumes", "meaning": "", "remedy": "", "rows": [], "observed": "9 rows"}
        names = {"rows as usual": ("warning", False), "a note": ("info", False), "edges": ("warning", True)}
        rows = [{**common, "name": n, "severity": s, "passed": p} for n, (s, p) in names.items()]
        run.ledger.checks.put(run.run_id, run.revision, rows)
        return AuditFacts(checks=3, failed=1, critical=0)

    monkeypatch.setattr(audit_stage, "audit_run", audit)
    alerts: list[Any] = []
    hook = ModuleType("pager")
    hook.call = alerts.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pager", hook)
    dag = load(home.path, ALTNEU_ON_FAILURE="pager:call")["altneu_epoch"]
    told: list[str] = []
    dag.get_task("warnings").on_failure_callback = [lambda context: told.append(str(context["exception"]))]
    run = dag.test(logical_date=DAY)
    assert run.state == "success"
    assert {task for task, state in states(run).items() if state != "success"} == {"warnings"}
    assert states(run)["warnings"] == "failed" and alerts == []
    assert "1 check(s) warn; revision 1 is published" in told[0] and "2004-04-15: rows as usual: 9 rows" in told[0]
    assert "a note" not in told[0] and "/altneu/reports/epoch=2004-04-15.html" in told[0]
    assert events(run) == [{"revision": 1, "epochs": ["2004-04-15"]}]


ONLY_FIXING_HELPS = [
    UsageError("wrong use"),
    CheckFailed("wrong numbers"),
    ValueError("a fault of the code"),
    KeyError("another"),
    AnalysisException("no such column"),
    sa.exc.ProgrammingError("SELECT", {}, Exception("no such table")),
]
WORTH_ANOTHER_TRY = [
    RevisionConflict("another writer"),
    LeaseLost("a killed try of the same task"),
    sa.exc.OperationalError("SELECT", {}, Exception("the server has gone away")),
    Py4JNetworkError("the JVM has gone"),
    ConnectionRefusedError("no answer"),
    OSError(28, "No space left on device"),
]


@pytest.mark.parametrize("error", ONLY_FIXING_HELPS + WORTH_ANOTHER_TRY, ids=repr)
def test_only_what_may_go_away_by_itself_is_tried_again(
    ledger_only: LedgerOnly, tiny: Tiny, load: Load, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    from airflow.sdk.exceptions import AirflowException, AirflowFailException

    home, ledger, first = tiny
    ingest = load(home.path)["altneu_epoch"].get_task("ingest").python_callable
    planned = begun(ledger, first)

    def stage(run: RunContext) -> dict[str, Any]:
        raise error

    monkeypatch.setattr(ingest_stage, "ingest", stage)
    with pytest.raises(AirflowException) as raised:
        ingest(planned)
    assert isinstance(raised.value, AirflowFailException) is (error in ONLY_FIXING_HELPS)


def test_a_database_that_is_away_is_tried_again() -> None:
    from altneu.pipeline.errors import Unavailable

    with pytest.raises(Unavailable, match="does not answer"):
        home_helpers.open_database("postgresql+psycopg://nobody@127.0.0.1:1/none")


def test_a_stage_that_takes_too_long_fails_as_a_timeout(
    ledger_only: LedgerOnly, tiny: Tiny, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow's own way to end a task passes through, and the ledger says how the run ended."""
    from airflow.sdk.exceptions import AirflowTaskTimeout
    from airflow.sdk.execution_time.timeout import timeout

    home, ledger, first = tiny
    dag = load(home.path)["altneu_epoch"]
    ingest, edges = (dag.get_task(name).python_callable for name in ("ingest", "edges"))
    planned = begun(ledger, first)
    ingest(planned)

    def stage(run: RunContext) -> dict[str, Any]:
        threading.Event().wait(60)
        raise AssertionError("nobody ended it")

    monkeypatch.setattr(edges_stage, "derive_edges", stage)
    with pytest.raises(AirflowTaskTimeout), timeout(1):
        edges(planned)
    run = ledger.runs.list_all()[0]
    assert run.state == "interrupted" and "AirflowTaskTimeout" in run.error and ledger.revisions.get().revision == 0


def test_an_epoch_that_landed_again_is_told(ledger_only: LedgerOnly, airflow: None, load: Load, tiny: Tiny) -> None:
    home, ledger, first = tiny

    def look() -> tuple[Any, list[str]]:
        dag = load(home.path)["altneu_landing"]
        told: list[str] = []
        dag.get_task("relanded").on_failure_callback = [lambda context: told.append(str(context["exception"]))]
        return dag.test(logical_date=None), told

    run, _ = look()
    assert run.state == "success"  # nothing is published: nothing has landed again
    home_helpers.run(ledger, [first])
    run, _ = look()
    assert run.state == "success" and {"2004-04-15"} == set(of_epochs(run))  # it was published outside Airflow
    run, _ = look()
    assert run.state == "success" and of_epochs(run) == {}
    home_helpers.put(home, first, up((7, 8)))
    run, told = look()
    assert run.state == "failed" and "1 published epoch(s) have landed again" in told[0]
    assert "2004-04-15." in told[0] and "altneu backfill 2004-04-15 2004-04-15" in told[0]
    home_helpers.run(ledger, [first])
    assert look()[0].state == "success"
