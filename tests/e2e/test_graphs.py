"""Real graphs through the commands a user types: the known totals, and every epoch against plain Python."""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from altneu.pipeline.local.demo import messages_file
from tests.e2e.conftest import Altneu
from tests.e2e.graphs import CARRIED, GRAPHS, LACKING, Graph, find_graph
from tests.reference import neighbours

pytestmark = pytest.mark.usefixtures("unaudited")  # all is compared with what is known, or with plain Python


@pytest.mark.parametrize(
    "graph",
    [pytest.param(graph, marks=pytest.mark.slow if graph.file in CARRIED else LACKING) for graph in GRAPHS],
    ids=lambda graph: graph.file.split(".")[0],
)
def test_known_totals(altneu: Altneu, graph: Graph, record_property) -> None:  # type: ignore[no-untyped-def]
    """The totals of real graphs are those that are known; in the default tier tests/kernels asks the kernels alone."""
    path = find_graph(graph.file)
    landed = altneu("land", path, *graph.land)
    assert landed.code == 0, landed.err
    ran = altneu("backfill", "--all")
    assert ran.code == 0, ran.err
    shown = altneu("show", "totals", "--format", "json")
    (row,) = json.loads(shown.out)
    assert (row["edges"], row["triangles"], row["max_trussness"]) == (graph.edges, graph.triangles, graph.trussness)


@pytest.mark.slow
def test_signed_triangles_of_bitcoinalpha(altneu: Altneu, tmp_path: Path) -> None:
    """The four kinds of triangles of signed edges, day by day maintained, against products of the matrices of signs."""
    path = find_graph("soc-sign-bitcoinalpha.csv.gz")
    landed = altneu("land", path, "--columns", "src,dst,rating,ts", "--header", "--time", "ts", "--every", "90d")
    assert landed.code == 0, landed.err
    kinds = {"ppp": "+++", "ppm": "++-", "pmm": "+--", "mmm": "---"}
    declared = [f'{name} = "{_signed(kind)}"' for name, kind in kinds.items()]
    declared.append(f'balanced = ["{_signed("+++")}", "{_signed("+--")}"]')
    settings = tmp_path / "home" / "altneu.toml"
    settings.write_text(settings.read_text().replace("[motifs]", "\n".join(["[motifs]", *declared, "#"])))
    epochs = sorted(folder.name.partition("=")[2] for folder in (tmp_path / "home" / "landing").glob("epoch=*"))
    for command in (["backfill", epochs[0], epochs[-2]], ["run", epochs[-1]]):
        ran = altneu(*command)
        assert ran.code == 0, ran.err
    (row,) = json.loads(altneu("show", "totals", "--format", "json").out)
    with gzip.open(path, "rt") as file:
        last = {(int(r["source"]), int(r["target"])): int(r["weight"]) for r in csv.DictReader(file)}
    ids = {v: i for i, v in enumerate(sorted({v for pair in last for v in pair}))}
    plus, minus = np.zeros((2, len(ids), len(ids)), np.float32)
    for (src, dst), rating in last.items():
        for x, y in ((ids[src], ids[dst]), (ids[dst], ids[src])):
            (plus if rating > 0 else minus)[x, y] = x != y
    closed = {
        "ppp": np.sum(plus @ plus * plus) / 6,
        "ppm": np.sum(plus @ plus * minus) / 2,
        "pmm": np.sum(minus @ minus * plus) / 2,
        "mmm": np.sum(minus @ minus * minus) / 6,
    }
    assert {name: row[name] for name in closed} == closed
    assert row["balanced"] == closed["ppp"] + closed["pmm"]


def _signed(kind: str) -> str:
    tests = {"+": "rating > 0", "-": "rating < 0"}
    return ", ".join(f"{e} where {tests[s]}" for e, s in zip(("a-b", "b-c", "a-c"), kind, strict=True))


