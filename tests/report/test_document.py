"""The numbers and the verdict behind a page, from small ledgers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from altneu.pipeline.report import epoch_document
from tests.report.seed import DAY, Seed, audit, check


def test_totals_and_changes_are_those_of_the_ledger(seed: Seed) -> None:
    seed.run(
        {DAY: (10, 0), DAY + 2: (30, 1)},
        {
            DAY: {"vertices": 4, "edges": 6, "triangles": 4, "truss4": 6},
            DAY + 2: {"vertices": 1, "edges": 1, "truss2": 1},
        },
    )
    first, gap, last = (epoch_document(seed.ledger, epoch) for epoch in (DAY, DAY + 1, DAY + 2))
    assert first["graph"]["measures"]["edges"] == {"value": 6, "before": 0, "change": 6}
    assert first["graph"]["measures"]["max_trussness"] == {"value": 4, "before": 0, "change": 4}
    assert gap["graph"]["measures"]["edges"] == {"value": 6, "before": 6, "change": 0}
    assert last["graph"]["measures"]["edges"] == {"value": 7, "before": 6, "change": 1}
    assert last["graph"]["trusses"] == [
        {"k": 2, "exactly": 1, "size": 7, "change": 1},
        {"k": 3, "exactly": 0, "size": 6, "change": 0},
        {"k": 4, "exactly": 6, "size": 6, "change": 0},
    ]
    assert (last["landed"]["rows"], last["landed"]["quarantined"], last["landed"]["share"]) == (30, 1, 1 / 31)
    assert [point["edges"] for point in last["trend"]] == [6, 6, 7]
    assert (last["previous"], last["next"], first["next"]) == ("2004-07-02", None, "2004-07-02")


def test_a_later_revision_adds_to_an_epoch_and_outdates_its_audit(seed: Seed) -> None:
    seed.run({DAY: (10, 0), DAY + 1: (10, 0)}, {DAY: {"edges": 6}, DAY + 1: {"edges": 1}})
    seed.audit([*audit(DAY), *audit(DAY + 1)])
    seed.run({DAY + 1: (12, 0)}, {DAY + 1: {"edges": 2}})
    first, second = (epoch_document(seed.ledger, epoch) for epoch in (DAY, DAY + 1))
    assert (first["state"], second["state"]) == ("good", "unaudited")
    assert first["audit"]["fresh"] and not second["audit"]["fresh"]
    assert second["graph"]["measures"]["edges"]["value"] == 9
    assert [(row["revision"], row["edges"]) for row in second["graph"]["revisions"]] == [(1, 7), (2, 2)]
    trust = second["verdict"]["answers"]["trust"]
    assert trust.startswith("It was compared at revision 1 and was equal then; revision 2 may have changed it since.")


def test_diffs_after_the_frontier_are_not_visible(seed: Seed) -> None:
    seed.run({DAY: (10, 0)}, {DAY: {"edges": 6}, DAY + 30: {"edges": -6}})
    found = epoch_document(seed.ledger, DAY)
    assert found["graph"]["measures"]["edges"]["value"] == 6
    assert epoch_document(seed.ledger, DAY + 30)["graph"] is None


def test_verdicts_in_plain_words(states: Seed) -> None:
    found = {epoch: epoch_document(states.ledger, epoch) for epoch in range(DAY + 39, DAY + 47)}
    assert [found[epoch]["state"] for epoch in found] == [
        "good", "warning", "wrong", "unaudited", "failed", "running", "empty", "empty",
    ]  # fmt: skip
    say = {one["state"]: one["verdict"] for one in found.values()}
    assert say["good"]["headline"] == "Loaded well. Equal to a full recomputation. Nothing to do."
    assert say["good"]["command"] is None
    assert "rows as usual" in say["warning"]["headline"]
    assert say["warning"]["answers"]["todo"] == "What to do about rows as usual."
    assert say["wrong"]["headline"].startswith(
        "Do not use this epoch yet. A check failed: trussness values of edges equal (1 diff"
    )
    assert say["wrong"]["command"] == "altneu repair 2004-08-11"
    assert say["wrong"]["answers"]["loaded"].startswith("It was published, and is wrong: 21 rows from 1 file")
    assert say["good"]["answers"]["loaded"].startswith("Yes: 24 rows")
    assert say["unaudited"]["command"] == "altneu audit 2004-08-12"
    assert say["failed"]["headline"].startswith("Not loaded. The run stopped: audit: 1 critical")
    assert say["failed"]["command"] == "altneu run 2004-08-13"
    assert say["failed"]["answers"]["todo"] == "What to do about edges are unique."
    assert say["running"]["command"] == "altneu run 2004-08-14"


@pytest.mark.parametrize(
    ("state", "says", "command"),
    [
        ("held", "A newer run waits for a decision.", "altneu diff run0002"),
        ("rejected", "Its newest run was rejected by Ada: half of it is missing.", "altneu run 2004-07-01"),
    ],
)
def test_a_correction_that_nobody_has_published_leaves_something_to_do(
    seed: Seed, state: str, says: str, command: str
) -> None:
    seed.run({DAY: (10, 0)}, {DAY: {"edges": 6}}, audit(DAY))
    if state == "held":
        seed.hold(DAY)
    else:
        seed.run({DAY: (5, 0)}, error="rejected by Ada: half of it is missing", state="rejected")
    found = epoch_document(seed.ledger, DAY)
    assert (found["state"], found["held"]["state"]) == ("good", state)
    verdict = found["verdict"]
    assert verdict["headline"] == f"Loaded well. Equal to a full recomputation. {says}"
    assert verdict["command"] == command and verdict["answers"]["todo"] != "Nothing."


def test_a_failed_rerun_leaves_what_was_published(seed: Seed) -> None:
    seed.run({DAY: (10, 0)}, {DAY: {"edges": 6}}, audit(DAY))
    seed.run({DAY: (99, 0)}, {DAY: {"edges": 90}}, [check(DAY, "x", False)], error="ingest: too many malformed rows")
    found = epoch_document(seed.ledger, DAY)
    assert found["state"] == "failed"
    assert found["verdict"]["headline"].endswith("What was published before (revision 1) is unchanged.")
    assert found["graph"]["measures"]["edges"]["value"] == 6 and found["landed"]["rows"] == 10
    assert [one["name"] for one in found["failed_run"]["checks"]] == ["x"] and not found["checks"]
    seed.run({DAY: (11, 0)}, {}, audit(DAY))
    assert epoch_document(seed.ledger, DAY)["state"] == "good"


def test_rows_against_history(seed: Seed) -> None:
    seed.good_days(10)
    seed.run({DAY + 10: (500, 0)}, {}, audit(DAY + 10))
    found = epoch_document(seed.ledger, DAY + 10)
    usual = {"epochs": 10, "low": 1, "high": 275, "middle": 22, "quarantined": 0}  # so few say little: a factor 12
    assert found["landed"]["history"] == usual | {"uneven": True}
    said = (
        "Far more rows than before, even though the last 10 landed epochs are too few, or too unlike each other, to "
        "say what is usual."
    )
    assert said in found["verdict"]["answers"]["loaded"]


def test_integer_epochs_far_apart(tmp_path) -> None:
    seed = Seed(tmp_path, "")
    seed.run({-5: (1, 0), 10**12: (2, 0)}, {-5: {"edges": 1}, 10**12: {"edges": 1}})
    found = epoch_document(seed.ledger, 10**12)
    assert (found["label"], found["previous"]) == ("1000000000000", "-5")
    assert [point["edges"] for point in found["trend"]] == [1, 2]


def test_documents_are_json_and_come_without_spark(states: Seed) -> None:
    code = (
        "import sys, json; from altneu.pipeline.report import epoch_document; "
        "from altneu.pipeline.home.home import Home; "
        "from altneu.pipeline.state.ledger import Ledger; home = Home.open(sys.argv[1]); "
        "print(json.dumps(epoch_document(Ledger(home), 12640))); assert 'pyspark' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code, str(states.home.path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["label"] == "2004-08-10"


@pytest.mark.parametrize("command", [["plan"], ["report"], ["status"], ["show", "totals"]], ids=" ".join)
def test_commands_that_the_database_answers_start_no_spark(states: Seed, command: list[str]) -> None:
    code = (
        "import sys; from altneu.pipeline import cli\n"
        "try: cli.main(['--home', *sys.argv[1:]])\n"
        "except SystemExit as ended: assert not ended.code\n"
        "spark = sys.modules.get('pyspark')\n"
        "assert spark is None or spark.SparkContext._gateway is None, 'a JVM was started'\n"
        "assert sys.argv[2] == 'show' or 'pandas' not in sys.modules, 'pandas was loaded for nothing'"
    )
    line = [sys.executable, "-c", code, str(states.home.path), *command]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
