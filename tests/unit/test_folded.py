"""What lands before the history that a compaction has kept: every way to look at the home says so, and what to do. No
Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from altneu.pipeline import cli
from altneu.pipeline.errors import AltneuError
from altneu.pipeline.home.home import Home
from altneu.pipeline.landing import local_landing
from altneu.pipeline.landing.epoch_states import compare_with_ledger, record_folded
from altneu.pipeline.state.incidents import list_incidents
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import RunKind, StagedBatch
from altneu.pipeline.tasks import maintenance, run_tasks
from tests import home_helpers

ROW = [(1, 2, None, "upsert", 0)]
OTHER = [(3, 4, None, "upsert", 0)]
SAYS = "a compaction has folded the history before epoch 6"
NEXT = "altneu rebuild --from-landing"


def publish(ledger: Ledger, since: int | None, kind: RunKind = RunKind.RUN) -> None:
    """All that is landed, without its tables."""
    parent, known = compare_with_ledger(ledger)
    run_id = f"r{parent.revision + 1}"
    ledger.runs.create(
        run_id, parent.revision, epochs=[*known], config=ledger.home.config.semantic_settings(), kind=kind
    )
    ledger.outputs.put_batches(
        run_id, [StagedBatch(e.epoch, e.digest or local_landing.EMPTY_DIGEST, 1, 1, 0) for e in known.values()]
    )
    ledger.publish_revision(
        run_id, parent.revision, frontier=max(known), snapshots={}, digest="digest", mark=None, since=since
    )


@pytest.fixture
def world(tmp_path: Path) -> tuple[Home, Ledger]:
    """Epochs 2, 4 and 6 are published, all before 6 is folded; then 4 lands again and 3 lands for the first time."""
    home, ledger = home_helpers.make(tmp_path / "home")
    for epoch in (2, 4, 6):
        home_helpers.put(home, epoch, ROW)
    publish(ledger, since=6)
    home_helpers.put(home, 4, OTHER)
    home_helpers.put(home, 3, ROW)
    return home, ledger


def call(capsys: pytest.CaptureFixture[str], home: Home, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--home", str(home.path), *arguments])
    shown = capsys.readouterr()
    return int(ended.value.code or 0), shown.out, shown.err


def failing(ledger: Ledger) -> list[int]:
    return [epoch for one in list_incidents(ledger) if one.is_open for epoch in one.epochs]


@pytest.mark.parametrize(
    ("words", "code"),
    [("plan", 0), ("backfill --all", 1), ("backfill 1 5", 1), ("status", 0), ("status --failed", 0), ("incidents", 0)],
)
def test_each_command_says_it(
    world: tuple[Home, Ledger], capsys: pytest.CaptureFixture[str], words: str, code: int
) -> None:
    home, ledger = world
    record_folded(ledger)
    found, out, err = call(capsys, home, *words.split())
    text = " ".join((out + err).split())
    assert (found, NEXT in text) == (code, True), text
    assert SAYS in text or "incidents" in words, text
    assert "every landed epoch is published unchanged" not in text
    assert call(capsys, home, "backfill", "5", "6")[0] == 0  # nothing is folded in this range


def test_documents_say_it(world: tuple[Home, Ledger], capsys: pytest.CaptureFixture[str]) -> None:
    home, ledger = world
    plan = json.loads(call(capsys, home, "plan", "--format", "json")[1])
    assert [(each["label"], each["why"]) for each in plan["folded"]] == [("3", SAYS), ("4", SAYS)]
    status = json.loads(call(capsys, home, "status", "--format", "json")[1])["epochs"]
    assert {row["label"]: row["error"] for row in status if row["state"] == "folded"} == {"3": SAYS, "4": SAYS}
    assert failing(ledger) == []  # who only looks writes nothing


def test_landing_says_it_at_once(
    world: tuple[Home, Ledger], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    home, ledger = world
    (tmp_path / "one.csv").write_text("1,2\n")
    words = ("land", str(tmp_path / "one.csv"), "--columns", "src,dst", "--epoch", "5")
    code, _, err = call(capsys, home, *words, "--dry-run")
    assert (code, failing(ledger)) == (0, [])
    code, _, err = call(capsys, home, *words)
    assert code == 0 and SAYS in err and NEXT in err and failing(ledger) == [3, 4, 5]


def test_an_incident_is_open_until_the_files_are_as_they_were(
    world: tuple[Home, Ledger], capsys: pytest.CaptureFixture[str]
) -> None:
    home, ledger = world
    for _ in range(2):
        assert call(capsys, home, "backfill", "--all")[0] == 1
        (one,) = list_incidents(ledger)
        assert one.epochs == [3, 4] and len(one.failures) == 2 and NEXT in one.first.remedy
    home_helpers.put(home, 4, ROW)
    assert call(capsys, home, "backfill", "--all")[0] == 1 and failing(ledger) == [3]
    for file in (home.landing / "epoch=3").iterdir():
        file.unlink()
    (home.landing / "epoch=3").rmdir()
    code, out, _ = call(capsys, home, "backfill", "--all")
    assert (code, failing(ledger)) == (0, []) and "nothing new: 3 epoch(s) are published as landed" in out


def test_everything_again_from_the_landing_ends_it(world: tuple[Home, Ledger]) -> None:
    _, ledger = world
    assert [entry.epoch for entry in record_folded(ledger)] == failing(ledger) == [3, 4]
    publish(ledger, since=None, kind=RunKind.RELOAD)
    assert record_folded(ledger) == failing(ledger) == []


def test_tasks_of_airflow_fail_and_say_it(world: tuple[Home, Ledger]) -> None:
    home, ledger = world
    with pytest.raises(AltneuError, match=SAYS) as failed:
        run_tasks.plan_range(str(home.path), None, None)
    assert NEXT in str(failed.value.next) and failing(ledger) == [3, 4]
    with pytest.raises(AltneuError, match=SAYS):
        maintenance.check_relanded(str(home.path))
    home_helpers.put(home, 8, ROW)
    said: list[str] = []
    planned = run_tasks.plan_range(str(home.path), None, None, say=said.append)
    assert planned is not None and ledger.runs.get(planned["run_id"]).epochs == (8,)
    assert SAYS in said[0]
