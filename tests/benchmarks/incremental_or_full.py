"""When a change is maintained, and when all is computed again: altneu beside its peers, by the size of the change.

    python -m tests.benchmarks.incremental_or_full [--scale 17] [--changes 10 100 1000 10000 100000 1000000]
        [--repeat 3] [--peer-python PYTHON] [--peers networkit igraph …] [--peer-program PROGRAM] [--seconds 900]
        [--write]

One seeded R-MAT graph, then batches of each size, half of them deletions of edges, half insertions. altneu publishes
each batch as an epoch in one warm session, everything included: diff triples, triangle counts, the trussness of every
edge with its proof, the audit. Beside it, of the same graph: altneu from nothing in the same session, its kernels on
arrays in memory, GraphFrames (GraphX where its JVM half is not there), the libraries of `python_peers.py` by a Python
that has them (`--peer-python`), and a program on differential dataflow (`--peer-program`: FILE wcoj WORKERS, which
prints worker, epoch, count and seconds). What takes longer than `--seconds` is ended and reported so. All that count
must agree. Prints tables in Markdown; `--write` puts them into docs/incremental-or-full.md, with its chart (needs
`pip install vl-convert-python`).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from altneu.algorithms.graph import graphframes_oracle
from altneu.algorithms.graph.kernels.triangles import count_triangles
from altneu.algorithms.graph.kernels.truss import peel
from altneu.pipeline.home.home import Home
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage.session import start_session
from tests import home_helpers
from tests.benchmarks import put_rows, spread
from tests.benchmarks.kernels import rmat

REPO = Path(__file__).parents[2]
PAGE = REPO / "docs" / "incremental-or-full.md"
CHART = PAGE.with_suffix(".svg")
BEGIN, END = "<!-- figures: written by tests.benchmarks.incremental_or_full -->", "<!-- end of the figures -->"
COUNTING = ("ingest", "edges", "triangles")
WHOLE, COUNTS = "altneu: trussness too, proved, audited, published", "altneu: counts alone"
RUST, PATHWAY = "differential dataflow (Rust)", "Pathway"
LIBRARIES = ("networkit", "igraph", "networkx")
Ints = NDArray[np.int64]
Result = TypeVar("Result")


@dataclass
class Measurements:
    """Seconds of each system: by the size of the batch where it is incremental, else of a full count."""

    edges: int
    by_batch: dict[str, dict[int, list[float]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    loads: dict[str, float] = field(default_factory=dict)
    full: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    missing: dict[str, str] = field(default_factory=dict)


def measure_seconds(work: Callable[[], Result]) -> tuple[float, Result]:
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def make_batches(edges: Ints, sizes: Sequence[int], rng: np.random.Generator) -> Iterator[tuple[Ints, Ints]]:
    """Yield each batch (int64[n, 3]: a, b, +1 or -1) with the edges after it (int64[m, 2], a < b)."""
    keys = edges[:, 0] << 32 | edges[:, 1]
    for size in sizes:
        gone = rng.choice(keys, size // 2, replace=False)
        ends = np.sort(np.stack([rng.choice(edges[:, 0], 4 * size), rng.choice(edges[:, 1], 4 * size)], axis=1), axis=1)
        new = np.unique(ends[:, 0] << 32 | ends[:, 1])
        new = rng.permutation(new[(new >> 32 < new & 0xFFFFFFFF) & ~np.isin(new, keys)])[: size - size // 2]
        keys = np.concatenate([keys[~np.isin(keys, gone)], new])
        edges = np.stack([keys >> 32, keys & 0xFFFFFFFF], axis=1)
        changed = np.concatenate([gone, new])
        diffs = np.repeat([-1, 1], [gone.size, new.size])
        yield np.stack([changed >> 32, changed & 0xFFFFFFFF, diffs], axis=1), edges


def publish(ledger: Ledger, epoch: int, batch: Ints) -> tuple[float, float]:
    """Publish a batch as an epoch; return the seconds of the whole run and of its counting stages."""
    ops = np.where(batch[:, 2] > 0, "upsert", "delete").tolist()
    put_rows(ledger.home, epoch, batch[:, 0], batch[:, 1], ops)
    seconds, revision = measure_seconds(lambda: home_helpers.run(ledger, [epoch]))
    assert revision is not None
    stages = {row.stage: row.seconds for row in ledger.stages.select(revision.run_id)}
    return seconds, sum(stages[name] for name in COUNTING)


def as_batch(edges: Ints) -> Ints:
    return np.insert(edges, 2, 1, axis=1)


def measure_altneu(folder: Path, edges: Ints, batches: Sequence[Ints], last: Ints, found: Measurements) -> int:
    """Publish the graph and then each batch, and the last graph from nothing; return its triangles."""
    warm = Home.open(folder / "warm", create=True)
    publish(Ledger(warm), 0, as_batch(edges[:1000]))  # what is compiled is not what is measured
    home = Home.open(folder / "home", create=True)
    ledger = Ledger(home)
    found.loads[WHOLE], found.loads[COUNTS] = publish(ledger, 0, as_batch(edges))
    for epoch, batch in enumerate(batches, start=1):
        whole, counts = publish(ledger, epoch, batch)
        found.by_batch[WHOLE][len(batch)].append(whole)
        found.by_batch[COUNTS][len(batch)].append(counts)
    anew = Home.open(folder / "anew", create=True)
    whole, counts = publish(Ledger(anew), 0, as_batch(last))
    found.full[WHOLE.replace("altneu", "altneu from nothing")].append(whole)
    found.full[COUNTS.replace("altneu", "altneu from nothing")].append(counts)
    seconds, counted = measure_seconds(lambda: count_triangles(last[:, 0], last[:, 1]))
    found.full["the kernel of altneu, on arrays: counts"].append(seconds)
    found.full["the kernel of altneu, on arrays: trussness"].append(
        measure_seconds(lambda: peel(last[:, 0], last[:, 1]))[0]
    )
    return counted.total


def measure_graphframes(folder: Path, edges: Ints, found: Measurements) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    spark = start_session()
    pq.write_table(pa.table({"a": edges[:, 0], "b": edges[:, 1]}), folder / "last.parquet")
    frame = spark.read.parquet(str(folder / "last.parquet"))
    seconds, row = measure_seconds(
        lambda: graphframes_oracle.triangle_counts(frame, str(folder)).selectExpr("sum(triangles) AS n").first()
    )
    found.full[graphframes_oracle.reference_name(spark)].append(seconds)
    return int(row["n"]) // 3  # type: ignore[index]


def run_lines(command: Sequence[str], seconds: float) -> tuple[list[str], str | None]:
    """Return the lines that a command prints, and why they are not all, if so."""
    with tempfile.TemporaryFile("w+") as output:
        try:
            code = subprocess.run(command, stdout=output, stderr=subprocess.DEVNULL, timeout=seconds).returncode
            reason = None if code == 0 else f"ended with {code}"
        except subprocess.TimeoutExpired:
            reason = f"did not end within {seconds:.0f} s"
        output.seek(0)
        return output.read().splitlines(), reason


def measure_libraries(
    folder: Path, python: str, peers: Sequence[str], batches: Sequence[Ints], found: Measurements, seconds: float
) -> dict[str, int]:
    """Count with the libraries of another Python; return the last number of triangles of each."""
    totals = {}
    script = str(Path(__file__).with_name("python_peers.py"))
    for peer in peers:
        name = PATHWAY if peer == PATHWAY.lower() else peer
        lines, reason = run_lines([python, script, str(folder / name.lower()), peer], seconds)
        for line in map(json.loads, lines):
            if "missing" in line:
                reason = line["missing"]
            elif line["batch"] is None:
                found.full[name].append(line["seconds"])
                totals[name] = line["triangles"]
            elif line["batch"] == 0:
                found.loads[name] = line["seconds"]
            else:
                found.by_batch[name][len(batches[line["batch"] - 1])].append(line["seconds"])
                totals[name] = line["triangles"]
        if reason:
            found.missing[name] = reason
            totals.pop(name, None)
    return totals


def measure_program(
    folder: Path, program: str, edges: Ints, batches: Sequence[Ints], found: Measurements, seconds: float
) -> int | None:
    """Maintain the counts with a program on differential dataflow; return the last number of triangles."""
    rows = [np.insert(batch, 0, epoch, axis=1) for epoch, batch in enumerate([as_batch(edges), *batches])]
    np.savetxt(folder / "changes.txt", np.concatenate(rows), "%d")
    lines, reason = run_lines([program, str(folder / "changes.txt"), "wcoj", str(os.cpu_count())], seconds)
    taken: dict[int, float] = defaultdict(float)
    totals: dict[int, int] = defaultdict(int)
    for line in lines:
        _, epoch, total, each = line.split("\t")
        taken[int(epoch)] = max(taken[int(epoch)], float(each))
        totals[int(epoch)] += int(total)
    if reason:
        found.missing[RUST] = reason
        return None
    found.loads[RUST] = taken.pop(0)
    for epoch, each in taken.items():
        found.by_batch[RUST][len(batches[epoch - 1])].append(each)
    return totals[len(batches)]


def measure(folder: Path, options: argparse.Namespace) -> Measurements:
    edges = np.stack([side.astype(np.int64) for side in rmat(options.scale, 9)], axis=1)
    edges = np.sort(edges, axis=1)
    sizes = [10] + [size for size in options.changes if size // 2 <= len(edges) // 2 for _ in range(options.repeat)]
    made = list(make_batches(edges, sizes, np.random.default_rng(3)))
    batches, last = [batch for batch, _ in made], made[-1][1]
    found = Measurements(len(edges))
    for name, saved in ((PATHWAY.lower(), edges), *((library, last) for library in LIBRARIES)):
        (folder / name).mkdir()
        np.save(folder / name / "edges.npy", saved)
    for number, batch in enumerate(batches):
        np.save(folder / PATHWAY.lower() / f"batch-{number:03}.npy", batch)
    totals: dict[str, int | None] = {"altneu": measure_altneu(folder, edges, batches, last, found)}
    totals["GraphFrames"] = measure_graphframes(folder, last, found)
    if options.peer_python:
        totals |= measure_libraries(folder, options.peer_python, options.peers, batches, found, options.seconds)
    if options.peer_program:
        totals[RUST] = measure_program(folder, options.peer_program, edges, batches, found, options.seconds)
    for by_batch in found.by_batch.values():  # the first batch of a system pays for what it compiles
        by_batch[10][:1] = []
    assert len({total for total in totals.values() if total is not None}) == 1, totals
    return found


def table(found: Measurements) -> str:
    sizes = sorted(found.by_batch[WHOLE])
    systems = list(found.by_batch)
    lines = [f"| changes of {found.edges:,} edges | {' | '.join(systems)} |", "|---" * (len(systems) + 1) + "|"]
    for size in sizes:
        cells = [spread(by[size], 3 if max(by[size]) < 1 else 1) if by[size] else "–" for by in found.by_batch.values()]
        lines.append(f"| {size:,} | {' | '.join(cells)} |")
    loads = [f"{found.loads[name]:.1f}" if name in found.loads else "–" for name in systems]
    lines += [f"| the graph itself, at first | {' | '.join(loads)} |", "", "| everything once more | seconds | "]
    lines[-1] += f"altneu's {COUNTS.partition(': ')[2]} are slower from | altneu as a whole is slower from |"
    lines.append("|---|---|---|---|")
    for name, seconds in sorted(found.full.items(), key=lambda item: statistics.median(item[1])):
        cells = [find_crossover(found.by_batch[system], statistics.median(seconds)) for system in (COUNTS, WHOLE)]
        lines.append(f"| {name} | {spread(seconds, 2)} | {' | '.join(cells)} |")
    lines += [f"| {name} | {reason} | – | – |" for name, reason in found.missing.items()]
    return "\n".join(lines)


def find_crossover(by_batch: dict[int, list[float]], seconds: float) -> str:
    """Name the least measured batch that takes longer than so many seconds."""
    slower = [size for size, taken in sorted(by_batch.items()) if taken and statistics.median(taken) > seconds]
    return f"{slower[0]:,} changes" if slower else "never"


def place_labels(values: dict[str, float], apart: float) -> dict[str, float]:
    """Return where to write each name on a logarithmic axis: at its value, or above it where two would touch."""
    places: dict[str, float] = {}
    lowest = 0.0
    for name, value in sorted(values.items(), key=lambda item: item[1]):
        lowest = places[name] = max(value, lowest * apart)
    return places


def draw(found: Measurements) -> None:
    import altair

    maintained = {
        name: {size: statistics.median(taken) for size, taken in by_batch.items() if taken}
        for name, by_batch in found.by_batch.items()
    }
    ends = min(map(min, maintained.values())), max(map(max, maintained.values()))
    again = {f"{name} (everything once more)": statistics.median(taken) for name, taken in found.full.items()}
    rows = [
        {"changes": size, "seconds": taken, "system": name, "again": False}
        for name, by_batch in maintained.items()
        for size, taken in by_batch.items()
    ]
    rows += [
        {"changes": end, "seconds": taken, "system": name, "again": True}
        for name, taken in again.items()
        for end in ends
    ]
    last = {name: by_batch[max(by_batch)] for name, by_batch in maintained.items()} | again
    labels: list[dict[str, Any]] = [
        {"changes": ends[1], "seconds": place, "system": name, "again": name in again}
        for name, place in place_labels(last, apart=1.45).items()
    ]
    log = altair.Scale(type="log")
    colors = altair.Scale(domain=list(maintained), range=["#1b7837", "#7fbf7b", "#e08214"])
    color = altair.condition(
        altair.datum.again, altair.value("#777777"), altair.Color("system:N", scale=colors, legend=None)
    )
    chart = altair.Chart(altair.Data(values=rows)).encode(
        x=altair.X(
            "changes:Q",
            scale=log,
            title="changed edges in a batch",
            axis=altair.Axis(values=[10**power for power in range(7)]),
        ),
        y=altair.Y(
            "seconds:Q", scale=log, title="seconds", axis=altair.Axis(values=[10.0**power for power in range(-3, 3)])
        ),
        color=color,
        detail="system:N",
        strokeDash=altair.condition(altair.datum.again, altair.value([4, 3]), altair.value([1, 0])),
    )
    names = (
        altair.Chart(altair.Data(values=labels))
        .mark_text(align="left", dx=8)
        .encode(x="changes:Q", y="seconds:Q", text="system:N", color=color)
    )
    points = chart.transform_filter(~altair.datum.again).mark_point(filled=True)
    (chart.mark_line() + points + names).properties(width=520, height=420, background="white").save(str(CHART))


def write_page(text: str) -> None:
    page = PAGE.read_text()
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    assert pattern.search(page), f"{PAGE} has no place for the figures"
    PAGE.write_text(pattern.sub(lambda _: f"{BEGIN}\n{text}\n{END}", page))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=17)
    parser.add_argument("--changes", type=int, nargs="+", default=[10**power for power in range(1, 7)])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--peer-python")
    parser.add_argument("--peers", nargs="+", default=[*LIBRARIES, PATHWAY.lower()])
    parser.add_argument("--peer-program")
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), options)
    text = table(found)
    print(text)
    if options.write:
        write_page(text)
        draw(found)


if __name__ == "__main__":
    main()
