"""Epochs whose own batches are wrong are left out of a pass: it publishes what it would, had they not landed.

Without Spark: `test_ledger_only.py` has a real run that leaves one out."""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from altneu.pipeline.errors import BatchRejected
from altneu.pipeline.home.home import Home
from altneu.pipeline.run import stages
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.tasks import run_batching, run_tasks
from tests import home_helpers
from tests.e2e.conftest import Altneu
from tests.ledger_only import LedgerOnly

pytestmark = pytest.mark.usefixtures("ledger_only")

TOML = '[epochs]\nevery = "1d"\n[vertices]\nids = "string"\n'
DAYS = 5  # the first is published, and has landed again
K4 = [(f"v{a}", f"v{b}", None, "upsert", 0) for a in range(4) for b in range(a + 1, 4)]
HALF = b"src,dst,op,seq\nv0,v9,upsert,0\n,,,\nv1,v9,replace,0\n"  # two of three rows are malformed
PACKED = gzip.compress(b"src,dst,op,seq\n" + b"v0,v9,upsert,0\n" * 40)
BROKEN = PACKED[:20] + bytes([PACKED[20] ^ 16]) + PACKED[21:]  # a flipped bit
WRONG: dict[str, dict[int, tuple[str, bytes]]] = {
    "broken": {2: ("more.csv.gz", BROKEN)},
    "malformed": {4: ("more.csv", HALF)},
    "both, and a correction": {0: ("rows.csv", HALF), 2: ("more.csv.gz", BROKEN), 3: ("more.csv", b"src,op\n")},
}


def made(path: Path) -> tuple[Home, Ledger, int]:
    home, ledger = home_helpers.make(path, TOML)
    first = home.schedule.parse_epoch("2004-04-15")
    home_helpers.put(home, first, K4)  # type: ignore[arg-type]
    home_helpers.run(ledger, [first])
    home_helpers.put(home, first, [*K4[1:], ("v0", "v8", None, "upsert", 0)])  # type: ignore[list-item]
    for day in range(1, DAYS):
        home_helpers.put(
            home, first + day, [(f"v{day}", "v8", None, "upsert", 0), ("v0", f"w{day}", None, "upsert", 0)]
        )  # type: ignore[list-item]
    return home, ledger, first


def read_stored_state(runs: LedgerOnly, ledger: Ledger) -> dict[str, Any]:
    """Return every diff of every table with its epoch and revision, the totals' diffs, and the batches."""
    memory, row = runs.tables(ledger.home), ledger.revisions.get()
    tables = {table: sorted(map(str, memory.shown(table, row.snapshots[table], row))) for table in memory.tables}
    batches = {
        epoch: (batch.rows, batch.bad_rows, batch.revision)
        for epoch, batch in ledger.outputs.published_batches().items()
    }
    return {
        **tables,
        "totals": sorted(ledger.outputs.total_diffs(row.revision)),
        "batches": batches,
        "frontier": row.frontier,
    }


def spoil(home: Home, first: int, wrong: dict[int, tuple[str, bytes]]) -> None:
    for day, (name, content) in wrong.items():
        (home.landing / f"epoch={home.schedule.format_label(first + day)}" / name).write_bytes(content)


ALWAYS = {("both, and a correction", "command")}  # tests/dags/test_passes.py leaves epochs out of passes


