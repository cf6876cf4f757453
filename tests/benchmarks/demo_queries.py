"""What five declared queries add to the demo, in one warm session.

    python -m tests.benchmarks.demo_queries [--repeat 3]

The home of `altneu demo` (193 daily epochs, edges that live 30 days, one revision, audited) is loaded without queries
and with five, in turns, after one load of each kind that does not count; then one day is corrected and run. Seconds,
and CPU seconds of this process, the JVM and its workers. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil

from altneu.pipeline.local import demo
from altneu.pipeline.run import planning, runner
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import Revision
from altneu.pipeline.storage.session import start_session
from tests import home_helpers
from tests.benchmarks import spread
from tests.benchmarks.small import cpu_of

QUERIES = {
    "repeat_pairs": "SELECT src, dst, count(*) AS messages FROM landed GROUP BY src, dst HAVING count(*) >= 10",
    "mutual": "SELECT a.src, a.dst FROM arcs a JOIN arcs b ON b.src = a.dst AND b.dst = a.src WHERE a.src < a.dst",
    "triangles3": """SELECT ab.src AS a, ab.dst AS b, ac.dst AS c FROM edges ab
        JOIN edges ac ON ac.src = ab.src JOIN edges bc ON bc.src = ab.dst AND bc.dst = ac.dst""",
    "week": "SELECT src, count(*) AS n FROM landed WHERE age < 7 GROUP BY src",
    "quick_rings": """SELECT a.src AS x, b.src AS y, c.src AS z FROM landed a
        JOIN landed b ON b.src = a.dst AND b.seq > a.seq AND b.seq < a.seq + 86400000000
        JOIN landed c ON c.src = b.dst AND c.dst = a.src AND c.seq > b.seq AND c.seq < a.seq + 86400000000""",
}
LOAD, CORRECTION = "load of 193 epochs", "correction of a day"


class Meter:
    """The seconds, and the CPU seconds of this process, the JVM and its workers, since it was made."""

    def __init__(self, java: psutil.Process) -> None:
        self.java, self.started, self.spent = java, time.perf_counter(), self.cpu(java)

    @staticmethod
    def cpu(java: psutil.Process) -> float:
        return time.process_time() + cpu_of(java, *java.children(recursive=True))

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self.started, self.cpu(self.java) - self.spent


def run_all(ledger: Ledger, java: psutil.Process) -> tuple[float, float, dict[str, float]]:
    """Run what has landed, and return the seconds, the CPU seconds, and the seconds of each stage."""
    meter = Meter(java)
    revision = runner.execute_run(ledger, planning.plan_run(ledger, lambda epoch: True))
    assert isinstance(revision, Revision)
    stages = {row.stage: row.seconds or 0.0 for row in ledger.stages.select(revision.run_id)}
    return (*meter.read(), stages)


def measure_home(path: Path, java: psutil.Process, *, with_queries: bool) -> dict[str, Any]:
    """Load the demo's messages, and correct a day in the middle."""
    home = demo.with_daily_epochs(home_helpers.make(path)[0])
    ledger = Ledger(home)
    epochs = demo.land_messages(home).epochs
    for name, text in QUERIES.items() if with_queries else ():
        (home.path / "queries").mkdir(exist_ok=True)
        (home.path / "queries" / f"{name}.sql").write_text(text)
    loaded = run_all(ledger, java)
    home_helpers.put(home, epochs[100], [(1, 2, None, "upsert", 0)])
    return {LOAD: loaded, CORRECTION: run_all(ledger, java)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    spark: Any = start_session()
    java = psutil.Process(spark._jvm.java.lang.ProcessHandle.current().pid())
    found: dict[tuple[str, bool], list[Any]] = defaultdict(list)
    for turn in range(repeat + 1):
        for with_queries in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                measured = measure_home(Path(folder) / "home", java, with_queries=with_queries)
            for what, each in measured.items():
                found[what, with_queries] += [each] if turn else []
    print("| run | queries | s | CPU s | of them stage queries, s | stage audit, s |")
    print("|---|---|---|---|---|---|")
    for (what, with_queries), runs in sorted(found.items(), reverse=True):
        own = [statistics.median(each[2].get(stage, 0.0) for each in runs) for stage in ("queries", "audit")]
        cells = [what, "five" if with_queries else "none", *(spread([each[i] for each in runs]) for i in (0, 1))]
        print("| " + " | ".join([*cells, *(f"{seconds:.1f}" for seconds in own)]) + " |")


if __name__ == "__main__":
    main()
