"""The fixed price of a run: tiny epochs, one revision each, in one session, by stage.

    python -m tests.benchmarks.small [--epochs 8] [--daemon pyspark.daemon]

Ten upserts an epoch among 14 vertices, audited, on two local threads; the means of the second half of the epochs. CPU
seconds are those of this process, of the JVM and of Spark's Python workers (from /proc): they can be compared on
a machine that is busy. `--daemon`: the module that those are forked from. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil

from altneu.pipeline.run import planning, runner, stages
from altneu.pipeline.storage.session import DAEMON, start_session
from tests import home_helpers


def cpu_of(*processes: psutil.Process) -> float:
    """CPU seconds of living processes."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):  # a worker may end meanwhile
            times = process.cpu_times()
            total += times.user + times.system
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--daemon")
    given = parser.parse_args()
    epochs, conf = given.epochs, {DAEMON: given.daemon} if given.daemon else {}
    spark: Any = start_session("local[2]", conf, few=True)
    jvm, scheduler = spark._jvm, spark.sparkContext._jsc.sc().dagScheduler()
    java = psutil.Process(jvm.java.lang.ProcessHandle.current().pid())
    rng, sums = random.Random(1), defaultdict[str, list[float]](lambda: [0.0] * 5)

    def now() -> list[float]:
        workers = cpu_of(*java.children(recursive=True))
        return [time.perf_counter(), time.process_time(), cpu_of(java), workers, scheduler.numTotalJobs()]

    with tempfile.TemporaryDirectory() as folder:
        home, ledger = home_helpers.make(Path(folder) / "home")
        for epoch in range(epochs):
            home_helpers.put(
                home, epoch, [(rng.randrange(14), rng.randrange(14), None, "upsert", 0) for _ in range(10)]
            )
            run_id = runner.begin_run(ledger, planning.plan_epochs(ledger, [epoch]))
            assert run_id is not None
            for name in stages.NAMES:
                before = now()
                runner.execute_stage(ledger, run_id, name)
                if epoch >= epochs // 2:
                    spent = zip(sums[name], now(), before, strict=True)
                    sums[name] = [total + later - earlier for total, later, earlier in spent]
    counted = epochs - epochs // 2
    print("| stage | seconds | CPU s, driver | CPU s, JVM | CPU s, Python workers | Spark jobs |")
    print("|---|---|---|---|---|---|")
    sums["whole"] = [sum(column) for column in zip(*sums.values(), strict=True)]
    for name, columns in sums.items():
        *seconds, jobs = (value / counted for value in columns)
        print(f"| {name} | {' | '.join(f'{value:.2f}' for value in seconds)} | {jobs:.0f} |")


if __name__ == "__main__":
    main()
