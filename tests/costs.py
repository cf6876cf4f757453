"""What each test costs: whole Spark runs, seconds of the clock, seconds of the processors. A pytest plugin.

A run counts when one of its stages works with a Spark session; stages that keep the books alone do not. A command
that a test starts as a process counts when its words say that it runs (`backfill`, `demo`, …); what such a process
starts in turn is not seen. What a fixture that several tests share has cost is the fixture's own, not that of the test
that happened to ask first.

The end of the output lists the dearest tests and shared fixtures. A test without the marker `slow` or `backend` fails
when it has more than `MOST_RUNS` runs, or takes more than `MOST_SECONDS`, unless `@pytest.mark.dear("why")` says why;
and when it takes more than `LONGEST_SECONDS` in any case. Seconds are those of the clock or of the processors,
whichever are fewer: a busy machine fails nobody. `ALTNEU_TEST_COSTS=FILE` appends a line of JSON for each test.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

import psutil
import pytest

MOST_RUNS = 4
MOST_SECONDS = 30.0
LONGEST_SECONDS = 90.0
SHOWN = 10
COMMANDS_WITH_RUNS = {"run", "backfill", "rebuild", "demo"}


@dataclass(eq=False)
class Cost:
    """`runs`: ids of runs of this process that had a real stage; `commands`: started processes that run something."""

    runs: set[str] = field(default_factory=set)
    commands: int = 0
    seconds: float = 0.0
    processors: float = 0.0

    @property
    def count(self) -> int:
        return len(self.runs) + self.commands

    def as_json(self) -> dict[str, Any]:
        return {"runs": self.count, "seconds": round(self.seconds, 2), "processors": round(self.processors, 2)}


class Meter:
    """The costs of the test that is under way, and of the shared fixtures that are being set up."""

    def __init__(self) -> None:
        self.accounts = [Cost()]  # the test's; above it, those of shared fixtures that are being set up for it
        self.fixtures: list[tuple[str, Cost]] = []

    def start_test(self) -> None:
        self.accounts, self.fixtures = [Cost()], []

    @property
    def test(self) -> Cost:
        return self.accounts[0]

    def count_run(self, run_id: str) -> None:
        self.accounts[-1].runs.add(run_id)

    def count_command(self, arguments: object) -> None:
        if starts_run(arguments):
            self.accounts[-1].commands += 1

    def measure(self, account: Cost) -> Callable[[], None]:
        """Start two watches; the returned function adds what they show to an account, and takes it from the test's."""
        clock, processors = time.monotonic(), used_processors()

        def stop() -> None:
            spent = time.monotonic() - clock, used_processors() - processors
            account.seconds += spent[0]
            account.processors += spent[1]
            if account is not self.test:
                self.test.seconds -= spent[0]
                self.test.processors -= spent[1]

        return stop


meter = Meter()


def starts_run(arguments: object) -> bool:
    """Is this the command line of a process that runs something?

    >>> starts_run([".venv/bin/altneu", "--home", "x", "backfill", "--all"])
    True
    >>> starts_run([".venv/bin/altneu", "status"]), starts_run(["docker", "run"]), starts_run("infra/demo")
    (False, False, True)
    """
    if isinstance(arguments, (str, bytes, os.PathLike)):
        arguments = os.fsdecode(arguments).split()
    if not isinstance(arguments, Iterable):
        return False
    words = [os.fsdecode(word) for word in arguments if isinstance(word, (str, bytes, os.PathLike))]
    if words and (words[0].endswith("infra/demo") or any("runner.run(" in word for word in words)):
        return True
    ours = any(word.endswith(("/altneu", "altneu.pipeline.cli")) or word == "altneu" for word in words)
    return ours and not COMMANDS_WITH_RUNS.isdisjoint(words) and "--help" not in words


def used_processors() -> float:
    """Seconds that this process, those that it has waited for, and its JVM have computed."""
    own = os.times()
    spent = own.user + own.system + own.children_user + own.children_system
    context = sys.modules.get("pyspark.core.context")
    gateway = getattr(getattr(context, "SparkContext", None), "_gateway", None)
    process = getattr(gateway, "proc", None)
    if process is not None and process.returncode is None:
        try:
            jvm = psutil.Process(process.pid).cpu_times()
            spent += jvm.user + jvm.system
        except psutil.Error:
            pass
    return spent


