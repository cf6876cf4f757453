"""A small sound example for the suites, as plain rows, and ways to break it.

Two complete graphs of five vertices: 20 edges of trussness 5, 20 triangles. A fault brings vertices of its own, so that
the offending rows of a check are exactly those of its fault.
"""

from __future__ import annotations

import copy
from collections import Counter
from itertools import combinations
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

EPOCH = 5
FOREVER = 2**63 - 1
SCHEMAS = {
    "upserts": "src bigint, dst bigint, rating double, note string, op string, seq bigint, file string, line bigint, "
    "epoch bigint, revision bigint, diff bigint",
    "upserts_net": "src bigint, dst bigint, rating double, note string, op string, seq bigint, file string, "
    "line bigint, epoch bigint, copies bigint",
    "quarantine": "file string, line bigint, reason string, text string, epoch bigint",
    "edge_delta": "a bigint, b bigint, until bigint, epoch bigint, revision bigint, diff bigint",
    "edges_at": "a bigint, b bigint, copies bigint",
    "degrees_at": "vertex bigint, degree bigint",
    "triangle_counts_at": "vertex bigint, triangles bigint",
    "trussness_at": "a bigint, b bigint, k bigint, copies bigint",
}
TOTALS = ("epoch", "vertices", "edges", "triangles", "max_trussness", "wedges")
Example = dict[str, list[dict[str, Any]]]


def columns(table: str) -> list[str]:
    return [field.split()[0] for field in SCHEMAS[table].split(", ")]


def upsert(src: int | None, dst: int | None, **changes: Any) -> dict[str, Any]:
    row = {"src": src, "dst": dst, "rating": 1.5, "note": "x", "op": "upsert", "seq": 0}
    return row | {"file": "epoch=5/a.csv", "line": 1, "epoch": EPOCH, "revision": 2, "diff": 1} | changes


def interval(a: int | None, b: int | None, **changes: Any) -> dict[str, Any]:
    return {"a": a, "b": b, "until": FOREVER, "epoch": EPOCH, "revision": 2, "diff": 1} | changes


def net(row: dict[str, Any], copies: int = 1) -> dict[str, Any]:
    return {name: row[name] for name in columns("upserts_net") if name != "copies"} | {"copies": copies}


def sound() -> Example:
    """Rows of every table that agree with each other."""
    edges = [*combinations(range(1, 6), 2), *combinations(range(6, 11), 2)]
    rows = [upsert(a, b, line=line) for line, (a, b) in enumerate(edges, 1)]
    world: Example = {
        "upserts": rows,
        "upserts_net": [net(row) for row in rows],
        "quarantine": [{"file": "epoch=5/a.csv", "line": 21, "reason": "src is empty", "text": ",1", "epoch": EPOCH}],
        "edge_delta": [interval(a, b) for a, b in edges],
        "edges_at": [{"a": a, "b": b, "copies": 1} for a, b in edges],
        "triangle_counts_at": [{"vertex": v, "triangles": 6} for v in range(1, 11)],
        "trussness_at": [{"a": a, "b": b, "k": 5, "copies": 1} for a, b in edges],
    }
    return world


def motif(name: str, occurrences: int, size: int, off: int = 0) -> dict[str, Any]:
    """A motif's total, and what the vertices' counts add up to (`off`: by how much they are wrong)."""
    times = occurrences * size
    counts = {"occurrences": occurrences, "vertices_in_one": size, "times_vertices": times, "counted": times + off}
    return {"epoch": EPOCH, "motif": name, **counts}


def wedges(world: Example) -> int:
    degrees: Counter[int] = Counter()
    for row in world["degrees_at"]:
        degrees[row["vertex"]] += row["degree"]
    return sum(d * (d - 1) // 2 for d in degrees.values())


def agree(world: Example) -> Example:
    """Degrees, totals and volumes that go with the other tables; what is there already stays."""
    world = copy.deepcopy(world)
    ends: Counter[int] = Counter()
    for row in world["edges_at"]:
        ends[row["a"]] += row["copies"]
        ends[row["b"]] += row["copies"]
    world.setdefault("degrees_at", [{"vertex": v, "degree": d} for v, d in ends.items()])
    edges = sum(row["copies"] for row in world["edges_at"])
    triangles = sum(row["triangles"] for row in world["triangle_counts_at"]) // 3
    greatest = max(row["k"] for row in world["trussness_at"])
    totals = {"epoch": EPOCH, "vertices": len(ends), "edges": edges, "triangles": triangles, "max_trussness": greatest}
    totals["wedges"] = wedges(world)
    world.setdefault("totals", [totals])
    world.setdefault("motifs", [motif("square", 15, 4)])
    stored = sum(row["copies"] for row in world["upserts_net"] if row["epoch"] == EPOCH)
    world.setdefault("volumes", [{"epoch": EPOCH, "rows": stored, "bad_rows": 0}])
    return world


def frames(spark: SparkSession, world: Example) -> dict[str, DataFrame | list[dict[str, Any]]]:
    def frame(table: str, rows: list[dict[str, Any]]) -> DataFrame:
        return spark.createDataFrame([tuple(row[name] for name in columns(table)) for row in rows], SCHEMAS[table])

    return {table: frame(table, rows) if table in SCHEMAS else rows for table, rows in world.items()}


def arrow(world: Example) -> dict[str, pa.Table | list[dict[str, Any]]]:
    """Return the frames of a world of Spark as tables in the memory of this process."""
    types = {"bigint": pa.int64(), "double": pa.float64(), "string": pa.string()}

    def table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
        fields = [field.split() for field in SCHEMAS[name].split(", ")]
        return pa.Table.from_pylist(rows, pa.schema([(column, types[type_]) for column, type_ in fields]))

    return {name: table(name, rows) if name in SCHEMAS else rows for name, rows in world.items()}


def context(**changes: Any) -> dict[str, Any]:
    types = {"rating": "double", "note": "string"}
    return {"epoch": EPOCH, "label": "day-5", "value_types": types, "history": []} | changes


def history(rows: int = 20, edges: int = 20, triangles: int = 20, epochs: int = 8) -> list[dict[str, int]]:
    """Calm epochs just before `EPOCH`."""
    calm = {"rows": rows, "bad_rows": 0, "edges": edges, "triangles": triangles}
    return [{"epoch": EPOCH - back, **calm} for back in range(epochs, 0, -1)]
