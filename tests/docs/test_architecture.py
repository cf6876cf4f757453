"""docs/architecture.md names rooms, files and functions that exist, and every package of pipeline/."""

from __future__ import annotations

import ast
import re
import tomllib

from tests.docs.pages import REPO, quoted, read, table

PAGE = "docs/architecture.md"
CONTRACTS = tomllib.loads((REPO / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


def test_every_file_that_is_named_exists() -> None:
    rooms = ("altneu", "algorithms", "pipeline", "expectations", "dags", "infra", "tests")
    named = [(line, words) for line, words in quoted(read(PAGE)) if re.match(rf"(?:{'|'.join(rooms)})/\S*$", words)]
    assert len(named) > 30
    wrong = [f"{PAGE}:{line}: there is no {words}" for line, words in named if not (REPO / words).exists()]
    assert not wrong, "\n".join(wrong)


def test_every_function_that_is_named_is_in_its_file() -> None:
    found = re.findall(r"`(\w+)`\s(?:in|of)\s`([\w/]+\.py)`", read(PAGE))
    assert len(found) > 10
    for name, file in found:
        top = ast.parse((REPO / file).read_text(encoding="utf-8")).body
        classes = [node for node in top if isinstance(node, ast.ClassDef)]
        nodes = [*top, *(inner for each in classes for inner in each.body)]
        names = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        for node in nodes:
            if isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
        assert name in names, f"{file} has no {name}"


def test_every_package_of_pipeline_has_its_row() -> None:
    packages = {f"pipeline/{file.parent.name}/" for file in (REPO / "pipeline").glob("*/__init__.py")}
    assert packages == {row[0] for row in table(read(PAGE), "Inside pipeline")}


def test_imports_inside_pipeline_follow_the_order_of_the_table() -> None:
    """A package uses those above it, as the import contracts say: the page and `pyproject.toml` have the same order."""
    order = [row[0].split("/")[1] for row in table(read(PAGE), "Inside pipeline")]
    for file in (REPO / "pipeline").glob("*/**/*.py"):
        own = file.relative_to(REPO / "pipeline").parts
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            for package in _imported(node, own):
                if package in order:
                    assert order.index(package) <= order.index(own[0]), f"{file.relative_to(REPO)}:{node.lineno}"
    (layers,) = (c["layers"] for c in CONTRACTS if c["name"] == "rooms of pipeline")
    assert [layer.removeprefix("altneu.pipeline.") for layer in reversed(layers)] == order


def _imported(node: ast.AST, own: tuple[str, ...]) -> list[str]:
    """The packages of pipeline/ that an import statement in the file `own` names."""
    if isinstance(node, ast.Import):
        return [name.name.split(".")[2] for name in node.names if name.name.startswith("altneu.pipeline.")]
    if not isinstance(node, ast.ImportFrom):
        return []
    names = (node.module or "").split(".") if node.module else []
    path = [*(("altneu", "pipeline", *own)[: -node.level] if node.level else ()), *names]
    if path[:2] != ["altneu", "pipeline"]:
        return []
    return [path[2]] if len(path) > 2 else [name.name for name in node.names]
