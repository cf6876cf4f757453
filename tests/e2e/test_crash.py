"""Law 7 with real processes: `altneu run` killed at random moments, the reader's look after each, and the rerun.

A kill takes the whole process group, only the JVM, or only Python (whose JVM may live on beside the rerun). The same
batches are published in another home by runs that nobody disturbs; every look compares the two. `ALTNEU_KILLS` and
`ALTNEU_RACES` set the numbers of a part; the wide ones run with `infra/test --all`, in parts of some minutes each.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import altneu.pipeline.state.process_identity
from altneu.pipeline.checking import audit
from altneu.pipeline.home.home import Home
from altneu.pipeline.maintenance.compact import compact
from altneu.pipeline.reading import views
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage.table_schemas import TABLES
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers, maintained, seeds
from tests.builders import draw_batch
from tests.postgres import DATABASE_KINDS
from tests.session import TINY

pytestmark = pytest.mark.usefixtures("tiny", "unaudited")

REPO = Path(__file__).resolve().parents[2]
SETTINGS = "".join(f'"{key}" = "{value}", ' for key, value in TINY.items())
TOML = f'[edges]\nlive_for = 4\n[spark]\nmaster = "local[1]"\nconf = {{ {SETTINGS} "spark.driver.memory" = "1g" }}\n'
PATIENCE = 10  # kills of one step, before it is left to finish
BATCH: dict[str, Any] = {"vertices": range(14), "size": 40, "deletes": 0.2, "seqs": 3}


def start(home: Home, epoch: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "altneu.pipeline.cli", "--home", str(home.path), "run", str(epoch)]
    env = os.environ | {"PYTHONPATH": str(REPO)}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env=env, cwd=home.path, start_new_session=True, **pipes)


def group(pid: int) -> dict[int, str]:
    """Process id → name of the living processes of a group."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            head, _, tail = stat.read_text().rpartition(")")
            fields = tail.split()
            if int(fields[2]) == pid and fields[0] != "Z":
                found[int(stat.parent.name)] = head.split("(", 1)[1]
    return found


def kill(process: subprocess.Popen[str], whom: str) -> None:
    members = group(process.pid)
    java = [pid for pid, name in members.items() if name == "java"]
    chosen = {"all": list(members), "java": java or list(members), "python": [process.pid]}[whom]
    for pid in chosen:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def state(spark: SparkSession, ledger: Ledger, epochs: list[int]) -> Counter[Any]:
    """Everything that a reader can see at some epochs of the newest revision."""
    row, warehouse = ledger.revisions.get(), Warehouse(spark, ledger.home)
    rows = maintained.select_maintained(lambda table: warehouse.read_table(table, row), epochs).collect()
    return Counter((r.epoch, r.what, r.a, r.b, r.value) for r in rows)


def totals(ledger: Ledger) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "revision"} for row in views.select_totals(ledger, all_epochs=True)]


def crash(spark: SparkSession, folder: Path, kills: int) -> None:
    seed = seeds.one()
    rng = random.Random(seed)
    calm, calm_ledger = home_helpers.make(folder / "calm", TOML)
    home, ledger = home_helpers.make(folder / "home", TOML)
    done, step, took = 0, 0, [25.0]
    moments: Counter[str] = Counter()
    while done < kills:
        epoch = step if rng.random() < 0.6 else rng.randrange(step + 1)  # in order, late, or replaced
        rows = draw_batch(rng, **BATCH)
        for each in (calm, home):
            home_helpers.put(each, epoch, rows)
        before = (totals(calm_ledger), state(spark, calm_ledger, [step]) if step else Counter())
        home_helpers.run(calm_ledger, [epoch])
        after = (totals(calm_ledger), state(spark, calm_ledger, [step]))
        step += 1
        for attempt in range(PATIENCE + 2):
            process, began = start(home, epoch), time.time()
            wait = rng.uniform(0.3, 1.1 * statistics.median(took)) if done < kills and attempt < PATIENCE else 300
            try:
                output, _ = process.communicate(timeout=wait)
                assert process.returncode == 0, (seed, output)
                if "published revision" in output:
                    took.append(time.time() - began)
                break
            except subprocess.TimeoutExpired:
                assert wait < 300, seed
            whom = rng.choice(["all", "java", "python"])
            kill(process, whom)
            done += 1
            try:
                output, _ = process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                kill(process, "all")
                raise AssertionError(f"seed {seed}: Python went on after {whom} was killed") from None
            if whom == "java" and process.returncode == 1:
                assert "next:" in output, (seed, output)
            runs = ledger.runs.list_all()
            last = [row.stage for row in ledger.stages.select(runs[-1].run_id) if row.state != "done"] if runs else []
            moments[last[-1] if last else "between"] += 1
            # the reader's look: the revision before or the one after, whole
            newest = ledger.revisions.get().revision
            assert newest in (step - 1, step), seed
            seen = (totals(ledger), state(spark, ledger, [step - 1]) if newest else Counter())
            assert seen == (after if newest == step else before), (seed, step, whom, moments)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL) if rng.random() < 0.5 else None
        assert ledger.revisions.get().revision == step, seed
    print(f"seed {seed}: {done} kills in {step} epochs, at {dict(moments)}")
    epochs = list(range((ledger.revisions.get().frontier or 0) + 1))
    assert totals(ledger) == totals(calm_ledger)
    assert state(spark, ledger, epochs) == state(spark, calm_ledger, epochs), seed
    results = audit.audit_published(Warehouse(spark, home), ledger.revisions.get(), epochs, lambda text: None)
    assert [result["name"] for result in results if not result["passed"]] == []
    open_ = [
        row
        for row in ledger.runs.list_all()
        if row.state == "running" or (row.state == "published" and not row.discarded)
    ]
    time.sleep(61 if open_ else 0)  # until the killed count as dead
    compact(ledger, spark, grace=0)
    warehouse = Warehouse(spark, home)
    assert {
        name for table in TABLES for name in home_helpers.branches(warehouse.load_metadata(table).ref_snapshots())
    } == {"main"}
    assert state(spark, ledger, epochs) == state(spark, calm_ledger, epochs), seed


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_kills_at_random_moments(spark: SparkSession, tmp_path: Path, part: int) -> None:
    crash(spark, tmp_path, int(os.environ.get("ALTNEU_KILLS", "20")))


