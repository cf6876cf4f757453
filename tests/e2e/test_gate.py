"""`[checks] rows = "stop"`: an epoch of an unusual size is published when somebody says that it is right.

The gate counts the rows that have landed, before anything is computed: without Spark in the default tier."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from altneu.pipeline.errors import BatchRejected
from altneu.pipeline.home.home import Home
from altneu.pipeline.run import stages
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.tasks import run_batching, run_tasks
from altneu.pipeline.tasks.base import PlannedRun
from tests import home_helpers
from tests.e2e.conftest import Altneu

TOML = '[epochs]\nevery = "1d"\n[checks]\nrows = "stop"\n'
KNOWN = 9  # days that are published; the band of a young history reaches a factor of 12


def rows(many: int, day: int) -> list[tuple[int, int, None, str, int]]:
    return [(day, 100 + other, None, "upsert", 0) for other in range(many)]


def made(path: Path, after: Iterable[int]) -> tuple[Home, Ledger, int]:
    """A home with some days published, and days with so many rows landed after them."""
    home, ledger = home_helpers.make(path, TOML)
    first = home.schedule.parse_epoch("2004-04-01")
    for day, many in enumerate([5] * KNOWN + list(after)):
        home_helpers.put(home, first + day, rows(many, day))  # type: ignore[arg-type]
    home_helpers.run(ledger, range(first, first + KNOWN))
    return home, ledger, first


def published(ledger: Ledger, first: int) -> list[int]:
    """The days after the known ones."""
    return sorted(epoch - first - KNOWN for epoch in ledger.outputs.published_batches() if epoch >= first + KNOWN)


def computed(home: Home, planned: PlannedRun | None) -> list[int]:
    assert planned is not None
    for name in (stage.name for stage in stages.STAGES if stage.before_publish):
        run_tasks.execute_stage_task(str(home.path), planned, name)
    return run_tasks.publish_run(str(home.path), planned)["epochs"]


@pytest.mark.usefixtures("ledger_only")
def test_from_the_error_to_the_accepted_epoch(typed: Altneu, tmp_path: Path) -> None:
    home, ledger, first = made(tmp_path / "home", [400, 5])
    bad = home.schedule.format_label(first + KNOWN)

    stopped = typed("run", bad)
    assert stopped.code == 1 and f"epoch {bad} has 400 rows; 0 to 71 are usual" in stopped.err.replace("\n", " ")
    assert f"altneu run {bad} --accept-rows" in stopped.err and ledger.revisions.get().revision == 1
    assert re.search(rf"{bad}\s+failed", typed("status").out)
    assert typed("backfill", "--all").code == 1 and ledger.revisions.get().revision == 1

    going = typed("backfill", "--all", "--keep-going")
    assert going.code == 1 and "1 epoch(s) were left out" in going.err and "--accept-rows" in going.err
    assert published(ledger, first) == [1]

    accepted = typed("run", bad, "--accept-rows")
    assert accepted.code == 0 and published(ledger, first) == [0, 1]
    assert "nothing new" in typed("backfill", "--all").out


@pytest.mark.usefixtures("ledger_only")
def test_a_pass_goes_on_without_it_and_its_own_run_fails(tmp_path: Path) -> None:
    home, ledger, first = made(tmp_path / "home", [5, 400, 5])
    starts = {home.schedule.start_of(first + KNOWN + day) for day in range(3)}
    path, bad = str(home.path), first + KNOWN + 1

    def plan(epoch: int) -> PlannedRun | None:
        return run_batching.plan_epoch(path, epoch, count=lambda dates: len(starts & set(dates)))

    assert computed(home, plan(first + KNOWN)) == [first + KNOWN, first + KNOWN + 2]
    with pytest.raises(BatchRejected, match="has 400 rows"):
        computed(home, plan(bad))
    label = home.schedule.format_label(bad)
    planned = run_tasks.plan_range(path, label, label, accept=True)
    assert computed(home, planned) == [bad] and run_batching.plan_epoch(path, bad) is None
    assert published(ledger, first) == [0, 1, 2]


@pytest.mark.usefixtures("ledger_only")
def test_corrections_rebuilds_and_removals(typed: Altneu, tmp_path: Path) -> None:
    home, ledger, first = made(tmp_path / "home", [5])
    last = home.schedule.format_label(first + KNOWN)
    assert typed("run", last).code == 0
    home_helpers.put(home, first + KNOWN, rows(300, KNOWN))  # type: ignore[arg-type]
    assert typed("run", last).code == 1 and ledger.outputs.published_batches()[first + KNOWN].rows == 5
    assert (
        typed("rebuild", "--from-landing").code == 0 and ledger.outputs.published_batches()[first + KNOWN].rows == 300
    )
    for file in (home.landing / f"epoch={last}").iterdir():
        file.unlink()
    (home.landing / f"epoch={last}").rmdir()
    assert typed("run", last, "--remove").code == 0 and ledger.outputs.published_batches()[first + KNOWN].rows == 0


@pytest.mark.slow
@pytest.mark.usefixtures("tiny", "unaudited")
def test_a_real_run_is_stopped_by_the_same_gate(altneu: Altneu, tmp_path: Path) -> None:
    home, ledger, first = made(tmp_path / "home", [400])
    stopped = altneu("run", home.schedule.format_label(first + KNOWN))
    assert stopped.code == 1 and "has 400 rows; 0 to 71 are usual" in stopped.err.replace("\n", " ")
    assert ledger.revisions.get().revision == 1
