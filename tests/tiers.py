"""In which order tests run, which of them stay together in one process, and which share of them runs. A pytest plugin.

The tiers themselves are markers, which `infra/test` chooses by: the default tier is what is neither `slow` nor
`backend`. Quick tests come first, so that a broken line shows within a minute; then those with Spark, the longest
first, so that no long one decides the end. Each process takes the next test that nobody has. Tests of one
file that share a fixture stay together (`--dist loadgroup`), those that take copies of canonical histories, those of
DAGs, so that one process alone loads Airflow, and those that start many processes: one of them at a time.

`--share K/N` is the K-th of N equal shares, by the seconds of `tests/seconds.tsv`: the same for the same tests. With
`--minutes M` no test begins after M minutes, nor one that would take much longer than that; what was left out is
listed at the end. With ALTNEU_TEST_FAILURES=FILE, what has failed is listed there too, as pytest takes it again.
`python -m tests.tiers FILE` puts into the table what a run with `ALTNEU_TEST_COSTS=FILE` measured.
"""

from __future__ import annotations

import csv
import functools
import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests import canonical, seeds
from tests.tools import list_backends

TESTS = Path(__file__).parent
TABLE = TESTS / "seconds.tsv"
QUICK = ("unit", "docs", "report", "expectations")  # the folders of `--quick`
RECORDED = 2.0  # seconds, from which on a test is in the table
USUAL = {"airflow": 150.0, "wheel": 200.0, "cluster": 90.0, "connect": 40.0}  # of a test that is not in the table
AIRFLOW = "airflow"  # the group of those in `tests/dags`
CROWDED = set(USUAL)  # back ends of which one test at a time is enough for a machine
GRACE = 120.0  # seconds that a test may go on when the time of a share is over
LEFT_OUT = "left out: the time of this share is over"
UNTIL = "ALTNEU_TESTS_UNTIL"
FAILURES = "ALTNEU_TEST_FAILURES"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="Only what needs no Spark and no back end: a minute.")
    parser.addoption("--share", metavar="K/N", type=parse_share, help="Only the K-th of N equal shares.")
    parser.addoption("--minutes", metavar="M", type=float, help="Begin no test after so many minutes.")


def parse_share(text: str) -> tuple[int, int]:
    """Return the number of a share, from 1, and how many there are.

    >>> parse_share("3/8")
    (3, 8)
    >>> parse_share("0/8")
    Traceback (most recent call last):
    ValueError: 0/8 is no share: write K/N, with K from 1 to N
    """
    share, _, shares = text.partition("/")
    if not (share.isdigit() and shares.isdigit() and 1 <= int(share) <= int(shares)):
        raise ValueError(f"{text} is no share: write K/N, with K from 1 to N")
    return int(share), int(shares)


def pytest_configure(config: pytest.Config) -> None:
    minutes = config.getoption("minutes")
    if minutes is not None and not hasattr(config, "workerinput"):
        os.environ[UNTIL] = str(time.time() + 60 * minutes)  # the workers begin later


def pytest_itemcollected(item: pytest.Item) -> None:
    group = name_group(item)
    if group:
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(trylast=True)  # after `-m` and `-k` have chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        name_with_group(item)
    chosen = list(items)
    if config.getoption("quick"):
        chosen = [item for item in chosen if is_quick(item)]
    if share := config.getoption("share"):
        chosen = take_share(chosen, *share)
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen if config.getoption("file_or_dir") else put_in_order(chosen)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    until = float(os.environ.get(UNTIL) or "inf")
    if time.time() > until or time.time() + estimate_seconds(item) > until + GRACE:
        pytest.skip(LEFT_OUT)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for sample in list_samples(terminalreporter.stats.get("passed", [])):
        terminalreporter.line(f"A sample: {sample}")
    if file := os.environ.get(FAILURES):
        failed = [report for name in ("failed", "error") for report in terminalreporter.stats.get(name, [])]
        Path(file).write_text("".join(f"{name}\n" for name in {seeds.GROUP.sub("", each.nodeid): 0 for each in failed}))
    left_out = [report for report in terminalreporter.stats.get("skipped", []) if LEFT_OUT in str(report.longrepr)]
    if config.getoption("minutes") is not None:
        terminalreporter.line(f"{len(left_out)} tests were left out for want of time.")
        for function, number in sorted(Counter(name_function(report.nodeid) for report in left_out).items()):
            terminalreporter.line(f"{number:5d}  {function}")


def list_samples(reports: Iterable[pytest.TestReport]) -> list[str]:
    """Return what tests say of the random sample that they have looked at, in their property `sample`."""
    return [str(value) for report in reports for name, value in report.user_properties if name == "sample"]


