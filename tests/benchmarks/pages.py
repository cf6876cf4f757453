"""Pages over a long history: rows read and seconds, 100 epochs against 3,000.

`python -m tests.benchmarks.pages`: a day a run, each audited, 34 checks a run. Then one more day: its page, the one
before, the index; and a correction of the day 30 epochs before the last, which moves the 31 pages from there on.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from altneu.pipeline.report import epoch_document
from altneu.pipeline.state.database_session import DatabaseSession
from tests.report.seed import DAY, Seed, audit, long_history, write

SIZES = (100, 3_000)


def measured(work: Any) -> tuple[int, int, float]:
    """Statements, rows, seconds."""
    counted, original = [0, 0], DatabaseSession.read_rows

    def count(database: DatabaseSession, statement: Any) -> Any:
        found = original(database, statement)
        counted[0] += 1
        counted[1] += len(found)
        return found

    DatabaseSession.read_rows = count  # type: ignore[method-assign]
    began = time.perf_counter()
    try:
        work()
    finally:
        DatabaseSession.read_rows = original  # type: ignore[method-assign]
    return counted[0], counted[1], time.perf_counter() - began


def steps(seed: Seed, days: int) -> dict[str, tuple[int, int, float]]:
    last = DAY + days
    write(seed.ledger, list(range(last - 60, last)))
    seed.run({last: (9, 0)}, {last: {"edges": 1}}, audit(last))
    found = {"the facts of one epoch": measured(lambda: epoch_document(seed.ledger, last))}
    found["after a run of one epoch: two pages and the index"] = measured(lambda: write(seed.ledger, [last]))
    seed.run({last - 30: (8, 0)}, {last - 30: {"edges": 1}}, audit(last))
    found["after a correction: 31 pages and the index"] = measured(lambda: write(seed.ledger, [last - 30]))
    return found


def main() -> None:
    found = {}
    for days in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            found[days] = steps(long_history(Path(folder), days), days)
    print(f"| | {' | '.join(f'{days:,} epochs: statements, rows, s' for days in SIZES)} | rows, s: ratio |")
    for name, first in found[SIZES[0]].items():
        last = found[SIZES[1]][name]
        cells = [f"{n}, {rows:,}, {seconds:.2f}" for n, rows, seconds in (first, last)]
        print(f"| {name} | {' | '.join(cells)} | {last[1] / first[1]:.1f}, {last[2] / first[2]:.1f} |")


if __name__ == "__main__":
    main()
