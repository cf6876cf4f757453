"""Every example in a docstring of the product runs, and every module of it can be imported.

Not by `--doctest-modules`: that would collect a test of each of the modules that have no example, and pass it.
"""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("algorithms", "pipeline", "expectations")
OTHERS = {"scheduling", "migrations"}


def modules() -> list[str]:
    """List the modules of all rooms, but for those that do something when imported: a `__main__`, what Airflow reads
    (it has its own tests), and what Alembic runs."""
    files = [path for room in ROOMS for path in (ROOT / "altneu" / room).rglob("*.py") if path.stem != "__main__"]
    mine = [path for path in sorted(files) if not OTHERS & {*path.parts} or ">>>" in path.read_text()]
    return [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in mine]


@pytest.mark.dear("imports every module, and compiles the kernels where they have changed")
def test_every_example_runs() -> None:
    """In one test: to import everything costs seconds, and once is enough."""
    tried = 0
    failed: list[str] = []
    for name in modules():
        try:
            found = doctest.testmod(importlib.import_module(name))
        except Exception as problem:
            failed.append(f"{name} cannot be imported: {problem!r}")
            continue
        shown = (ROOT / Path(*name.split("."))).with_suffix(".py")
        written = shown if shown.exists() else shown.with_suffix("") / "__init__.py"
        if ">>> " in written.read_text() and not found.attempted:
            failed.append(f"{name}: its examples are in no docstring, and were not run")
        tried += found.attempted
        failed += [f"{name}: {found.failed} of {found.attempted} examples"] if found.failed else []
    assert not failed, "\n".join(failed)
    assert tried > 40, "the examples are not found"
