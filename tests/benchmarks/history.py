"""What it costs to rerun, correct, backfill and compact: one pass against single runs, and long histories.

    python -m tests.benchmarks.history [backfill] [long] [many] [commands] [load] [constant] [revisions]
                                       [--epochs 300] [--edges 1600000] [--before 20 2000] [--landed 100 2000 20000]
                                       [--peer-program PROGRAM]

backfill  CollegeMsg by day, 30-day window: all days in one pass, against single days in one process (spread over the
          history) and against `altneu run` commands, times the number of days.
many      2,000 landed epochs: status, plan and a backfill with nothing to do, as commands.
revisions a graph of constant size, an epoch of 500 rows and a revision each, up to `--epochs`, one every two hours by
          the clock of the home: files on disk, data files, and seconds and CPU seconds of an epoch, by the number of
          revisions, without a compaction by hand. With `--edges` R-MAT of so many rows, and epochs of 1,000 changes.
commands  `--landed` epochs in a database and a landing as runs leave them, in one revision, and in a revision each:
          commands with nothing to do, and pages in a warm process. CPU seconds, since nothing waits.
long      `--epochs` epochs of 1,000 rows, one revision each: a batch replaced in the middle against one at the end;
          seconds of an epoch, files and bytes, without compaction and after it. What is between the measured epochs is
          published without its audit, for the benchmark's own sake.
constant  graphs of constant size with histories of `--before` epochs, each published in one pass: 500 rows an epoch
          among 3,000 vertices, each edge alive for 20 epochs (of more than 2,000 epochs: 50 rows, for 240 epochs).
          Seconds, CPU seconds and stages of the passes, of four new epochs, and of one that is replaced 1,000 epochs
          back (twice), the homes in turns in one warm session.
load      an R-MAT graph of 1M edges as one epoch and 100 epochs of 1,000 changes, half of them deletions: one
          `altneu backfill --all`, from a cold start, stage by stage; then single epochs. Beside it, of the same
          changes, `--peer-program`: a program on differential dataflow that counts triangles in memory (FILE wcoj
          WORKERS, which prints worker, epoch, count and seconds).
Prints tables in Markdown; medians with the least and the greatest.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.pipeline.home.home import Home
from altneu.pipeline.local.demo import land_messages, with_daily_epochs
from altneu.pipeline.maintenance.compact import compact
from altneu.pipeline.reading import views
from altneu.pipeline.report import render_index, render_page, write_pages
from altneu.pipeline.state import clock
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import Revision
from altneu.pipeline.state.stage_results import Facts, TrianglesFacts, TrussFacts
from altneu.pipeline.storage.duckdb_tables import DuckTables, Query
from altneu.pipeline.storage.session import start_session
from altneu.pipeline.tasks import airflow_page
from tests import benchmarks, home_helpers
from tests.benchmarks.kernels import rmat
from tests.benchmarks.triangles import by_rmat
from tests.costs import used_processors
from tests.long_history import fill_history

spread = partial(benchmarks.spread, digits=2)


def chosen(facts: Facts) -> str:
    """What a stage chose, if it did."""
    match facts:
        case TrianglesFacts(chosen=str(choice)):
            return choice
        case TrussFacts(methods=methods) if methods:
            return str(dict(methods))
    return ""


def timed(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def command(home: Home, *arguments: str) -> float:
    line = [sys.executable, "-m", "altneu.pipeline.cli", "--home", str(home.path), *arguments]
    return timed(lambda: subprocess.run(line, check=True, capture_output=True))


def college(folder: Path) -> tuple[Home, Ledger, list[int]]:
    home = with_daily_epochs(Home.open(folder, create=True))
    return home, Ledger(home), land_messages(home).epochs


def backfill(folder: Path) -> None:
    _, ledger, days = college(folder / "single")
    singles, commands = [], []
    blocks = [days[i : i + 16] for i in range(0, len(days), 16)]
    for block in blocks:
        home_helpers.run(ledger, block[:-2])
        singles += [timed(lambda day=day: home_helpers.run(ledger, [day])) for day in block[-2:]]  # type: ignore[misc]
    late, late_ledger, _ = college(folder / "commands")
    home_helpers.run(late_ledger, days[:100])
    for day in days[100:105]:
        commands.append(command(late, "run", str(day)))
    _, once_ledger, _ = college(folder / "once")
    warm = timed(lambda: home_helpers.run(once_ledger, days))
    truss = next(s.seconds for s in once_ledger.stages.select(once_ledger.revisions.get().run_id) if s.stage == "truss")
    cold_home, _, _ = college(folder / "cold")
    cold = command(cold_home, "backfill", "--all")
    n = len(days)
    single, alone = statistics.median(singles), statistics.median(commands)
    print(f"\n| {n} days of CollegeMsg | seconds | all days | ratio to the one pass |\n|---|---|---|---|")
    print(f"| one pass, warm session (truss stage {truss:.1f} s) | {warm:.1f} | {warm:.1f} | 1 |")
    print(
        f"| one day, same process ({len(singles)} of them) | {spread(singles)} | {single * n:,.0f} | "
        f"{single * n / warm:.0f} × |"
    )
    print(f"| `altneu backfill --all`, a process | {cold:.1f} | {cold:.1f} | {cold / warm:.1f} × |")
    print(
        f"| `altneu run DAY`, a process each ({len(commands)} of them) | {spread(commands)} | {alone * n:,.0f} | "
        f"{alone * n / cold:.0f} × the backfill command |"
    )


def many(folder: Path, epochs: int = 2_000) -> None:
    home, ledger = home_helpers.make(folder / "many", "[edges]\nlive_for = 3\n")
    rng = random.Random(1)
    for epoch in range(epochs):
        home_helpers.put(home, epoch, [(rng.randrange(50), rng.randrange(50), None, "upsert", 0) for _ in range(5)])
    seconds = timed(lambda: home_helpers.run(ledger, range(epochs)))
    time.sleep(3)  # younger files are read again
    command(home, "status")
    print(f"\n| {epochs:,} epochs (published in one pass of {seconds:.0f} s) | seconds |\n|---|---|")
    for arguments in (["status"], ["status", "--format", "json"], ["plan"], ["backfill", "--all"]):
        print(f"| `altneu {' '.join(arguments)}` | {spread([command(home, *arguments) for _ in range(5)])} |")


def commands(folder: Path, counts: list[int]) -> None:
    """What commands and pages cost with a long history, without tables: their database and landing are real."""
    lines = (["status"], ["status", "--format", "json"], ["plan"], ["backfill", "--all"])
    lines += (["show", "totals"], ["show", "totals", "--all-epochs"])
    pages: dict[str, Callable[[Ledger], Any]] = {
        "the report of all, the newest 200 pages": lambda ledger: write_pages(
            ledger, list(ledger.outputs.published_batches())
        ),
        "the report of one epoch": lambda ledger: write_pages(ledger, [ledger.revisions.get().frontier or 0]),
        "the index": render_index,
        "the page of an epoch": lambda ledger: render_page(ledger, ledger.revisions.get().frontier or 0),
        "the page in Airflow": lambda ledger: airflow_page.overview_page(str(ledger.home.path), {}),
    }
    taken: dict[str, list[str]] = {}
    shapes = [(count, at_once) for count in counts for at_once in (count, 1)]
    for count, at_once in shapes:
        home, ledger = fill_history(folder / f"{count}-{at_once}", count, at_once=at_once)
        command(home, "status")  # it stores what has landed
        for line in lines:
            seconds = [cpu_of_children(partial(command, home, *line)) for _ in range(3)]
            taken.setdefault(f"`altneu {' '.join(line)}`", []).append(spread(seconds))
        render_index(ledger)  # imports
        for name, work in pages.items():
            begin = time.process_time()
            work(ledger)
            taken.setdefault(name, []).append(f"{time.process_time() - begin:.2f}")
    names = [f"{count:,} in {'one revision' if at_once > 1 else 'as many revisions'}" for count, at_once in shapes]
    print(f"\n| CPU seconds, epochs: | {' | '.join(names)} |\n|---|{'---|' * len(names)}")
    for name, cells in taken.items():
        print(f"| {name} | {' | '.join(cells)} |")


def cpu_of_children(work: Callable[[], Any]) -> float:
    """Return the CPU seconds of the processes that are started and end meanwhile."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def long(folder: Path, epochs: int) -> None:
    home, ledger = home_helpers.make(folder / "long", "[retention]\nrevisions = 10\n")
    rng = random.Random(2)

    def batch() -> list[Any]:
        ops = rng.choices(["upsert", "delete"], [4, 1], k=1_000)
        return [(rng.randrange(4_000), rng.randrange(4_000), None, op, 0) for op in ops]

    def epoch(number: int) -> tuple[float, float]:
        """Seconds of the run, and of its truss stage."""
        home_helpers.put(home, number, batch())
        seconds = timed(lambda: home_helpers.run(ledger, [number]))
        stages = {row.stage: row.seconds for row in ledger.stages.select(ledger.revisions.get().run_id)}
        return seconds, stages["truss"]

    def held() -> tuple[int, float]:
        files = [file for file in (home.path / "warehouse").rglob("*") if file.is_file()]
        return len(files), sum(file.stat().st_size for file in files) / 1e6

    rows = []
    last = 0
    for mark in (m for m in (10, 100, 200, 300) if m <= epochs):
        for number in range(last, mark - 5):
            home_helpers.put(home, number, batch())
            home_helpers.run_without(ledger, number, ("audit",))
        found = [epoch(number)[0] for number in range(mark - 5, mark)]
        last = mark
        rows.append((f"{mark}", spread(found), *held()))
    end = [epoch(last + i) for i in range(3)]
    middle = [epoch(last // 2 + i) for i in range(3)]
    spark = start_session()
    seconds = timed(lambda: compact(ledger, spark, grace=0))
    after = held()
    flat = [epoch(last + 3 + i)[0] for i in range(5)]
    rows.append((f"{mark + 3}, after `compact` ({seconds:.0f} s)", spread(flat), *after))
    print("\n| epochs of 1,000 rows, a revision each | seconds of an epoch | files | MB |\n|---|---|---|---|")
    for name, seconds_, files, size in rows:
        print(f"| {name} | {seconds_} | {files:,} | {size:.1f} |")
    print(f"\n| {last} epochs: a batch of 1,000 rows | seconds | without the truss stage |\n|---|---|---|")
    for name, found_ in (("new, at the end", end), ("replaced, in the middle", middle)):
        print(f"| {name} | {spread([s for s, _ in found_])} | {spread([s - t for s, t in found_])} |")
    ratio = statistics.median(s - t for s, t in middle) / statistics.median(s - t for s, t in end)
    print(f"| ratio | | {ratio:.2f} × |")


def draw_upserts(rng: random.Random, size: int) -> list[Any]:
    """Draw the rows of an epoch of a graph of 3,000 vertices."""
    return [(rng.randrange(3_000), rng.randrange(3_000), None, "upsert", 0) for _ in range(size)]


@dataclass
class ConstantGraph:
    """A home whose graph keeps its size, and what its epochs took: name of a stage, `all` or `CPU` → seconds."""

    epochs: int
    rows: int  # of an epoch
    ledger: Ledger
    rng: random.Random
    taken: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def with_history(cls, folder: Path, epochs: int) -> ConstantGraph:
        """Land a history of a graph of 3,000 vertices, of which some 10,000 edges are alive at any time."""
        rows, alive = (500, 20) if epochs <= 2_000 else (50, 240)
        _, ledger = home_helpers.make(folder / f"constant-{epochs}", f"[edges]\nlive_for = {alive}\n")
        graph = cls(epochs, rows, ledger, random.Random(1))
        for epoch in range(epochs):
            graph.land(epoch)
        return graph

    def land(self, epoch: int) -> None:
        home_helpers.put(self.ledger.home, epoch, draw_upserts(self.rng, self.rows))

    def run(self, epochs: Iterable[int]) -> None:
        before = used_processors()
        self.taken["all"].append(timed(partial(home_helpers.run, self.ledger, epochs)))
        self.taken["CPU"].append(used_processors() - before)
        for row in self.ledger.stages.select(self.ledger.revisions.get().run_id):
            self.taken[row.stage].append(row.seconds or 0.0)


def constant(folder: Path, before: list[int]) -> None:
    """One epoch on graphs of constant size, after short and long histories, in turns in one session."""
    columns = ("all", "CPU", "edges", "triangles", "truss", "audit", "report")
    print(f"\n| epochs before | what | {' | '.join(columns)} |\n|---|---{'|---' * len(columns)}|", flush=True)

    def show(graph: ConstantGraph, name: str, skip: int = 0) -> None:
        cells = [spread(graph.taken[column][skip:]) for column in columns]
        print(f"| {graph.epochs:,}, of {graph.rows} rows | {name} | {' | '.join(cells)} |", flush=True)
        graph.taken.clear()

    graphs = []
    for count in before:
        graphs.append(ConstantGraph.with_history(folder, count))
        graphs[-1].run(range(count))
        show(graphs[-1], "the first pass")
    for later in range(5):
        for graph in graphs:
            graph.land(graph.epochs + later)
            graph.run([graph.epochs + later])
    for graph in graphs:
        show(graph, "a new epoch at the end", skip=1)  # the first warms
    for _ in range(3):
        for graph in graphs:
            back = max(0, graph.epochs - 1_000)
            graph.land(back)
            graph.run([back])
    for graph in graphs:
        show(graph, "an epoch replaced, 1,000 back", skip=1)


def revisions(folder: Path, epochs: int, edges: int | None) -> None:
    """A revision for each epoch on a graph of constant size: a small one whose edges end, or R-MAT of so many rows."""
    hours, real = 0, clock.read_clock
    clock.read_clock = lambda: real() + timedelta(hours=hours)
    home, ledger = home_helpers.make(folder / "revisions", "" if edges else "[edges]\nlive_for = 20\n")
    rng, found = random.Random(4), []
    if edges:
        (a, b), drawn = by_rmat(edges), np.random.default_rng(4)
        benchmarks.put_rows(home, 0, a, b, ["upsert"] * a.size)
        home_helpers.run(ledger, [0])
    print("\n| revisions | files on disk | data files | seconds of an epoch | CPU seconds |\n|---|---|---|---|---|")
    for epoch in range(1, epochs + 1):
        hours = 2 * epoch
        if edges:
            benchmarks.put_changes(home, epoch, drawn, a, b, 1_000)
        else:
            home_helpers.put(home, epoch, draw_upserts(rng, 500))
        before = used_processors()
        seconds = timed(lambda epoch=epoch: home_helpers.run(ledger, [epoch]))  # type: ignore[misc]
        found = [*found[-9:], (seconds, used_processors() - before)]
        if epoch in (10, 50, 100, 200, 500) or epoch == epochs:
            files = sum(file.is_file() for file in (home.path / "warehouse").rglob("*"))
            sizes = ledger.stages.table_sizes().values()
            walls, processors = zip(*found, strict=True)
            data = sum(size.files for size in sizes)
            print(f"| {epoch} | {files:,} | {data} | {spread(walls)} | {spread(processors)} |", flush=True)
    clock.read_clock = real


def count_with_peer(folder: Path, home: Home, revision: Revision, program: str) -> tuple[float, int]:
    """Return the seconds of a program on differential dataflow for the published changes, and its last count."""
    tables, file = DuckTables(home), folder / "changes.txt"
    edges = tables.read_table("edges", revision)
    ends = f"SELECT until AS epoch, a, b, -diff AS diff FROM ({edges.sql}) WHERE until < {FOREVER}"
    changes = f"SELECT epoch, a, b, diff FROM ({edges.sql}) UNION ALL {ends}"
    net = f"SELECT epoch, a, b, sum(diff) AS diff FROM ({changes}) GROUP BY ALL HAVING sum(diff) <> 0 ORDER BY ALL"
    rows = tables.to_arrow(Query(net, edges.arrow_tables))
    np.savetxt(file, np.stack([rows[name].to_numpy().astype(np.int64) for name in rows.column_names], axis=1), "%d")
    begin = time.perf_counter()
    output = subprocess.run(
        [program, str(file), "wcoj", str(os.cpu_count())], stdout=subprocess.PIPE, text=True, check=True
    )
    seconds = time.perf_counter() - begin
    counts = [line.split("\t") for line in output.stdout.splitlines()]
    last = max(int(epoch) for _, epoch, *_ in counts)
    return seconds, sum(int(count) for _, epoch, count, _ in counts if int(epoch) == last)


def load(folder: Path, peer: str | None, scale: int = 17, epochs: int = 100) -> None:
    home = Home.open(folder / "load", create=True)
    rng = np.random.default_rng(3)
    a, b = rmat(scale, 9)

    benchmarks.put_rows(home, 0, a, b, ["upsert"] * a.size)

    def change(epoch: int) -> None:
        benchmarks.put_changes(home, epoch, rng, a, b, 1_000)

    for epoch in range(1, epochs + 1):
        change(epoch)
    seconds = command(home, "backfill", "--all")
    ledger = Ledger(home)
    print(f"\n| {a.size:,} edges, then {epochs} epochs of 1,000 changes | seconds | |\n|---|---|---|")
    print(f"| `altneu backfill --all`, a process | {seconds:.1f} | |")
    for row in ledger.stages.select(ledger.revisions.get().run_id):
        print(f"| {row.stage} | {row.seconds:.1f} | {chosen(row.facts)} |")
    if peer:
        alone, count = count_with_peer(folder, home, ledger.revisions.get(), peer)
        totals = views.select_totals(ledger)
        assert totals[-1]["triangles"] == count, (totals, count)
        print(f"| differential dataflow (Rust), counts alone | {alone:.1f} | {seconds / alone:.1f} times as long |")
    singles: dict[str, list[float]] = {}
    for epoch in range(epochs + 1, epochs + 5):
        change(epoch)
        whole = timed(lambda epoch=epoch: home_helpers.run(ledger, [epoch]))  # type: ignore[misc]
        for name, taken in [
            ("all", whole),
            *((r.stage, r.seconds) for r in ledger.stages.select(ledger.revisions.get().run_id)),
        ]:
            singles.setdefault(name, []).append(taken)
    print(
        "\n| one more epoch of 1,000 changes, three after the first in one process | seconds | share |\n|---|---|---|"
    )
    for name, found in singles.items():
        share = statistics.median(found[1:]) / statistics.median(singles["all"][1:])
        print(f"| {name} | {spread(found[1:])} | {share:.0%} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=["backfill", "many", "load", "long"])
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--edges", type=int)
    parser.add_argument("--landed", type=int, nargs="+", default=[100, 2_000, 20_000])
    parser.add_argument("--peer-program")
    parser.add_argument("--before", type=int, nargs="+", default=[20, 2_000])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for table in options.tables:
            work = {
                "backfill": backfill,
                "many": many,
                "commands": lambda path: commands(path, options.landed),
                "load": lambda path: load(path, options.peer_program),
                "long": lambda path: long(path, options.epochs),
                "revisions": lambda path: revisions(path, options.epochs, options.edges),
                "constant": lambda path: constant(path, options.before),
            }
            work[table](Path(folder))


if __name__ == "__main__":
    main()
