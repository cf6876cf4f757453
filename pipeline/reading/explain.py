"""The explanation of a result: which landed rows, of which files and epochs, a vertex, edge or triangle follows from.

`explain_edge`, `explain_triangle` and `explain_vertex` return JSON documents at an epoch and a revision, from the
pinned tables alone. Every landed row of the keys concerned is listed with its fate at the epoch: in force, overwritten,
a deletion, expired, filtered out, a self-loop, or taken back by a later landing. The fates follow the law of upserts in
plain Python, independently of the plans that maintain the edges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from ..state.records import Revision
from ..storage.table_schemas import value_columns
from .engine_protocol import R, Tables
from .vertex_names import numbers_of_names as numbers_of
from .views import require_answerable

MAX_EDGES = 200  # edges of a vertex whose landed rows are listed
MAX_EXPLAINING_ROWS = 12  # diffs, edges and landed rows that explain one differing row
READS = ("upserts", "edges", "trussness", "degrees", "triangle_counts", "motif_counts", "names")
Document = dict[str, Any]
Vertex = int | str


def explain_edge(tables: Tables[R], revision: Revision, epoch: int, ends: tuple[str, str]) -> Document:
    """Explain whether an edge exists, with its trussness, its triangles and its landed rows."""
    require_answerable(tables.home, revision, epoch)
    a, b = sorted(numbers_of(tables, ends, revision))
    called, rows = _vertex_names(tables, revision, [(a, b)]), landed_rows_with_fate(tables, revision, [(a, b)], epoch)
    return _edge_document(tables, revision, epoch, a=a, b=b, rows=rows, called=called, triangles=True)


def explain_triangle(tables: Tables[R], revision: Revision, epoch: int, corners: tuple[str, str, str]) -> Document:
    """Explain whether a triangle exists, with its three edges."""
    require_answerable(tables.home, revision, epoch)
    numbers = sorted(numbers_of(tables, corners, revision))
    pairs = list(combinations(numbers, 2))
    rows = landed_rows_with_fate(tables, revision, pairs, epoch)
    called = _vertex_names(tables, revision, pairs)
    edges = [_edge_document(tables, revision, epoch, a=a, b=b, rows=rows, called=called) for a, b in pairs]
    return {
        "triangle": [called[number] for number in numbers],
        "epoch": tables.home.schedule.format_label(epoch),
        "revision": revision.revision,
        "there": all(each["there"] for each in edges),
        "edges": edges,
    }


def explain_vertex(tables: Tables[R], revision: Revision, epoch: int, name: str) -> Document:
    """Explain a vertex: its degree, triangles and motifs with their diffs, and its edges with their landed rows."""
    require_answerable(tables.home, revision, epoch)
    (number,) = numbers_of(tables, [name], revision)

    def stored_diffs(table: str) -> list[tuple[Any, Document]]:
        label = tables.home.schedule.format_label
        edges = _select_stored_diffs(tables, revision, table, epoch, f"vertex = {number}")
        return [(r, {"epoch": label(r["epoch"]), "revision": r["revision"], "diff": r["diff"]}) for r in edges]

    degree, counts = ([diff for _, diff in stored_diffs(table)] for table in ("degrees", "triangle_counts"))
    motifs: dict[str, list[Document]] = {}
    if "motif_counts" in revision.snapshots:
        motifs = {name: [] for name in tables.home.config.motifs}
        for row, diff in stored_diffs("motif_counts"):
            motifs.setdefault(row["motif"], []).append(diff)
    edges = _edges_at(tables, revision, epoch, number)
    rows, called = (
        landed_rows_with_fate(tables, revision, edges[:MAX_EDGES], epoch),
        _vertex_names(tables, revision, edges[:MAX_EDGES], number),
    )
    return {
        "vertex": called[number],
        "epoch": tables.home.schedule.format_label(epoch),
        "revision": revision.revision,
        "degree": sum(row["diff"] for row in degree),
        "triangles": sum(row["diff"] for row in counts),
        "motifs": {motif: sum(row["diff"] for row in mine) for motif, mine in motifs.items()},
        "degree_diffs": degree,
        "triangle_diffs": counts,
        "motif_diffs": motifs,
        "edges": [
            _edge_document(tables, revision, epoch, a=a, b=b, rows=rows, called=called, trussness=False)
            for a, b in edges[:MAX_EDGES]
        ],
        "edges_not_listed": max(0, len(edges) - MAX_EDGES),
    }


def explain_difference(tables: Tables[R], revision: Revision, epoch: int, a: int, b: int | None) -> list[str]:
    """Explain a differing row of an audit.

    Args:
        tables: The tables of the home.
        revision: The revision.
        epoch: The epoch of the row.
        a: The vertex, or one end of the edge.
        b: The other end of the edge; None for a vertex.

    Returns:
        Lines with the stored diffs of the edge (or vertex), and the landed rows of the edge (or of the vertex's first
        edges) with their fate at the epoch.
    """
    edges = [(a, b)] if b is not None else _edges_at(tables, revision, epoch, a)
    label = tables.home.schedule.format_label
    lines = []
    for table in ("edges", "trussness") if b is not None else ("degrees", "triangle_counts"):
        of = f"a = {a} AND b = {b}" if b is not None else f"vertex = {a}"
        steps = []
        for row in _select_stored_diffs(tables, revision, table, epoch, of)[:MAX_EXPLAINING_ROWS]:
            k = f" of trussness {row['k']}" if table == "trussness" else ""
            steps.append(f"{row['diff']:+}{k} at {label(row['epoch'])} (revision {row['revision']})")
        lines.append(f"diffs stored in {table}: {', '.join(steps) or 'none'}")
    for landed in landed_rows_with_fate(tables, revision, edges[:MAX_EXPLAINING_ROWS], epoch)[:MAX_EXPLAINING_ROWS]:
        src, dst = name_vertices(tables, revision, [landed["src"], landed["dst"]])
        place = f"{landed['file']} line {landed['line']}"
        lines.append(f"landed at {landed['epoch']}: {landed['op']} {src} → {dst}, {place}: {landed['fate']}")
    return lines


def _select_stored_diffs(
    tables: Tables[R], revision: Revision, table: str, epoch: int, of: str
) -> list[dict[str, Any]]:
    """Return the stored diffs at epochs <= `epoch` for which a condition holds, in the order of epochs."""
    query = f"SELECT * FROM {{stored}} WHERE {of} AND epoch <= {epoch}"
    rows = tables.collect_rows(tables.select_rows(query, stored=tables.read_table(table, revision)))
    return sorted(rows, key=lambda row: (row["epoch"], row["revision"], row.get("motif", ""), row["diff"]))


def _edges_at(tables: Tables[R], revision: Revision, epoch: int, *vertices: int) -> list[tuple[int, int]]:
    """Return the edges of some vertices at an epoch, a < b."""
    some = ", ".join(map(str, vertices))
    query = (
        f"SELECT a, b FROM {{stored}} WHERE epoch <= {epoch} AND until > {epoch} AND (a IN ({some}) OR b IN ({some})) "
        "GROUP BY a, b HAVING sum(diff) <> 0"
    )
    return sorted(
        (row["a"], row["b"])
        for row in tables.collect_rows(tables.select_rows(query, stored=tables.read_table("edges", revision)))
    )


def _edge_document(
    tables: Tables[R],
    revision: Revision,
    epoch: int,
    *,
    a: int,
    b: int,
    rows: list[Document],
    called: Mapping[int, Vertex],
    trussness: bool = True,
    triangles: bool = False,
) -> Document:
    edge_rows = [row for row in rows if {row["src"], row["dst"]} == {a, b}]
    document: Document = {
        "edge": [called[a], called[b]],
        "epoch": tables.home.schedule.format_label(epoch),
        "revision": revision.revision,
        "there": any(row["fate"] == "in force" for row in edge_rows),
        "rows": [{**row, "src": called[row["src"]], "dst": called[row["dst"]]} for row in edge_rows],
    }
    if trussness:
        query = (
            f"SELECT k FROM {{stored}} WHERE a = {a} AND b = {b} AND epoch <= {epoch} GROUP BY k HAVING sum(diff) <> 0"
        )
        stored = tables.collect_rows(tables.select_rows(query, stored=tables.read_table("trussness", revision)))
        document["trussness"] = stored[0]["k"] if stored else None
    if triangles:
        ends: dict[int, set[int]] = {a: set(), b: set()}
        for pair in _edges_at(tables, revision, epoch, a, b):
            for one, other in (pair, pair[::-1]):
                if one in ends:
                    ends[one].add(other)
        third = sorted(ends[a] & ends[b]) if document["there"] else []  # an absent edge is in no triangle
        document["support"] = len(third)
        document["triangles_with"] = name_vertices(tables, revision, third[:MAX_EDGES])
        document["triangles_not_listed"] = max(0, len(third) - MAX_EDGES)
    return document


def landed_rows_with_fate(
    tables: Tables[R], revision: Revision, pairs: list[tuple[int, int]], epoch: int
) -> list[Document]:
    """Return all landed rows of some pairs at epochs <= `epoch`, in both directions, with their fate at the epoch."""
    if not pairs:
        return []
    config, label = tables.home.config, tables.home.schedule.format_label
    values = list(config.values)
    landed = _select_landed_rows(tables, revision, pairs, epoch)
    order = sorted(landed, key=lambda row: _rank_row(row, values))
    next_: list[Any] = []  # for each row the one that overwrites it: the next of its key that was not taken back
    following: dict[tuple[int, int], Any] = {}
    for row in reversed(order):
        key = row["src"], row["dst"]
        next_.append(following.get(key))
        if row["_n"] > 0:
            following[key] = row
    out = []
    for row, after in zip(order, reversed(next_), strict=True):
        if row["_n"] <= 0:
            fate = f"taken back by the landing published as revision {row['_revision']}"
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


def _rank_row(row: Mapping[str, Any], values: Sequence[str]) -> tuple[Any, ...]:
    """Return the sort key of a row among those of its key: the last row that was not taken back is in force.

    The order is that of law 1 as `altneu.algorithms.algebra.upserts` maintains it: by epoch, then by seq. At equal seq
    a value comes after a delete, and values are compared one after the other as Spark compares them: null is the least,
    NaN the greatest, and -0.0 equals 0.0. File, line and ends order rows that are the same for the law.
    """
    law = row["epoch"], row["seq"], row["op"] == "upsert", *(_rank_value(row[name]) for name in values)
    return *law, row["file"], row["line"], row["src"], row["dst"]


def _rank_value(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    return (2,) if value != value else (1, value)


def _select_landed_rows(
    tables: Tables[R], revision: Revision, pairs: list[tuple[int, int]], epoch: int
) -> list[dict[str, Any]]:
    """Return the landed rows of some pairs.

    Besides the columns of the row, `_n` is positive unless it was taken back, `_revision` is the last revision that has
    changed this, and `_passes` tells whether the row passes the filter.
    """
    config, types = tables.home.config, value_columns(tables.home)
    asked = types | dict.fromkeys(("src", "dst", "a", "b", "epoch"), "bigint")
    passes = "true"
    if config.edge_condition is not None:
        # the condition is not evaluated for other rows, on whose values it may fail
        counts = "op <> 'delete' AND _n > 0"
        passes = (
            f"coalesce(CASE WHEN {counts} THEN {tables.translate_condition(config.edge_condition, asked)} END, false)"
        )
    data = ", ".join(map(tables.quote_identifier, ["src", "dst", *types, "op", "seq", "epoch", "file", "line"]))
    few = ", ".join(f"({a}, {b})" for a, b in pairs)
    query = (
        f"SELECT {data}, {passes} AS _passes, _n, _revision FROM "
        f"(SELECT {data}, a, b, CAST(sum(diff) AS BIGINT) AS _n, max(revision) AS _revision "
        f"FROM {{upserts}} u JOIN (VALUES {few}) AS few(a, b) "
        f"ON least(u.src, u.dst) = few.a AND greatest(u.src, u.dst) = few.b WHERE u.epoch <= {epoch} "
        f"GROUP BY {data}, a, b) landed"
    )
    return tables.collect_rows(tables.select_rows(query, upserts=tables.read_table("upserts", revision)))


def _vertex_names(
    tables: Tables[R], revision: Revision, pairs: Sequence[tuple[int, int]], *more: int
) -> dict[int, Vertex]:
    """Return the names of the vertices of some pairs."""
    numbers = sorted({*more, *(number for pair in pairs for number in pair)})
    return dict(zip(numbers, name_vertices(tables, revision, numbers), strict=True))


def name_vertices(tables: Tables[R], revision: Revision, numbers: list[int]) -> list[Vertex]:
    """Return the names of vertices in the landed files; a number without a name is returned as it is."""
    if tables.home.config.vertices.ids == "integer" or not numbers:
        return list(numbers)
    query = f"SELECT id, name FROM {{book}} WHERE id IN ({', '.join(map(str, numbers))})"
    book = {
        row["id"]: row["name"]
        for row in tables.collect_rows(tables.select_rows(query, book=tables.read_table("names", revision)))
    }
    return [book.get(number, number) for number in numbers]
