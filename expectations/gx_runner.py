"""The only interface to Great Expectations: it takes a frame and its expectations, and returns rule_results.

Small   A frame of up to `SMALL` rows is fetched by Arrow, with nullable types (no 64-bit id becomes a float), and
        judged by the pandas engine; a larger one is judged in Spark. The expectations and results are the same, which
        a test checks. Measured, all suites: on tiny frames 7 CPU seconds and 26 jobs in pandas against 15 and 76 in
        Spark; at 100,000 rows 17 CPU seconds with either engine, which is the reason for the value of `SMALL`.
Price   One aggregation over a frame finds the rules that certainly hold (`wrong_rows`). Great Expectations is imported,
        3.5 CPU seconds, where a rule may not hold, and judges it.
Bounds  Rows are fetched for the failed rules only, and limited to `ROWS` inside Spark. Nothing grows with the number of
        offending rows.
Errors  `CheckCrashed` if Great Expectations could not evaluate a rule: a bug of altneu, not bad data.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from .model import Expectation, RuleResult
from .wrong_rows import doubtful_rules

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame

SMALL = 100_000  # rows
ROWS = 20  # offending rows kept per check


class CheckCrashed(Exception):
    """Raised when a rule could not be evaluated. It says nothing about the data."""


class ExpectationRunner:
    """A judge of frames. Frames of up to `small` rows are judged in pandas."""

    def __init__(self, small: int = SMALL) -> None:
        self._small = small

    def fetch_small(self, frame: DataFrame | pd.DataFrame) -> DataFrame | pd.DataFrame:
        """Return a small Spark frame in pandas, by one job; return a larger one, and one of pandas, as it is."""
        import pandas as pd

        if isinstance(frame, pd.DataFrame):
            return frame
        start = to_pandas(frame.limit(self._small + 1))  # bounded even if the frame is not small
        return start if len(start) <= self._small else frame

    def judge_frame(
        self, name: str, frame: DataFrame | pd.DataFrame, expectations: Sequence[Expectation], *, scan: bool = False
    ) -> list[RuleResult]:
        """Judge a frame, which `fetch_small` has returned, by its expectations.

        Args:
            name: the name of the frame.
            frame: a pandas or a Spark frame. A Spark frame is persisted meanwhile, because it is read several times.
            expectations: all on this frame.
            scan: do not persist the frame: it is a mere scan of a table, of which each reading needs only a few
                columns.
        """
        import pandas as pd

        if isinstance(frame, pd.DataFrame):
            return self._run_expectations("pandas", name, frame, expectations)
        if scan or frame.is_cached:
            return self._run_expectations("spark", name, frame, expectations)
        held = frame.persist()
        try:
            return self._run_expectations("spark", name, held, expectations)
        finally:
            held.unpersist()

    def _run_expectations(
        self, engine: str, name: str, frame: Any, expectations: Sequence[Expectation]
    ) -> list[RuleResult]:
        """Judge the expectations that may not hold by Great Expectations, which takes several times the work."""
        doubtful, total = doubtful_rules(frame, expectations)
        bounded = {"result_format": "SUMMARY", "include_unexpected_rows": True, "partial_unexpected_count": ROWS}
        judged = self._validate_batch(self._make_batch(engine, frame), name, doubtful, bounded) if doubtful else []
        results = {id(expectation): result for expectation, result in zip(doubtful, judged, strict=True)}
        rule_results = []
        for expectation in expectations:
            result = results.get(id(expectation))
            if result is None or result.success:
                known = engine == "spark" or not expectation.unjudged or _has_values(frame, expectation)
                rule_results.append(RuleResult(expectation, True, 0, total, [], known))
                continue
            cap = None if expectation.per_epoch and engine == "pandas" else ROWS
            rows = _offending_rows(result.result.get("unexpected_rows"), cap)
            rule_results.append(_make_rule_result(expectation, result, total, rows))
        return rule_results

    def _make_batch(self, engine: str, frame: Any) -> Any:
        """Return a frame as a batch. All frames of an engine share one asset, because every new one costs tenths of a
        second.
        """
        context, definitions = _make_context()
        if engine not in definitions:
            new = context.data_sources
            source = new.add_pandas(engine) if engine == "pandas" else new.add_spark(engine, persist=False)
            definitions[engine] = source.add_dataframe_asset("frame").add_batch_definition_whole_dataframe("all")
        return definitions[engine].get_batch({"dataframe": frame})

    def _validate_batch(
        self, batch: Any, name: str, expectations: Sequence[Expectation], result_format: dict[str, Any]
    ) -> list[Any]:
        """Return the results, in the order of the expectations."""
        rules = [self.to_gx_rule(expectation) for expectation in expectations]
        suite = import_great_expectations().ExpectationSuite(name=name, expectations=rules)
        results = batch.validate(suite, result_format=result_format).results
        by_name = {result.expectation_config.meta["name"]: result for result in results}
        ordered = [by_name[f"{e.suite}: {e.name}"] for e in expectations]
        for expectation, result in zip(expectations, ordered, strict=True):
            trouble = _caught_message(result.exception_info)
            if trouble:
                raise CheckCrashed(f"{expectation.suite}: the check {expectation.name!r} could not run: {trouble}")
        return ordered

    def to_gx_rule(self, expectation: Expectation) -> Any:
        """Return an expectation as a rule of Great Expectations."""
        meta = {"name": f"{expectation.suite}: {expectation.name}", "remedy": expectation.remedy}
        class_ = rule_class(expectation.kind)
        return class_(**expectation.args, severity=expectation.severity, description=expectation.meaning, meta=meta)


def import_great_expectations() -> Any:
    """Import Great Expectations, without its telemetry."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx

    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    return gx


