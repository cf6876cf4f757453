"""The names and docstrings of the product stay those that a stranger understands.

Each bound is what the code has reached, with little to spare. A name that is longer and says no more is no gain: the
bounds are a thermometer, not the aim.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
FOLDERS = ("altneu", "pipeline", "algorithms", "expectations", "dags")
PRONOUN = re.compile(r"(It|They|The same|Of|As|Those|That|Who|Such)\b")
BARE = re.compile(
    r"_*(of|at|in|on|by|for|from|to|some|same|own|others?|each|again|there|here|left|found|said|told|asked|kept|held|made|"
    r"taken|given|shown|named|stored|listed|opened|moved|wrote|written|begin|words|say|tell|few|whole|spare|alone|look|"
    r"need|work|place|plain|standing|known|together|stays|about|most|back|over|past|gone|due|beyond|outside|dense)"
)


Functions = list[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]


@pytest.fixture(scope="module")
def functions() -> Functions:
    """All functions of the product. A fixture, so that one process of the suite alone reads them."""
    return list(walk_functions())


def walk_functions() -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for folder in FOLDERS:
        for file in (REPO / folder).rglob("*.py"):
            if "migrations/versions" in file.as_posix():
                continue
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
                    yield file.relative_to(REPO), node


def is_one_word(name: str) -> bool:
    return "_" not in name.strip("_")


def test_few_functions_have_a_name_of_one_word(functions: Functions) -> None:
    for folder, limit in (("pipeline", 0.15), ("algorithms", 0.25)):
        names = [function.name for file, function in functions if file.parts[0] == folder]
        assert len(names) > 300 and sum(map(is_one_word, names)) / len(names) < limit, folder


def test_no_function_or_module_has_a_bare_participle_or_preposition_for_a_name(functions: Functions) -> None:
    bare = [f"{file}: {function.name}" for file, function in functions if BARE.fullmatch(function.name)]
    assert len(bare) <= 10, bare
    assert not {file for file, _ in functions if BARE.fullmatch(file.stem)}


def test_few_names_are_defined_in_several_files(functions: Functions) -> None:
    files = defaultdict(set)
    for file, function in functions:
        files[function.name].add(file)
    shared = sorted(name for name, places in files.items() if len(places) > 1)
    assert len(shared) <= 220, shared


def test_no_docstring_begins_with_a_pronoun(functions: Functions) -> None:
    docs = ((file, function.name, ast.get_docstring(function) or "") for file, function in functions)
    assert not [f"{file}: {name}: {doc[:60]}" for file, name, doc in docs if PRONOUN.match(doc)]


def test_booleans_and_long_lists_of_parameters_are_keywords(functions: Functions) -> None:
    booleans, long = [], []
    for file, function in functions:
        positional = [
            each for each in (*function.args.posonlyargs, *function.args.args) if each.arg not in ("self", "cls")
        ]
        booleans += [
            f"{file}: {function.name}({each.arg})"
            for each in positional
            if isinstance(each.annotation, ast.Name) and each.annotation.id == "bool"
        ]
        if len(positional) > 7 and "kernels" not in file.parts:
            long.append(f"{file}: {function.name}")
    assert len(booleans) <= 25, booleans
    assert len(long) <= 5, long
