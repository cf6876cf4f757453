"""A run says at its start which others are at work. No Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from altneu.pipeline.cli.printing import format_moment
from altneu.pipeline.cli.runs import execute_plan
from altneu.pipeline.errors import AltneuError
from altneu.pipeline.run import planning, runner
from altneu.pipeline.state.ledger import Ledger
from tests import home_helpers

SINCE = "is running since {} on revision 0 (last heartbeat {})"
WINS = "the first to publish wins, the other is superseded"
SAID = {
    "run": f"another run of 2 epoch(s) (4, 7) {SINCE}: {WINS}",
    "rebuild": f"another rebuild of 2 epoch(s) (4, 7) {SINCE}: {WINS}",
    "compact": f"another compact {SINCE}: it disturbs no run",
}


@pytest.mark.parametrize("end", [None, "failed"])
@pytest.mark.parametrize("kind", SAID)
def test_another_run_is_told_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str, end: str | None
) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise AltneuError("the run itself is another test's")

    home, ledger = home_helpers.make(tmp_path / "home")
    home_helpers.put(home, 4, [(0, 1, None, "upsert", 0)])
    other = Ledger(home)
    other.runs.create("other", 0, epochs=[] if kind == "compact" else [4, 7], config={}, kind=kind)
    if end:
        other.runs.finish("other", end)
    monkeypatch.setattr(runner, "execute_run", run)
    with pytest.raises(AltneuError, match="another test's"):
        execute_plan(ledger, planning.plan_epochs(ledger, [4]))
    row, said = ledger.runs.get("other"), capsys.readouterr().err.splitlines()
    told = [line for line in said if "another" in line]
    assert told == ([] if end else [SAID[kind].format(format_moment(row.started_at), format_moment(row.beat_at))]), said
