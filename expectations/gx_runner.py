"""The only interface to Great Expectations: it takes a frame and its expectations, and returns verdicts.

Small   A frame of up to `SMALL` rows is fetched by Arrow, with nullable types (no 64-bit id becomes a float), and
        judged by the pandas engine; a larger one is judged in Spark. The expectations and verdicts are the same, which
        a test checks. Measured, all suites: on tiny frames 7 CPU seconds and 26 jobs in pandas against 15 and 76 in
        Spark; at 100,000 rows 17 CPU seconds with either engine, which is the reason for the value of `SMALL`.
Price   62 rules that hold cost 0.2 CPU seconds here (0.75 without `rule_class`, and if all offending rows were
        requested at once).
Bounds  In Spark one aggregation decides all single-column expectations of a frame; rows are fetched for the failed ones
        only, and limited to `ROWS` inside Spark. Nothing grows with the number of offending rows.
Errors  `CheckCrashed` if Great Expectations could not evaluate a rule: a bug of altneu, not bad data.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from .model import Expectation, Verdict

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame

SMALL = 100_000  # rows
ROWS = 20  # offending rows kept per check


class CheckCrashed(Exception):
    """Raised when a rule could not be evaluated. It says nothing about the data."""


class ExpectationRunner:
    """A judge of frames. Frames of up to `small` rows are judged in pandas.

    The first runner of a process imports Great Expectations, 6 to 8 s, unless `import_in_background` was called in
    time.
    """

    def __init__(self, small: int = SMALL) -> None:
        self._gx, self._context, self._definitions = _great_expectations()
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
    ) -> list[Verdict]:
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
            return self._run_expectations("pandas", name, frame, len(frame), expectations)
        if scan or frame.is_cached:
            return self._run_expectations("spark", name, frame, frame.count(), expectations)
        held = frame.persist()
        try:
            return self._run_expectations("spark", name, held, held.count(), expectations)
        finally:
            held.unpersist()

    def _run_expectations(
        self, engine: str, name: str, frame: Any, total: int, expectations: Sequence[Expectation]
    ) -> list[Verdict]:
        """Judge whether each expectation holds, then fetch the rows of those that do not, which takes several times the
        metrics.
        """
        batch = self._make_batch(engine, frame)
        quick = self._validate_batch(batch, name, expectations, {"result_format": "BOOLEAN_ONLY"})
        failed = [e for e, result in zip(expectations, quick, strict=True) if not result.success]
        bounded = {"result_format": "SUMMARY", "include_unexpected_rows": True, "partial_unexpected_count": ROWS}
        again = iter(self._validate_batch(batch, f"{name} failed", failed, bounded) if failed else [])
        verdicts = []
        for expectation, result in zip(expectations, quick, strict=True):
            if result.success:
                judged = engine == "spark" or not expectation.unjudged or _has_values(frame, expectation)
                verdicts.append(_make_verdict(expectation, result, total, [], judged=judged))
                continue
            result = next(again)
            cap = None if expectation.per_epoch and engine == "pandas" else ROWS
            verdicts.append(
                _make_verdict(expectation, result, total, _offending_rows(result.result.get("unexpected_rows"), cap))
            )
        return verdicts

    def _make_batch(self, engine: str, frame: Any) -> Any:
        """Return a frame as a batch. All frames of an engine share one asset, because every new one costs tenths of a
        second.
        """
        if engine not in self._definitions:
            new = self._context.data_sources
            source = new.add_pandas(engine) if engine == "pandas" else new.add_spark(engine, persist=False)
            self._definitions[engine] = source.add_dataframe_asset("frame").add_batch_definition_whole_dataframe("all")
        return self._definitions[engine].get_batch({"dataframe": frame})

    def _validate_batch(
        self, batch: Any, name: str, expectations: Sequence[Expectation], result_format: dict[str, Any]
    ) -> list[Any]:
        """Return the results, in the order of the expectations."""
        rules = [self.to_gx_rule(expectation) for expectation in expectations]
        suite = self._gx.ExpectationSuite(name=name, expectations=rules)
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


def import_in_background() -> None:
    """Import Great Expectations while other work goes on, so that the first `ExpectationRunner` need not wait."""
    # SQLAlchemy looks for its own parts in `sys.modules`: a query of this thread would find this module half imported
    import sqlalchemy.orm  # noqa: F401

    threading.Thread(target=_great_expectations, daemon=True).start()


_making = threading.Lock()


def _great_expectations() -> tuple[Any, Any, dict[str, Any]]:
    """Return the package, one context without progress bars or telemetry, and its batch definitions by engine.

    There is one context per process, because every context leaves a folder in the temporary directory.
    """
    with _making:
        return _make_context()


@lru_cache(maxsize=1)
def _make_context() -> tuple[Any, Any, dict[str, Any]]:
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx

    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}  # type: ignore[assignment]
    return gx, context, {}


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


def _make_verdict(
    expectation: Expectation, result: Any, total: int, rows: list[dict[str, Any]], *, judged: bool = True
) -> Verdict:
    wrong = 0 if result.success else int(result.result.get("unexpected_count", 1))
    plain = [plain_row(row) for row in rows]
    if expectation.show:
        plain = [{column: row[column] for column in expectation.show} for row in plain]
    return Verdict(expectation, bool(result.success), wrong, total, plain, judged)


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
    needed: some 150 times for one verdict. Neither depends on the data. The prepared rule is a custom expectation,
    derived from Great Expectations' own and registered under its name, which caches both.
    """
    import great_expectations as gx
    from pydantic.v1 import PrivateAttr

    base: Any = getattr(gx.expectations, kind)
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
