"""How altneu's Python code comes to executors on other machines: from the driver, with the session, where they lack it.

Executors need a Python with altneu's dependencies. Those that have the same code installed keep it, and with it the
compiled kernels; to others the driver sends a zip of its own modules, whose kernels they compile in each application
again (minutes). `CODE` in the session's settings says it, "installed" or "sent": then nobody is asked. Of a Spark
Connect server it says whether its clients send theirs, each with its session.
Which Python it is on the executors, their machines know: see `executor_python`.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ..errors import Unavailable, describe_error

CODE, INSTALLED, SENT = "spark.altneu.code", "installed", "sent"
PYTHON = "spark.pyspark.python"
PACKAGES = ("algorithms", "expectations", "pipeline")
ASKED = 4  # executors that are asked at most: those of a cluster are alike


def on_this_machine(master: str) -> bool:
    """Do the executors of this master run here, with this file system?"""
    return master.startswith("local")


def executor_python(master: str, conf: dict[str, str]) -> str:
    """Return the Python of the executors: of `conf`, of PYSPARK_PYTHON, or `python3` on a cluster, never a local
    path."""
    said = conf.get(PYTHON) or os.environ.get("PYSPARK_PYTHON")
    return said or (sys.executable if on_this_machine(master) else "python3")


def _list_sources() -> Iterator[tuple[str, Path]]:
    """Every module of the packages, by its name inside an archive."""
    for package in PACKAGES:
        spec = find_spec(package)  # imports nothing
        for place in (spec and spec.submodule_search_locations) or ():
            root = Path(place)
            for file in sorted(root.rglob("*.py")):
                yield f"{package}/{file.relative_to(root).as_posix()}", file


def code_digest() -> str:
    """Return the digest of the code that is importable here, or "" where it is incomplete."""
    found = hashlib.sha256()
    names = set()
    for name, file in _list_sources():
        names.add(name.partition("/")[0])
        found.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return found.hexdigest() if names == set(PACKAGES) else ""


@cache
def code_archive() -> str:
    """A zip of the packages, for as long as this process lives; its path."""
    folder = tempfile.mkdtemp(prefix="altneu-code-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "altneu.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, file in _list_sources():
            packed.write(file, name)
    return str(path)


def ensure_code_on_executors(spark: SparkSession, master: str) -> bool:
    """See to it that the executors of a session have the code; True: it was sent. Raises `Unavailable` where they do
    not answer, or have no Python that can work for us."""
    context: Any = spark.sparkContext
    said = spark.conf.get(CODE, None)
    if on_this_machine(master) or said == INSTALLED:
        return False
    if said == SENT:
        context.addPyFile(code_archive())
        return True
    mine, parts = code_digest(), max(1, min(ASKED, context.defaultParallelism))
    try:
        theirs = set(context.parallelize(range(parts), parts).mapPartitions(_executor_probe()).collect())
    except Exception as error:
        what = describe_error(error)[0]
        raise Unavailable(
            f"the executors of {master} do not work with Python {context.pythonExec}: {what.rstrip('.')}.",
            f'[spark] conf = {{ "{PYTHON}" = "/path/there/bin/python" }}, or PYSPARK_PYTHON, names one that has what '
            "altneu depends on",
        ) from error
    if theirs == {mine}:
        return False
    context.addPyFile(code_archive())
    return True


def _executor_probe() -> Any:
    """What an executor is asked. It is sent whole, for the executor may have no altneu, and must not import an old one:
    a Python worker would keep it."""
    import inspect

    text = "from __future__ import annotations\nimport hashlib\nfrom importlib.util import find_spec\n"
    text += "from pathlib import Path\n"
    text += f"PACKAGES = {PACKAGES!r}\n" + inspect.getsource(_list_sources) + inspect.getsource(code_digest)

    def probe_executor(rows: Iterable[int], text: str = text) -> Iterator[str]:
        names: dict[str, Any] = {}
        exec(text, names)
        yield names["code_digest"]()

    probe_executor.__module__ = "__main__"  # so that it is not looked for in altneu
    return probe_executor