def fast_totals(graph: set[tuple[int, int]]) -> dict[str, int]:
    """Totals by the textbook, fast enough for thousands of edges: common neighbours, then a peel with a stack."""
    near = neighbours(graph)
    support = {(a, b): len(near[a] & near[b]) for a, b in graph}
    triangles = sum(support.values()) // 3
    left, k = dict(support), 2
    while left:
        weak = [edge for edge, n in left.items() if n <= k - 2]
        if not weak:
            k += 1
            continue
        while weak:
            a, b = weak.pop()
            if (a, b) not in left:
                continue
            del left[(a, b)]
            near[a].discard(b)
            near[b].discard(a)
            for c in near[a] & near[b]:
                for edge in ((min(a, c), max(a, c)), (min(b, c), max(b, c))):
                    left[edge] -= 1
                    if left[edge] <= k - 2:
                        weak.append(edge)
    return {
        "vertices": len({v for edge in graph for v in edge}),
        "edges": len(graph),
        "triangles": triangles,
        "max_trussness": k if graph else 0,
    }


def check_window(altneu: Altneu, events: list[tuple[int, int, float]], day: int, live_for: int) -> None:
    """`show totals --all-epochs` equals plain Python at every epoch; events are (src, dst, unix seconds)."""
    shown = altneu("show", "totals", "--all-epochs", "--format", "json")
    assert shown.code == 0, shown.err
    rows = json.loads(shown.out)
    by_epoch: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for src, dst, ts in events:
        if src != dst:
            by_epoch[int(ts // day)].add((min(src, dst), max(src, dst)))
    epochs = range(min(by_epoch), max(by_epoch) + 1)
    assert [row["epoch"] for row in rows] == list(epochs)
    for row in rows:
        epoch = row["epoch"]
        graph = set().union(*(by_epoch.get(e, set()) for e in range(epoch - live_for + 1, epoch + 1)))
        expected = fast_totals(graph)
        assert {name: row[name] for name in expected} == expected, row["label"]


def window(home: Path, live_for: int) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "altneu.toml").write_text(f"[edges]\nlive_for = {live_for}\n")


@pytest.mark.parametrize(("messages_", "live_for"), [(1_000, 3), pytest.param(None, 30, marks=pytest.mark.slow)])
def test_every_day_of_collegemsg(altneu: Altneu, tmp_path: Path, messages_: int | None, live_for: int) -> None:
    """The first messages, and all 193 days."""
    with gzip.open(messages_file(), "rt") as stream:
        head, *rows = list(csv.reader(stream))[: None if messages_ is None else messages_ + 1]
    file = tmp_path / "messages.csv"
    with file.open("w", newline="") as written:
        csv.writer(written).writerows([head, *rows])
    window(tmp_path / "home", live_for)
    form = ("--header", "--time", "ts", "--time-format", "%m/%d/%y %I:%M %p", "--every", "1d")
    assert altneu("land", file, "--columns", "src,dst,ts", *form).code == 0
    ran = altneu("backfill", "--all")
    assert ran.code == 0, ran.err
    stamp = {text: datetime.strptime(text, "%m/%d/%y %I:%M %p").replace(tzinfo=UTC).timestamp() for _, _, text in rows}
    check_window(altneu, [(int(a), int(b), stamp[text]) for a, b, text in rows], 86_400, live_for)
    again = altneu("backfill", "--all")
    assert (again.code, "nothing new" in again.out) == (0, True)


@pytest.mark.slow
@pytest.mark.needs("graphs")
def test_every_month_of_bitcoinotc(altneu: Altneu, tmp_path: Path) -> None:
    path = find_graph("soc-sign-bitcoinotc.csv.gz")
    window(tmp_path / "home", 4)
    form = ("--header", "--time", "ts", "--every", "15d")
    assert altneu("land", path, "--columns", "src,dst,rating,ts", *form).code == 0
    ran = altneu("backfill", "--all")
    assert ran.code == 0, ran.err
    with gzip.open(path, "rt") as stream:
        rows = list(csv.reader(stream))[1:]
    check_window(altneu, [(int(a), int(b), float(ts)) for a, b, _, ts in rows], 15 * 86_400, 4)
