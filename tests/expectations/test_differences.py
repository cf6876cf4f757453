"""Incremental versus full: a check per audited epoch and kind; differing rows are kept, the first twenty of each."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from expectations.suite import check_differences

SCHEMA = "epoch bigint, what string, key string, maintained bigint, recomputed bigint"
NAMES = {
    "vertices": "vertex totals equal a full recomputation",
    "edges": "edge totals equal a full recomputation",
    "triangles": "triangle totals equal a full recomputation",
    "max_trussness": "maximum trussness values equal a full recomputation",
    "triangles_at_vertex": "triangle counts of vertices equal a full recomputation",
    "trussness_of_edge": "trussness values of edges equal a full recomputation",
    "trussness_too_high": "trussness values are not too high",
    "trussness_too_low": "trussness values are not too low",
    "edge": "edges one by one equal a full recomputation",
}


def test_no_difference_passes_every_kind_at_every_epoch(tiny: SparkSession) -> None:
    checks = check_differences(tiny.createDataFrame([], SCHEMA), {"epochs": [4, 3]})
    assert [(check["epoch"], check["name"]) for check in checks] == [(e, n) for e in (3, 4) for n in NAMES.values()]
    assert all(check["passed"] and check["severity"] == "critical" and check["rows"] == [] for check in checks)
    assert {check["observed"] for check in checks} == {"0 differences"}


def test_each_kind_is_found_at_its_epoch_and_named(tiny: SparkSession) -> None:
    rows: list[tuple[int, str, str, int | None, int]] = [(4, kind, f"key of {kind}", 1, 2) for kind in NAMES]
    rows += [(3, "edge", f"{n:03d}", None, 1) for n in range(30)]
    rows += [(9, "vertices", "", 7, 8)]  # an epoch that nobody said was audited
    checks = check_differences(tiny.createDataFrame(rows, SCHEMA), {"epochs": [3, 4], "labels": {4: "day-4"}})
    failed = {(check["epoch"], check["name"]): check for check in checks if not check["passed"]}
    assert set(failed) == {(4, name) for name in NAMES.values()} | {(3, NAMES["edge"]), (9, NAMES["vertices"])}
    for kind, name in NAMES.items():
        check = failed[4, name]
        assert check["rows"] == [{"key": f"key of {kind}", "maintained": 1, "recomputed": 2}]
        assert check["observed"] == "1 difference" and "day-4" in check["remedy"]
    many = failed[3, NAMES["edge"]]
    assert many["observed"] == "30 differences" and [row["key"] for row in many["rows"]] == [
        f"{n:03d}" for n in range(20)
    ]


def test_an_unknown_kind_is_no_silent_pass(tiny: SparkSession) -> None:
    frame = tiny.createDataFrame([(4, "colour", "", 1, 2)], SCHEMA)
    with pytest.raises(ValueError, match="colour"):
        check_differences(frame, {"epochs": [4]})
