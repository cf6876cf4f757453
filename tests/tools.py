"""What tests need that a machine may lack: how each tool is looked for, how one gets it, why its tests are skipped.

No other module of the tests skips. A test says what it needs by a marker, and is skipped before its fixtures begin:
`backend("s3")` for the back ends, which `infra/test --backends` runs, and `needs("openssl")` for small tools of other
tests. Whoever asks for one of `FIXTURES` has the marker of its back end by that. `ALTNEU_TESTS_WITHOUT=browser,s3` (or
`all`) hides tools, to see what a machine without them does.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

from altneu.pipeline.storage.assets import ASSETS

REPO = Path(__file__).resolve().parents[1]
ICEBERG = "1.11.0"  # of the REST catalog: older than the client, as a catalog that others run may be
REST_JARS = ASSETS / f"rest-catalog-{ICEBERG}"
HIDDEN = "ALTNEU_TESTS_WITHOUT"
GRAPHS = "ALTNEU_TEST_DATA"
POSTGRESQL = Path("/usr/lib/postgresql")  # where Debian has its programs, which are not on the PATH


@dataclass(frozen=True)
class Tool:
    """`find` returns where it is, or None."""

    what: str
    get: str
    find: Callable[[], str | None]

    @property
    def reason(self) -> str:
        return f"{self.what} is not here: {self.get}"


def find_chromium() -> str | None:
    if not all(map(importlib.util.find_spec, ("playwright", "axe_playwright_python"))):
        return None
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def find_postgresql() -> str | None:
    """Return the folder of PostgreSQL's programs; root has to be able to start them as another user."""
    if os.geteuid() == 0 and not shutil.which("runuser"):
        return None
    installed = sorted(POSTGRESQL.glob("*/bin/initdb"))
    initdb = str(installed[-1]) if installed else shutil.which("initdb")
    return str(Path(initdb).parent) if initdb else None


def find_go_program(name: str, variable: str = "") -> str | None:
    """Return a program: where a variable says (its folder or itself), on the PATH, or where Go installs programs."""
    go = Path(os.environ.get("GOBIN") or Path(os.environ.get("GOPATH") or Path.home() / "go") / "bin")
    named = Path(os.environ[variable]) if os.environ.get(variable) else None
    places = [named / name if named and named.is_dir() else named, shutil.which(name), go / name]
    return next((str(place) for place in places if place and Path(place).exists()), None)


def find_kubernetes() -> str | None:
    cache = Path(os.environ.get("GOMODCACHE") or Path(os.environ.get("GOPATH") or Path.home() / "go") / "pkg/mod")
    described = sorted(cache.glob("k8s.io/kubernetes@*/api/openapi-spec/swagger.json"))
    return str(described[-1]) if described else None


def find_s3_library() -> str | None:
    return next(map(str, (ASSETS / "jars").glob("*iceberg-aws-bundle*")), None)


def find_rest_catalog() -> str | None:
    """Return the folder of its jars, or the program that resolves them."""
    return str(REST_JARS) if REST_JARS.exists() else shutil.which("mvn")


def find_package(name: str) -> str | None:
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # its parent
        return None
    return str(spec.origin or name) if spec else None


def find_checkout() -> str | None:
    return str(REPO) if shutil.which("git") and succeeds("git", "-C", str(REPO), "rev-parse") else None


def find_package_index() -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        download = ("download", "--quiet", "--no-deps", "--timeout", "10", "--retries", "0", "--dest", folder)
        return "pip's own settings" if succeeds(sys.executable, "-m", "pip", *download, "iniconfig") else None


def find_network() -> str | None:
    """Return `ip`, where it may make a network."""
    program, name = shutil.which("ip"), f"altneu-try-{os.getpid()}"
    if not program or not succeeds(program, "netns", "add", name):
        return None
    return program if succeeds(program, "netns", "del", name) else None


def find_mount() -> str | None:
    """Return `mount`, where it may mount a file system in memory."""
    program = shutil.which("mount")
    if os.geteuid() != 0 or not program:
        return None
    with tempfile.TemporaryDirectory() as folder:
        mounted = succeeds(program, "-t", "tmpfs", "-o", "size=1m", "altneu-try", folder)
        return program if mounted and succeeds("umount", "-l", folder) else None


def find_unprivileged_start() -> str | None:
    """Return what starts a process that permissions hold for; whoever is not root needs nothing."""
    return "this user" if os.geteuid() != 0 else shutil.which("setpriv")


def find_graphs() -> str | None:
    """Return the folder of the larger graphs: what the environment names, or `shared/data` beside the repository."""
    folder = Path(os.environ.get(GRAPHS) or REPO.parent / "shared" / "data")
    return str(folder) if (folder / "soc-sign-bitcoinotc.csv.gz").exists() else None


def find_peak_memory() -> str | None:
    file = Path("/proc/self/clear_refs")
    return str(file) if file.exists() else None


