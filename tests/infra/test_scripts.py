"""The scripts are sound bash, and no tracked file names a package registry or a place on somebody's machine."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from altneu.pipeline import optional_dependencies
from altneu.pipeline.errors import UsageError

REPO = Path(__file__).resolve().parents[2]
SCRIPTS = ["infra/setup", "infra/demo", "infra/test", "infra/lock", ".ci/run"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_parses_stops_at_errors_and_can_be_started(script: str) -> None:
    path = REPO / script
    subprocess.run(["bash", "-n", str(path)], check=True)
    assert path.stat().st_mode & 0o111, f"{script} is not executable"
    text = path.read_text()
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in text, f"{script} goes on after an error"


def test_the_launcher_drops_the_incubator_module_and_keeps_every_other_argument(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    real = tmp_path / "real" / "bin" / "java"
    for file in (java, real):
        file.parent.mkdir(parents=True)
    java.write_text((REPO / "pipeline" / "local" / "launcher").read_text())
    real.write_text('#!/bin/sh\nfor a; do echo "[$a]"; done\n')
    for file in (java, real):
        file.chmod(0o755)
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=b c", "*", ""]
    said = subprocess.run([str(java), *given], capture_output=True, text=True, check=True).stdout
    assert said == "[-Xmx1g]\n[-Da=b c]\n[*]\n[]\n"


PINNED = ("infra/requirements", "infra/requirements-dev", "pipeline/local/requirements-java", "infra/requirements-uv")


@pytest.mark.parametrize("name", PINNED)
def test_requirements_are_pinned_hashed_and_without_an_index(name: str) -> None:
    text = (REPO / f"{name}.txt").read_text()
    assert not re.search(r"https?:|index-url|find-links|trusted-host", text)
    entries = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert entries
    for entry in entries:
        assert re.match(r"[a-z0-9._\[\],-]+==\S+", entry), entry.splitlines()[0]
        assert "--hash=sha256:" in entry, entry.splitlines()[0]


def test_requirements_hold_a_version_within_each_range_of_the_project() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    text = (REPO / "infra" / "requirements.txt").read_text()
    pinned = dict(re.findall(r"^([^\s=]+)==([^\s;]+)", text, flags=re.MULTILINE))
    optional = project["optional-dependencies"]
    for line in [*project["dependencies"], *(each for extra in optional.values() for each in extra)]:
        asked = Requirement(line)
        if asked.name == "altneu":  # other extras
            assert asked.extras <= set(optional)
        else:
            assert pinned[asked.name] in asked.specifier, f"{line}: run infra/lock"
            assert asked.specifier and not str(asked.specifier).startswith("=="), f"{line}: a range; the lock is exact"


def test_the_extras_are_those_that_errors_name() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    assert {*optional_dependencies.EXTRAS, "all"} == set(project["optional-dependencies"])
    (everything,) = (Requirement(line) for line in project["optional-dependencies"]["all"])
    assert everything.extras == set(optional_dependencies.EXTRAS)


def test_what_is_not_installed_is_named_with_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    optional_dependencies.require_extras("a run", *optional_dependencies.EXTRAS)
    monkeypatch.setattr(optional_dependencies, "EXTRAS", {"quality": "no_such_package", "demo": "nor_this_one"})
    with pytest.raises(UsageError) as raised:
        optional_dependencies.require_extras("the demo", "quality", "demo")
    assert raised.value.what == "the demo needs no_such_package and nor_this_one, which are not installed."
    assert raised.value.next == "pip install 'altneu[quality,demo]'"


# spelled in parts, so that this file does not find itself
REGISTRIES = [
    "py" + r"pi\.org",
    "pythonhosted" + r"\.org",
    "repo1" + r"\.maven",
    "maven" + r"\.org",
    "spark-packages" + r"\.org",
]
PLACES = [
    "/ro" + "ot/",
    "/wo" + "rk/",
    r"(?<!\bpipeline)(?<!/data)(?<!/server)(?<!\")/ho" + r"me/[a-z]",
    "/Us" + "ers/",
    "/tmp" + "/w/",
]
INDEX = [r"--(extra-)?index" + r"-url[ =]\S*:", "--find" + r"-links[ =]"]


@pytest.mark.needs("checkout")
def test_no_tracked_file_names_a_registry_or_a_place_on_a_machine() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=REPO, capture_output=True, text=True, check=True)
    pattern = re.compile("|".join(REGISTRIES + PLACES + INDEX))
    hits = []
    for name in listed.stdout.splitlines():
        try:
            lines = (REPO / name).read_text().splitlines()
        except (UnicodeDecodeError, OSError):
            continue  # data, or deleted in the work tree
        hits += [f"{name}:{n}: {line.strip()[:100]}" for n, line in enumerate(lines, 1) if pattern.search(line)]
    assert not hits, "\n".join(hits)
