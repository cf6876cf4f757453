"""Real runs of `altneu_epoch` on a tiny home: published, again, changed, asked by parameter, and a lost
race."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline import orchestration, views
from pipeline.config import Home
from pipeline.ledger import Ledger
from tests import homes

Load = Callable[..., dict[str, Any]]
DAY = datetime(2004, 4, 15, tzinfo=UTC)


def up(*pairs: tuple[int, int]) -> list[tuple[int, int, None, str, int]]:
    return [(src, dst, None, "upsert", 0) for src, dst in pairs]


@pytest.fixture
def tiny(tmp_path: Path) -> tuple[Home, Ledger, int]:
    """A triangle on the first day, a fourth vertex that closes another one on the second."""
    home, ledger = homes.make(tmp_path / "home", '[epochs]\nevery = "1d"\n')
    first = home.schedule.epoch_of(DAY)
    homes.put(home, first, up((1, 2), (2, 3), (1, 3)))
    homes.put(home, first + 1, up((3, 4), (2, 4)))
    return home, ledger, first


def test_a_day_is_published_then_again_then_changed(
    spark: SparkSession, airflow: None, load: Load, tiny: tuple[Home, Ledger, int]
) -> None:
    home, ledger, first = tiny
    dag = load(home.path)["altneu_epoch"]

    run = dag.test(logical_date=DAY)
    assert run.state == "success"
    assert states(run) == dict.fromkeys(states(run), "success")
    assert ledger.at().frontier == first
    assert [row["triangles"] for row in views.totals(home, ledger, all_epochs=True)] == [1]

    # by parameter, without a logical date
    run = dag.test(logical_date=None, run_conf={"epoch": "2004-04-16"})
    assert run.state == "success"
    assert ledger.at().revision == 2
    assert [row["triangles"] for row in views.totals(home, ledger, all_epochs=True)] == [1, 2]

    # the same again: plan finds nothing to do, the rest is skipped, the run is a success
    run = dag.test(logical_date=None, run_conf={"epoch": "2004-04-16"})
    assert run.state == "success"
    done = states(run)
    assert {task for task, state in done.items() if state == "success"} == {"landed", "plan"}
    assert {task for task, state in done.items() if state == "skipped"} == set(done) - {"landed", "plan"}
    assert ledger.at().revision == 2

    # the first day lands again, smaller: its rerun publishes the difference
    homes.put(home, first, up((1, 2), (2, 3)))
    run = dag.test(logical_date=DAY)
    assert run.state == "success"
    assert ledger.at().revision == 3
    assert [row["triangles"] for row in views.totals(home, ledger, all_epochs=True)] == [0, 1]


def test_a_critical_failure_stops_before_publish(
    spark: SparkSession,
    airflow: None,
    load: Load,
    tiny: tuple[Home, Ledger, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pipeline import audit

    home, ledger, first = tiny
    wrong = {
        "epoch": first,
        "suite": "incremental_versus_full",
        "name": "edges equal the recomputation",
        "severity": "critical",
        "passed": False,
        "meaning": "",
        "remedy": "altneu audit 2004-04-15",
        "observed": "1 difference(s)",
        "rows": [{"a": 1, "b": 2}],
    }
    monkeypatch.setattr(audit, "incremental_versus_full", lambda *_: [wrong])
    alerts: list[dict[str, Any]] = []
    hook = ModuleType("pager")
    hook.call = alerts.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pager", hook)
    dag = load(home.path, ALTNEU_ON_FAILURE="pager:call")["altneu_epoch"]
    run = dag.test(logical_date=DAY)
    assert run.state == "failed"
    done = states(run)
    assert (done["truss"], done["validate"]) == ("success", "failed")
    assert (done["publish"], done["report"]) == ("upstream_failed", "upstream_failed")
    assert ledger.at().revision == 0
    assert [(alert["dag"], alert["task"]) for alert in alerts] == [("altneu_epoch", "validate")]
    for part in (
        "edges equal the recomputation",
        "epoch 2004-04-15",
        "{'a': 1, 'b': 2}",
        "next: altneu report 2004-04-15",
    ):
        assert part in alerts[0]["error"]


def test_two_interleaved_runs_end_published(spark: SparkSession, tiny: tuple[Home, Ledger, int]) -> None:
    """Both build on revision 0; whoever is second runs again on the first, in publish."""
    home, ledger, first = tiny
    path = str(home.path)
    one, two = orchestration.plan(path, [first]), orchestration.plan(path, [first + 1])
    assert one and two
    orchestration.stage(path, two, "ingest")
    for name in orchestration.BEFORE_PUBLISH:
        orchestration.stage(path, one, name)
    orchestration.stage(path, two, "edges")
    assert orchestration.publish(path, one)["reruns"] == 0

    # what two has still to do is not done in vain
    for name in ("triangles", "truss", "audit"):
        assert orchestration.stage(path, two, name) == {"superseded_by": 1}
    lines: list[str] = []
    done = orchestration.publish(path, two, lines.append)
    assert (done["revision"], done["reruns"]) == (2, 1)
    assert any("again, on revision 1" in line for line in lines)
    assert [row["triangles"] for row in views.totals(home, ledger, all_epochs=True)] == [1, 2]

    # cleared and run again: nothing more is published
    assert orchestration.publish(path, one)["revision"] == 1
    assert orchestration.publish(path, two)["revision"] is None or ledger.at().revision == 2
    assert ledger.at().revision == 2
    states = [run.state for run in ledger.runs()]
    assert states == ["published", "failed", "published"]


def test_a_conflict_at_the_last_moment(
    spark: SparkSession, tiny: tuple[Home, Ledger, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other writer wins between our look at the ledger and our insert: the compare-and-swap finds it."""
    home, ledger, first = tiny
    path = str(home.path)
    ours = orchestration.plan(path, [first])
    assert ours
    for name in orchestration.BEFORE_PUBLISH:
        orchestration.stage(path, ours, name)
    homes.run(home, ledger, [first + 1])
    look = orchestration._winner
    blind = iter([None])
    monkeypatch.setattr(orchestration, "_winner", lambda ledger, run: next(blind, look(ledger, run)))
    done = orchestration.publish(path, ours)
    assert (done["revision"], done["reruns"]) == (2, 1)
    assert sorted(ledger.batches()) == [first, first + 1]


