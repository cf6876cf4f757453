"""A few rows of this process as a frame. They go by Arrow and stay in the plan: no job runs for them, and Spark
knows which of them are empty, and leaves out what is joined to those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

_ARROW = {"bigint": pa.int64(), "double": pa.float64(), "string": pa.string(), "boolean": pa.bool_()}
_ARROW["timestamp"] = pa.timestamp("us", "UTC")


def local_frame(spark: SparkSession, columns: Mapping[str, str], rows: Sequence[Sequence[Any]] = ()) -> DataFrame:
    """`columns`: each with its type in SQL."""
    cells = zip(*rows, strict=True) if rows else [(None,)] * len(columns)  # Arrow does not send nothing
    arrays = [pa.array(values, _ARROW[type_]) for values, type_ in zip(cells, columns.values(), strict=True)]
    made = spark.createDataFrame(pa.table(arrays, names=list(columns)))
    return made if rows else made.where("false")