def succeeds(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


IN_GO = "`go install %s`, or name its folder in ALTNEU_GO_BIN"
BACKENDS: dict[str, Tool] = {
    "browser": Tool(
        "Chromium, with playwright and axe-core,", "apt install chromium, infra/setup --dev", find_chromium
    ),
    "postgresql": Tool("a PostgreSQL server (initdb)", "apt install postgresql", find_postgresql),
    "s3": Tool(
        "an S3 server (versitygw)",
        "`go install github.com/versity/versitygw/cmd/versitygw@latest`, or name it in ALTNEU_VERSITYGW",
        lambda: find_go_program("versitygw", "ALTNEU_VERSITYGW"),
    ),
    "rest": Tool("a REST catalog", "apt install maven, which resolves its jars", find_rest_catalog),
    "connect": Tool("Spark Connect (grpcio)", "infra/setup", lambda: find_package("grpc")),
    "airflow": Tool("Airflow", "infra/setup", lambda: find_package("airflow")),
    "cluster": Tool("Spark's own cluster (pyspark)", "infra/setup", lambda: find_package("pyspark")),
    "wheel": Tool("a package index that pip reaches", "pip config list says which it asks", find_package_index),
    "helm": Tool("helm", IN_GO % "helm.sh/helm/v3/cmd/helm@latest", lambda: find_go_program("helm", "ALTNEU_GO_BIN")),
    "kubeconform": Tool(
        "kubeconform",
        IN_GO % "github.com/yannh/kubeconform/cmd/kubeconform@latest",
        lambda: find_go_program("kubeconform", "ALTNEU_GO_BIN"),
    ),
    "compose": Tool(
        "the reader of compose files (cmd)",
        IN_GO % "github.com/compose-spec/compose-go/v2/cmd@latest",
        lambda: find_go_program("cmd", "ALTNEU_GO_BIN"),
    ),
    "kubernetes": Tool(
        "Kubernetes' description of its API", "`go mod download k8s.io/kubernetes@v1.34.2`", find_kubernetes
    ),
}
TOOLS: dict[str, Tool] = BACKENDS | {
    "s3 library": Tool("Iceberg's library for tables in S3", "altneu setup --s3", find_s3_library),
    "openlineage": Tool(
        "Airflow's provider of OpenLineage",
        "pip install apache-airflow-providers-openlineage",
        lambda: find_package("airflow.providers.openlineage"),
    ),
    "network": Tool("the right to make a network", "be root, with `ip` (apt install iproute2)", find_network),
    "mount": Tool("the right to mount a small file system", "be root", find_mount),
    "unprivileged start": Tool("setpriv, which root needs to give up rights,", "apt install util-linux",
                               find_unprivileged_start),
    "openssl": Tool("openssl", "apt install openssl", lambda: shutil.which("openssl")),
    "checkout": Tool("a git checkout", "clone the repository", find_checkout),
    "peak memory": Tool("Linux's record of the greatest memory", "run it on Linux", find_peak_memory),
    "graphs": Tool(
        "the folder of larger graphs",
        f"{GRAPHS} names it; without it there are those of tests/data",
        find_graphs,
    ),
}  # fmt: skip
FIXTURES = {
    "browser": "browser",
    "postgres": "postgresql",
    "postgres_server": "postgresql",
    "s3": "s3",
    "store": "s3",
    "rest": "rest",
}


def locate(name: str) -> str | None:
    """Return where a tool is; None where it is absent or hidden."""
    hidden = os.environ.get(HIDDEN, "").split(",")
    return None if name in hidden or "all" in hidden else _located(name)


@functools.cache
def _located(name: str) -> str | None:
    return TOOLS[name].find()


def require(name: str) -> str:
    """Return where a tool is, or skip the test."""
    found = locate(name)
    if found is None:
        skip_without(name)
    return found


def skip_without(name: str, detail: str = "") -> NoReturn:
    """Skip the test for want of a tool; `detail`: of what has been tried."""
    pytest.skip(TOOLS[name].reason + (f" ({detail})" if detail else ""))


def list_backends(item: pytest.Item) -> list[str]:
    """Return the back ends that the markers of a test name."""
    return list(dict.fromkeys(name for mark in item.iter_markers("backend") for name in mark.args))


def list_needs(item: pytest.Item) -> list[str]:
    """Return all tools that the markers of a test name."""
    return [*list_backends(item), *(name for mark in item.iter_markers("needs") for name in mark.args)]


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses by the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for name in {FIXTURES[name] for name in getattr(item, "fixturenames", ()) if name in FIXTURES}:
            if name not in list_backends(item):
                item.add_marker(pytest.mark.backend(name))
        unknown = {*list_backends(item)} - BACKENDS.keys() | {*list_needs(item)} - TOOLS.keys()
        if unknown:
            raise pytest.UsageError(
                f"{item.nodeid} needs {', '.join(sorted(unknown))}: tests/tools.py has no such tool."
            )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in list_needs(item):
        require(name)


def describe(names: Iterable[str]) -> Iterator[str]:
    """Say of each tool, in a line, where it was found, or how one gets it.

    >>> list(describe(["no such tool"]))
    Traceback (most recent call last):
    KeyError: 'no such tool'
    """
    for name in names:
        tool, found = TOOLS[name], locate(name)
        yield f"{name:12} {'found: ' + found if found else 'NOT FOUND, its tests are skipped. ' + tool.reason}"


if __name__ == "__main__":
    print("\n".join(describe(BACKENDS)))
