"""Incremental versus full: a check per audited epoch and kind; differing rows are kept, the first twenty of each."""

from __future__ import annotations

from typing import Any

import pytest

from altneu.expectations.suite import check_differences

COLUMNS = ("epoch", "what", "a", "b", "maintained", "recomputed", "count")
NAMES = {
    "vertices": "vertex totals equal a full recomputation",
    "edges": "edge totals equal a full recomputation",
    "triangles": "triangle totals equal a full recomputation",
    "max_trussness": "maximum trussness values equal a full recomputation",
    "degree_at_vertex": "degrees of vertices equal a full recomputation",
    "triangles_at_vertex": "triangle counts of vertices equal a full recomputation",
    "trussness_of_edge": "trussness values of edges equal a full recomputation",
    "trussness_too_high": "trussness values are not too high",
    "trussness_too_low": "trussness values are not too low",
    "edge": "edges one by one equal a full recomputation",
}


def check(rows: list[tuple[Any, ...]], context: dict[str, Any]) -> list[dict[str, Any]]:
    return check_differences([dict(zip(COLUMNS, row, strict=True)) for row in rows], context)


def test_no_difference_passes_every_kind_at_every_epoch() -> None:
    checks = check([], {"epochs": [4, 3]})
    assert [(found["epoch"], found["name"]) for found in checks] == [(e, n) for e in (3, 4) for n in NAMES.values()]
    assert all(found["passed"] and found["severity"] == "critical" and found["rows"] == [] for found in checks)
    assert {found["observed"] for found in checks} == {"0 differences"}


def test_each_kind_is_found_at_its_epoch_and_named() -> None:
    rows: list[tuple[Any, ...]] = [(4, kind, 1, 7, 1, 2, 1) for kind in NAMES]
    rows += [(3, "triangles_at_vertex", n, None, None, 1, 30) for n in range(20)]
    rows += [(9, "vertices", None, None, 7, 8, 1)]  # an epoch that nobody said was audited
    checks = check(rows, {"epochs": [3, 4], "labels": {4: "day-4"}})
    failed = {(found["epoch"], found["name"]): found for found in checks if not found["passed"]}
    assert set(failed) == {(4, n) for n in NAMES.values()} | {(3, NAMES["triangles_at_vertex"]), (9, NAMES["vertices"])}
    for name in NAMES.values():
        assert failed[4, name]["rows"] == [{"key": "1-7", "maintained": 1, "recomputed": 2}]
        assert failed[4, name]["observed"] == "1 difference" and "day-4" in failed[4, name]["remedy"]
    many = failed[3, NAMES["triangles_at_vertex"]]
    assert many["observed"] == "30 differences" and [row["key"] for row in many["rows"]] == [str(n) for n in range(20)]


def test_an_unknown_kind_is_no_silent_pass() -> None:
    with pytest.raises(ValueError, match="colour"):
        check([(4, "colour", None, None, 1, 2, 1)], {"epochs": [4]})
