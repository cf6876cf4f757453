"""Do the tests notice a fault? Small faults (mutants) are put into a module one at a time, and its quick tests are run.

The mutants are those of cosmic-ray, and statements left out. At most one of a kind is drawn at a place, none in
what only declares or in what numba compiles; then a sample of each module by a seed. They are made in a copy of
the repository, in processes that begin with the libraries loaded. Exit code 1 when a mutant survives.

cosmic-ray is not among the requirements. Beside them, and not in `.venv`:

    .venv/bin/python -m pip install --no-deps --target /tmp/cosmic-ray cosmic-ray==8.7.0 parso stevedore
    PYTHONPATH=/tmp/cosmic-ray nice .venv/bin/python -m tests.benchmarks.mutation --sample 30 [MODULE…]
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import parso.python.tree as tree
from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator

UNIT, KERNELS = "tests/unit/test_", "tests/kernels/test_"
ROWS = [f"{UNIT}{name}.py" for name in ("runs", "ledger", "shown_totals", "rollback")]
TOTALS = [*ROWS, f"{UNIT}long_history.py"]
LEASE = [*ROWS, f"{UNIT}lease.py"]
PAGES = [f"{UNIT}runs.py", "tests/report/test_document.py", "tests/report/test_fresh.py"]
RUNS = [f"tests/e2e/test_{name}.py" for name in ("two_writers", "hold", "gate", "on_call")]
RUNS += ["tests/protocol", "-m", "not slow and not backend", "-k", "not real and not held_run and not has_moved"]
WARM = [f"{KERNELS}replay.py", f"{KERNELS}warm.py", f"{KERNELS}proof.py", "-k", "not college", "-m", "not slow"]
SUITES: dict[str, list[str]] = {
    "pipeline/state/ledger.py": LEASE,
    "pipeline/state/runs.py": LEASE,
    "pipeline/state/database_session.py": LEASE,
    "pipeline/state/lease.py": LEASE,
    "pipeline/state/process_identity.py": LEASE,
    **{f"pipeline/state/{name}.py": ROWS for name in ("approvals", "stage_log")},
    "pipeline/state/revisions.py": [*ROWS, f"{UNIT}exact_revisions.py"],
    "pipeline/state/totals.py": ["--doctest-modules", "altneu/pipeline/state/totals.py", *TOTALS],
    "pipeline/state/run_outputs.py": [*TOTALS, f"{UNIT}prints.py", f"{UNIT}outputs.py"],
    "pipeline/state/digests.py": [*ROWS, f"{UNIT}landing.py"],
    "pipeline/state/checks.py": PAGES,
    "pipeline/state/records.py": [*PAGES, *ROWS[1:]],
    "pipeline/state/epoch_status.py": PAGES,
    "pipeline/state/stage_results.py": [f"{UNIT}facts.py"],
    "pipeline/state/filesystem.py": ["--doctest-modules", "altneu/pipeline/state/filesystem.py", f"{UNIT}place.py"],
    "pipeline/state/home_identity.py": [f"{UNIT}place.py"],
    "pipeline/state/versions.py": [f"{UNIT}versions.py"],
    "pipeline/run/planning.py": [f"{UNIT}planning.py"],
    "pipeline/run/run_session.py": [f"{UNIT}run_session.py", *RUNS],
    "pipeline/run/runner.py": RUNS,
    "pipeline/run/stages/proof_verification.py": [f"{UNIT}proving.py", "tests/laws/test_landed.py"],  # starts Spark
    "pipeline/run/choices/plan_choice.py": [f"{UNIT}decisions.py"],
    "pipeline/run/choices/plan_choices.py": [f"{UNIT}decisions.py"],
    "pipeline/storage/warehouse.py": [f"{UNIT}retries.py", "tests/e2e/test_warehouse.py"],  # starts Spark
    "algorithms/graph/kernels/intervals.py": [
        "--doctest-modules",
        "altneu/algorithms/graph/kernels/intervals.py",
        f"{KERNELS}intervals.py",
    ],
    "algorithms/graph/kernels/replay.py": WARM,
    "algorithms/graph/kernels/persistent_graph.py": WARM,
    "algorithms/graph/kernels/maintained_graph.py": WARM,
}
LIBRARIES = (
    "pytest doctest numpy pandas pyarrow numba sqlalchemy alembic.command pydantic hypothesis tomlkit pyspark.sql"
)
LIBRARIES += " jinja2 typer rich tenacity sqlglot psutil scipy.sparse sqlalchemy.dialects.sqlite"


class LeaveOut(Operator):
    """A call, a change of something, or a `raise` is left out."""

    def mutation_positions(self, node: Any) -> Iterator[Any]:
        if node.type == "simple_stmt" and (
            node.children[0].type in ("atom_expr", "power", "raise_stmt")
            or (node.children[0].type == "expr_stmt" and node.children[0].children[0].type in ("atom_expr", "power"))
        ):
            yield node.start_pos, node.children[0].end_pos

    def mutate(self, node: Any, index: int) -> Any:
        first = node.children[0]
        lines = first.get_code(include_prefix=False).count("\n")
        node.children[0] = tree.Name("pass" + " \\\n" * lines, first.start_pos, prefix=first.get_first_leaf().prefix)
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


@dataclass(frozen=True)
class Mutant:
    kind: str
    occurrence: int
    line: int
    code: str


def operator(kind: str) -> Operator:
    return LeaveOut() if kind == "LeaveOut" else plugins.get_operator(kind)()


def excluded(code: str) -> set[tuple[int, int]]:
    """(line, column) of all that is declared and not done: annotations, protocols and abstract methods, the options of
    dataclasses, assertions for the type checker; and of what numba compiles."""
    spans: list[Any] = []
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.AnnAssign():
                spans.append(node if "TypeAlias" in ast.dump(node.annotation) else node.annotation)
            case ast.arg(annotation=ast.expr()):
                spans.append(node.annotation)
            case ast.FunctionDef():
                spans += [node.returns] if node.returns else []
                decorators = " ".join(ast.dump(each) for each in node.decorator_list)
                if "njit" in decorators or "abstractmethod" in decorators:
                    spans += [node, *node.decorator_list]
            case ast.ClassDef():
                spans += node.decorator_list
                if any("Protocol" in ast.dump(base) for base in node.bases):
                    spans.append(node)
            case ast.Assert():
                spans.append(node)
    places, lines = set(), code.split("\n")
    for span in spans:
        for line in range(span.lineno, span.end_lineno + 1):
            first = span.col_offset - 1 if line == span.lineno else 0  # with the @ of a decorator
            last = span.end_col_offset if line == span.end_lineno else len(lines[line - 1])
            places |= {(line, column) for column in range(first, last + 1)}
    return places


def mutants(code: str, rng: random.Random) -> list[Mutant]:
    """One of a kind for each place; which one of the kind is drawn."""
    out, found = excluded(code), {}
    for kind in [*sorted(plugins.operator_names()), "LeaveOut"]:
        if kind.rpartition("/")[2] in ("VariableReplacer", "VariableInserter"):
            continue
        each = operator(kind)
        places = (place for node in ast_nodes(get_ast(code)) for place in each.mutation_positions(node))
        for occurrence, (begin, end) in enumerate(places):
            if begin not in out and tuple(end) not in out:
                family = kind.rpartition("/")[2].split("_")[0]
                found.setdefault((begin, end, family), []).append((kind, occurrence, begin[0]))
    drawn = (rng.choice(several) for _, several in sorted(found.items()))
    return [Mutant(*one, text) for one in drawn if (text := changed(code, one[0], one[1]))]


def changed(code: str, kind: str, occurrence: int) -> str | None:
    """The module with one fault; None where cosmic-ray makes none that is Python (of a ** that is no power, of the
    dotted name of an exception)."""
    try:
        text = mutate_code(code, operator(kind), occurrence)
        return text if ast.parse(text) and text != code else None
    except (AttributeError, SyntaxError):
        return None


def run(copy: Path, suite: list[str], output: Path, limit: float) -> tuple[bool, float]:
    """Whether the tests pass, in a child of this process; one that takes too long has failed."""
    began, pid = time.monotonic(), os.fork()
    if not pid:
        os.setsid()
        with open(output, "w") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        code = 3
        try:
            import pytest

            code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--tb=line", *suite]))
        finally:
            os._exit(code)
    handle = os.pidfd_open(pid)
    try:
        in_time = bool(select.select([handle], [], [], limit)[0])
        if not in_time:
            os.killpg(pid, signal.SIGKILL)
    finally:
        os.close(handle)
    status = os.waitpid(pid, 0)[1]
    return in_time and os.waitstatus_to_exitcode(status) == 0, time.monotonic() - began


def copied(repository: Path, copy: Path) -> None:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=repository, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(repository / name, copy / name, follow_symlinks=False)


def examined(copy: Path, module: str, sample: int, seed: int) -> tuple[int, int, list[Mutant]]:
    """(possible mutants, drawn ones, those of the drawn that survive)."""
    path, suite, output = copy / module, SUITES[module], copy / "output.txt"
    code = path.read_text()
    rng = random.Random(f"{seed} {module}")
    possible = mutants(code, rng)
    chosen = sorted(rng.sample(possible, min(sample, len(possible))), key=lambda one: one.line)
    run(copy, suite, output, 1800)  # compiles what numba compiles, which takes longer than a default test may
    fine, seconds = run(copy, suite, output, 1800)
    if not fine:
        sys.exit(f"{module}: the tests fail without a mutant:\n{output.read_text()[-3000:]}")
    print(f"{module}: {len(possible)} possible mutants, the tests take {seconds:.1f} s", flush=True)
    left = []
    for one in chosen:
        path.write_text(one.code)
        survives, seconds_now = run(copy, suite, output, 10 + 4 * seconds)
        told = "SURVIVES" if survives else "killed"
        print(f"  {told} {module}:{one.line} {one.kind} {one.occurrence} ({seconds_now:.1f} s)", flush=True)
        if survives:
            left.append(one)
            diff = difflib.unified_diff(code.split("\n"), one.code.split("\n"), lineterm="", n=0)
            print("\n".join(f"    {line}" for line in list(diff)[3:] if line.strip(" +\\")), flush=True)
    path.write_text(code)
    return len(possible), len(chosen), left


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", choices=[*SUITES, []], help="Default: all that need no Spark.")
    parser.add_argument("--sample", type=int, default=40, help="Mutants a module.")
    parser.add_argument("--seed", type=int, default=23)
    arguments = parser.parse_args()
    repository = Path.cwd()
    sys.dont_write_bytecode = True
    for library in LIBRARIES.split():
        __import__(library)
    from numba.core import caching

    # what is compiled stays: no mutant is in it, or in a number that it takes from elsewhere
    caching._SourceFileBackedLocatorMixin.get_source_stamp = lambda self: 0
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        copied(repository, copy)
        os.chdir(copy)
        sys.path[:] = [str(copy), *(place for place in sys.path if place not in ("", str(repository)))]
        os.environ |= {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "altneu")]:
            del sys.modules[name]
        for module in arguments.modules or [name for name in SUITES if "storage" not in name]:
            rows.append((module, *examined(copy, module, arguments.sample, arguments.seed)))
    print(f"\n| module | possible | drawn | killed | survived |\n|---|---|---|---|---|   (seed {arguments.seed})")
    for module, possible, drawn, left in rows:
        print(f"| {module} | {possible} | {drawn} | {drawn - len(left)} | {len(left)} |")
    sys.exit(any(left for *_, left in rows))


if __name__ == "__main__":
    main()
