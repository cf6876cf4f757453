"""The report of an unexpected error: the terminal shows one line, and a file that can be attached to a bug report has
the rest.

The file holds the command, versions, the settings, and every trace behind the error; passwords are left out.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback
from datetime import UTC, datetime
from pathlib import Path

from ..errors import AltneuError
from ..secret_masking import mask_secret_assignments

_PACKAGES = ("altneu", "pyspark", "pyarrow", "numba", "sqlalchemy", "great-expectations", "apache-airflow")


def is_unexpected(error: BaseException) -> bool:
    """Tell whether an error has more behind it than its message: a trace of Python or of Spark.

    What the file system or the database refuses is explained by its message.
    """
    if not isinstance(error, AltneuError):
        words = {"OperationalError"} & {kind.__name__ for kind in type(error).__mro__}  # of the database
        return not (words or isinstance(error, OSError))
    return error.__cause__ is not None and is_unexpected(error.__cause__)


def write_crash_report(home: Path, error: BaseException) -> Path | None:
    """Write the report and return its path, or None where nothing can be written.

    It goes into `logs` of the home, or into the temporary folder if the home does not exist.
    """
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}.log"
    for folder in ([home / "logs"] if home.is_dir() else []) + [Path(tempfile.gettempdir())]:
        try:
            folder.mkdir(exist_ok=True)
            path = folder / (name if folder.name == "logs" else f"altneu-{name}")
            path.write_text(_crash_report_text(home, error), encoding="utf-8")
            return path
        except OSError:
            continue
    return None


def _crash_report_text(home: Path, error: BaseException) -> str:
    versions = [f"{name} {_package_version(name)}" for name in _PACKAGES]
    toml = home / "altneu.toml"
    try:
        settings = toml.read_text(encoding="utf-8", errors="replace") if toml.is_file() else "(none)"
    except OSError as unreadable:
        settings = f"({unreadable})"
    parts = {
        "command": " ".join(sys.argv),
        "versions": ", ".join([f"Python {platform.python_version()} on {platform.platform()}", *versions]),
        "settings": settings,
        "error": "".join(traceback.format_exception(error)),
    }
    return mask_secret_assignments("\n".join(f"== {name}\n{text.rstrip()}\n" for name, text in parts.items()))


def _package_version(package: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
