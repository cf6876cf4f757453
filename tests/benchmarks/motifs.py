"""What motifs cost: the first count, a change of 1,000 edges, and the audit's own count; and the same through a run.

    python -m tests.benchmarks.motifs [--scale 14 17] [--changes 1000]

Seeded R-MAT graphs. `array`: the kernels alone. `run`: a home with the motifs declared, epochs of so many mixed changes
after the load, without the motifs. Prints tables in Markdown; medians with the least and the greatest.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.algorithms.graph.kernels import motif_delta, motif_recount
from altneu.algorithms.graph.motif_patterns import parse_motif
from tests import home_helpers
from tests.benchmarks import put_rows, spread
from tests.benchmarks.kernels import rmat
from tests.benchmarks.triangles import change

TEXTS = {"triangle": "a-b, b-c, a-c", "diamond": "a-b, a-c, b-c, b-d, c-d", "clique": "a-b, a-c, a-d, b-c, b-d, c-d"}
REPEAT = 3


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    found = work()
    return time.perf_counter() - begin, found


def arrays(scale: int, changed: int, names: list[str]) -> None:
    a, b = rmat(scale, 9)
    zero, ever, one = np.zeros(a.size, np.int64), np.full(a.size, FOREVER), np.ones(a.size, np.int64)
    for name in names:
        wanted = {name: parse_motif(TEXTS[name])}
        size = len(wanted[name][0].vertices)
        first, found = timed(lambda w=wanted: motif_delta.vertex_changes(w, {"-": (a, b, zero, ever, one)}))  # type: ignore[misc]
        total = int(found[name][2].sum()) // size
        audit, counted = timed(lambda w=wanted[name]: motif_recount.count_motifs(w, {"-": (a, b)}))  # type: ignore[misc]
        assert int(counted[1].sum()) // size == total
        deltas = []
        for i in range(REPEAT):
            x, y, diff = change(np.random.default_rng(i), a, b, changed)
            rows = (x, y, np.ones(x.size, np.int64), np.full(x.size, FOREVER), diff)
            seconds, _ = timed(
                lambda w=wanted, r=rows: motif_delta.vertex_changes(w, {"-": (a, b, zero, ever, one)}, {"-": r})  # type: ignore[misc]
            )
            deltas.append(seconds)
        print(f"| {a.size:,} | {name} | {total:,} | {first:.2f} | {spread(deltas, 2)} | {audit:.2f} |", flush=True)


def runs(scale: int, changed: int, names: list[str]) -> None:
    a, b = rmat(scale, 9)
    declared = "[motifs]\n" + "".join(f'{name} = "{TEXTS[name]}"\n' for name in names)
    for toml, text in (("", "none"), (declared, ", ".join(names))):
        with tempfile.TemporaryDirectory() as folder:
            home, ledger = home_helpers.make(Path(folder) / "home", toml)

            put_rows(home, 0, a, b, ["upsert"] * a.size)
            load, _ = timed(lambda w=ledger: home_helpers.run(w, [0]))  # type: ignore[misc]
            whole, stage, audit = [], [], []
            for i in range(1, REPEAT + 2):
                x, y, diff = change(np.random.default_rng(i), a, b, changed)
                put_rows(home, i, x, y, np.where(diff > 0, "upsert", "delete").tolist())
                seconds, _ = timed(lambda w=ledger, e=i: home_helpers.run(w, [e]))  # type: ignore[misc]
                found = {row.stage: row.seconds for row in ledger.stages.select(ledger.revisions.get().run_id)}
                whole.append(seconds)
                stage.append(found["triangles"])
                audit.append(found["audit"])
            shown = [spread(column[1:]) for column in (whole, stage, audit)]
            print(f"| {a.size:,} | {text} | {load:.1f} | {' | '.join(shown)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, nargs="+", default=[14, 17])
    parser.add_argument("--changes", type=int, default=1_000)
    parser.add_argument("--motifs", nargs="+", default=["triangle", "clique"], choices=list(TEXTS))
    options = parser.parse_args()
    arrays(8, 50, list(TEXTS))  # compiles; its rows come before the table
    print("\n| edges | motif | occurrences | first count, s | a change, s | the audit's count, s |")
    print("|---|---|---|---|---|---|")
    for scale in options.scale:
        arrays(scale, options.changes, options.motifs)
    print("\n| edges | motifs | load, s | a run, s | triangles and motifs, s | audit, s |\n|---|---|---|---|---|---|")
    runs(options.scale[0], options.changes, options.motifs)


if __name__ == "__main__":
    main()
