"""What becomes of a declared query when its text changes: held, discarded, approved, rolled back, compacted, dropped,
killed, and written by two runs at once. On real tables, because each text has columns of its own there.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from altneu.pipeline.checking import fingerprint_check
from altneu.pipeline.errors import RevisionConflict, RunFailed, UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.maintenance import rollback
from altneu.pipeline.maintenance.compact import compact
from altneu.pipeline.reading.graph import Graph
from altneu.pipeline.reading.query_results import list_dropped_queries
from altneu.pipeline.run import approval, approval_numbers, planning, run_context, runner
from altneu.pipeline.run.stages import recomputed_queries
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import RunRecord, RunState
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers
from tests.algebra.test_queries import by_duckdb, random_batch
from tests.e2e.test_queries import declare, make_home, rows_of, run_all, ways

REPO = Path(__file__).resolve().parents[2]
COUNT = "SELECT src, count(*) AS n FROM landed GROUP BY src"
FAR = "SELECT src, count(*) AS m, max(dst) AS far FROM landed GROUP BY src"
MUTUAL = "SELECT a.src, a.dst FROM arcs a JOIN arcs b ON b.src = a.dst AND b.dst = a.src"
REACHABLE = """WITH RECURSIVE walk AS (
        SELECT src, dst FROM arcs UNION SELECT w.src, a.dst FROM walk w JOIN arcs a ON a.src = w.dst
    ) SELECT src, count(*) AS reached, count(*) - (SELECT min(n) FROM sent) AS more FROM walk GROUP BY src"""
MIDDLE = "SELECT median(amount) AS middle FROM landed WHERE age < 2 OR op = 'delete'"
TOGETHER = ("ingest", "edges", "triangles", "truss", "queries", "audit")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("tiny", "unaudited")]


class Life:
    """A home with some batches, and the query `sent`."""

    def __init__(self, path: Path, epochs: int = 3) -> None:
        self.rng = random.Random(11)
        self.batches: dict[int, Any] = {
            epoch: random_batch(self.rng) or [(0, 1, 1, "upsert", 0)] for epoch in range(epochs)
        }
        _, self.ledger = make_home(path, self.batches, sent=COUNT)
        self.write_settings("[retention]\nrevisions = 2\n")

    @property
    def home(self) -> Home:
        return self.ledger.home

    def write_settings(self, toml: str) -> None:
        """Give the home these settings, besides that of the values."""
        path = self.ledger.home.path
        (path / "altneu.toml").write_text(f'[values]\namount = "long"\n{toml}')
        self.ledger = Ledger(Home.open(path))

    def land(self, epoch: int) -> None:
        self.batches[epoch] = [*random_batch(self.rng), (0, epoch, 1, "upsert", 0)]
        home_helpers.put(self.home, epoch, self.batches[epoch])

    def run(self) -> dict[str, str]:
        """Run what has landed or changed, and return the way of each query."""
        return ways(self.ledger, run_all(self.ledger))

    def hold(self) -> RunRecord:
        plan = planning.plan_run(self.ledger, lambda epoch: True)
        held = runner.execute_run(self.ledger, plan, hold=True)
        assert isinstance(held, RunRecord) and held.state is RunState.HELD
        return held

    def planned(self) -> dict[str, str]:
        return dict(planning.plan_run(self.ledger, lambda epoch: True).queries.anew)

    def check(self, **texts: str) -> None:
        """Assert that the result of each query is DuckDB's at every epoch, also where nothing has landed."""
        graph, parts = Graph(self.home.path), [f"{name} AS ({text})" for name, text in texts.items()]
        for place, name in enumerate(texts):
            text = f"WITH {', '.join(parts[: place + 1])} SELECT * FROM {name}"
            for epoch in range(max(self.batches) + 1):
                found = rows_of(graph, name, as_of=epoch)
                assert found == by_duckdb(text, self.batches, epoch), (name, epoch)

    def columns(self, **when: Any) -> list[str]:
        return list(Graph(self.home.path).arrow.query("sent", **when).column_names)


def test_a_text_that_was_held_and_discarded_leaves_the_published_one_as_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    life = Life(tmp_path / "home")
    assert life.run() == {"sent": "anew"}
    declare(life.home, sent=FAR)
    held = life.hold()
    assert life.columns() == ["src", "n"]
    approval.reject_run(life.ledger, held, "ada", "no")
    declare(life.home, sent=COUNT)
    assert life.planned() == {}
    life.land(3)
    assert life.run() == {"sent": "delta"}
    life.check(sent=COUNT)


def test_a_text_that_was_held_is_compared_and_approved(spark: SparkSession, tmp_path: Path) -> None:
    life = Life(tmp_path / "home")
    life.run()
    before = rows_of(Graph(life.home.path), "sent")
    declare(life.home, sent=FAR)
    held = life.hold()
    (shown,) = approval_numbers.diff_held_run(life.ledger, held).changed_queries(spark)
    assert shown["went"] == before.total() and shown["came"] == before.total()
    approval.approve_run(life.ledger, held, "ada", "as it should be")
    runner.publish_held_run(life.ledger, held.run_id)
    life.check(sent=FAR)
    assert life.columns(revision=1) == ["src", "n"] and rows_of(Graph(life.home.path), "sent", revision=1) == before
    life.land(1)
    assert life.run() == {"sent": "delta"}
    life.check(sent=FAR)


