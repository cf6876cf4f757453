"""Where the temporary files of tests lie: in memory, on a machine that has room for them. A plugin.

A commit of a ledger, a landed file and a state of Airflow wait for the disk, some tens of thousands of times in a run
of the suite. `TMPDIR`, where it is set, is the place; the directory of a test that has passed goes with the test.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import psutil

MEMORY = Path("/dev/shm")
ROOM = 8 << 30  # bytes, beside those of the sessions of Spark
SESSIONS = 8 << 30


def choose_place() -> Path | None:
    """Return the folder in memory that takes temporary files; None: they go where they go without us."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return None
    if os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:  # some tests write programs
        return None
    if shutil.disk_usage(MEMORY).free < ROOM or psutil.virtual_memory().available < ROOM + SESSIONS:
        return None
    return MEMORY


if place := choose_place():
    os.environ["TMPDIR"] = tempfile.tempdir = str(place)  # before pytest and Airflow ask for it; for processes, too
