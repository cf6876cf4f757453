"""Scale on paper: what other sizes and more machines would take, by a model of what was measured.

    python -m tests.benchmarks.paper FILE [--machine 2] [--edges N ...] [--workers N ...]

FILE: lines of `tests.benchmarks.cluster --out`. `--machine`: the cores that its workers shared.

Model   A command is its start and its stages; a stage is planning, in the driver, and tasks in executors:
            seconds = planning + max(longest task, work / cores) + shuffled bytes / network
        Start, planning, work (seconds of executors), the longest task and bytes are lines over the edges, without
        falling ones, fitted to the points of the fewest workers alone. A worker has one core, four of them 10 Gbit/s.
Prints  the measured points beside the model, those with more workers too, which it has not seen; then, for `--edges`
        and `--workers`, seconds, core hours and bytes. Beyond the sizes that were measured a line is a guess.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

NETWORK = 1.25e9 / 4  # bytes a second of a core, where a machine of four has 10 Gbit/s
WITHIN = 0.30

Point = dict[str, Any]
Line = Callable[[float], float]


def line(points: Iterable[tuple[float, float]]) -> Line:
    """Least squares of relative errors; neither start nor slope is negative."""
    x, y = (np.array(each, float) for each in zip(*points, strict=True))
    weight = 1 / np.maximum(y, 0.1)
    (start, slope), _ = nnls(np.column_stack([weight, x * weight]), y * weight)
    return lambda size: float(start + slope * size)


@dataclass
class Stage:
    planning: Line
    busy: Line
    longest: Line
    shuffled: Line

    def seconds(self, edges: float, cores: float, network: float) -> float:
        tasks = max(self.longest(edges), self.busy(edges) / cores)
        return self.planning(edges) + tasks + self.shuffled(edges) / network


@dataclass
class Command:
    start: Line
    stages: dict[str, Stage]
    stored: Line

    def seconds(self, edges: float, cores: float, network: float = float("inf")) -> float:
        return self.start(edges) + sum(stage.seconds(edges, cores, network) for stage in self.stages.values())


def model(points: list[Point], cores: float) -> Command:
    """Of points of one command on as many workers, which have so many cores."""

    def of(value: Callable[[Point], float]) -> Line:
        return line((point["edges"], value(point)) for point in points)

    def stage(name: str) -> Stage:
        def work(point: Point) -> dict[str, float]:
            found: dict[str, float] = point["stages"][name]
            return found

        def planning(point: Point) -> float:
            did = work(point)
            return max(0.0, did["seconds"] - max(did["longest"], did["busy"] / cores))

        return Stage(
            of(planning),
            of(lambda point: work(point)["busy"]),
            of(lambda point: work(point)["longest"]),
            of(lambda point: work(point)["shuffled"]),
        )

    names = points[0]["stages"]
    start = of(lambda point: max(0.0, point["seconds"] - sum(each["seconds"] for each in point["stages"].values())))
    return Command(start, {name: stage(name) for name in names}, of(lambda point: point["stored"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", type=Path, metavar="FILE")
    parser.add_argument("--machine", type=int, default=2)
    parser.add_argument("--edges", type=float, nargs="*", default=[1e8, 1e9, 1e10])
    parser.add_argument("--workers", type=int, nargs="*", default=[16, 256, 4096])
    options = parser.parse_args()
    points = [json.loads(text) for text in options.points.read_text().splitlines()]
    fewest = min(point["workers"] for point in points)
    models = {}
    print("| command | edges | workers | measured, s | model, s | off | |\n|---|---|---|---|---|---|---|")
    near = 0
    for what in dict.fromkeys(point["what"] for point in points):
        mine = [point for point in points if point["what"] == what]
        fitted = [point for point in mine if point["workers"] == fewest]
        models[what] = model(fitted, min(fewest, options.machine))
        for point in sorted(mine, key=lambda point: (point["edges"], point["workers"])):
            guess = models[what].seconds(point["edges"], min(point["workers"], options.machine))
            off = guess / point["seconds"] - 1
            near += abs(off) <= WITHIN
            seen = "fitted" if point in fitted else "not seen"
            print(
                f"| {what} | {point['edges']:,} | {point['workers']} | {point['seconds']:.0f} | {guess:.0f} | "
                f"{off:+.0%} | {seen} |"
            )
    print(f"\n{near} of {len(points)} within {WITHIN:.0%}.\n")
    print("| command | edges | cores | hours | core hours | longest task, h | shuffled, GB | stored, GB |")
    print("|---|---|---|---|---|---|---|---|")
    for what, found in models.items():
        for edges, cores in zip(options.edges, options.workers, strict=True):
            hours = found.seconds(edges, cores, NETWORK * cores) / 3600
            longest = max(stage.longest(edges) for stage in found.stages.values()) / 3600
            moved = sum(stage.shuffled(edges) for stage in found.stages.values()) / 1e9
            stored = found.stored(edges) / 1e9
            print(
                f"| {what} | {edges:,.0f} | {cores} | {hours:.2f} | {hours * cores:,.1f} | {longest:.2f} "
                f"| {moved:,.1f} | {stored:,.1f} |"
            )


if __name__ == "__main__":
    main()
