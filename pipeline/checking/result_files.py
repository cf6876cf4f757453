"""The results of checks as files that other programs read: JUnit XML for CI, and dbt's `run_results.json` for catalogs.

In JUnit a check at an epoch is a test case of its suite; a warning is no failure there, and is told in its output. In
`run_results.json` (version 6) it is a test node `test.altneu.SUITE.CHECK.EPOCH` with the status pass, warn or fail.
"""

from __future__ import annotations

import json
import re
import uuid
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

from altneu.expectations.model import Check

from ..errors import UsageError
from ..formatting import escape_controls
from ..state import clock

SCHEMA = "https://schemas.getdbt.com/dbt/run-results/v6.json"
Label = Callable[[int], str]  # epoch → its label


def choose_writer(name: str) -> Callable[[Sequence[Check], Label, float], bytes]:
    """Return the function that writes a file with this name. Raise `UsageError` where its ending names no form."""
    writers = {".xml": to_junit, ".json": to_run_results}
    for ending, writer in writers.items():
        if name.lower().endswith(ending):
            return writer
    raise UsageError(
        f"--output {name}: its ending names no form.",
        "--output audit.xml   (JUnit XML), or --output run_results.json   (as dbt writes it)",
    )


def to_junit(checks: Sequence[Check], label: Label, seconds: float) -> bytes:
    """Write the results as JUnit XML.

    Args:
        checks: The results.
        label: A function that returns the label of an epoch.
        seconds: How long all of them have taken.
    """
    by_suite: dict[str, list[Check]] = defaultdict(list)
    for check in checks:
        by_suite[check["suite"]].append(check)
    root = ET.Element("testsuites", {"name": "altneu", **_count_failures(checks), "time": f"{seconds:.3f}"})
    for name, suite_checks in sorted(by_suite.items()):
        suite = ET.SubElement(
            root, "testsuite", {"name": _xml_text(name), **_count_failures(suite_checks), "time": "0"}
        )
        for check in suite_checks:
            names = {"classname": f"altneu.{name}", "name": f"{check['name']} at {label(check['epoch'])}", "time": "0"}
            case = ET.SubElement(suite, "testcase", {key: _xml_text(value) for key, value in names.items()})
            if _fails(check):
                failure = ET.SubElement(case, "failure", {"message": _xml_text(check["observed"]), "type": "critical"})
                failure.text = _explain_check(check)
            elif not check["passed"]:
                ET.SubElement(case, "system-out").text = _explain_check(check)
    ET.indent(root)
    return bytes(ET.tostring(root, "utf-8", xml_declaration=True)) + b"\n"


def to_run_results(checks: Sequence[Check], label: Label, seconds: float) -> bytes:
    """Write the results as dbt writes those of its tests. The parameters are those of `to_junit`."""
    now = clock.read_clock().isoformat(timespec="microseconds").replace("+00:00", "Z")
    results: list[dict[str, Any]] = [
        {
            "status": "pass" if check["passed"] else "fail" if _fails(check) else "warn",
            "timing": [],
            "thread_id": "Thread-1",
            "execution_time": 0.0,
            "adapter_response": {},
            "message": None if check["passed"] else _explain_check(check),
            "failures": 0 if check["passed"] else max(len(check["rows"]), 1),
            "unique_id": f"test.altneu.{_node_name(check)}.{label(check['epoch'])}",
            "compiled": None,
            "compiled_code": None,
            "relation_name": None,
            "batch_results": None,
        }
        for check in checks
    ]
    about = {
        "dbt_schema_version": SCHEMA,
        "dbt_version": f"0.0.0+altneu.{metadata.version('altneu')}",
        "generated_at": now,
        "invocation_id": str(uuid.uuid4()),
        "env": {},
    }
    document = {"metadata": about, "results": results, "elapsed_time": seconds, "args": {}}
    return json.dumps(document, indent=1, default=str).encode() + b"\n"


def _fails(check: Check) -> bool:
    return not check["passed"] and check["severity"] == "critical"


def _count_failures(checks: Sequence[Check]) -> dict[str, str]:
    failures = sum(map(_fails, checks))
    return {"tests": str(len(checks)), "failures": str(failures), "errors": "0", "skipped": "0"}


def _explain_check(check: Check) -> str:
    rows = [json.dumps(row, default=str, ensure_ascii=False) for row in check["rows"]]
    text = [f"{check['severity']}: {check['observed']}", check["meaning"], f"next: {check['remedy']}", *rows]
    return _xml_text("\n".join(text))


def _xml_text(text: str) -> str:
    """Replace what XML cannot hold: control characters and halves of surrogate pairs."""
    return re.sub(r"[\ud800-\udfff\ufffe\uffff]", "\N{REPLACEMENT CHARACTER}", escape_controls(text, keep="\n"))


def _node_name(check: Check) -> str:
    """Return the suite and the check as an identifier.

    >>> _node_name({"suite": "volumes", "name": "as many rows as usual"})  # type: ignore[typeddict-item]
    'volumes.as_many_rows_as_usual'
    """
    return ".".join(re.sub(r"\W+", "_", name).strip("_") for name in (check["suite"], check["name"]))
