"""No module imports itself by way of others: not at its head, not inside a function, and not for types alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
FOLDERS = ("altneu", "altneu/pipeline", "altneu/algorithms", "altneu/expectations")


def imports_of(files: dict[str, Path]) -> dict[str, set[str]]:
    """The modules that each module imports anywhere in its file, by all statements: module → modules of `files`."""
    return {module: set(_imported_modules(module, file, files)) for module, file in files.items()}


def _imported_modules(module: str, file: Path, files: dict[str, Path]) -> Iterator[str]:
    package = module.split(".") if file.stem == "__init__" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in files)
        elif isinstance(node, ast.ImportFrom):
            head = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*head, *([node.module] if node.module else [])])
            named = (f"{base}.{name.name}" if f"{base}.{name.name}" in files else base for name in node.names)
            yield from (name for name in named if name in files)


def find_circle(imports: dict[str, set[str]]) -> list[str]:
    """A circle of imports, from a module to itself; empty: there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def modules_under(root: Path, folders: tuple[str, ...]) -> dict[str, Path]:
    files = (file for folder in folders for file in (root / folder).rglob("*.py"))
    parts = {file: file.relative_to(root).with_suffix("").parts for file in files}
    return {".".join(names[:-1] if names[-1] == "__init__" else names): file for file, names in parts.items()}


def test_no_module_is_in_a_circle_of_imports() -> None:
    files = modules_under(REPO, FOLDERS)
    assert len(files) > 300
    circle = find_circle(imports_of(files))
    assert not circle, " imports ".join(circle)


@pytest.mark.parametrize(
    "statement",
    [
        "from . import one",
        "import p.one",
        "def late():\n    from .one import name",
        "if TYPE_CHECKING:\n    from p.one import Name",
    ],
)
def test_a_circle_is_found_wherever_the_import_is(tmp_path: Path, statement: str) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    for name, text in {"__init__": "", "one": "from .two import three", "two": statement}.items():
        (folder / f"{name}.py").write_text(text)
    circle = find_circle(imports_of(modules_under(tmp_path, ("p",))))
    assert circle in (["p.one", "p.two", "p.one"], ["p.two", "p.one", "p.two"])
