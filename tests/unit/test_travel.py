"""The code that travels: whole, importable from the archive alone, and known again by its digest."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from altneu.pipeline.storage import code_shipping

REPO = Path(__file__).resolve().parents[2]
APART = """
import sys
import altneu.algorithms.graph.truss, altneu.expectations.edges
import altneu.pipeline.landing.spark_reader, altneu.pipeline.storage.session
print(altneu.algorithms.graph.truss.__file__, altneu.pipeline.landing.spark_reader.__file__)
sys.path.insert(0, sys.argv[1])
"""


def test_the_archive_is_enough(tmp_path: Path) -> None:
    """Without the clone: `-S` leaves out what a path entry of this environment adds."""
    zipped = code_shipping.code_archive()
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{zipped}:{sysconfig.get_paths()['purelib']}"}
    said = subprocess.run(
        [sys.executable, "-S", "-c", APART, zipped], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    assert str(REPO) not in said.stdout and said.stdout.count("altneu.zip") == 2
    names = zipfile.ZipFile(zipped).namelist()
    assert "altneu/pipeline/run/runner.py" in names and all(name.endswith(".py") for name in names)


@pytest.mark.parametrize("there", ["the same", "none", "another"])
def test_what_an_executor_answers(tmp_path: Path, there: str) -> None:
    """Of the code that it would import, without importing it."""
    if there == "another":
        (tmp_path / "altneu").mkdir()
        (tmp_path / "altneu" / "__init__.py").write_text("raise ImportError")
    else:
        (tmp_path / "altneu").symlink_to(REPO / "altneu")
    asked = "import pickle, sys; sys.path = sys.path[1:]; print(next(pickle.load(sys.stdin.buffer)([0])))"
    from pyspark import cloudpickle

    path = sysconfig.get_paths()["purelib"] if there == "none" else f"{tmp_path}:{sysconfig.get_paths()['purelib']}"
    said = subprocess.run(
        [sys.executable, "-S", "-c", asked],
        input=cloudpickle.dumps(code_shipping._executor_probe()),
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path},
        cwd=tmp_path.parent,
        capture_output=True,
    )
    assert said.returncode == 0, said.stderr.decode()
    answer = said.stdout.decode().strip()
    assert (answer == code_shipping.code_digest()) == (there == "the same")
    assert (answer == "") == (there == "none")


@pytest.mark.parametrize(
    ("master", "conf", "variable", "python"),
    [
        ("local[2]", {}, "", sys.executable),
        ("spark://head:7077", {}, "", "python3"),
        ("yarn", {}, "/opt/python", "/opt/python"),
        ("k8s://https://host", {"spark.pyspark.python": "/opt/venv/bin/python"}, "/other", "/opt/venv/bin/python"),
    ],
)
def test_the_python_of_executors_is_none_of_here(
    master: str, conf: dict[str, str], variable: str, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", variable)
    assert code_shipping.executor_python(master, conf) == python
