"""The tables of tests/README.md are those of the tests as they are, and no law, command or DAG is without one."""

from __future__ import annotations

import ast

import pytest

from tests import table

# what no test names: it goes by another name there, or its name is put together
UNNAMED = {
    "`setup`": "tests/infra/test_setup.py calls its steps",
    "`altneu_maintenance`": "tests/dags/test_imports.py looks at all files of the folder",
}


Tables = dict[str, dict[str, list[str]]]


@pytest.fixture(scope="module")
def tables() -> Tables:
    return table.make_tables()


def test_the_tables_are_in_step(tables: Tables) -> None:
    """Each name is there, is without a test where it is, and what is listed holds it; of laws each test is listed.

    Which three files have most may be out of date: else every new test would ask for another table.
    """
    written = table.read_tables()
    again = "type: .venv/bin/python -m tests.table"
    assert {kind: list(rows) for kind, rows in written.items()} == {
        kind: list(rows) for kind, rows in tables.items()
    }, again
    assert written["Law"] == tables["Law"], again
    for kind, rows in written.items():
        wrong = [name for name, files in rows.items() if not set(files) <= set(tables[kind][name])]
        wrong += [name for name, files in rows.items() if bool(files) != bool(tables[kind][name])]
        assert wrong == [], again


@pytest.mark.parametrize("kind", ["Law", "Command", "DAG", "Page"])
def test_none_is_without_a_test(tables: Tables, kind: str) -> None:
    assert {name for name, tests in tables[kind].items() if not tests} <= UNNAMED.keys()


SOURCE = """
import pytest
from tests.seeds import one

WRONG = ["rollback 1", "nothing else"]

def helper(words):
    altneu("audit", *words)

@pytest.fixture
def home():
    return "no zero diffs"

@pytest.mark.law(3, 4)
def test_one(home):
    helper(WRONG)
    with pytest.raises(errors.Conflict):
        altneu(f"run {home}")

def test_two():
    altneu("status")
"""


def test_a_test_holds_what_it_and_its_helpers_name() -> None:
    module = ast.parse(SOURCE)
    one, two = (
        table.Scope("tests/test_x.py", node, module) for node in module.body if "test_" in getattr(node, "name", "")
    )  # type: ignore[arg-type]
    assert one.laws == {3, 4} and two.laws == set()
    assert {"rollback", "audit", "run"} <= one.first_words and "status" in two.first_words
    assert {"status", "no"}.isdisjoint(one.first_words) and {"run", "audit"}.isdisjoint(two.first_words)
    assert "Conflict" in one.names and "no zero diffs" in one.texts and two.texts == ["status"]


@pytest.mark.parametrize(
    ("head", "default"),
    [
        ("def test():", True),
        ("@pytest.mark.slow\ndef test():", False),
        ('@pytest.mark.backend("s3")\ndef test():', False),
        ("def test(postgres):", False),
        ('@pytest.mark.parametrize("a", [1, pytest.param(2, marks=pytest.mark.slow)])\ndef test(a):', True),
    ],
)
def test_only_the_default_tier_counts(head: str, default: bool) -> None:
    (function,) = ast.parse(f"{head} ...").body
    assert isinstance(function, ast.FunctionDef)
    arguments = [each.arg for each in function.args.args]
    assert table.is_of_another_tier(function.decorator_list, arguments) is not default
