"""What a small question costs by Spark and by DuckDB: `altneu` as a process, and the same in a process that has begun.

    python -m tests.benchmarks.read HOME [--repeat 3] [--only DuckDB|Spark]

Each question is asked by both engines in turns. `cold`: a process, from its start to its end; its wall seconds, and for
the process alone (not its JVM) the CPU seconds. `warm`: `Graph.ask` in one process, after each has been asked once.
Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from altneu.pipeline.reading.graph import Graph
from altneu.pipeline.reading.query_model import Engine, Question

ENGINES = (Engine.spark, Engine.duckdb)


def asked(home: Path) -> dict[str, tuple[list[str], Question | None]]:
    """Question → the words of the command, and what `Graph.ask` takes. About the vertex with the most edges."""
    graph = Graph(home, engine="duckdb")
    vertex = graph.arrow.vertices(top=1)["vertex"][0].as_py()
    row = graph.arrow.edges(vertex=vertex, limit=1).to_pylist()[0]
    edge, frontier = (
        (str(row["src"]), str(row["dst"])),
        graph.home.schedule.format_label(graph.revision().frontier or 0),
    )
    before = graph.home.schedule.format_label((graph.revision().frontier or 0) - 1)
    return {
        "one epoch's totals": (["show", "totals"], Question("totals")),
        "a vertex": (["show", "vertices", "--vertex", str(vertex)], Question("vertices", vertices=(str(vertex),))),
        "an edge": (["show", "edges", "--edge", *edge], Question("edges", edge=edge)),
        "what a day changed": (["show", "changes", before, frontier], Question("changes", span=(before, frontier))),
        "all edges of a day, to a file": (["show", "edges", "--output", "/tmp/edges.parquet"], Question("edges")),
        "support, the ten greatest": (["show", "support", "--top", "10"], Question("support", top=10)),
        "explain an edge": (["explain", "edge", *edge], None),
    }


def cold(home: Path, words: list[str], engine: Engine) -> tuple[float, float]:
    chosen = [] if words[1] == "totals" else ["--engine", engine.value]
    command = [sys.executable, "-m", "altneu.pipeline.cli", "--home", str(home), *words, *chosen]
    before, begin = os.times(), time.time()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall, after = time.time() - begin, os.times()
    return wall, after.children_user + after.children_system - before.children_user - before.children_system


def warm(graph: Graph, question: Question) -> float:
    begin = time.time()
    graph.ask(question).to_arrow()
    return time.time() - begin


def text(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f} – {max(seconds):.2f})" if seconds else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", type=Engine, choices=ENGINES)
    given = parser.parse_args()
    engines = [engine for engine in ENGINES if given.only in (None, engine)]
    graphs = {engine: Graph(given.home, engine=engine) for engine in engines}
    questions = asked(given.home)
    took: dict[tuple[str, Engine, str], list[float]] = {}
    for turn in range(given.repeat + 1):
        for name, (words, question) in questions.items():
            for engine in engines:
                if turn:
                    wall, cpu = cold(given.home, words, engine)
                    took.setdefault((name, engine, "cold"), []).append(wall)
                    took.setdefault((name, engine, "cpu"), []).append(cpu)
                seconds = warm(graphs[engine], question) if question else None
                if turn and seconds is not None:
                    took.setdefault((name, engine, "warm"), []).append(seconds)
    print(
        "| question | " + " | ".join(f"{e}, {what}" for e in engines for what in ("cold, s", "its CPU", "warm, s")), "|"
    )
    print("|---" * (3 * len(engines) + 1) + "|")
    for name in questions:
        cells = [text(took.get((name, engine, what), [])) for engine in engines for what in ("cold", "cpu", "warm")]
        print(f"| {name} | " + " | ".join(cells), "|")


if __name__ == "__main__":
    main()
