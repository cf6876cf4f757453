"""One Spark session for all tests of a process, and the settings for tests of tiny data. A plugin.

It is a plugin, and not in the suite's conftest.py, so that the examples of documents outside `tests/` have both too.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from altneu.pipeline.storage.session import SIMPLE

# Thousands of tiny cases are compile time, not work: nothing is compiled to bytecode or planned again.
TINY = SIMPLE
DOCUMENTS = {"altneu/algorithms/README.md"}  # whose examples start the session that is there


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from altneu.pipeline.storage.session import start_session

    # Two such processes, and those that tests start, are to leave the machine room: half of it each would be all.
    # `few`: the suite is over before the thorough compiler has paid for itself.
    spark = start_session("local[2]", {"spark.driver.memory": "3g"}, few=True)
    yield spark
    spark.stop()


@pytest.fixture
def tiny(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with the settings for tiny data, until the test ends."""
    before = {name: spark.conf.get(name) for name in TINY}
    for name, value in TINY.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    if item.nodeid.partition("::")[0] in DOCUMENTS:
        item.fixturenames += ["spark", "tiny"]  # type: ignore[attr-defined]
