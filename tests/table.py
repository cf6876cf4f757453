"""Which test holds which law, command, check, error, DAG and page: the tables of tests/README.md, from their source.

    python -m tests.table            writes them
    python -m tests.table --check    says whether they are out of date (exit code 1), and writes nothing

Only the default tier counts: a function that is `slow`, or needs a back end, in each of its forms holds nothing here. A
test holds a law when its marker says so, `@pytest.mark.law(3, 4)`. It deals with a command when that is the first word
of a call or of a list of words, with an error when it names the class, and with a check, a DAG or a page when a text
names it: its own, or one of the helpers and tables of its module that it refers to.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.tools import FIXTURES

TESTS = Path(__file__).parent
README = TESTS / "README.md"
BEGIN, END = "<!-- made by python -m tests.table -->", "<!-- until here -->"
LAWS = {
    1: "Upserts: at every epoch the last value of each key",
    2: "Replacement: the same batch publishes nothing, a changed one exactly the difference",
    3: "Confluence: the state depends on the set of batches alone",
    4: "Incremental = full, at every epoch",
    5: "Delta rules claim each combination once",
    6: "Linear operators, joins, reductions, iterate",
    7: "Crash: killed at any moment and run again, the same state; no reader sees half a revision",
    8: "Bounds: no more candidates than the least count; no plan makes wedges",
    9: "Compaction changes no kept answer",
    10: "Proof: the two local facts of a published trussness",
    11: "Fingerprint: of the contents alone",
    12: "Truth: what a reader is shown is what is published",
}
PAGES = ("index.html", "epoch=", "check=", "rows=", "vertex=", "diff=")


@dataclass(frozen=True)
class Scope:
    """A test function of the default tier, with the helpers and tables of its module that it refers to."""

    file: str
    function: ast.FunctionDef
    module: ast.Module

    @property
    def name(self) -> str:
        return f"{self.file}::{self.function.name}"

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Everything that it is made of."""
        defined = {name: node for node in self.module.body for name in list_names(node)}
        queue: list[ast.AST] = [self.function, *find_module_marks(self.module)]
        parts: dict[int, ast.AST] = {}
        while queue:
            part = queue.pop()
            if id(part) in parts:
                continue
            parts[id(part)] = part
            for node in ast.walk(part):
                if isinstance(node, ast.Name) and node.id in defined:
                    queue.append(defined[node.id])
                if isinstance(node, ast.arg) and node.arg in defined:  # a fixture
                    queue.append(defined[node.arg])
        return [node for part in parts.values() for node in ast.walk(part)]

    @cached_property
    def texts(self) -> list[str]:
        return [node.value for node in self.nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]

    @cached_property
    def first_words(self) -> set[str]:
        """The first words of calls and of lists: of what may be a command line."""
        texts: list[ast.expr] = []
        for node in self.nodes:
            if isinstance(node, ast.Call):
                texts += [each for each in node.args if isinstance(each, (ast.Constant, ast.JoinedStr))][:1]
            if isinstance(node, (ast.List, ast.Tuple)):
                texts += node.elts[:1]
        return {word for text in texts for word in read_text(text).split()[:1]}

    @cached_property
    def names(self) -> set[str]:
        names = {node.id for node in self.nodes if isinstance(node, ast.Name)}
        return names | {node.attr for node in self.nodes if isinstance(node, ast.Attribute)}

    @cached_property
    def laws(self) -> set[int]:
        """The numbers that its markers and those of its module say."""
        marks = [*self.function.decorator_list, *find_module_marks(self.module)]
        calls = [node for mark in marks for node in ast.walk(mark) if isinstance(node, ast.Call)]
        numbers = [number for call in calls if ast.unparse(call.func) == "pytest.mark.law" for number in call.args]
        return {number.value for number in numbers if isinstance(number, ast.Constant)}


