"""The conditions of the settings, judged by Spark before a run reads anything: `[edges] where` and those of motifs.

`settings` has read their grammar and columns without Spark; what is left are functions by name and the types of what
they are given.
"""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from algorithms import patterns

from ..errors import UsageError
from ..home.directory import Home
from ..storage.declared import ddl, value_columns

_LIKE = {"bigint": 1, "double": 1.0, "string": "1", "boolean": True}  # a row to try them on


def judge(spark: SparkSession, home: Home) -> None:
    """Raises `UsageError` that names each setting whose condition Spark cannot evaluate to true or false."""
    asked = _asked(home)
    if not asked:
        return
    columns = dict.fromkeys(("src", "dst", "a", "b", "epoch"), "bigint") | value_columns(home)
    row = spark.createDataFrame([tuple(_LIKE[type_] for type_ in columns.values())], ddl(columns))
    problems = []
    for place, condition in asked.items():
        try:
            row.where(F.expr(condition)).collect()
        except PySparkException as error:
            problems.append(f"{place}: {str(error).splitlines()[0].split(' SQLSTATE')[0][:300]}")
    if problems:
        file = home.path / "altneu.toml"
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise UsageError(f"{file} has {len(problems)} problem(s):{listed}", f"edit {file}")


def _asked(home: Home) -> dict[str, str]:
    """Where each condition stands → the condition as Spark takes it."""
    config = home.config
    asked = {} if config.condition is None else {f"[edges] where = {config.edges.where!r}": config.condition}
    for name, found in config.patterns().items():
        for edge in (edge for pattern in found for edge in pattern.edges):
            condition = patterns.condition(edge.relation)
            if condition:
                asked[f"[motifs] {name}: {edge.a}{edge.relation[:2].strip()}{edge.b} where {condition}"] = condition
    return asked
