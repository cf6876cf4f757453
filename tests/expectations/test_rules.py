"""Prepared rules are those of Great Expectations, and are made once. Of rules that hold it is not asked."""

from __future__ import annotations

import pkgutil
import random
from collections import Counter
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import pytest

from altneu import expectations
from altneu.expectations import gx_runner
from altneu.expectations.gx_runner import CheckCrashed, ExpectationRunner, rule_class
from altneu.expectations.model import Expectation
from altneu.expectations.suite import ALL_EXPECTATIONS, EXPECTATIONS
from altneu.expectations.wrong_rows import columns_of, doubtful_rules
from tests import seeds

FORMATS = ("BOOLEAN_ONLY", "SUMMARY")


def asked(rule: Any, result_format: str) -> Counter[Any]:
    """The metrics that a rule wants for a format of the result."""
    found = rule.get_validation_dependencies(runtime_configuration={"result_format": {"result_format": result_format}})
    return Counter((name, metric.id) for name, metric in found.metric_configurations.items())


@pytest.mark.parametrize("expectation", ALL_EXPECTATIONS, ids=lambda e: f"{e.suite}: {e.name}")
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

    wanted = [e for e in EXPECTATIONS if e.frame == "edge_set" and "column" in e.args]
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


def column_like(rule: Expectation, rng: random.Random, text: bool) -> pd.Series:
    """A few random values, around those that the rule names; some columns have none that is missing."""
    named = [
        v for v in (*rule.args.get("value_set", ()), *map(rule.args.get, ("min_value", "max_value"))) if v is not None
    ]
    text = text or "Lengths" in rule.kind or any(isinstance(value, str) for value in named)
    values: list[Any] = ["x", "upsert", ""] if text else [0, 1, *named, *(value + 1 for value in named)]
    missing = [None] * rng.randrange(3)
    return pd.Series(rng.choices(values + missing, k=rng.choice([0, 1, 1, 2, 2, 5])), dtype=object if text else "Int64")


@pytest.mark.parametrize("text", [False, True], ids=["numbers", "texts"])
def test_a_rule_of_which_no_row_is_wrong_holds_for_great_expectations(
    monkeypatch: pytest.MonkeyPatch, text: bool
) -> None:
    """And where it is asked, it is because the rule fails, or a row has nothing to compare."""
    rng, seen = random.Random(seeds.one(3)), Counter[bool]()
    judge, known = ExpectationRunner(), set()
    monkeypatch.setattr(gx_runner, "doubtful_rules", lambda frame, rules: (rules, len(frame)))
    for rule in (replace(each, show=()) for each in ALL_EXPECTATIONS):
        kind = (rule.kind, *(str(value) for name, value in rule.args.items() if not name.startswith("column")))
        of_numbers = rule.kind.endswith(("ValuesToBeBetween", "ThanB"))
        of_numbers |= any(isinstance(value, int) for value in rule.args.get("value_set", ()))
        if kind in known or (of_numbers if text else "neither" in kind):
            continue
        known.add(kind)
        for _ in range(12):
            first = column_like(rule, rng, text)
            frame = pd.DataFrame({columns_of(rule)[0]: first})
            if len(columns_of(rule)) == 2:
                frame[columns_of(rule)[1]] = first.sample(frac=1, random_state=rng.randrange(99)).array
            doubtful, total = doubtful_rules(frame, [rule])
            assert total == len(frame)
            compares_nothing = len(columns_of(rule)) == 2 and frame.isna().any(axis=None)
            try:
                (verdict,) = judge.judge_frame("x", frame, [rule])
                assert verdict.passed if not doubtful else not verdict.passed or compares_nothing, (rule, frame)
            except CheckCrashed:
                assert doubtful and compares_nothing, (rule, frame)
            seen[bool(doubtful)] += 1
    assert min(seen.values()) > 20, seen


def test_a_value_that_no_rule_expects_is_left_to_great_expectations() -> None:
    growth = next(e for e in EXPECTATIONS if e.name == "the edges grow as usual")
    for value, fine in ((0.5, True), (1.5, False), (float("nan"), True), (float("inf"), False), (None, True)):
        frame = pd.DataFrame({growth.args["column"]: pd.array([value], "Float64")})
        assert (doubtful_rules(frame, [growth])[0] == []) == fine, value
    assert doubtful_rules(pd.DataFrame({"other": np.zeros(1)}), [growth]) == ([growth], 1)


def test_every_expectation_that_a_module_declares_is_listed() -> None:
    modules = [
        import_module(f"altneu.expectations.{each.name}") for each in pkgutil.iter_modules(expectations.__path__)
    ]
    lists = [value for module in modules for value in vars(module).values() if isinstance(value, list)]
    declared = {(e.suite, e.name) for values in lists for e in values if isinstance(e, Expectation)}
    assert declared == {(e.suite, e.name) for e in ALL_EXPECTATIONS}
    assert len(declared) == len(ALL_EXPECTATIONS)