@pytest.mark.parametrize(
    ("wrong", "how"),
    [
        (wrong, how) if (wrong, how) in ALWAYS else pytest.param(wrong, how, marks=pytest.mark.slow)
        for wrong in WRONG
        for how in ("command", "pass")
    ],
)
def test_a_run_publishes_what_it_would_had_the_wrong_epochs_not_landed(
    ledger_only: LedgerOnly, tmp_path: Path, typed: Altneu, wrong: str, how: str
) -> None:
    home, ledger, first = made(tmp_path / "home")
    spoil(home, first, WRONG[wrong])
    good = [day for day in range(DAYS) if day not in WRONG[wrong]]
    if how == "command":
        refused = typed("backfill", "--all", home=home.path)
        assert refused.code == 1 and ledger.revisions.get().revision == 1  # without the option it stops
        done = typed("backfill", "--all", "--keep-going", home=home.path)
        assert done.code == 1 and f"published revision 2: {len(good)} epoch(s)" in done.out
        assert f"{len(WRONG[wrong])} epoch(s) were left out" in done.err
        assert all(f"{home.schedule.format_label(first + day)}: " in done.err for day in WRONG[wrong])
    else:
        other = {home.schedule.start_of(first + day) for day in range(DAYS)}
        planned = run_batching.plan_epoch(str(home.path), first + good[0], count=lambda dates: len(other & set(dates)))
        assert planned is not None and len(ledger.runs.get(planned["run_id"]).epochs) == DAYS
        for name in (stage.name for stage in stages.STAGES if stage.before_publish):
            run_tasks.execute_stage_task(str(home.path), planned, name)
        assert run_tasks.publish_run(str(home.path), planned)["epochs"] == [first + day for day in good]
    twin, twin_ledger, _ = made(tmp_path / "twin")
    home_helpers.run(twin_ledger, [first + day for day in good])
    assert read_stored_state(ledger_only, ledger) == read_stored_state(ledger_only, twin_ledger)

    shown = typed("status", home=home.path).out
    assert all(re.search(rf"{home.schedule.format_label(first + day)}\s+failed", shown) for day in WRONG[wrong]), shown

    # put right, they are the difference
    for day in WRONG[wrong]:
        folder = home.landing / f"epoch={home.schedule.format_label(first + day)}"
        shutil.rmtree(folder)
        shutil.copytree(twin.landing / folder.name, folder)
    for each in (ledger, twin_ledger):
        home_helpers.run(each, [first + day for day in WRONG[wrong]])
    assert read_stored_state(ledger_only, ledger) == read_stored_state(ledger_only, twin_ledger)


def test_all_are_wrong_and_parts_of_which_one_is(typed: Altneu, tmp_path: Path) -> None:
    home, ledger, first = made(tmp_path / "home")
    (home.path / "altneu.toml").write_text(f"{TOML}[ingest]\nmax_revision_mb = 0.00001\n")  # an epoch each
    spoil(home, first, {1: ("more.csv", HALF), 3: ("more.csv", HALF)})
    every = [f"2004-04-{15 + day}" for day in range(DAYS)]
    done = typed("backfill", every[1], every[1], "--keep-going", home=home.path)
    assert done.code == 1 and "1 epoch(s) were left out" in done.err and ledger.revisions.get().revision == 1
    assert "max_bad_share" in done.err and "next: fix or remove their files" in done.err
    done = typed("backfill", "--all", "--keep-going", home=home.path)
    assert done.code == 1 and "2 epoch(s) were left out" in done.err
    assert (
        sorted(ledger.outputs.published_batches()) == [first, first + 2, first + 4]
        and ledger.revisions.get().revision == 4
    )
    done = typed("backfill", "--all", "--keep-going", "--hold", home=home.path)
    assert done.code == 1 and ledger.runs.list_held() == []  # nothing is left that could be held


def test_the_own_epoch_of_a_pass_is_wrong(tmp_path: Path) -> None:
    """It fails with its message, and the others are for the next to take."""
    home, ledger, first = made(tmp_path / "home")
    spoil(home, first, {2: ("more.csv.gz", BROKEN), 4: ("more.csv", HALF)})
    starts = {home.schedule.start_of(first + day) for day in range(DAYS)}

    def go(day: int) -> list[int]:
        planned = run_batching.plan_epoch(str(home.path), first + day, count=lambda dates: len(starts & set(dates)))
        assert planned is not None
        for name in (stage.name for stage in stages.STAGES if stage.before_publish):
            run_tasks.execute_stage_task(str(home.path), planned, name)
        return run_tasks.publish_run(str(home.path), planned)["epochs"]

    with pytest.raises(BatchRejected, match=r"2004-04-17/more\.csv\.gz"):
        go(2)
    assert ledger.revisions.get().revision == 1
    assert go(1) == [first, first + 1, first + 3]
    with pytest.raises(BatchRejected, match=r"2004-04-19/more\.csv line"):
        go(4)
    assert ledger.revisions.get().revision == 2
