"""The product is imported as `altneu`; the former names of what Airflow stores lead there, and no other does."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
PLUGINS = REPO / "pipeline" / "scheduling" / "plugins"


def python(code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a Python that sees these folders, and the packages of this environment but not the clone."""
    folders = os.pathsep.join(map(str, (*path, sysconfig.get_paths()["purelib"])))
    command = [sys.executable, "-S", "-W", "always::DeprecationWarning", "-P", "-c", code]
    return subprocess.run(command, env={"PYTHONPATH": folders}, cwd="/", capture_output=True, text=True)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """An environment that has the package alone at its top, as a wheel installs it."""
    (tmp_path / "altneu").symlink_to(REPO / "altneu")
    return tmp_path


def test_programs_import_the_interface_from_altneu(installed: Path) -> None:
    done = python(
        "import sys, altneu; print('pyspark' in sys.modules); print(altneu.Graph, altneu.AltneuError)", installed
    )
    assert done.stdout.split("\n")[:2] == [
        "False",
        "<class 'altneu.pipeline.reading.graph.Graph'> <class 'altneu.pipeline.errors.AltneuError'>",
    ]


@pytest.mark.parametrize("name", ["pipeline.reading.graph", "pipeline.api", "algorithms", "expectations.suite"])
def test_a_former_name_is_refused_in_a_clone(name: str) -> None:
    done = python(f"import {name}", REPO)
    assert done.returncode == 1
    assert "is imported as altneu." in done.stderr.splitlines()[-1]


def test_what_airflow_has_stored_is_found_once_in_a_clone_and_beside_the_plugin(installed: Path) -> None:
    for path in ((REPO,), (installed, PLUGINS)):
        done = python(
            "from pipeline.scheduling import dag_paths as former\n"
            "from altneu.pipeline.scheduling import dag_paths as now\n"
            "assert former is now and now.__spec__.name == 'altneu.pipeline.scheduling.dag_paths'",
            *path,
        )
        assert done.returncode == 0, done.stderr
        assert "DeprecationWarning: pipeline.scheduling is altneu.pipeline.scheduling;" in done.stderr


def test_a_package_of_somebody_else_keeps_its_name(installed: Path, tmp_path: Path) -> None:
    """Also where Airflow loads every file of the folder of plugins, which puts the finder in place."""
    for room in ("pipeline", "algorithms"):
        (tmp_path / "theirs" / room).mkdir(parents=True)
        (tmp_path / "theirs" / room / "__init__.py").touch()
        (tmp_path / "theirs" / room / "run.py").write_text("WHOSE = 'theirs'")
    code = (
        "from altneu import former_names; former_names.serve()\n"
        "from altneu import Graph; import pipeline.run, algorithms.run; print(pipeline.run.WHOSE, algorithms.run.WHOSE)"
    )
    done = python(code, installed, tmp_path / "theirs", PLUGINS)
    assert done.stdout == "theirs theirs\n", done.stderr
