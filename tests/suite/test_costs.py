"""What a test may cost: runs and seconds are counted, a test of the default tier that costs more fails and says so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from altneu.pipeline.observability import telemetry
from tests import costs

REPO = Path(__file__).resolve().parents[2]
SOURCE = """
import subprocess
import sys

import pytest
from tests.costs import meter

def spend(runs, seconds=0):
    for number in range(runs):
        meter.count_run(f"run {number}")
        meter.count_run(f"run {number}")  # another stage of it
    meter.test.seconds += seconds
    meter.test.processors += seconds

@pytest.fixture(scope="module")
def history():
    spend(12)

def test_as_many_as_may_be(history):
    spend(4, seconds=29)

def test_a_command_is_a_run_too():
    spend(4)
    subprocess.run([sys.executable, "-c", "", "altneu", "backfill", "--all"])

def test_long(history):
    spend(0, seconds=31)

@pytest.mark.dear("a whole history")
def test_dear():
    spend(5, seconds=31)

@pytest.mark.dear("a whole history")
def test_too_dear():
    spend(0, seconds=91)

@pytest.mark.slow
def test_a_sweep():
    spend(50, seconds=500)

@pytest.mark.backend("s3")
def test_a_back_end():
    spend(50, seconds=500)

def test_a_busy_machine(history):
    meter.test.seconds += 1000
"""


def call_pytest(folder: Path, *arguments: str) -> str:
    (folder / "test_them.py").write_text(SOURCE)
    plugins = ("-p", "tests.costs", "-p", "tests.tiers", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *plugins, "-rf", *arguments]
    done = subprocess.run([*command, str(folder / "test_them.py")], cwd=REPO, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("processes", [pytest.param((), marks=pytest.mark.slow), ("-n", "2", "--dist", "loadgroup")])
def test_what_costs_too_much_fails_and_the_dearest_are_named(processes: tuple[str, ...], tmp_path: Path) -> None:
    """With two processes what some tests share is made once, since they stay together."""
    output = call_pytest(tmp_path, *processes)
    failed = set(re.findall(r"^FAILED \S+::(\w+)", output, re.M))
    assert failed == {"test_a_command_is_a_run_too", "test_long", "test_too_dear"}
    assert "costs 5 Spark runs (a test of the default tier may have 4)" in output
    assert "costs 31 s (a test of the default tier may take 30)" in output
    assert "takes 91 s; a test of the default tier may take 90" in output
    said = output.partition("what it cost")[2]
    assert "126 Spark runs" in said and re.search(r" 12 runs  fixture history", said)
    dearest = re.findall(r"runs  (?:fixture |\S+::)(\w+)", said)
    assert dearest[0] == "test_a_busy_machine" and {*dearest[1:3]} == {"test_a_sweep", "test_a_back_end"}


def test_stages_without_spark_are_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`install_command` counts what a stage is given, once in a run, and leaves the stage as it is."""
    monkeypatch.setattr(telemetry.StageTelemetry, "measure", lambda self, function, run: function(run))
    monkeypatch.setattr(costs.sys, "addaudithook", lambda hook: None)
    monkeypatch.setattr(costs, "meter", costs.Meter())
    costs.install()
    for spark, run_id in ((Mock(spec=SparkSession), "a"), (Mock(spec=SparkSession), "a"), (None, "b")):
        run = SimpleNamespace(spark=spark, run_id=run_id)
        assert telemetry.StageTelemetry.measure(Mock(), lambda run: run, run) is run  # type: ignore[arg-type, return-value]
    assert costs.meter.test.runs == {"a"}
