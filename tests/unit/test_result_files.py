"""The results of checks as other programs read them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from altneu.pipeline.checking.result_files import choose_writer
from altneu.pipeline.errors import UsageError
from tests.report.seed import check

CHECKS: list[Any] = [
    check(1, "an edge has one k", True, suite="trussness"),
    check(2, "an edge has one k", False, suite="trussness"),
    check(2, "as many rows as usual", False, suite="volumes", severity="warning"),
]


def label(epoch: int) -> str:
    return f"2004-05-{epoch:02}"


def write(name: str, checks: list[Any] = CHECKS) -> Any:
    text = choose_writer(name)(checks, label, 1.5)
    return ET.fromstring(text) if name.endswith("xml") else json.loads(text)


def test_junit_has_a_case_for_each_check_and_epoch() -> None:
    root = write("audit.xml")
    assert (root.tag, root.get("tests"), root.get("failures"), root.get("time")) == ("testsuites", "3", "1", "1.500")
    suites = {suite.get("name"): suite for suite in root}
    assert {name: (suite.get("tests"), suite.get("failures")) for name, suite in suites.items()} == {
        "trussness": ("2", "1"),
        "volumes": ("1", "0"),
    }
    right, wrong = suites["trussness"]
    assert right.get("name") == "an edge has one k at 2004-05-01" and not list(right)
    (failure,) = wrong
    assert failure.tag == "failure" and CHECKS[1]["remedy"] in (failure.text or "")
    (warned,) = suites["volumes"]
    assert [each.tag for each in warned] == ["system-out"]


def test_run_results_have_the_fields_of_dbt() -> None:
    document = write("run_results.JSON".lower())
    assert document["metadata"]["dbt_schema_version"].endswith("/run-results/v6.json")
    assert [(each["unique_id"], each["status"], each["failures"]) for each in document["results"]] == [
        ("test.altneu.trussness.an_edge_has_one_k.2004-05-01", "pass", 0),
        ("test.altneu.trussness.an_edge_has_one_k.2004-05-02", "fail", 1),
        ("test.altneu.volumes.as_many_rows_as_usual.2004-05-02", "warn", 1),
    ]
    required = {"status", "timing", "thread_id", "execution_time", "adapter_response", "message", "failures"}
    assert all(required <= {*each} for each in document["results"])


def test_names_that_no_file_can_hold_are_escaped() -> None:
    rows = [{"key": "\x00<&]]>\ud800\ufffe\x1b[31m"}]
    nasty: Any = check(1, "k", False, rows=rows, observed="a\x07\ud800")
    for name in ("a.xml", "a.json"):
        assert write(name, [nasty]) is not None


def test_an_ending_names_the_form() -> None:
    with pytest.raises(UsageError, match="its ending names no form"):
        choose_writer("audit.txt")
