"""What a run of a few rows asks of Spark and of the database, and the files that it leaves: every query costs more than
its rows, and files stay until a later publication tidies up, so that the numbers of all are held."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession

from altneu.pipeline.run import runner
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage.iceberg import IcebergTables
from tests import home_helpers
from tests.plans.jvm_calls import count_calls

# A data file, a manifest and a list of manifests for each of five tables. Iceberg commits no rows with less.
FILES = {".parquet": 5, ".avro": 10}
QUERIES = {"ingest": 5, "edges": 3, "triangles": 3, "truss": 3}  # all other stages: none
LOOKS = 90  # at the tables as they are then: seven at the beginning of each stage, and three for each commit
STATEMENTS = 460  # to the database, of which a hundred find the tables
CALLS = 1000  # of the JVM, by which PySpark makes plans


def newest_query(spark: Any) -> int:
    """Return the number of the newest query. They are counted by numbers, since the list keeps the last thousand."""
    store = spark._jsparkSession.sharedState().statusStore()
    newest = store.executionsList(max(0, store.executionsCount() - 1), 1)
    return int(newest.head().executionId()) if newest.nonEmpty() else -1


def count_questions(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count from now on the looks at tables, and the statements to a database but for heartbeats, which are as many as
    a run is long."""
    asked, load = Counter[str](), IcebergTables.load_table

    def load_counted(tables: IcebergTables, name: str) -> Any:
        asked["looks"] += 1
        return load(tables, name)

    def count_statement(connection: Any, cursor: Any, statement: str, *more: Any) -> None:
        asked["statements"] += not statement.startswith("UPDATE runs SET beat_at")

    monkeypatch.setattr(IcebergTables, "load_table", load_counted)
    sa.event.listen(ledger.database.engine, "before_cursor_execute", count_statement)
    return asked


def test_the_queries_of_each_stage(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, ledger = home_helpers.make(tmp_path / "home")
    home_helpers.put(home, 0, [(1, 2, None, "upsert", 0), (1, 3, None, "upsert", 0), (2, 3, None, "upsert", 0)])
    home_helpers.run(ledger, [0])
    home_helpers.put(home, 1, [(1, 4, None, "upsert", 0), (2, 4, None, "upsert", 0)])
    asked, execute = Counter[str](), runner.execute_stage

    def execute_counted(ledger: Any, run_id: str, name: str, *more: Any, **options: Any) -> Any:
        before = newest_query(spark)
        facts = execute(ledger, run_id, name, *more, **options)
        asked[name] += newest_query(spark) - before
        return facts

    monkeypatch.setattr(runner, "execute_stage", execute_counted)
    files = set((tmp_path / "home" / "warehouse").rglob("*.*"))
    questions, calls = count_questions(ledger, monkeypatch), count_calls(monkeypatch)
    home_helpers.run(ledger, [1])
    new = set((tmp_path / "home" / "warehouse").rglob("*.*")) - files
    assert Counter(file.suffix for file in new if file.suffix != ".json") == FILES
    assert ledger.revisions.get().revision == 2
    assert {name: queries for name, queries in asked.items() if queries} == QUERIES
    assert questions["looks"] <= LOOKS and questions["statements"] <= STATEMENTS, questions
    assert calls["calls"] <= CALLS
