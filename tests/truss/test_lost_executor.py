"""An executor that is lost between two rounds costs a round: the result is the same, no round before is run again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
SCRIPT = """
import json, signal, sys, time
from pathlib import Path

import numpy as np
import psutil

from algorithms import truss
from algorithms.kernels.truss import peel
from algorithms.times import FOREVER
from pipeline.storage import rounds
from pipeline.storage.session import session
from pipeline.storage.warehouse import Warehouse
from tests import homes

spark = session("local-cluster[2,1,1024]", {"spark.driver.memory": "1g"})
home, ledger = homes.make(Path(sys.argv[1]) / "home")
warehouse = Warehouse(spark, home)
warehouse.ensure()
rng = np.random.default_rng(3)
a, b = np.unique(np.sort(rng.integers(0, 60, (700, 2)), axis=1), axis=0).T
a, b = a[a < b], b[a < b]
rows = [(int(x), int(y), 0, FOREVER, 1) for x, y in zip(a, b)]
edges = spark.createDataFrame(rows, "a long, b long, epoch long, until long, diff long")
nothing = spark.createDataFrame([], "a long, b long, k long, epoch long, diff long")
killed, said = [], []


def executors():
    name = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
    return [each for each in psutil.Process().children(recursive=True) if name in each.cmdline()]


def say(epoch, text):
    said.append(text)
    if text.startswith("round ") and not killed:
        killed.append(executors()[0])
        killed[0].send_signal(signal.SIGKILL)


with rounds.kept(warehouse, ledger, "mine") as place:
    found = truss.trussness_changes(edges, nothing, 0, 0, 60, say, rounds=place).collect()
got = {(row.a, row.b): row.k for row in found if row.diff}
expected = dict(zip(zip(a.tolist(), b.tolist()), peel(a, b).tolist()))
note = json.loads(next(row.note for row in found if row.note))
numbers = [text.split(":")[0] for text in said if text.startswith("round ")]
print(json.dumps({"right": got == expected, "killed": len(killed), "rounds": note["rounds"], "said": numbers,
                  "left": sorted(warehouse.others())}))
"""


@pytest.mark.slow
def test_a_lost_executor_costs_a_round(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "ALTNEU_MASTER"}
    environment["PYTHONPATH"] = str(REPO)
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    said = json.loads(run.stdout.strip().splitlines()[-1])
    assert said["right"] and said["killed"] == 1 and said["left"] == []
    assert said["rounds"] > 2 and said["said"] == [f"round {i + 1}" for i in range(said["rounds"])], (
        "none was run again"
    )
