"""Scale on paper: what other sizes and more machines would take, by a model of what was measured.

    python -m tests.benchmarks.paper [FILE] [--up-to N] [--edges N ...] [--workers N ...]

FILE: lines of `tests.benchmarks.cluster --out`, of workers that share a machine which one of them and the driver fill.
`--up-to`: larger sizes are not fitted, so that the model has not seen them.

Model   A command is its start and its stages. A stage is planning in the driver, tasks in the executors, and what each
        executor takes to get warm (its JVM compiles, its Python imports): of cores of their own,
            seconds = planning + max(longest task, warm + (work - warm) / cores) + shuffled bytes / network
        and on the machine that was measured, where nothing is left for a further one,
            seconds = planning + max(longest task, work / least) + warm * (workers - least)
        Start, planning, work (seconds of executors), the longest task and bytes are lines over the edges, without
        falling ones, fitted to the points of the least workers. `warm` is what one more adds at the least size.
        A command that was measured at one size only is left out.
Prints  the measured points beside the model, also those that it has not seen; then, for `--edges` and `--workers` with
        a core each and a quarter of 10 Gbit/s, hours, core hours and bytes. Beyond what was measured it is a guess.
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
    work: Line
    longest: Line
    shuffled: Line
    warm: float
    least: int

    def shared(self, edges: float, workers: int) -> float:
        tasks = max(self.longest(edges), self.work(edges) / self.least)
        return self.planning(edges) + tasks + self.warm * (workers - self.least)

    def apart(self, edges: float, cores: int) -> float:
        warm = min(self.warm, self.work(edges))
        tasks = max(self.longest(edges), warm + (self.work(edges) - warm) / cores)
        return self.planning(edges) + tasks + self.shuffled(edges) / (NETWORK * cores)


@dataclass
class Command:
    start: Line
    stages: list[Stage]
    stored: Line

    def seconds(self, edges: float, workers: int, shared: bool) -> float:
        of = Stage.shared if shared else Stage.apart
        return self.start(edges) + sum(of(stage, edges, workers) for stage in self.stages)


def model(base: list[Point], more: Point | None) -> Command:
    """Of points of a command on the least workers, and one on one worker more."""
    least = base[0]["workers"]

    def fitted(value: Callable[[Point], float]) -> Line:
        return line((point["edges"], value(point)) for point in base)

    def stage(name: str) -> Stage:
        def of(key: str) -> Line:
            return fitted(lambda point: float(point["stages"][name][key]))

        def planning(point: Point) -> float:
            did: dict[str, float] = point["stages"][name]
            rest: float = did["seconds"] - max(did["longest"], did["busy"] / least)
            return max(0.0, rest)

        warm = 0.0
        if more is not None:
            same = next(point for point in base if point["edges"] == more["edges"])
            warm = max(0.0, more["stages"][name]["seconds"] - same["stages"][name]["seconds"])
        return Stage(fitted(planning), of("busy"), of("longest"), of("shuffled"), warm, least)

    start = fitted(lambda point: max(0.0, point["seconds"] - sum(each["seconds"] for each in point["stages"].values())))
    return Command(start, [stage(name) for name in base[0]["stages"]], fitted(lambda point: point["stored"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "points", type=Path, metavar="FILE", nargs="?", default=Path(__file__).with_name("cluster.jsonl")
    )
    parser.add_argument("--up-to", type=float, default=float("inf"))
    parser.add_argument("--edges", type=float, nargs="*", default=[1e8, 1e9, 1e10])
    parser.add_argument("--workers", type=int, nargs="*", default=[16, 256, 4096])
    options = parser.parse_args()
    points = [json.loads(text) for text in options.points.read_text().splitlines()]
    for point in points:
        point["what"] += ", in parts" if point["limit"] else ""
        point["what"] += f", among 2**{point['scale']} vertices" if point.get("scale") else ""
    models = {}
    print("| command | edges | workers | measured, s | model, s | off | |\n|---|---|---|---|---|---|---|")
    near, told = 0, 0
    for what in dict.fromkeys(point["what"] for point in points):
        mine = sorted((p for p in points if p["what"] == what), key=lambda p: (p["edges"], p["workers"]))
        least = min(point["workers"] for point in mine)
        base = [point for point in mine if point["workers"] == least and point["edges"] <= options.up_to]
        if len(base) < 2:
            continue
        more = next((p for p in mine if p["workers"] == least + 1 and p["edges"] == base[0]["edges"]), None)
        models[what] = model(base, more)
        for point in mine:
            guess = models[what].seconds(point["edges"], point["workers"], shared=True)
            off = guess / point["seconds"] - 1
            near, told = near + (abs(off) <= WITHIN), told + 1
            seen = "fitted" if point in base or point is more else "not seen"
            print(
                f"| {what} | {point['edges']:,} | {point['workers']} | {point['seconds']:.0f} | {guess:.0f} | "
                f"{off:+.0%} | {seen} |"
            )
    print(f"\n{near} of {told} within {WITHIN:.0%}.\n")
    print("| command | edges | cores | hours | core hours | longest task, h | shuffled, GB | stored, GB |")
    print("|---|---|---|---|---|---|---|---|")
    for what, found in models.items():
        for edges, cores in zip(options.edges, options.workers, strict=True):
            hours = found.seconds(edges, cores, shared=False) / 3600
            longest = max(stage.longest(edges) for stage in found.stages) / 3600
            moved = sum(stage.shuffled(edges) for stage in found.stages) / 1e9
            stored = found.stored(edges) / 1e9
            print(
                f"| {what} | {edges:,.0f} | {cores} | {hours:.2f} | {hours * cores:,.1f} | {longest:.2f} "
                f"| {moved:,.1f} | {stored:,.1f} |"
            )


if __name__ == "__main__":
    main()
