"""What a failure of Spark, Iceberg or the database says: what happened, on which file, and the next command."""

from __future__ import annotations

from pathlib import Path

import pytest

from altneu.pipeline.errors import AltneuError, UsageError, describe_error
from tests import home_helpers

TRACE = """An error occurred while calling o1.collect.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed: org.apache.iceberg.exceptions.NotFoundException: File does not exist: /w/graph/edges/a.parquet
\tat org.apache.iceberg.hadoop.HadoopInputFile.lazyStat(HadoopInputFile.java:164)
Caused by: java.io.FileNotFoundException: File /w/graph/edges/a.parquet does not exist"""  # noqa: E501
FULL = "An error occurred.\n: java.io.IOException: No space left on device\n\tat java.base/java.io.FileOutputStream"


def test_the_real_cause_of_a_trace() -> None:
    what, then = describe_error(RuntimeError(TRACE))
    assert what == "File does not exist: /w/graph/edges/a.parquet"
    assert then is not None and "altneu rebuild" in then
    assert describe_error(RuntimeError(FULL)) == (
        "No space left on device",
        "make room on the disk, then run the same command again",
    )
    odd = describe_error(RuntimeError("An error occurred while calling o57.sql.\n: java.lang.OddException: so it is"))
    assert odd[0] == "java.lang.OddException: so it is"
    assert describe_error(UsageError("wrong", "right")) == ("wrong", "right")
    assert describe_error(ValueError("odd"))[0] == "ValueError: odd"


def test_a_database_that_does_not_answer(tmp_path: Path) -> None:
    with pytest.raises(AltneuError, match=r"nobody:\*\*\*@127.0.0.1:1/x does not answer"):
        home_helpers.open_database("postgresql+psycopg://nobody:secret@127.0.0.1:1/x")
    with pytest.raises(AltneuError, match="does not answer"):
        home_helpers.open_database(f"sqlite:///{tmp_path / 'nowhere' / 'a.db'}")