def needs_spark(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ())


def is_quick(item: pytest.Item) -> bool:
    """Does a test need neither Spark nor a back end, and next to no time?"""
    folder = item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""
    known = name_function(item.nodeid) in read_seconds()
    return folder in QUICK and not (known or needs_spark(item) or list_backends(item))


def name_group(item: pytest.Item) -> str | None:
    """Name those that a test stays with: all of DAGs; all that take a copy of a history of `tests.canonical`, which is
    made once then; all of its file, where it has fixtures that the file shares."""
    if CROWDED.intersection(list_backends(item)):
        return "many processes"
    if item.path.is_relative_to(TESTS / "dags"):
        return AIRFLOW
    fixtures = getattr(item, "_fixtureinfo", None)
    definitions = list(fixtures.name2fixturedefs.values()) if fixtures else []
    if any(each[-1].func.__module__ == canonical.__name__ for each in definitions):
        return canonical.__name__
    if any(each[-1].scope in ("class", "module", "package") for each in definitions):
        return item.nodeid.partition("::")[0]
    return None


def name_with_group(item: pytest.Item) -> None:
    """Let the id of a test end with its group, where xdist has appended it: pytest reads another attribute than xdist
    sets from 9.2 on, and tests that share a fixture would go to both processes."""
    named = getattr(item, "_nodeid", None)
    if named and named != item.nodeid:
        item._id = type(item.id).parse(named)


def name_function(nodeid: str) -> str:
    """Return a test's file and function, without its parameters and its group.

    >>> name_function("tests/a.py::test_b[x::y]@tests/a.py")
    'tests/a.py::test_b'
    """
    return nodeid.partition("[")[0].partition("@")[0]


def estimate_seconds(item: pytest.Item) -> float:
    """Estimate how long a test takes: as the table has it, else what is usual for what it needs."""
    recorded = read_seconds().get(name_function(item.nodeid))
    if recorded is not None:
        return recorded
    backends = [USUAL[name] for name in list_backends(item) if name in USUAL]
    usual = 40.0 if item.get_closest_marker("slow") else 5.0
    return max([*backends, usual if needs_spark(item) else 0.1])


@functools.cache
def read_seconds() -> dict[str, float]:
    with TABLE.open(newline="") as file:
        return {function: float(seconds) for function, seconds in csv.reader(file, delimiter="\t")}


def split_units(items: Iterable[pytest.Item]) -> dict[str, list[pytest.Item]]:
    """Return what has to stay together: the tests of a group in one file, or of a group of several files; each other
    test is a unit of its own."""
    units: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        test, group = item.nodeid.partition("@")[0], name_group(item)
        units[group if group in (canonical.__name__, AIRFLOW) else test.partition("::")[0] if group else test].append(
            item
        )
    return units


def take_share(items: Sequence[pytest.Item], share: int, shares: int) -> list[pytest.Item]:
    """Return the tests of a share: each unit, the longest first, goes to the share that has least so far."""
    totals, chosen = [0.0] * shares, set()
    for seconds, unit in sorted(measure_units(items), key=lambda unit: -unit[0]):
        least = totals.index(min(totals))
        totals[least] += seconds
        if least == share - 1:
            chosen.update(unit)
    return [item for item in items if item in chosen]


def put_in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests without Spark first, the quickest units first, then the others, the longest first.

    A unit keeps its own order.
    """

    def key(measured: tuple[float, list[pytest.Item]]) -> tuple[bool, float]:
        seconds, unit = measured
        dear = any(needs_spark(item) or list_backends(item) or item.get_closest_marker("slow") for item in unit)
        return dear, -seconds if dear else seconds

    return [item for _, unit in sorted(measure_units(items), key=key) for item in unit]


def measure_units(items: Iterable[pytest.Item]) -> list[tuple[float, list[pytest.Item]]]:
    """Return the units with the seconds that they are estimated to take, in the order of collection."""
    return [(sum(map(estimate_seconds, unit)), unit) for unit in split_units(items).values()]


def record(file: str) -> None:
    """Put the costs of a run into the table: of each function the sum of its parameters, divided by their number."""
    measured: dict[str, list[float]] = defaultdict(list)
    with open(file, encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            if line["outcome"] == "passed":
                measured[name_function(line["test"])].append(max(0.0, line["seconds"]))
    seconds = read_seconds() | {name: sum(each) / len(each) for name, each in measured.items()}
    with TABLE.open("w", newline="") as written:
        rows = sorted((name, f"{each:.0f}") for name, each in seconds.items() if each >= RECORDED)
        csv.writer(written, delimiter="\t", lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    record(sys.argv[1])
