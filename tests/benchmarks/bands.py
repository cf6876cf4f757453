"""The learned bounds of volumes on real histories: false alarms, and planted anomalies that are found. No Spark.

`python -m tests.benchmarks.bands`: the rows of each epoch of the real histories, as the checks of a run of that epoch
alone would judge them, by sensitivity; the same numbers doubled and halved, one epoch at a time; regular sources, whose
epochs scatter by so much around a weekly pattern; then the growth of edges and triangles of the real histories.
"""

from __future__ import annotations

import csv
import gzip
import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from altneu.expectations.volumes import SETTLED, WIDTH, WINDOW, season_length, usual_growth, usual_rows
from altneu.pipeline.local.demo import messages_file
from tests.e2e.graphs import find_graph

DAY, WEEK = 86_400, 7 * 86_400
EVERY = (DAY, WEEK)
Series = list[tuple[int, int]]  # epoch, number


@dataclass(frozen=True)
class History:
    file: str
    separator: str
    time: int  # its column


HISTORIES = {
    "CollegeMsg": History("", "", 2),  # as the demo carries it
    "email-Eu-core": History("email-Eu-core-temporal.txt.gz", " ", 2),
    "bitcoin-otc": History("soc-sign-bitcoinotc.csv.gz", ",", 3),
    "bitcoin-alpha": History("soc-sign-bitcoinalpha.csv.gz", ",", 3),
}
WEEKS = {"every day alike": [1.0] * 7, "quiet weekends": [1, 1.05, 1, 0.95, 0.9, 0.2, 0.15]}


@dataclass(frozen=True)
class Found:
    epochs: int  # that were judged
    false: int  # alarms as it was
    doubled: int  # found, were it twice as much
    halved: int


def events(name: str) -> Iterator[tuple[int, int, float]]:
    """Source, target, time; lines that are no events are left out."""
    if name == "CollegeMsg":
        with gzip.open(messages_file(), "rt") as file:
            for row in csv.DictReader(file):
                time = datetime.strptime(row["Timestamp"], "%m/%d/%y %I:%M %p").replace(tzinfo=UTC)
                yield int(row["Source"]), int(row["Target"]), time.timestamp()
        return
    history = HISTORIES[name]
    with gzip.open(find_graph(history.file), "rt") as file:
        for line in csv.reader(file, delimiter=history.separator):
            try:
                yield int(line[0]), int(line[1]), float(line[history.time])
            except (ValueError, IndexError):
                continue


def rows(name: str, every: int) -> Series:
    """The epochs that have any, with their numbers of rows."""
    return sorted(Counter(int(time // every) for _, _, time in events(name)).items())


def regular(scatter: float, week: Sequence[float], days: int = 400, mean: int = 10_000, seed: int = 1) -> Series:
    """A source that grows slowly and scatters by so much: the logarithms of its rows are normal, and counts."""
    dice = random.Random(seed)
    out = []
    for day in range(days):
        expected = mean * (1 + 0.005 * day) * week[day % 7] * math.exp(dice.gauss(0, scatter))
        out.append((20_000 + day, max(round(dice.gauss(expected, math.sqrt(expected))), 0)))
    return out


def judged(series: Series, every: int, width: float = 1.0, settled: bool = False) -> Found:
    """Every epoch against those before it; `settled`: those alone that have `SETTLED` epochs before them."""
    epochs = false = doubled = halved = 0
    for place, (epoch, count) in enumerate(series):
        band = usual_rows(series[max(0, place - WINDOW) : place], epoch, season_length(every), width)
        if band is None or (settled and band.epochs < SETTLED):
            continue
        alarms = [abs(band.surprise_of(math.log1p(value))) > 1 for value in (count, 2 * count, count // 2)]
        epochs, false, doubled, halved = (
            epochs + 1,
            false + alarms[0],
            doubled + alarms[1],
            halved + alarms[2],
        )
    return Found(epochs, false, doubled, halved)


def totals(name: str, every: int, live_for: int | None) -> list[tuple[int, int, int]]:
    """Epoch, edges, triangles at every epoch that has rows, counted edge by edge."""
    pairs: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for a, b, time in events(name):
        if a != b:
            pairs[int(time // every)].add((min(a, b), max(a, b)))
    near: dict[int, set[int]] = defaultdict(set)
    last: dict[tuple[int, int], int] = {}
    out, edges, triangles = [], 0, 0
    for epoch in range(min(pairs), max(pairs) + 1):
        for a, b in pairs.get(epoch - live_for, ()) if live_for else ():
            if last[a, b] == epoch - live_for:  # type: ignore[operator]
                near[a].discard(b)
                near[b].discard(a)
                edges, triangles = edges - 1, triangles - len(near[a] & near[b])
        for a, b in pairs.get(epoch, ()):
            if b not in near[a]:
                edges, triangles = edges + 1, triangles + len(near[a] & near[b])
                near[a].add(b)
                near[b].add(a)
            last[a, b] = epoch
        if epoch in pairs:
            out.append((epoch, edges, triangles))
    return out


def growth(series: Series, every: int, width: float = 1.0) -> tuple[int, int]:
    """Steps that were judged, and alarms."""
    found = alarms = 0
    for place in range(1, len(series)):
        (_, before), (epoch, now) = series[place - 1], series[place]
        band = usual_growth(series[max(0, place - WINDOW - 1) : place], epoch, season_length(every), width)
        if band is not None:
            found += 1
            alarms += abs(band.surprise_of(math.log1p(now) - math.log1p(before))) > 1
    return found, alarms


def _line(name: str, found: list[list[Found]]) -> None:
    cells = []
    for each in found:  # a sensitivity
        epochs, false, doubled, halved = (
            sum(getattr(one, field) for one in each) for field in ("epochs", "false", "doubled", "halved")
        )
        cells.append(
            f"{epochs:,} | {false} ({1000 * false / epochs:.1f}) | {doubled / epochs:.0%} | {halved / epochs:.0%}"
        )
    print(f"| {name} | {' | '.join(cells)} |")


def main() -> None:
    for name, width in WIDTH.items():
        print(f"\n| sensitivity {name} | epochs | alarms (in 1,000) | doubled: found | halved: found |")
        print("|---|---|---|---|---|")
        every_one = []
        for history in HISTORIES:
            for every in EVERY:
                found = judged(rows(history, every), every, width)
                every_one.append(found)
                _line(f"{history}, {'daily' if every == DAY else 'weekly'}", [[found]])
        _line("all real histories", [every_one])
        for week, pattern in WEEKS.items():
            for scatter in (0.05, 0.1, 0.15, 0.2):
                found = judged(regular(scatter, pattern), DAY, width, settled=True)
                _line(f"regular, {week}, scatter {scatter:.0%}", [[found]])
    print("\n| growth of | an edge lives | steps | alarms (in 1,000) |")
    print("|---|---|---|---|")
    for measure, column in (("edges", 1), ("triangles", 2)):
        for live_for in (30, None):
            steps = alarms = 0
            for history in HISTORIES:
                for every in EVERY:
                    series = [(point[0], point[column]) for point in totals(history, every, live_for)]
                    one, other = growth(series, every)
                    steps, alarms = steps + one, alarms + other
            life = f"{live_for} epochs" if live_for else "for ever"
            print(f"| {measure} | {life} | {steps:,} | {alarms} ({1000 * alarms / steps:.1f}) |")


if __name__ == "__main__":
    main()
