"""A condition means the same in every view: that of Spark, also of rows that the database answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from altneu.pipeline.errors import UsageError
from altneu.pipeline.reading.graph import Graph
from altneu.pipeline.reading.query_model import Engine
from tests.report.seed import DAY, Seed, check

pytestmark = pytest.mark.usefixtures("tiny")

# view → conditions, one a line: division, text beside numbers, LIKE, null, capitals, dates, what cannot be computed
CONDITIONS = {
    "totals": r"""
        edges / 4 = 1.5
        edges / 4 = 1
        edges div 4 = 1
        edges % 4 = 2
        edges % -4 = 2
        -edges % 4 = -2
        edges = '6'
        edges > '10'
        '7' > edges
        label > 5
        epoch = label
        edges = 6.0
        edges IN (6, '7')
        label LIKE '2004%'
        label LIKE '2004-07-0_'
        label LIKE '%-0%'
        label NOT LIKE '%2'
        label LIKE '%'
        label LIKE '2004\%'
        label ILIKE '%X%'
        label RLIKE '0[12]$'
        lower(label) = label
        label = date'2004-07-01'
        to_date(label) < date'2004-07-02'
        label < '2004-07-02'
        label > 'x'
        null
        edges = null
        edges <=> null
        NOT (edges = null)
        edges IS NULL OR edges > 6
        transitivity IS NULL
        EDGES > 6
        `Edges` > 6
        Label = '2004-07-01'
        label = '2004-07-01 '
        LABEL LIKE '2004-07-01'
        edges BETWEEN 6 AND 7
        edges NOT IN (6)
        edges + 9223372036854775807 > 0
        1 / (edges - 6) > 0
        transitivity = 0
        transitivity < 0.1
        transitivity
        edges
        true
        weight > 1
        edges > 2147483648
        edges << 1 = 12
        edges & 1 = 1
        edges || '' = '6'
        edges = '6x'
        cast(label AS int) = 1
    """,
    "trusses": r"""
        exactly = 0
        k / 2 = 1.5
        edges > exactly
        k >= '3'
        k LIKE '4'
    """,
    "checks": r"""
        result = 'Passed'
        result LIKE 'f%'
        first = ''
        first IS NULL
        observed > 3
        check < suite
    """,
    "results": r"""
        published
        NOT published
        revision IS NULL
        at > '2004'
        year(at) >= 2020
        published = 'true'
    """,
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Graph:
    seed = Seed(tmp_path_factory.mktemp("home"))
    triangles = {"vertices": 4, "edges": 6, "triangles": 4, "truss4": 6}
    checks = [check(DAY, "Ends"), check(DAY, "sums", False, severity="warning", rows=[{"a": 1, "why": "x"}])]
    seed.run({DAY: (9, 0)}, {DAY: triangles}, checks)
    seed.run({DAY + 1: (1, 0)}, {DAY + 1: {"vertices": 1, "edges": 1, "truss2": 1}}, [check(DAY + 1, "ends")])
    seed.run({DAY + 2: (1, 0)}, {DAY + 2: {"edges": 3, "truss2": 3}}, [check(DAY + 2, "ends", False)], error="no")
    return Graph(seed.home.path, spark)


@pytest.mark.parametrize("view", CONDITIONS)
def test_conditions_mean_of_the_database_what_they_mean_to_spark(graph: Graph, view: str) -> None:
    more = name_epochs(view)
    assert getattr(graph.arrow, view)(**more).num_rows > 1
    for where, expected in answer_by_spark(graph, view):
        found = ask(graph.arrow, view, where=where, **more)
        assert (found if isinstance(found, str) else found.to_pylist()) == expected, where


@pytest.mark.parametrize(
    "view", [view if view == "trusses" else pytest.param(view, marks=pytest.mark.slow) for view in CONDITIONS]
)
def test_a_frame_of_a_condition_has_the_rows_that_spark_finds(graph: Graph, view: str) -> None:
    for where, expected in answer_by_spark(graph, view):
        found = ask(graph, view, where=where, **name_epochs(view))
        assert (found if isinstance(found, str) else [row.asDict() for row in found.collect()]) == expected, where


def name_epochs(view: str) -> dict[str, Any]:
    return {"all_epochs": True} if view in ("totals", "trusses") else {}


def answer_by_spark(graph: Graph, view: str) -> Iterator[tuple[str, list[Any] | str]]:
    """The conditions of a view, each with the rows that Spark finds by it, or "an error"."""
    listed = getattr(graph, view)(**name_epochs(view))
    for where in map(str.strip, CONDITIONS[view].strip().splitlines()):
        try:
            yield where, [row.asDict() for row in listed.where(where).collect()]
        except PySparkException:
            yield where, "an error"


def ask(door: Any, view: str, **given: Any) -> Any:
    """A view, or "an error" where the condition is refused."""
    try:
        return getattr(door, view)(**given)
    except UsageError as error:
        assert "--where" in error.what
        return "an error"


@pytest.mark.parametrize("where", ["edges > 6 AND", "edges >", "(edges > 6"])
def test_what_cannot_be_read_is_refused(graph: Graph, where: str) -> None:
    """Also where Spark would take the last word for a name of the whole: `edges > 6 AS AND`."""
    assert ask(graph.arrow, "totals", where=where) == ask(graph, "totals", where=where) == "an error"


def test_what_only_spark_understands_is_refused_where_duckdb_is_asked_for(graph: Graph) -> None:
    home: Path = graph.home.path
    with pytest.raises(UsageError, match="only Spark can evaluate"):
        Graph(home, engine=Engine.duckdb).arrow.totals(where="edges / 4 = 1.5")
    assert Graph(home, engine=Engine.duckdb).arrow.totals(where="label LIKE '2004%'").num_rows == 1
