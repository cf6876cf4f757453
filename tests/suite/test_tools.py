"""A machine may lack any tool: the tests that need it are skipped, with its reason, before anything is started."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests import tools

TESTS = Path(__file__).resolve().parents[1]
MARKED = re.compile(rf"\bmark\.(backend|needs)\b|\b({'|'.join(tools.FIXTURES)})\b|DATABASE_KINDS|graphs\(")
SKIPPING = {"skip", "importorskip", "which"}
SKIPPING_CALLS = {"pytest.skip", "pytest.importorskip", "pytest.mark.skip", "pytest.mark.skipif", "shutil.which"}


@pytest.mark.slow  # it collects and skips the whole suite in a process of its own
def test_a_machine_without_any_tool_skips_what_needs_them_and_fails_nothing(tmp_path: Path) -> None:
    """With an empty PATH, no settings and a new home folder, all that is marked: no error, each reason is a tool's.
    Files that speak of no marker and no fixture of a tool have none such."""
    lost = ("ALTNEU_VERSITYGW", "ALTNEU_GO_BIN", "GOBIN", "GOPATH", "GOMODCACHE")
    environment = {name: value for name, value in os.environ.items() if name not in lost}
    environment |= {"PATH": str(tmp_path), "HOME": str(tmp_path), tools.GRAPHS: str(tmp_path), tools.HIDDEN: "all"}
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "-m", "backend or needs"]
    command += [str(path) for path in sorted(TESTS.rglob("test_*.py")) if MARKED.search(path.read_text())]
    done = subprocess.run(command, cwd=tools.REPO, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    counts = Counter()
    for count, reason in re.findall(r"^SKIPPED \[(\d+)\] [^:]+:\d+: (.*)$", done.stdout, re.M):
        counts[reason] += int(count)
    assert set(counts) <= {tool.reason for tool in tools.TOOLS.values()}
    (summary,) = re.findall(r"^(\d+) skipped, \d+ deselected", done.stdout, re.M)
    assert sum(counts.values()) == int(summary) > 100  # and nothing ran


@pytest.mark.parametrize("name", tools.TOOLS)
def test_a_hidden_tool_is_named_with_how_one_gets_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tools.HIDDEN, f"something else,{name}")
    with pytest.raises(pytest.skip.Exception) as skipped:
        tools.require(name)
    assert str(skipped.value) == f"{tools.TOOLS[name].what} is not here: {tools.TOOLS[name].get}"
    (line,) = tools.describe([name])
    assert line.startswith(name) and "NOT FOUND" in line and tools.TOOLS[name].get in line


PROGRAMS = {
    "browser": "chromium",
    "postgresql": "initdb",
    "s3": "versitygw",
    "rest": "mvn",
    "helm": "helm",
    "kubeconform": "kubeconform",
    "compose": "cmd",
    "network": "ip",
    "mount": "mount",
    "openssl": "openssl",
    "checkout": "git",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_found_by_the_path_alone(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the PATH has none, and nothing else names it, there is none."""
    for variable in ("ALTNEU_VERSITYGW", "ALTNEU_GO_BIN", "GOBIN", "GOPATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(tools, "ASSETS", tmp_path)
    monkeypatch.setattr(tools, "REST_JARS", tmp_path / tools.REST_JARS.name)  # those of an earlier test may be there
    monkeypatch.setattr(tools, "POSTGRESQL", tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tools.TOOLS[name].find() is None
    for program in (PROGRAMS[name], "runuser", "umount"):
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    if name == "mount" and os.geteuid() != 0:
        return
    found = tools.TOOLS[name].find()
    assert found is not None and Path(found).is_relative_to(tools.REPO if name == "checkout" else tmp_path)


def test_no_other_module_looks_for_tools_or_skips() -> None:
    """Else a test could need a tool that its markers do not name."""
    found = []
    for path in TESTS.rglob("*.py"):
        if path.name in ("tools.py", "tiers.py", Path(__file__).name) or "benchmarks" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            imported = isinstance(node, ast.ImportFrom) and {alias.name for alias in node.names} & SKIPPING
            if imported or (isinstance(node, ast.Attribute) and ast.unparse(node) in SKIPPING_CALLS):
                found.append(f"{path.relative_to(TESTS)}:{node.lineno}: {ast.unparse(node)}")
    assert found == []


def test_every_back_end_has_tests(request: pytest.FixtureRequest) -> None:
    """Of the whole suite, by the words of its files: no marker names what is not, and no back end is without a test."""
    text = "".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    named = {
        name
        for words in re.findall(r"mark\.(?:backend|needs)\(([^)]*)\)", text)
        for name in re.findall('"([^"]+)"', words)
    }
    assert named <= set(tools.TOOLS) and set(tools.BACKENDS) <= named | set(tools.FIXTURES.values())
