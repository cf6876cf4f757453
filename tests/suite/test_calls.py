"""Tests, and scripts that they run in other processes, use names that exist and call them as they are declared.

A test of the wide sweeps alone, and a script in a string, would show a rename or another parameter days later.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).resolve().parents[2]
TESTS = REPO / "tests"
UNKNOWN = object()


def list_scripts(tree: ast.Module) -> Iterator[tuple[int, ast.Module]]:
    """Yield each string of a module that is a script with imports of the product, and its line."""
    for node in ast.walk(tree):
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


def list_faults(tree: ast.Module, package: str = "") -> Iterator[str]:
    """Yield names of the product and of other tests that do not exist, and calls that do not fit the parameters."""
    imported: dict[str, Any] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        path = "." * node.level + (node.module or "")
        if not (node.level and package) and path.split(".")[0] not in ("altneu", "tests"):
            continue
        for name in node.names:
            try:
                imported[name.asname or name.name] = import_name(path, name.name, package)
            except ImportError:
                yield f"{path}.{name.name}"
    for name in list_bound_names(tree):
        imported.pop(name, None)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = find_object(node.value, imported)
            if isinstance(owner, (types.ModuleType, type)) and not hasattr(owner, node.attr):
                yield ast.unparse(node)
        elif isinstance(node, ast.Call) and not accepts(find_object(node.func, imported), node):
            yield ast.unparse(node)


def import_name(path: str, name: str, package: str) -> Any:
    """Return what `from path import name` binds in a module of a package. Raise `ImportError` where there is no such
    name."""
    module = importlib.import_module(path, package or None)
    return getattr(module, name) if hasattr(module, name) else importlib.import_module(f"{module.__name__}.{name}")


def list_bound_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module binds anywhere but by an import: they may hide an imported one."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name


def find_object(node: ast.expr, imported: dict[str, Any]) -> Any:
    """Return the module, class or function that an expression names, or `UNKNOWN`."""
    match node:
        case ast.Name(id=name):
            return imported.get(name, UNKNOWN)
        case ast.Attribute(value=value, attr=name):
            owner = find_object(value, imported)
            return getattr(owner, name, UNKNOWN) if isinstance(owner, (types.ModuleType, type)) else UNKNOWN
    return UNKNOWN


def accepts(function: Any, call: ast.Call) -> bool:
    """Tell whether a function can be called like that. What cannot be known is taken to be right."""
    names = [keyword.arg for keyword in call.keywords]
    if not isinstance(function, (types.FunctionType, types.MethodType, type)) or None in names:
        return True
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return True
    try:
        signature = inspect.signature(function)
    except ValueError:
        return True
    try:
        signature.bind(*call.args, **dict.fromkeys(map(str, names)))
    except TypeError:
        return False
    return True


def test_tests_and_their_scripts_call_what_exists_as_it_is_declared() -> None:
    scripts, faults = 0, []
    for file in sorted(TESTS.rglob("*.py")):
        if file == Path(__file__):
            continue
        tree, place = ast.parse(file.read_text()), file.relative_to(REPO)
        faults += [(str(place), fault) for fault in list_faults(tree, ".".join(place.parent.parts))]
        for line, script in list_scripts(tree):
            scripts += 1
            faults += [(f"{place}:{line}", fault) for fault in list_faults(script)]
    assert scripts > 20
    assert faults == []


@pytest.mark.parametrize(
    ("script", "faults"),
    [
        ("from altneu.pipeline.run import runner\nrunner.begin_run", []),
        ("from altneu.pipeline.run import runner\nrunner.run(1)", ["runner.run"]),
        ("from altneu.pipeline.run.runner import run", ["altneu.pipeline.run.runner.run"]),
        ("from altneu.pipeline.running import runner", ["altneu.pipeline.running.runner"]),
        ("from altneu.pipeline.state.ledger import Ledger\nLedger.of('x')", ["Ledger.of"]),
        ("from altneu.pipeline.state.ledger import Ledger\nLedger(1, 2, 3)", ["Ledger(1, 2, 3)"]),
        ("from altneu.pipeline.state.ledger import Ledger\nLedger(*all, writes=True)", []),
        ("from altneu.pipeline.run import runner\nrunner.begin_run(1, 2, hold=True)", []),
        ("from altneu.pipeline.run.runner import begin_run\nbegin_run(1, 2, old=True)", ["begin_run(1, 2, old=True)"]),
        ("from tests import home_helpers  # of altneu\nhome_helpers.run(1)", ["home_helpers.run(1)"]),
        ("    from altneu.pipeline.run import runner\n    runner.stopped = 1", ["runner.stopped"]),
        ("from altneu.pipeline.run import runner\ndef test(runner): runner.run(1)", []),
        ("altneu is important to import", None),
    ],
)  # fmt: skip
def test_a_fault_is_found(script: str, faults: list[str] | None) -> None:
    parsed = list(list_scripts(ast.parse(f"SCRIPT = {script!r}")))
    assert ([name for _, tree in parsed for name in list_faults(tree)] if parsed else None) == faults
