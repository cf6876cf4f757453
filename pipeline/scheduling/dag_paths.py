"""The folders that Airflow reads: that of the DAGs (`[core] dags_folder`) and that of the plugin (`[core]
plugins_folder`).

In a clone the DAG files are in the folder `dags/` at the top. A wheel has them next to this file, as `setup.py` says: a
package `dags` at the top of an environment would collide with those of other projects.
"""

from __future__ import annotations

from pathlib import Path

from ..errors import AltneuError

HERE = Path(__file__).resolve().parent
FIRST = "altneu_epoch.py"  # the folder of the DAG files has this file


def dags_folder() -> Path:
    """Return the folder of the DAG files, in a clone or in an installed package. Raise `AltneuError` if there is
    none."""
    for folder in (HERE / "dags", HERE.parents[1] / "dags"):
        if (folder / FIRST).is_file():
            return folder
    raise AltneuError(f"the DAG files are neither in {HERE} nor in {HERE.parents[1]}.", "install altneu again")


def plugins_folder() -> Path:
    """Return the folder of the plugin: the page inside Airflow, and the timetable of a schedule with bounds."""
    return HERE / "plugins"
