"""The conditions of the settings, `[edges] where` and those of motifs, and their validation before they decide about
rows.

`require_conditions` lets Spark read them before a run reads anything: the settings have been checked for their grammar
and columns without Spark, so what is left are functions, types and constants. No condition is tried on a made-up value.
An upsert on which a condition cannot be evaluated (`tag > 5` on a tag that is not a number, a division by zero) is
malformed: it does not land, and its row in quarantine names the setting. Deletions have no value, so no condition is
evaluated on them. Thus each condition is true or false for every stored upsert, wherever it is evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from altneu.algorithms.algebra.upserts import DELETE
from altneu.algorithms.graph import motif_patterns
from altneu.algorithms.sql_predicates import Condition, can_fail, fails_on, only_where
from altneu.algorithms.sql_text import quote_identifier

from ..errors import RunFailed, UsageError
from ..home.home import Home
from ..storage.table_schemas import value_columns

_ENDS = ("src", "dst", "a", "b")
_FAILS = " cannot be evaluated on "  # in the reason of a quarantined row, after the setting
_OF_VALUES = {"ArithmeticException", "ArrayIndexOutOfBoundsException", "DateTimeException", "NumberFormatException"}
_OF_VALUES |= {"SparkRuntimeException", "IllegalArgumentException"}
_MAX_SHOWN_CHARACTERS = 500  # characters of a row in quarantine, as of any other malformed row
_FROM_ID = {"bigint": "id", "double": "double(id)", "string": "string(id)", "boolean": "id > 0"}


@dataclass(frozen=True)
class RowCondition:
    """One condition: the setting as messages name it, the condition in Spark SQL, and whether it can fail on a row.

    `precondition` is another condition; for rows for which it does not hold, this one is not evaluated.
    """

    setting: str
    sql: str
    can_fail: bool = True
    precondition: str | None = None

    @property
    def expression(self) -> str:
        """Return the expression that is evaluated on a row."""
        return self.sql if self.precondition is None else only_where(self.precondition, self.sql)

    @property
    def columns(self) -> list[str]:
        """Return the columns that the condition reads, once each."""
        return _list_columns(self.sql)


def read_conditions(home: Home) -> list[RowCondition]:
    """Return the conditions of the settings in the order in which they are evaluated."""
    config = home.config
    types = {**config.values, **dict.fromkeys((*_ENDS, "epoch"), "long")}
    edges, listed = config.edge_condition, list[RowCondition]()
    if edges is not None:
        listed.append(RowCondition(f"[edges] where = {config.edges.where!r}", edges, can_fail(edges, types)))
    for name, motif in config.motif_patterns().items():
        for edge in dict.fromkeys(edge for pattern in motif for edge in pattern.edges):
            sql = motif_patterns.relation_condition(edge.relation)
            if sql:
                text = f"[motifs] {name}: {edge.a}{edge.relation[:2].strip()}{edge.b} where {sql}"
                listed.append(RowCondition(text, sql, can_fail(sql, types), edges))
    return listed


def fallible_conditions(home: Home) -> list[RowCondition]:
    """Return the conditions that can fail on a landed row.

    Conditions on the numbers that altneu gives to string ids are not among them: a landed row does not have these yet.
    """
    numbered = set() if home.config.vertices.ids == "integer" else {*_ENDS}
    return [
        condition
        for condition in read_conditions(home)
        if condition.can_fail and not numbered.intersection(map(str.casefold, _list_columns(condition.expression)))
    ]


def require_conditions(spark: SparkSession, home: Home) -> None:
    """Raise `UsageError` that names each setting whose condition Spark cannot read, or whose constants fail.

    Spark plans them over a range without a row, so that it folds their constants and evaluates nothing else.
    """
    conditions = read_conditions(home)
    if not conditions:
        return
    columns = dict.fromkeys((*_ENDS, "epoch"), "bigint") | value_columns(home)
    rows = spark.range(0).selectExpr(
        *[f"{_FROM_ID[type_]} AS {quote_identifier(name)}" for name, type_ in columns.items()]
    )
    problems = []
    for condition in conditions:
        try:
            rows.where(condition.sql).collect()
        except PySparkException as error:
            problems.append(f"{condition.setting}: {_first_line(error)}")
    if problems:
        file = home.path / "altneu.toml"
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise UsageError(f"{file} has {len(problems)} problem(s):{listed}", f"edit {file}")


def name_failures(rows: DataFrame, conditions: Sequence[RowCondition]) -> DataFrame:
    """Add a, b and `_failure` to upserts: the number of the first condition that cannot be evaluated, or null."""
    failure = F.lit(None).cast("int")
    for place, condition in reversed(list(enumerate(conditions))):
        fails = F.expr(fails_on(condition.expression, f"op <> '{DELETE}'"))
        failure = F.when(fails, F.lit(place)).otherwise(failure)
    ends = {name: end("src", "dst") for name, end in zip("ab", (F.least, F.greatest), strict=True)}
    return rows.select("*", *[end.alias(name) for name, end in ends.items()]).withColumn("_failure", failure)


def keep_decided(rows: DataFrame, conditions: Sequence[RowCondition]) -> DataFrame:
    """Leave out the upserts on which a condition cannot be evaluated."""
    return name_failures(rows, conditions).where("_failure IS NULL").select(*rows.columns)


def quarantine_failures(rows: DataFrame, conditions: Sequence[RowCondition]) -> DataFrame:
    """Return rows of quarantine for the upserts on which a condition cannot be evaluated: file, line, reason, text,
    epoch."""
    failed = name_failures(rows, conditions).where("_failure IS NOT NULL")
    reason = F.lit(None).cast("string")
    for place, condition in enumerate(conditions):
        values = F.to_json(F.struct(*map(quote_identifier, condition.columns)), {"ignoreNullFields": "false"})
        words = F.concat(F.lit(_format_reason(condition.setting)), F.substring(values, 1, _MAX_SHOWN_CHARACTERS))
        reason = F.when(F.col("_failure") == place, words).otherwise(reason)
    row = F.to_json(
        F.struct(*[quote_identifier(name) for name in rows.columns if name not in ("file", "line", "epoch")])
    )
    text = F.substring(row, 1, _MAX_SHOWN_CHARACTERS).alias("text")
    return failed.select("file", "line", reason.alias("reason"), text, "epoch")


def count_failures(rows: DataFrame, conditions: Sequence[RowCondition]) -> DataFrame:
    """Count the failures of each file that has some: epoch, file, `failed`, and line, reason and text of the first
    one."""
    first = F.min(F.struct("line", "reason", "text")).alias("first")
    counted = quarantine_failures(rows, conditions).groupBy("epoch", "file").agg(F.count("*").alias("failed"), first)
    return counted.select("epoch", "file", "failed", "first.*")


def require_decided(home: Home, upserts: DataFrame, quarantine: DataFrame, *, same_filter: bool) -> None:
    """Raise `RunFailed` if other rows would have landed under the current conditions.

    That is so if a condition cannot be evaluated on a stored upsert, or if a row is in quarantine for a condition that
    does not exist any more. `same_filter` says that `[edges] where` is what it was when the rows landed.
    """
    conditions = fallible_conditions(home)
    reasons = [_format_reason(condition.setting) for condition in conditions] if same_filter else []
    former = F.col("reason").contains(_FAILS) & F.expr("reason LIKE '[edges] %' OR reason LIKE '[motifs] %'")
    for reason in reasons:
        former &= ~F.col("reason").startswith(reason)
    failed = name_failures(upserts, conditions).where("_failure IS NOT NULL")
    undecided = quarantine_failures(_sum_copies(failed.select(*upserts.columns)), conditions)
    for rows in (undecided, _sum_copies(quarantine.where(former))):
        first = rows.orderBy("epoch", "file", "line").first()
        if first is not None:
            raise RunFailed(
                f"the conditions of the settings have changed since the rows landed: landing/{first.file} line "
                f"{first.line}: {first.reason}. Nothing was published.",
                "altneu rebuild --from-landing   (judges the landed rows again)",
            )


@contextmanager
def name_conditions(home: Home) -> Iterator[None]:
    """Run the block, and raise `RunFailed` with the names of the settings if Spark fails on a condition.

    This can happen for patterns that Spark does not know, for conditions on the numbers of string ids, and for rows
    that landed with an earlier version.
    """
    try:
        yield
    except PySparkException as error:
        settings = [condition.setting for condition in read_conditions(home) if condition.can_fail]
        if not settings or type(error).__name__ not in _OF_VALUES:
            raise
        raise RunFailed(
            f"{'; or '.join(settings)} cannot be evaluated: {_first_line(error)}. Nothing was published.",
            f"write it with try_cast or try_divide, for example, in {home.path / 'altneu.toml'}",
        ) from error


def _list_columns(sql: str) -> list[str]:
    return list(dict.fromkeys(column.name for column in Condition.from_text(sql).columns))


def _first_line(error: PySparkException) -> str:
    return str(error).splitlines()[0].split(" SQLSTATE")[0][:300].rstrip(". ")


def _sum_copies(rows: DataFrame) -> DataFrame:
    """Return the rows that remain once their diffs are added up."""
    data = [name for name in rows.columns if name not in ("revision", "diff")]
    return rows.groupBy(*data).agg(F.sum("diff").alias("_copies")).where("_copies > 0").select(*data)


def _format_reason(setting: str) -> str:
    return setting + _FAILS
