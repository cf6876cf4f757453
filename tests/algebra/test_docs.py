"""The docstrings state their contracts, and every file and test of the guide's concept table exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOM = HERE.parents[1] / "algorithms"
MODULES = [
    *("time_lattice", "collection", "linear", "upserts", "joins", "reduce"),
    *("calculus", "delta_query", "prefix_extension", "incremental", "iterate", "dbsp"),
]


@pytest.mark.parametrize("name", MODULES)
def test_first_lines_state_the_contract(name: str) -> None:
    text = importlib.import_module(f"altneu.algorithms.algebra.{name}").__doc__ or ""
    for word in ("Law", "Shapes", "Cost", "Errors", "Source"):
        assert re.search(rf"^{word}\b", text, re.M), f"algorithms/algebra/{name}.py does not state its {word}"


def test_every_row_of_the_concept_table_leads_somewhere() -> None:
    table = (ROOM / "README.md").read_text().split("## The seeds' concepts")[1]
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("|")][2:]
    assert {seed for row in rows for seed in re.findall(r"\d", row[1])} == set("12345")
    for concept, _, files, tests in rows:
        for name in re.findall(r"\w+\.py", files):
            assert [*ROOM.rglob(name)], f"{concept.strip()}: no {name}"
        for name in re.findall(r"test_\w+\.py", tests):
            assert (HERE / name).exists(), f"{concept.strip()}: no {name}"