def test_a_wider_pass_spares_the_rerun(spark: SparkSession, tiny: tuple[Home, Ledger, int]) -> None:
    home, ledger, first = tiny
    path = str(home.path)
    one = orchestration.plan(path, [first])
    homes.run(home, ledger, [first, first + 1])
    assert one
    done = orchestration.publish(path, one)
    assert done["revision"] is None
    assert ledger.at().revision == 1


def states(run: Any) -> dict[str, str]:
    return {ti.task_id: str(ti.state) for ti in run.get_task_instances()}


# -- without Spark -------------------------------------------------------------------------------------------


def test_which_epoch(tiny: tuple[Home, Ledger, int]) -> None:
    home, _, first = tiny
    path = str(home.path)
    noon, yesterday = DAY + timedelta(hours=12), DAY - timedelta(days=1)
    assert orchestration.epoch_of(path, None, DAY, DAY, manual=False) == first
    assert orchestration.epoch_of(path, None, DAY, yesterday, manual=True) == first
    assert orchestration.epoch_of(path, None, noon, yesterday, manual=True) == first - 1
    assert orchestration.epoch_of(path, "2004-04-17", DAY, DAY, manual=True) == first + 2
    assert orchestration.epoch_of(path, first, None, None, manual=True) == first
    with pytest.raises(orchestration.UsageError, match="no logical date"):
        orchestration.epoch_of(path, None, None, None, manual=True)
    with pytest.raises(orchestration.UsageError, match="neither an integer nor a date"):
        orchestration.epoch_of(path, "soon", DAY, DAY, manual=True)


def test_integer_epochs_must_be_named(tmp_path: Path) -> None:
    homes.make(tmp_path, "")
    assert orchestration.epoch_of(str(tmp_path), "7", DAY, DAY, manual=True) == 7
    with pytest.raises(orchestration.UsageError, match="must name its epoch"):
        orchestration.epoch_of(str(tmp_path), None, DAY, DAY, manual=True)


def test_waiting_for_the_landing(tiny: tuple[Home, Ledger, int]) -> None:
    home, _, first = tiny
    path, day = str(home.path), timedelta(days=1)

    def look(epoch: int, manual: bool = False, now: datetime = DAY + 30 * day) -> orchestration.Landing:
        return orchestration.landing(path, epoch, patience=day, manual=manual, now=now)

    assert look(first).state == "landed"
    late = look(first + 2)
    assert (late.state, late.label) == ("waiting", "2004-04-17")
    assert "waiting for epoch 2004-04-17" in late.says and "epoch=2004-04-17" in late.says
    # before the first landed one: a gap of the history, unless somebody asked for it or it has just ended
    assert look(first - 1).state == "gap"
    assert look(first - 1, manual=True).state == "waiting"
    assert look(first - 1, now=DAY + timedelta(hours=23)).state == "waiting"


def test_an_epoch_whose_folder_has_gone_stays_published(spark: SparkSession, tiny: tuple[Home, Ledger, int]) -> None:
    home, ledger, first = tiny
    homes.run(home, ledger, [first])
    shutil.rmtree(home.landing / "epoch=2004-04-15")
    lines: list[str] = []
    assert orchestration.landing(str(home.path), first, patience=timedelta(), manual=False).state == "landed"
    assert orchestration.plan(str(home.path), [first], lines.append) is None
    assert "altneu run 2004-04-15 --remove" in lines[0]


def test_errors_say_what_to_type_and_whether_to_retry() -> None:
    usage = orchestration.UsageError("epoch 7 is not landed.", "altneu land FILE")
    assert orchestration.worded(usage) == "epoch 7 is not landed.\nnext: altneu land FILE"
    assert not orchestration.retry_helps(usage)
    assert not orchestration.retry_helps(orchestration.CheckFailed("bad"))
    assert orchestration.retry_helps(orchestration.Conflict("lost"))
