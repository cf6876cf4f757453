"""Prepared rules are those of Great Expectations, and are made once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd
import pytest

from altneu.expectations.gx_runner import ExpectationRunner, rule_class
from altneu.expectations.incremental_versus_full import EXPECTATIONS as DIFFERENCES
from altneu.expectations.model import Expectation
from altneu.expectations.suite import EXPECTATIONS

FORMATS = ("BOOLEAN_ONLY", "SUMMARY")


def asked(rule: Any, result_format: str) -> Counter[Any]:
    """The metrics that a rule wants for a format of the result."""
    found = rule.get_validation_dependencies(runtime_configuration={"result_format": {"result_format": result_format}})
    return Counter((name, metric.id) for name, metric in found.metric_configurations.items())


@pytest.mark.parametrize("expectation", [*EXPECTATIONS, *DIFFERENCES], ids=lambda e: f"{e.suite}: {e.name}")
def test_a_prepared_rule_is_great_expectations_own(expectation: Expectation) -> None:
    prepared = ExpectationRunner().to_gx_rule(expectation)
    own = type(prepared).__mro__[1]
    assert own.__module__.startswith("great_expectations.")
    plain = own(**prepared.dict(exclude_defaults=True))
    assert prepared.configuration.to_json_dict() == plain.configuration.to_json_dict()
    for result_format in FORMATS:
        assert asked(prepared, result_format) == asked(plain, result_format)


def test_a_rule_that_is_changed_is_another() -> None:
    rule = rule_class("ExpectColumnValuesToBeBetween")(column="k", min_value=2)
    before = asked(rule, "BOOLEAN_ONLY")
    assert rule.configuration is rule.configuration
    rule.min_value = 3
    assert rule.configuration.kwargs == {"column": "k", "min_value": 3}
    assert asked(rule, "BOOLEAN_ONLY") != before


def test_the_price_of_a_rule_is_a_few_configurations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Great Expectations alone makes some 150 for each rule."""
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    wanted = [e for e in EXPECTATIONS if e.on == "edge_set" and "column" in e.args]
    columns = sorted({e.args["column"] for e in wanted})
    frame = pd.DataFrame({column: [2, 2] for column in columns}, dtype="Int64")
    judge = ExpectationRunner()
    judge.judge_frame("edge_set", frame, wanted)
    made = 0
    begin = ExpectationConfiguration.__init__

    def counted(*args: Any, **kwargs: Any) -> None:
        nonlocal made
        made += 1
        begin(*args, **kwargs)

    monkeypatch.setattr(ExpectationConfiguration, "__init__", counted)
    verdicts = judge.judge_frame("edge_set", frame, wanted)
    failed = sum(not verdict.passed for verdict in verdicts)
    assert len(verdicts) == len(wanted) > failed > 0
    assert made <= 5 * (len(wanted) + failed)
