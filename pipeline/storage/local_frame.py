"""Frames made from a few rows of this process.

Arrow passes the rows, which stay in the plan: no job runs for them, and Spark knows an empty frame and skips joins with
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

_ARROW = {"bigint": pa.int64(), "double": pa.float64(), "string": pa.string(), "boolean": pa.bool_()}
_ARROW["timestamp"] = pa.timestamp("us", "UTC")


def local_frame(spark: SparkSession, columns: Mapping[str, str], rows: Sequence[Sequence[Any]] = ()) -> DataFrame:
    """Make a frame from rows. `columns` maps the columns to their types in SQL."""
    cells = zip(*rows, strict=True) if rows else [(None,)] * len(columns)  # Arrow does not accept zero rows
    arrays = [pa.array(values, _ARROW[type_]) for values, type_ in zip(cells, columns.values(), strict=True)]
    frame = spark.createDataFrame(pa.table(arrays, names=list(columns)))
    return frame if rows else frame.where("false")