def read_text(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        node = node.values[0] if node.values else node
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def list_names(node: ast.AST) -> list[str]:
    """Return the names that a statement of a module defines."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


def find_module_marks(module: ast.Module) -> list[ast.expr]:
    return [node.value for node in module.body if isinstance(node, ast.Assign) and list_names(node) == ["pytestmark"]]


def is_of_another_tier(marks: Iterable[ast.expr], arguments: Iterable[str]) -> bool:
    """Do its markers or fixtures take a whole function out of the default tier?"""
    texts = [ast.unparse(each) for mark in marks for each in (mark.elts if isinstance(mark, ast.List) else [mark])]
    marked = any(text == "pytest.mark.slow" or text.startswith("pytest.mark.backend(") for text in texts)
    return marked or not FIXTURES.keys().isdisjoint(arguments)


def find_tests() -> Iterator[Scope]:
    """Yield the test functions of the default tier, but for those of the suite itself."""
    for path in sorted(TESTS.rglob("test_*.py")):
        if path.parent.name == "suite":
            continue
        module = ast.parse(path.read_text(encoding="utf-8"))
        for node in module.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                arguments = [each.arg for each in node.args.args]
                if not is_of_another_tier([*node.decorator_list, *find_module_marks(module)], arguments):
                    yield Scope(path.relative_to(TESTS.parent).as_posix(), node, module)


def list_commands() -> list[str]:
    from altneu.pipeline.cli.command_line import app

    plain = [each.name or each.callback.__name__ for each in app.registered_commands if each.callback]
    return sorted([*plain, *(str(group.name) for group in app.registered_groups)])


def list_checks() -> list[str]:
    from altneu.expectations.suite import ALL_EXPECTATIONS

    return sorted({each.name for each in ALL_EXPECTATIONS})


def list_errors() -> list[str]:
    """Return the errors of the product: all classes that are one, by their source."""
    found = {"AltneuError"}
    sources = [path.read_text(encoding="utf-8") for path in sorted((TESTS.parent / "pipeline").rglob("*.py"))]
    while True:
        more = {
            name
            for source in sources
            for name, bases in re.findall(r"^class (\w+)\(([^)]*)\):", source, re.M)
            if found & set(re.findall(r"\w+", bases)) and name not in found
        }
        if not more:
            return sorted(found)
        found |= more


def list_dags() -> list[str]:
    return sorted(path.stem for path in (TESTS.parent / "dags").glob("*.py"))


def list_holders(names: Iterable[str], tests: list[Scope], holds: Callable[[Scope, str], bool]) -> dict[str, list[str]]:
    """Return for each name the files of the tests that hold it, the one with most of them first."""
    counts = {name: Counter(test.file.removeprefix("tests/") for test in tests if holds(test, name)) for name in names}
    return {f"`{name}`": sorted(files, key=lambda file: (-files[file], file)) for name, files in counts.items()}


def make_tables() -> dict[str, dict[str, list[str]]]:
    """Return all tables: what is held, and by which tests or files of tests."""
    tests = list(find_tests())

    def is_in_texts(test: Scope, name: str) -> bool:
        return any(name in text for text in test.texts)

    return {
        "Law": {
            f"{number}. {text}": [f"`{test.name.removeprefix('tests/')}`" for test in tests if number in test.laws]
            for number, text in LAWS.items()
        },
        "Command": list_holders(list_commands(), tests, lambda test, name: name in test.first_words),
        "Check": list_holders(list_checks(), tests, is_in_texts),
        "Error": list_holders(list_errors(), tests, lambda test, name: name in test.names),
        "DAG": list_holders(list_dags(), tests, is_in_texts),
        "Page": list_holders(PAGES, tests, is_in_texts),
    }


def write_tables() -> str:
    """Return the tables as text: of a law all tests, of the others the three files that have most."""
    lines = []
    for head, rows in make_tables().items():
        lines += [f"| {head} | Tests |", "|---|---|"]
        for name, holders in rows.items():
            shown = holders if head == "Law" else holders[:3]
            lines.append(f"| {name} | {', '.join(shown)}{', …' if len(shown) < len(holders) else ''} |")
        lines.append("")
    return "\n".join(lines)


def read_tables() -> dict[str, dict[str, list[str]]]:
    """Return the tables that tests/README.md has."""
    tables: dict[str, dict[str, list[str]]] = {}
    for line in README.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|---"):
            continue
        if line.startswith("|") and cells[1] == "Tests":
            rows = tables[cells[0]] = {}
        elif line.startswith("|"):
            rows[cells[0]] = [each for each in cells[1].split(", ") if each not in ("", "…")]
    return tables


def main() -> None:
    text = README.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    now = f"{before}{BEGIN}\n\n{write_tables()}\n{END}{rest.partition(END)[2]}"
    if "--check" not in sys.argv:
        README.write_text(now, encoding="utf-8")
    elif now != text:
        sys.exit("tests/README.md is out of date: python -m tests.table")


if __name__ == "__main__":
    main()
