"""The shipping of altneu's Python code to executors on other machines: the driver sends it with the session.

Executors need a Python with altneu's dependencies. Executors on which the same code is installed use that, with its
compiled kernels. To others the driver sends a zip of its own modules, whose kernels they compile again in each
application (this takes minutes). Where the setting `CODE` of the session says "installed" or "sent", the executors are
not asked. For a Spark Connect server it says whether each client sends its code with its session. `executor_python`
says which Python the executors use.
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
PACKAGE = "altneu"
MAX_ASKED_EXECUTORS = 4  # the greatest number of executors that are asked, because those of a cluster are alike


def on_this_machine(master: str) -> bool:
    """Tell whether the executors of this master run on this machine, with its file system."""
    return master.startswith("local")


def executor_python(master: str, conf: dict[str, str]) -> str:
    """Return the Python of the executors: that of `conf` or PYSPARK_PYTHON, else this one, or `python3` on a
    cluster."""
    chosen = conf.get(PYTHON) or os.environ.get("PYSPARK_PYTHON")
    return chosen or (sys.executable if on_this_machine(master) else "python3")


def _list_sources() -> Iterator[tuple[str, Path]]:
    """Yield every module of the package: its name inside an archive, and its file."""
    spec = find_spec(PACKAGE)  # imports nothing
    for root in (spec and spec.submodule_search_locations) or ():
        folders = os.walk(root, followlinks=True)  # in a clone the packages are links
        for file in sorted(Path(folder, name) for folder, _, names in folders for name in names):
            if file.suffix == ".py":
                yield f"{PACKAGE}/{file.relative_to(root).as_posix()}", file


def code_digest() -> str:
    """Return the digest of the code that can be imported here, or "" where there is none."""
    digest = None
    for name, file in _list_sources():
        digest = digest or hashlib.sha256()
        digest.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest() if digest else ""


@cache
def code_archive() -> str:
    """Make a zip of the package that exists as long as this process, and return its path."""
    folder = tempfile.mkdtemp(prefix="altneu-code-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "altneu.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, file in _list_sources():
            packed.write(file, name)
    return str(path)


def ensure_code_on_executors(spark: SparkSession, master: str) -> bool:
    """Send the code to the executors of a session where they do not have it. Return whether it was sent.

    Raises `Unavailable` where they do not answer, or have no suitable Python.
    """
    context: Any = spark.sparkContext
    setting = spark.conf.get(CODE, None)
    if on_this_machine(master) or setting == INSTALLED:
        return False
    if setting == SENT:
        context.addPyFile(code_archive())
        return True
    own_digest, parts = code_digest(), max(1, min(MAX_ASKED_EXECUTORS, context.defaultParallelism))
    try:
        theirs = set(context.parallelize(range(parts), parts).mapPartitions(_executor_probe()).collect())
    except Exception as error:
        what = describe_error(error)[0]
        raise Unavailable(
            f"the executors of {master} do not work with Python {context.pythonExec}: {what.rstrip('.')}.",
            f'set [spark] conf = {{ "{PYTHON}" = "/path/there/bin/python" }}, or PYSPARK_PYTHON, to one that has the '
            "packages that altneu depends on",
        ) from error
    if theirs == {own_digest}:
        return False
    context.addPyFile(code_archive())
    return True


def _executor_probe() -> Any:
    """Make the function that asks an executor for the digest of its code.

    It is sent as source text, because the executor may have no altneu, and must not import an old one, which its Python
    worker would keep.
    """
    import inspect

    source = "from __future__ import annotations\nimport hashlib\nimport os\nfrom importlib.util import find_spec\n"
    source += "from pathlib import Path\n"
    source += f"PACKAGE = {PACKAGE!r}\n" + inspect.getsource(_list_sources) + inspect.getsource(code_digest)

    def probe_executor(rows: Iterable[int], source: str = source) -> Iterator[str]:
        names: dict[str, Any] = {}
        exec(source, names)
        yield names["code_digest"]()

    probe_executor.__module__ = "__main__"  # so that the executor does not import altneu for it
    return probe_executor