def test_a_rollback_over_a_change_of_text_brings_back_the_text(spark: SparkSession, tmp_path: Path) -> None:
    life = Life(tmp_path / "home")
    life.run()
    declare(life.home, sent=FAR)
    assert life.run() == {"sent": "anew"}
    life.check(sent=FAR)
    rollback.roll_back(life.ledger, 1)
    life.check(sent=COUNT)
    assert life.planned() == {"sent": "its text has changed"}  # the file has the later text still
    declare(life.home, sent=COUNT)
    assert life.planned() == {}
    life.land(3)
    assert life.run() == {"sent": "delta"}
    life.check(sent=COUNT)
    rollback.roll_back(life.ledger, 2)
    declare(life.home, sent=FAR)
    life.land(3)
    assert life.run() == {"sent": "delta"}
    life.check(sent=FAR)


def test_killed_for_real_while_it_computes_queries(spark: SparkSession, tmp_path: Path) -> None:
    """A process of its own is killed in the stage, and the same command goes on from there."""
    life = Life(tmp_path / "home")
    life.run()
    before = rows_of(Graph(life.home.path), "sent")
    declare(life.home, sent=FAR, mutual=MUTUAL)
    life.land(3)
    command = [sys.executable, "-m", "altneu.pipeline.cli", "--home", str(life.home.path), "backfill", "--all"]
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(REPO)}, start_new_session=True)
    while not stage_has_begun(life.ledger, "queries"):
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert rows_of(Graph(life.home.path), "sent") == before
    subprocess.run(command, env=os.environ | {"PYTHONPATH": str(REPO)}, check=True)
    life.check(sent=FAR, mutual=MUTUAL)


def stage_has_begun(ledger: Ledger, stage: str) -> bool:
    runs = [run for run in ledger.runs.list_all() if run.state is RunState.RUNNING]
    return any(row.stage == stage for run in runs for row in ledger.stages.select(run.run_id))


def test_of_two_runs_with_different_texts_one_wins(spark: SparkSession, tmp_path: Path) -> None:
    life = Life(tmp_path / "home")
    life.run()
    life.land(3)
    begun = []
    for text in (FAR, COUNT):
        declare(life.home, sent=text)
        plan = planning.plan_run(life.ledger, lambda epoch: True)
        begun.append(runner.begin_run(life.ledger, plan))
    for stage in TOGETHER:
        for run_id in begun:
            assert run_id is not None
            runner.execute_stage(life.ledger, run_id, stage)
    runner.execute_stage(life.ledger, str(begun[0]), "publish")
    with pytest.raises(RevisionConflict):
        runner.execute_stage(life.ledger, str(begun[1]), "publish")
    life.check(sent=FAR)
    life.land(4)
    assert life.run() == {"sent": "anew"}
    life.check(sent=COUNT)


def test_tables_of_a_dropped_query_go_when_no_revision_has_it(spark: SparkSession, tmp_path: Path) -> None:
    life = Life(tmp_path / "home")
    declare(life.home, sent=COUNT, mutual=MUTUAL)
    life.run()
    declare(life.home, sent=FAR)
    assert life.run() == {"sent": "anew"}
    assert list_dropped_queries(life.ledger) == {"mutual": 1}
    assert compact(life.ledger, spark, grace=0).dropped_tables == []
    assert rows_of(Graph(life.home.path), "mutual", revision=1) is not None and life.columns(revision=1) == ["src", "n"]
    for epoch in (3, 4):
        life.land(epoch)
        life.run()
    assert {*compact(life.ledger, spark, grace=0).dropped_tables} == {"query_mutual", "arcs"}
    assert list_dropped_queries(life.ledger) == {}
    life.check(sent=FAR)
    assert compact(life.ledger, spark, grace=0).dropped_tables == []
    declare(life.home, sent=FAR, mutual=f"{MUTUAL} WHERE a.src < a.dst")
    assert life.run() == {"sent": "nothing", "mutual": "anew"}
    life.check(sent=FAR, mutual=f"{MUTUAL} WHERE a.src < a.dst")
    newest = life.ledger.revisions.get()
    recorded = life.ledger.outputs.fingerprints_of(newest.revision)
    assert not fingerprint_check.compare_fingerprints(Warehouse(spark, life.home), newest, recorded).differences


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("write", range(5))
def test_killed_at_each_write_and_run_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: int
) -> None:
    """A new text beside a kept one: the arcs, the states and the results are written one after the other."""
    life = Life(tmp_path / "home")
    life.run()
    before = rows_of(Graph(life.home.path), "sent")
    life.land(1)
    declare(life.home, sent=FAR, mutual=MUTUAL, starred="SELECT src, dst FROM mutual WHERE src = 0")
    plan = planning.plan_run(life.ledger, lambda epoch: True)
    run_id = runner.begin_run(life.ledger, plan)
    assert run_id is not None
    for stage in TOGETHER[:4]:
        runner.execute_stage(life.ledger, run_id, stage)
    written: list[str] = []
    put_rows = run_context.RunContext.put_rows

    def die(run: run_context.RunContext, table: str, rows: Any) -> int:
        count = put_rows(run, table, rows)
        written.append(table)
        if len(written) > write:
            raise Killed
        return count

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(run_context.RunContext, "put_rows", die)
        runner.execute_stage(life.ledger, run_id, "queries")
    assert rows_of(Graph(life.home.path), "sent") == before
    for stage in (*TOGETHER[4:], "publish"):
        runner.execute_stage(life.ledger, run_id, stage)
    life.check(sent=FAR, mutual=MUTUAL)
    life.land(3)
    assert "anew" not in life.run().values()
    life.check(sent=FAR, mutual=MUTUAL)


