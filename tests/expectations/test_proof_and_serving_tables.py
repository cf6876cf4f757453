"""What differs from a proof, in a serving table or in a query fails the check of its kind at its epoch alone."""

from __future__ import annotations

from typing import Any

import pytest

from altneu.expectations.suite import check_proof, check_queries, check_serving_tables

PROOF = {
    "landed": "edges follow from the landed rows",
    "stored": "stored rows are those that are proved",
    "totals": "totals are those that are proved",
    "facts": "trussness values are proved",
    "part": "a part of the vertices is as recounted",
}
PLAIN = {
    "vertex_history": "vertex_history says what the diff triples add up to",
    "edge_now": "edge_now says what has landed and the trussness",
    "epoch_totals": "epoch_totals says the totals",
}
ROW = {"a": "x", "b": None, "maintained": 1, "recomputed": 2, "count": 1}


def failed(checks: list[Any]) -> list[tuple[int, str]]:
    assert {check["severity"] for check in checks} == {"critical"}
    return [(check["epoch"], check["name"]) for check in checks if not check["passed"]]


@pytest.mark.parametrize("kind", PROOF)
def test_what_is_not_as_it_was_proved_fails_its_check(kind: str) -> None:
    context = {"epochs": [3, 5], "labels": {5: "day-5"}, "looked_at": 7, "part": "1 of 8"}
    checks = check_proof([{**ROW, "epoch": 5, "what": kind, "why": "too low"}], context)
    assert failed(checks) == [(5, PROOF[kind])]
    (wrong,) = [check for check in checks if not check["passed"]]
    assert wrong["rows"][0]["why"] == "too low" and "day-5" in wrong["remedy"]
    assert [(check["epoch"], check["name"]) for check in checks if check["name"] == PROOF["part"]] == [
        (5, PROOF["part"])
    ]


def test_a_proof_without_a_fault_says_what_it_has_looked_at() -> None:
    checks = check_proof([], {"epochs": [3], "looked_at": 1234, "part": None})
    assert failed(checks) == [] and {check["name"] for check in checks} == {*PROOF.values()} - {PROOF["part"]}
    assert {check["name"]: check["observed"] for check in checks}[PROOF["facts"]] == "looked at 1,234 edges in the run"


@pytest.mark.parametrize("table", PLAIN)
def test_what_a_plain_table_says_wrongly_fails_its_check(table: str) -> None:
    checks = check_serving_tables([{**ROW, "epoch": 5, "what": table}], {"tables": [*PLAIN], "epochs": [3, 5]})
    assert failed(checks) == [(5, PLAIN[table])]
    assert check_serving_tables([], {"tables": [], "epochs": [3]}) == []


def test_rows_of_queries_that_differ_fail_at_their_epoch_with_the_first_row_and_both_numbers() -> None:
    name = "rows of queries equal a full recomputation"
    row = {**ROW, "epoch": 5, "what": "query_rows", "b": "src 1, n 4", "why": ["landed/x.csv line 2"]}
    rows = [{**row, "a": "velocity", "count": 2}, {**row, "a": "rings", "count": 3}]
    checks = check_queries(rows, {"epochs": [3, 5]})
    assert failed(checks) == [(5, name)]
    (observed,) = [check["observed"] for check in checks if not check["passed"]]
    assert observed.startswith("5 ") and observed.endswith(
        "; the first: query velocity has the row (src 1, n 4) 1 times, and 2 times when it is recomputed; "
        "landed/x.csv line 2"
    )
    assert failed(check_queries([], {"epochs": [3]})) == []
