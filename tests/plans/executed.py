"""The physical plans of the queries that a Spark session has executed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

from pyspark.sql import SparkSession


@contextmanager
def executed(spark: SparkSession) -> Iterator[list[str]]:
    """The plans of what is executed inside, as text, in the list once the block has ended."""
    plans: list[str] = []
    before = next((row.executionId() for row in _last_executions(spark)), -1)
    yield plans
    new = takewhile(lambda row: row.executionId() > before, _last_executions(spark))
    plans += [row.physicalPlanDescription() for row in new][::-1]


def single_partitions(plan: str) -> list[str]:
    """What an exchange brings into one partition, but for sums without a key: these are one row from each partition."""
    lines = plan.splitlines()
    below = [lines[i + 1].strip() for i, line in enumerate(lines) if "Exchange SinglePartition" in line]
    return [line for line in below if not re.search(r"HashAggregate\(keys=\[\]", line)]


def coalesced_tables(plan: str) -> list[str]:
    """What is brought into one partition without an exchange: rows of tables that nothing has summed up before."""
    lines = plan.splitlines()
    depth = _depths(lines)
    found = []
    for i, line in enumerate(lines):
        if not re.search(r"\bCoalesce 1\b", line):
            continue
        inside, summed = [], None
        for j in range(i + 1, len(lines)):
            if depth[j] <= depth[i]:
                break
            if summed is not None and depth[j] > summed:
                continue
            summed = depth[j] if "HashAggregate" in lines[j] else None
            inside += [lines[j]] if "BatchScan" in lines[j] else []
        found += inside
    return found


def broadcast_packs(plan: str) -> list[str]:
    """What is brought to the driver out of kernels: rows come in packs there, whose size says little of theirs."""
    lines = plan.splitlines()
    depth = _depths(lines)
    found = []
    for i, line in enumerate(lines):
        if "BroadcastExchange" in line:
            below = takewhile(lambda j, top=depth[i]: depth[j] > top, range(i + 1, len(lines)))
            found += [lines[j].strip() for j in below if "InArrow" in lines[j]]
    return found


def partitions(plan: str) -> list[int]:
    """Into how many partitions each exchange by hash cuts its rows."""
    return [int(number) for number in re.findall(r"hashpartitioning\([^()]*, (\d+)\)", plan)]


def _depths(lines: list[str]) -> list[int]:
    """How far in each line of a plan's tree begins."""
    return [len(re.match(r"[\s:+\-|]*", line)[0]) for line in lines]  # type: ignore[index]


def _last_executions(spark: Any) -> Iterator[Any]:
    """The queries that are over, the last one first: of a long session there are a thousand."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    found = spark._jsparkSession.sharedState().statusStore().executionsList()
    return (found.apply(place) for place in reversed(range(found.size())))
