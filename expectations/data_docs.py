"""Great Expectations' own Data Docs of an epoch's checks, made from the stored results, without data and Spark.

There is one HTML page per suite, by Great Expectations' renderer and view. Such pages load their style and scripts from
the network, as all Data Docs do; the report page of an epoch does not. The cost is the import of Great Expectations, 6
to 8 s, and 0.1 s for each page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from html import escape
from typing import Any

from .gx_runner import ExpectationRunner, import_great_expectations
from .suite import ALL_EXPECTATIONS


def render_pages(checks: Iterable[Mapping[str, Any]], label: str, run_id: str, at: str) -> dict[str, str]:
    """Return the page of each suite.

    Args:
        checks: those of the epoch, with suite, name, passed, observed and rows, as the ledger stores them. A check
            whose rule does not exist any more is left out.
        label: the epoch, for people.
        run_id: the run that made the checks.
        at: when they were made, in ISO format.
    """
    import_great_expectations()
    from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult
    from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
    from great_expectations.render.view.view import DefaultJinjaPageView

    rules = {(e.suite, e.name): e for e in ALL_EXPECTATIONS}
    judge = ExpectationRunner()
    by_suite: dict[str, list[Any]] = {}
    for check in checks:
        if (check["suite"], check["name"]) not in rules:
            continue
        rule = judge.to_gx_rule(rules[check["suite"], check["name"]])
        rows = [", ".join(f"{name} {value}" for name, value in row.items() if name != "why") for row in check["rows"]]
        counted = re.match(r"([\d,]+) of ([\d,]+) row", check["observed"])
        wrong, total = (int(n.replace(",", "")) for n in counted.groups()) if counted else (len(rows), len(rows))
        gx_result = ExpectationValidationResult(
            success=check["passed"],
            expectation_config=rule.configuration,
            result={
                "observed_value": escape(check["observed"]),  # the view does not escape text
                "element_count": total,
                "unexpected_count": wrong,
                "unexpected_percent": 100 * wrong / max(total, 1),
                "partial_unexpected_list": [escape(row) for row in rows],
                "details": {},
            },
            exception_info={"raised_exception": False, "exception_message": None, "exception_traceback": None},
        )
        by_suite.setdefault(check["suite"], []).append(gx_result)
    out = {}
    for suite, results in by_suite.items():
        good = sum(result.success for result in results)
        whole = ExpectationSuiteValidationResult(
            success=good == len(results),
            results=results,
            suite_name=f"{suite} at {label}",
            statistics={
                "evaluated_expectations": len(results),
                "successful_expectations": good,
                "unsuccessful_expectations": len(results) - good,
                "success_percent": 100 * good / len(results),
            },
            meta={
                "run_id": {"run_name": run_id, "run_time": at},
                "active_batch_definition": {"batch_identifiers": {"epoch": label}},
                "validation_time": f"{datetime.fromisoformat(at):%Y%m%dT%H%M%S.%fZ}",
            },
        )
        out[suite] = DefaultJinjaPageView().render(ValidationResultsPageRenderer(run_info_at_end=True).render(whole))
    return out
