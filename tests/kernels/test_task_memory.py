"""The memory that tasks are reckoned to have for an edge is enough: that of the truss stage, whose rows go when the
graph takes their place, those of cells, and that of a part."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from altneu.algorithms.graph import bsp
from altneu.pipeline.home import memory_budget

REPO = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.needs("peak memory")
def test_tasks_have_the_memory_that_they_need() -> None:
    command = [sys.executable, "-m", "tests.memory_peak", "400000"]
    exact = {"MALLOC_MMAP_THRESHOLD_": "131072", "PYTHONPATH": str(REPO)}
    found = subprocess.run(command, cwd=REPO, env=os.environ | exact, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    sizes = json.loads(found.stdout)
    enough = dict.fromkeys(("first load", "left", "replay"), memory_budget.REPLAY_BYTES)
    enough["threads"] = memory_budget.REPLAY_BYTES + memory_budget.THREADS_BYTES
    enough |= dict.fromkeys(("support", "holders", "facts"), bsp.CELL_BYTES) | {"part": bsp.HELD_BYTES}
    assert {*sizes} == {*enough}
    assert all(0 < sizes[name] <= enough[name] for name in enough), sizes