@pytest.mark.slow  # tests/protocol stops a run after each of its steps in the ordinary tier
def test_what_dies_after_the_ledger_row_is_published_and_tidied_later(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", TOML)
    for epoch in range(3):
        home_helpers.put(home, epoch, draw_batch(random.Random(epoch), **BATCH))
    home_helpers.run(ledger, [0])
    with monkeypatch.context() as patch:
        patch.setattr(Warehouse, "update_refs", lambda *_: exec("raise ConnectionRefusedError"))
        assert home_helpers.run(ledger, [1]) == ledger.revisions.get()
    assert (
        ledger.revisions.get().revision,
        ledger.runs.list_all()[-1].state,
        ledger.runs.list_all()[-1].discarded,
    ) == (
        2,
        "published",
        False,
    )
    names = {
        name
        for table in TABLES
        for name in home_helpers.branches(Warehouse(spark, home).load_metadata(table).ref_snapshots())
    }
    assert names == {"main", f"run_{ledger.runs.list_all()[-1].run_id}"}
    assert ledger.runs.list_dead() == []  # it beat a moment ago: it may be at it still
    monkeypatch.setattr(altneu.pipeline.state.process_identity, "SILENCE", 0)
    home_helpers.run(ledger, [2])
    warehouse = Warehouse(spark, home)
    assert {
        name for table in TABLES for name in home_helpers.branches(warehouse.load_metadata(table).ref_snapshots())
    } == {"main"}
    assert {warehouse.load_metadata(t).main_snapshot() == ledger.revisions.get().snapshots[t] for t in TABLES} == {True}
    results = audit.audit_published(warehouse, ledger.revisions.get(), [0, 1, 2], lambda text: None)
    assert [result["name"] for result in results if not result["passed"]] == []


RACER = """
import random, sys, time
from pathlib import Path
from altneu.pipeline.run import planning, runner
from altneu.pipeline.home.home import Home
from altneu.pipeline.errors import RevisionConflict
from altneu.pipeline.run.stages import audit
from altneu.pipeline.state.stage_results import AuditFacts
from altneu.pipeline.state.ledger import Ledger

audit.audit_run = lambda run: AuditFacts(checks=0, failed=0, critical=0)  # the test audits in the end
path, me, races = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
home = Home.open(path)
ledger = Ledger(home)
for race in range(races):
    (path / f"ready-{race}-{me}").touch()
    for _ in range(30_000):  # the other may have failed
        if (path / f"ready-{race}-{1 - me}").exists():
            break
        time.sleep(0.01)
    plan = planning.plan_epochs(ledger, [2 * race + me])
    try:
        runner.execute_run(ledger, plan)
        print("won", race, flush=True)
    except RevisionConflict as conflict:
        assert "Nothing" in conflict.what and conflict.next
        print("lost", race, flush=True)
        runner.execute_run(ledger, planning.plan_epochs(ledger, [2 * race + me]))
"""


def race(spark: SparkSession, folder: Path, database: str | None, races: int) -> None:
    """Two processes publish at once, again and again: the loser says so and runs again; nothing is lost."""
    storage = f'[storage]\ndatabase = "{database}"\n' if database else ""
    home, ledger = home_helpers.make(folder / "home", TOML + storage)
    rng = random.Random(seeds.one())
    landed = {epoch: draw_batch(rng, **BATCH) for epoch in range(2 * races)}
    for epoch, rows in landed.items():
        home_helpers.put(home, epoch, rows)
    env = os.environ | {"PYTHONPATH": str(REPO)}
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(home.path), str(me), str(races)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for me in range(2)
    ]
    outputs = [racer.communicate(timeout=400 + 120 * races)[0] for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0], outputs
    lost = sum(output.count("lost") for output in outputs)
    print(f"{races} races, {lost} lost and run again")
    assert ledger.revisions.get().revision == 2 * races
    assert [run.state for run in ledger.runs.list_all()].count("published") == 2 * races
    epochs = list(range(2 * races))
    results = audit.audit_published(Warehouse(spark, home), ledger.revisions.get(), epochs, lambda text: None)
    assert [result["name"] for result in results if not result["passed"]] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", DATABASE_KINDS)
def test_races(spark: SparkSession, tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    database = request.getfixturevalue("postgres") if kind == "postgresql" else None
    race(spark, tmp_path, database, int(os.environ.get("ALTNEU_RACES", "1")))


@pytest.mark.slow
@pytest.mark.parametrize("kind", DATABASE_KINDS)
@pytest.mark.parametrize("part", range(5))
def test_fifty_races(spark: SparkSession, tmp_path: Path, kind: str, part: int, request: pytest.FixtureRequest) -> None:
    database = request.getfixturevalue("postgres") if kind == "postgresql" else None
    race(spark, tmp_path, database, 10)
