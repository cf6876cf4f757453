"""Errors of a declared query: where an engine cannot evaluate a text, the run ends with its name and what to do.

`translate_query_errors` is the one place for maintained and recomputed queries, in Spark and in DuckDB. What is likely
to pass by itself stays as it is, so that the run is tried again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
from pyspark.errors import PySparkException

from ...errors import RunFailed, is_transient


@contextmanager
def translate_query_errors(name: str) -> Iterator[None]:
    """Raise `RunFailed` for an error of an engine in the block that computes the query `name`."""
    try:
        yield
    except (PySparkException, duckdb.Error) as error:
        if is_transient(error):
            raise
        first = str(error).strip().splitlines()[0].split(" SQLSTATE")[0].rstrip(". ")
        raise RunFailed(
            f"query {name}: {first}. Nothing was published.",
            f"correct queries/{name}.sql, or move it away",
        ) from error
