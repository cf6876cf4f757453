"""The scripts that tests run in other processes use names which the product has.

Such a script is a string: a rename, ruff and mypy do not see it, and many run in slow tests only.
"""

from __future__ import annotations

import ast
import importlib
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


def list_scripts(source: str) -> Iterator[tuple[int, ast.Module]]:
    """Yield each string of a source that is a script with imports of the product, and its line."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(text)):
                pass
            case ast.JoinedStr(values=values):
                text = "".join(str(value.value) if isinstance(value, ast.Constant) else "0" for value in values)
            case _:
                continue
        if "altneu" in text and "import " in text:
            try:
                yield node.lineno, ast.parse(textwrap.dedent(text))
            except SyntaxError:  # a sentence, or a shell's command
                continue


def list_unknown_names(script: ast.Module) -> Iterator[str]:
    """Yield what a script imports from the product, or reads from its modules and classes, and what does not exist."""
    bound: dict[str, object] = {}
    for node in ast.walk(script):
        if not (isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "altneu"):
            continue
        for name in node.names:
            try:
                module = importlib.import_module(node.module)
                thing = getattr(module, name.name, None) or importlib.import_module(f"{node.module}.{name.name}")
            except ImportError:
                yield f"{node.module}.{name.name}"
            else:
                bound[name.asname or name.name] = thing
    for node in ast.walk(script):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            thing = bound.get(node.value.id)
            if isinstance(thing, (types.ModuleType, type)) and not hasattr(thing, node.attr):
                yield f"{node.value.id}.{node.attr}"


def test_scripts_of_tests_use_names_that_exist() -> None:
    scripts = [
        (f"{file.relative_to(TESTS)}:{line}", script)
        for file in sorted(TESTS.rglob("*.py"))
        if file != Path(__file__)
        for line, script in list_scripts(file.read_text())
    ]
    assert len(scripts) > 20
    assert [(place, name) for place, script in scripts for name in list_unknown_names(script)] == []


@pytest.mark.parametrize(
    ("script", "unknown"),
    [
        ("from altneu.pipeline.run import runner\nrunner.execute_run(1)", []),
        ("from altneu.pipeline.run import runner\nrunner.run(1)", ["runner.run"]),
        ("from altneu.pipeline.run.runner import run", ["altneu.pipeline.run.runner.run"]),
        ("from altneu.pipeline.running import runner", ["altneu.pipeline.running.runner"]),
        ("from altneu.pipeline.state.ledger import Ledger\nLedger.of('x')", ["Ledger.of"]),
        ("    from altneu.pipeline.run import runner\n    runner.stopped = 1", ["runner.stopped"]),
        ("altneu is important to import", None),
    ],
)
def test_a_name_that_does_not_exist_is_found(script: str, unknown: list[str] | None) -> None:
    parsed = list(list_scripts(f"SCRIPT = {script!r}"))
    assert ([name for _, tree in parsed for name in list_unknown_names(tree)] if parsed else None) == unknown