@lru_cache(maxsize=1)
def _make_context() -> tuple[Any, dict[str, Any]]:
    """Return one context of Great Expectations without progress bars, and its batch definitions by engine.

    There is one context per process, because every context leaves a folder in the temporary directory.
    """
    context = import_great_expectations().get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    return context, {}


def to_pandas(frame: DataFrame) -> pd.DataFrame:
    """Return a small Spark frame in pandas; integers and booleans keep their type even if there are nulls."""
    return arrow_to_pandas(frame.toArrow())


def arrow_to_pandas(table: pa.Table) -> pd.DataFrame:
    """Convert an Arrow table to pandas with the types that Spark would give."""
    import pandas as pd
    import pyarrow as pa

    kinds = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype(), pa.bool_(): pd.BooleanDtype()}
    frame: pd.DataFrame = table.to_pandas(types_mapper=kinds.get)
    return frame


def _has_values(frame: pd.DataFrame, expectation: Expectation) -> bool:
    """Tell whether the rule's column has any value to judge."""
    return bool(frame[expectation.args["column"]].notna().any())


def _offending_rows(unexpected: Any, most: int | None) -> list[dict[str, Any]]:
    """Return the first offending rows, of either engine."""
    if unexpected is None or isinstance(unexpected, list):
        return (unexpected or [])[:most]
    rows: list[dict[str, Any]] = unexpected.iloc[:most].to_dict("records")
    return rows


def _make_rule_result(expectation: Expectation, result: Any, total: int, rows: list[dict[str, Any]]) -> RuleResult:
    wrong = int(result.result.get("unexpected_count", 1))
    plain = [plain_row(row) for row in rows]
    if expectation.show:
        plain = [{column: row[column] for column in expectation.show} for row in plain]
    return RuleResult(expectation, False, wrong, total, plain)


def plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with values that JSON has."""
    return {column: _json_value(value) for column, value in row.items()}


def _json_value(value: Any) -> Any:
    """Return a cell as a value that JSON has; NaN and infinity, which JSON lacks, as text."""
    import pandas as pd

    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (bool, int, float, str)) else str(value)


def _caught_message(info: Any) -> str:
    """Return the message of an exception that Great Expectations has caught, or an empty text."""
    if not info:
        return ""
    infos = [info] if "raised_exception" in info else list(info.values())
    return next((str(i["exception_message"]) for i in infos if i.get("raised_exception")), "")


@cache
def rule_class(kind: str) -> Any:
    """Return the prepared rule that replaces a class of `great_expectations.expectations`.

    Great Expectations makes the configuration of a rule, and the list of metrics that it needs, again whenever they are
    needed: some 150 times for one rule_result. Neither depends on the data. The prepared rule is a custom expectation,
    derived from Great Expectations' own and registered under its name, which caches both.
    """
    base: Any = getattr(import_great_expectations().expectations, kind)
    from pydantic.v1 import PrivateAttr

    known: dict[str, Any] = {}  # by the arguments and the format of the result; one entry for each rule

    def configuration(self: Any) -> Any:
        fields = tuple(map(id, self.__dict__.values()))  # a field that is set again is another object
        if self._made is None or self._made[0] != fields:
            self._made = fields, base.configuration.fget(self)
        return self._made[1]

    def get_validation_dependencies(self: Any, execution_engine: Any = None, runtime_configuration: Any = None) -> Any:
        engine = type(execution_engine).__name__
        key = json.dumps([engine, self.configuration.kwargs, runtime_configuration], default=str)
        if key not in known:
            known[key] = base.get_validation_dependencies(self, execution_engine, runtime_configuration)
        return replace(known[key], metric_configurations=dict(known[key].metric_configurations))

    members = {
        "__module__": __name__,
        "__doc__": base.__doc__,
        "_made": PrivateAttr(None),
        "configuration": property(configuration),
        "get_validation_dependencies": get_validation_dependencies,
    }
    return type(base)(kind, (base,), members)
