"""Lineage of a number: which landed rows, of which files and epochs, make a vertex, an edge or a triangle what it is.

`edge`, `triangle` and `vertex` give JSON-ready documents at an epoch and a revision, from the pinned tables alone.
Every landed row of the keys concerned is listed with its fate there: in force, overwritten, a deletion, expired,
filtered out, a self-loop, or taken back by a later landing. The fates follow the law of upserts in plain Python, apart
from the plans that maintain it.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..state.records import Revision
from ..storage.warehouse import Warehouse
from . import views

SHOWN = 200  # edges of a vertex whose landed rows are listed
BEHIND = 12  # diffs, edges and landed rows that stand behind one differing row
Document = dict[str, Any]
Vertex = int | str


def edge(warehouse: Warehouse, revision: Revision, epoch: int, ends: tuple[str, str]) -> Document:
    """Is the edge there, with which trussness, in which triangles, and which landed rows say so."""
    views.answerable(warehouse.home, revision, epoch)
    a, b = sorted(views.numbers(warehouse, ends, revision))
    return _edge(warehouse, revision, epoch, a, b, _rows(warehouse, revision, [(a, b)], epoch), triangles=True)


def triangle(warehouse: Warehouse, revision: Revision, epoch: int, corners: tuple[str, str, str]) -> Document:
    """Is the triangle there, and its three edges."""
    views.answerable(warehouse.home, revision, epoch)
    numbers = sorted(views.numbers(warehouse, corners, revision))
    pairs = list(combinations(numbers, 2))
    rows = _rows(warehouse, revision, pairs, epoch)
    edges = [_edge(warehouse, revision, epoch, a, b, rows) for a, b in pairs]
    return {
        "triangle": names(warehouse, revision, numbers),
        "epoch": warehouse.home.schedule.label(epoch),
        "revision": revision.revision,
        "there": all(each["there"] for each in edges),
        "edges": edges,
    }


def vertex(warehouse: Warehouse, revision: Revision, epoch: int, name: str) -> Document:
    """Degree, triangles and motifs, the diffs that add up to them, and each edge with the landed rows that make it."""
    views.answerable(warehouse.home, revision, epoch)
    (number,) = views.numbers(warehouse, [name], revision)
    at = F.col("vertex") == number

    def diffs(table: str) -> list[tuple[Any, Document]]:
        rows = warehouse.at(table, revision).where(at & (F.col("epoch") <= epoch)).orderBy("epoch", "revision")
        label = warehouse.home.schedule.label
        found = rows.collect()
        return [(r, {"epoch": label(r["epoch"]), "revision": r["revision"], "diff": r["diff"]}) for r in found]

    degree, counts = ([diff for _, diff in diffs(table)] for table in ("degrees", "triangle_counts"))
    motifs: dict[str, list[Document]] = {}
    if "motif_counts" in revision.snapshots:
        motifs = {name: [] for name in warehouse.home.config.motifs}
        for row, diff in diffs("motif_counts"):
            motifs.setdefault(row["motif"], []).append(diff)
    found = _edges_at(warehouse, revision, epoch, number)
    rows = _rows(warehouse, revision, found[:SHOWN], epoch)
    return {
        "vertex": names(warehouse, revision, [number])[0],
        "epoch": warehouse.home.schedule.label(epoch),
        "revision": revision.revision,
        "degree": sum(row["diff"] for row in degree),
        "triangles": sum(row["diff"] for row in counts),
        "motifs": {motif: sum(row["diff"] for row in mine) for motif, mine in motifs.items()},
        "degree_diffs": degree,
        "triangle_diffs": counts,
        "motif_diffs": motifs,
        "edges": [_edge(warehouse, revision, epoch, a, b, rows, trussness=False) for a, b in found[:SHOWN]],
        "edges_not_listed": max(0, len(found) - SHOWN),
    }


def difference(warehouse: Warehouse, revision: Revision, epoch: int, a: int, b: int | None) -> list[str]:
    """What stands behind a differing row, in lines: the stored diffs of the edge a, b (or the vertex a), and the landed
    rows of the edge (or of the vertex's first edges) with their fate at the epoch."""
    mine = [(a, b)] if b is not None else _edges_at(warehouse, revision, epoch, a)
    label = warehouse.home.schedule.label
    lines = []
    for table in ("edges", "trussness") if b is not None else ("degrees", "triangle_counts"):
        of = (F.col("a") == a) & (F.col("b") == b) if b is not None else F.col("vertex") == a
        rows = warehouse.at(table, revision).where(of & (F.col("epoch") <= epoch)).orderBy("epoch", "revision")
        steps = []
        for row in rows.limit(BEHIND).collect():
            k = f" of trussness {row['k']}" if table == "trussness" else ""
            steps.append(f"{row['diff']:+}{k} at {label(row['epoch'])} (revision {row['revision']})")
        lines.append(f"diffs stored in {table}: {', '.join(steps) or 'none'}")
    for landed in _rows(warehouse, revision, mine[:BEHIND], epoch)[:BEHIND]:
        src, dst = names(warehouse, revision, [landed["src"], landed["dst"]])
        place = f"{landed['file']} line {landed['line']}"
        lines.append(f"landed at {landed['epoch']}: {landed['op']} {src} → {dst}, {place}: {landed['fate']}")
    return lines


def _edges_at(warehouse: Warehouse, revision: Revision, epoch: int, *vertices: int) -> list[tuple[int, int]]:
    """The edges of some vertices at an epoch, a < b."""
    alive = warehouse.at("edges", revision).where((F.col("epoch") <= epoch) & (F.col("until") > epoch))
    touching = alive.where(F.col("a").isin(*vertices) | F.col("b").isin(*vertices))
    mine = touching.groupBy("a", "b").agg(F.sum("diff").alias("n"))
    return sorted((row.a, row.b) for row in mine.where("n <> 0").collect())


def _edge(
    warehouse: Warehouse,
    revision: Revision,
    epoch: int,
    a: int,
    b: int,
    rows: list[Document],
    trussness: bool = True,
    triangles: bool = False,
) -> Document:
    mine = [row for row in rows if {row["src"], row["dst"]} == {a, b}]
    called = dict(zip((a, b), names(warehouse, revision, [a, b]), strict=True))
    found: Document = {
        "edge": [called[a], called[b]],
        "epoch": warehouse.home.schedule.label(epoch),
        "revision": revision.revision,
        "there": any(row["fate"] == "in force" for row in mine),
        "rows": [{**row, "src": called[row["src"]], "dst": called[row["dst"]]} for row in mine],
    }
    if trussness:
        here = warehouse.at("trussness", revision).where((F.col("a") == a) & (F.col("b") == b))
        stored = (
            here.where(F.col("epoch") <= epoch).groupBy("k").agg(F.sum("diff").alias("n")).where("n <> 0").collect()
        )
        found["trussness"] = stored[0]["k"] if stored else None
    if triangles:
        ends: dict[int, set[int]] = {a: set(), b: set()}
        for pair in _edges_at(warehouse, revision, epoch, a, b):
            for one, other in (pair, pair[::-1]):
                if one in ends:
                    ends[one].add(other)
        third = sorted(ends[a] & ends[b])
        found["support"] = len(third)
        found["triangles_with"] = names(warehouse, revision, third[:SHOWN])
        found["triangles_not_listed"] = max(0, len(third) - SHOWN)
    return found


def _rows(warehouse: Warehouse, revision: Revision, pairs: list[tuple[int, int]], epoch: int) -> list[Document]:
    """All landed rows of some pairs at epochs <= `epoch`, both directions, with their fate there."""
    if not pairs:
        return []
    config, label = warehouse.home.config, warehouse.home.schedule.label
    values = list(config.values)
    upserts = warehouse.at("upserts", revision).where(F.col("epoch") <= epoch)
    few = warehouse.spark.createDataFrame(pairs, "a bigint, b bigint")
    ends = (F.least("src", "dst").alias("a"), F.greatest("src", "dst").alias("b"))
    keep: DataFrame = upserts.select("*", *ends).join(F.broadcast(few), ["a", "b"])
    passes = F.lit(True) if config.condition is None else F.coalesce(F.expr(config.condition), F.lit(False))
    data = ["src", "dst", *values, "op", "seq", "epoch", "file", "line"]
    net = keep.select(*data, passes.alias("_passes"), "revision", "diff").groupBy(*data, "_passes")
    landed = net.agg(F.sum("diff").alias("n"), F.max("revision").alias("revision")).collect()
    # the law of upserts: the last epoch, in it the highest seq; at equal seq a value before a delete, the greatest one
    order = sorted(
        landed,
        key=lambda r: (
            r["epoch"],
            r["seq"],
            r["op"] == "upsert",
            *((r[v] is not None, r[v]) for v in values),
            r["file"],
        ),
    )
    next_: list[Any] = []  # of each row, the one that overwrites it: the next of its key that was not taken back
    following: dict[tuple[int, int], Any] = {}
    for row in reversed(order):
        key = row["src"], row["dst"]
        next_.append(following.get(key))
        if row["n"] > 0:
            following[key] = row
    out = []
    for row, after in zip(order, reversed(next_), strict=True):
        if row["n"] <= 0:
            fate = f"taken back by the landing published as revision {row['revision']}"
        elif after is not None:
            fate = f"overwritten by {after['file']} line {after['line']}"
        elif row["op"] == "delete":
            fate = "a deletion"
        elif row["src"] == row["dst"]:
            fate = "a self-loop: no edge"
        elif not row["_passes"]:
            fate = f"filtered out: not ({config.edges.where})"
        elif config.edges.live_for is not None and epoch >= row["epoch"] + config.edges.live_for:
            fate = f"expired: it lived to epoch {label(row['epoch'] + config.edges.live_for - 1)}"
        else:
            fate = "in force"
        shown = {name: row[name] for name in ("src", "dst", *values, "op", "seq", "file", "line")}
        out.append({**shown, "epoch": label(row["epoch"]), "fate": fate})
    return out


def names(warehouse: Warehouse, revision: Revision, numbers: list[int]) -> list[Vertex]:
    """Numbers of vertices → what the landed files call them; a number that no file has a name for stays one."""
    if warehouse.home.config.vertices.ids == "integer" or not numbers:
        return list(numbers)
    book = {row.id: row["name"] for row in warehouse.at("names", revision).where(F.col("id").isin(numbers)).collect()}
    return [book.get(number, number) for number in numbers]
