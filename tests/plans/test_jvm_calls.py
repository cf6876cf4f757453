"""The shortcuts of PySpark's calls to the JVM (`storage.py4j_shortcuts`) change nothing but the number of calls."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.plans.jvm_calls import count_calls


@pytest.mark.parametrize("size", [0, 1, 2, 10, 11, 25])
def test_lists_arrive_whole_and_in_order(spark: Any, size: int) -> None:
    texts = [f"text {i}" for i in range(size)]
    assert list(spark._jvm.java.util.ArrayList(texts)) == texts
    row = spark.range(1).select(*[F.lit(text).alias(f"c{i}") for i, text in enumerate(texts)]).first()
    assert [*row] == texts


def test_a_list_of_columns_is_one_call(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, names = spark.range(1), ["id", "id + 1 AS a", "id + 2 AS b", "id + 3 AS c"]
    rows.selectExpr(*names)
    asked = count_calls(monkeypatch)
    rows.selectExpr(*names)
    assert asked["calls"] <= 3  # the list, the sequence, and `selectExpr` itself


def test_kept_columns_are_told_apart_by_type(spark: SparkSession) -> None:
    for _ in range(2):
        rows = spark.range(1).select(F.lit(1).alias("i"), F.lit(True).alias("b"), F.lit(1.0).alias("d"), F.lit("1"))
        assert [type_ for _, type_ in rows.dtypes] == ["int", "boolean", "double", "string"]
        assert [*rows.first()] == [1, True, 1.0, "1"]  # type: ignore[misc]


def test_names_and_texts_are_asked_for_once(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = lambda: [F.col("kept"), F.expr("kept + 1"), F.lit(7)]  # noqa: E731
    columns()
    asked = count_calls(monkeypatch)
    columns()
    assert not asked["calls"]