def install() -> None:
    """Count from now on, in this process."""
    from pyspark.sql import SparkSession

    from altneu.pipeline.observability import telemetry

    work = telemetry.StageTelemetry.measure

    def counted(self: telemetry.StageTelemetry, function: Any, run: Any) -> Any:
        spark = getattr(run, "spark", None)
        if isinstance(spark, SparkSession) or "connect" in type(spark).__module__:
            meter.count_run(run.run_id)
        return work(self, function, run)

    telemetry.StageTelemetry.measure = counted  # type: ignore[method-assign]
    sys.addaudithook(lambda event, given: meter.count_command(given[1]) if event == "subprocess.Popen" else None)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Summary(), "altneu-costs")
    if not hasattr(config, "workerinput") and config.getoption("numprocesses", None):
        return  # the tests are those of the workers
    install()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    meter.start_test()
    stop = meter.measure(meter.test)
    item.stash[STOP] = stop
    return (yield)


STOP = pytest.StashKey[Callable[[], None]]()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    if fixturedef.scope == "function" or len(meter.accounts) > 1:  # what a shared fixture asks for is part of it
        return (yield)
    cost = Cost()
    meter.accounts.append(cost)
    stop = meter.measure(cost)
    try:
        return (yield)
    finally:
        stop()
        meter.accounts.remove(cost)
        meter.fixtures.append((fixturedef.argname, cost))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        stop = item.stash[STOP]
        stop()
        if report.passed and (why := excess(item, meter.test)):
            report.outcome, report.longrepr = "failed", why
        shared = [{"name": name, **cost.as_json()} for name, cost in meter.fixtures]
        report.user_properties.append(("cost", {**meter.test.as_json(), "shared": shared}))
        if file := os.environ.get("ALTNEU_TEST_COSTS"):
            line = {
                "test": item.nodeid.partition("@")[0],
                "outcome": report.outcome,
                **meter.test.as_json(),
                "shared": shared,
            }
            with open(file, "a", encoding="utf-8") as written:
                written.write(json.dumps(line) + "\n")
    return report


def excess(item: pytest.Item, cost: Cost) -> str:
    """Say how a test is too dear for the default tier; an empty text when it is not."""
    if any(item.get_closest_marker(name) for name in ("slow", "backend")):
        return ""
    seconds = min(cost.seconds, cost.processors)
    if seconds > LONGEST_SECONDS:
        return (
            f"{item.nodeid} takes {seconds:.0f} s; a test of the default tier may take {LONGEST_SECONDS:.0f}. "
            "Make it smaller, or give it the marker `slow`."
        )
    if item.get_closest_marker("dear"):
        return ""
    much = []
    if cost.count > MOST_RUNS:
        much.append(f"{cost.count} Spark runs (a test of the default tier may have {MOST_RUNS})")
    if seconds > MOST_SECONDS:
        much.append(f"{seconds:.0f} s (a test of the default tier may take {MOST_SECONDS:.0f})")
    if not much:
        return ""
    return (
        f"{item.nodeid} costs {' and '.join(much)}. Take a home that is already made, or `ledger_only`, "
        'or give it the marker `slow`; `@pytest.mark.dear("why")` keeps it as it is.'
    )


class Summary:
    """The dearest tests and fixtures of all processes, at the end of the output."""

    def __init__(self) -> None:
        self.tests: list[tuple[str, dict[str, Any]]] = []
        self.fixtures: list[tuple[str, dict[str, Any]]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, cost in report.user_properties:
            if name == "cost" and isinstance(cost, dict):
                self.tests.append((report.nodeid.partition("@")[0], cost))
                self.fixtures += [(f"fixture {each['name']}", each) for each in cost["shared"]]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        if hasattr(config, "workerinput") or not self.tests:
            return
        runs = sum(cost["runs"] for _, cost in self.tests + self.fixtures)
        processors = sum(cost["processors"] for _, cost in self.tests + self.fixtures)
        terminalreporter.section("what it cost")
        terminalreporter.line(f"{runs} Spark runs, {processors:.0f} CPU seconds; the dearest:")
        dearest = sorted(self.tests + self.fixtures, key=lambda each: -each[1]["seconds"])[:SHOWN]
        for name, cost in dearest:
            terminalreporter.line(
                f"{cost['seconds']:7.1f} s {cost['processors']:7.1f} CPU s {cost['runs']:3d} runs  {name}"
            )