def test_what_is_recomputed_has_history_as_what_is_maintained(spark: SparkSession, tmp_path: Path) -> None:
    """Held, approved, corrected, rolled back, read by another query, and maintained again when it can be."""
    life = Life(tmp_path / "home")
    recompute(life, "walks", "middle")
    nears = "SELECT w.src, s.n FROM walks w JOIN sent s ON s.src = w.src WHERE w.reached > 1"
    texts = {"sent": COUNT, "walks": REACHABLE, "nears": nears, "middle": MIDDLE}
    declare(life.home, **texts)
    assert life.run() == dict.fromkeys(texts, "anew")
    life.check(**texts)
    before = rows_of(Graph(life.home.path), "walks")
    life.land(1)
    assert life.run() == {"sent": "delta", "walks": "recomputed", "nears": "delta", "middle": "recomputed"}
    life.check(**texts)
    followed = before.copy()
    for row in Graph(life.home.path).arrow.query("walks", since_revision=1).to_pylist():
        followed[tuple(row.values())[:-1]] += row["diff"]
    assert +followed == rows_of(Graph(life.home.path), "walks")
    with pytest.raises(UsageError, match="is recomputed by its text"):
        Graph(life.home.path).explain_query("walks", {"src": 0})
    life.land(6)  # at the epochs before it rows have become old
    assert life.run()["middle"] == "recomputed"
    life.check(**texts)
    del life.batches[6]
    rollback.roll_back(life.ledger, 1)
    assert rows_of(Graph(life.home.path), "walks") == before
    home_helpers.remove(life.home, 6)
    recompute(life, "walks")
    declare(life.home, sent=COUNT, walks=f"{REACHABLE} HAVING count(*) > 1")
    held = life.hold()
    approval.approve_run(life.ledger, held, "ada", "fine")
    runner.publish_held_run(life.ledger, held.run_id)
    life.check(sent=COUNT, walks=f"{REACHABLE} HAVING count(*) > 1")
    recompute(life)
    declare(life.home, sent=COUNT, walks="SELECT src, n FROM sent WHERE n > 1")
    assert life.run() == {"sent": "nothing", "walks": "anew"}
    life.check(sent=COUNT, walks="SELECT src, n FROM sent WHERE n > 1")


def test_what_is_large_is_recomputed_by_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(tmp_path / "home")
    monkeypatch.setattr(recomputed_queries, "fits_duckdb", lambda *_: False)
    recompute(life, "middle", "alone")
    texts = {"middle": MIDDLE, "alone": "SELECT src FROM arcs EXCEPT SELECT dst FROM arcs"}
    declare(life.home, **texts)
    life.run()
    life.check(**texts)
    life.land(1)
    assert life.run() == dict.fromkeys(texts, "recomputed")
    life.check(**texts)


def test_vertices_have_their_names_in_what_is_recomputed(spark: SparkSession, tmp_path: Path) -> None:
    toml = '[vertices]\nids = "string"\n[queries]\nrecompute = ["walks"]\n'
    home, ledger = home_helpers.make(tmp_path / "home", toml)
    rows: Any = [("ann", "bob", None, "upsert", 0), ("bob", "cid", None, "upsert", 0)]
    home_helpers.put(home, 0, rows)
    declare(home, walks=REACHABLE.replace(", count(*) - (SELECT min(n) FROM sent) AS more", ""))
    run_all(ledger)
    assert rows_of(Graph(home.path), "walks") == {("ann", 2): 1, ("bob", 1): 1}


def test_a_text_that_fails_on_a_row_publishes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    life = Life(tmp_path / "home")
    recompute(life, "wrong")
    declare(life.home, sent=COUNT, wrong="SELECT count(*) AS n FROM landed WHERE CAST(op AS BIGINT) > 0")
    with pytest.raises(RunFailed, match=r"query wrong: .*upsert.* Nothing was published"):
        life.run()
    assert life.ledger.revisions.get().revision == 0
    declare(life.home, sent=COUNT)
    recompute(life)
    assert life.run() == {"sent": "anew"}
    life.check(sent=COUNT)


def recompute(life: Life, *names: str) -> None:
    """Have these queries recomputed."""
    listed = ", ".join(f'"{name}"' for name in names)
    life.write_settings(f"[retention]\nrevisions = 9\n[queries]\nrecompute = [{listed}]\n")
