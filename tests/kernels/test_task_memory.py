"""The memory that the truss stage's task has for an edge is enough: its rows go when the graph takes their place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.home import memory

REPO = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="asks Linux for the greatest memory")
def test_a_task_has_the_memory_that_it_needs() -> None:
    command = [sys.executable, "-m", "tests.peak", "400000"]
    exact = {"MALLOC_MMAP_THRESHOLD_": "131072", "PYTHONPATH": str(REPO)}
    found = subprocess.run(command, cwd=REPO, env=os.environ | exact, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    sizes = json.loads(found.stdout)
    assert {*sizes} == {"first load", "left", "replay"}
    assert max(sizes.values()) <= memory.REPLAY_BYTES, sizes
