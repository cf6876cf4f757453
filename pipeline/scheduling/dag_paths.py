"""The folders that Airflow reads: that of the DAGs (`[core] dags_folder`) and that of the plugin (`[core]
plugins_folder`).

The DAG files are next to this file: in a clone as a link to the folder `dags/` at the top.
"""

from __future__ import annotations

from pathlib import Path

OWN_FOLDER = Path(__file__).resolve().parent


def dags_folder() -> Path:
    """Return the folder of the DAG files."""
    return (OWN_FOLDER / "dags").resolve()


def plugins_folder() -> Path:
    """Return the folder of the plugin: the page inside Airflow, and the timetable of a schedule with bounds."""
    return OWN_FOLDER / "plugins"
