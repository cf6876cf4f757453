"""The page of a vertex: its numbers over epochs, a picture of its neighbourhood, and its edges.

DuckDB reads them from the tables, as for the page of rows. A page always shows the state at the epoch and the revision
in its name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from shlex import quote
from typing import TYPE_CHECKING, Any

from ..errors import AltneuError, UsageError
from ..home.home import Home
from ..state import filesystem
from ..state.records import Revision
from .epoch_page import Document

if TYPE_CHECKING:
    from ..storage.duckdb_tables import DuckTables

MAX_STORED_ROWS = 20_000_000  # stored rows up to which the tables are read; only rows of a few vertices leave DuckDB
EDGES = 300  # edges on the page
DRAWN_NEIGHBOURS = 40  # neighbours in the picture
EPOCHS = 800  # epochs in the small charts, the newest
READ_TABLES = ("degrees", "triangle_counts", "trussness")
MEASURES = ("degree", "triangles", "trussness")


def describe_vertex(home: Home, row: Revision, epoch: int, vertex: str, axis: Sequence[int], at: str) -> Document:
    """Return the facts of the page.

    Args:
        home: The home.
        row: The revision.
        epoch: The epoch.
        vertex: The name of the vertex.
        axis: The epochs of the charts, in order.
        at: The time now, as it is stored.

    Raises:
        UsageError: There is no such vertex, or it has no edge at any epoch.
        AltneuError: The tables are too large for one process, or not on this machine.
    """
    from ..reading.vertex_names import numbers_of_names
    from ..reading.views import require_answerable
    from ..storage.duckdb_tables import DuckTables

    require_answerable(home, row, epoch)
    if filesystem.local_path(home.warehouse) is None:
        raise _no_page_error(home, row, epoch, vertex, "the tables are not on a disk of this machine")
    tables, label = DuckTables(home), home.schedule.format_label
    stored = tables.count_stored_rows(row, READ_TABLES)
    if stored > MAX_STORED_ROWS:
        raise _no_page_error(
            home, row, epoch, vertex, f"{stored:,} rows are stored, and a page reads {MAX_STORED_ROWS:,} at most"
        )
    (number,) = numbers_of_names(tables, [vertex], row)
    window = [each for each in axis if each <= epoch and (row.since is None or each >= row.since)][-EPOCHS:]
    series = _vertex_series(tables, row, number, window)
    edges = _neighbourhood_edges(tables, row, epoch, f"a = {number} OR b = {number}")
    if not any(any(values) for values in series.values()):
        raise UsageError(
            f"vertex {vertex} has no edge at any epoch up to {label(epoch)} at revision {row.revision}.",
            f"altneu show vertices --as-of {label(epoch)} --revision {row.revision}",
        )
    trussness_by_neighbour = {b if a == number else a: k for (a, b), k in edges.items()}
    near = sorted(trussness_by_neighbour, key=lambda other: (-trussness_by_neighbour[other], other))
    drawn = sorted([number, *near[:DRAWN_NEIGHBOURS]])
    among = ", ".join(map(str, drawn))
    k_of = _neighbourhood_edges(tables, row, epoch, f"a IN ({among}) AND b IN ({among})")
    names = _vertex_names(tables, row, [number, *near[:EDGES]])
    place = {each: at for at, each in enumerate(drawn)}
    return {
        "vertex": vertex,
        "label": label(epoch),
        "revision": row.revision,
        "published_at": row.published_at,
        "at": at,
        "labels": [label(each) for each in window],
        "series": series,
        "now": {name: series[name][-1] for name in MEASURES} if window else {},
        "edges": [[names[other], trussness_by_neighbour[other]] for other in near[:EDGES]],
        "count": len(near),
        "names": [str(names[each]) for each in drawn],
        "self": place[number],
        "lines": [(place[a], place[b], k_of[a, b]) for a, b in combinations(drawn, 2) if (a, b) in k_of],
        "command": f"{_report_command(home, row, epoch, vertex)} --format csv",
    }


def _no_page_error(home: Home, row: Revision, epoch: int, vertex: str, why: str) -> AltneuError:
    return AltneuError(f"no page of a vertex can be made: {why}.", _report_command(home, row, epoch, vertex))


def _report_command(home: Home, row: Revision, epoch: int, vertex: str) -> str:
    label = home.schedule.format_label(epoch)
    return f"altneu show edges --vertex {quote(vertex)} --as-of {label} --revision {row.revision}"


def _vertex_series(tables: DuckTables, row: Revision, number: int, window: Sequence[int]) -> dict[str, list[int]]:
    """Return the degree, the triangles and the greatest trussness of a vertex at each epoch of the window."""
    last = window[-1] if window else 0

    def sum_by_epoch(table: str, where: str, k: str) -> dict[int, Counter[int]]:
        query = (
            f"SELECT epoch, {k} AS k, CAST(sum(diff) AS BIGINT) AS diff FROM {{stored}} WHERE ({where}) AND epoch <= "
            f"{last} GROUP BY ALL"
        )
        sums: dict[int, Counter[int]] = defaultdict(Counter)
        for each in tables.collect_rows(tables.select_rows(query, stored=tables.read_table(table, row))):
            sums[each["epoch"]][each["k"]] += each["diff"]
        return sums

    condition = f"vertex = {number}"
    read = {
        "degree": sum_by_epoch("degrees", condition, "0"),
        "triangles": sum_by_epoch("triangle_counts", condition, "0"),
        "trussness": sum_by_epoch("trussness", f"a = {number} OR b = {number}", "k"),
    }
    series: dict[str, list[int]] = {}
    for name, diffs in read.items():
        moments, now, values = sorted(diffs), Counter[int](), []
        for epoch in window:
            while moments and moments[0] <= epoch:
                now.update(diffs[moments.pop(0)])
            values.append(max((k for k, n in now.items() if n > 0), default=0) if name == "trussness" else now[0])
        series[name] = values
    return series


def _neighbourhood_edges(tables: DuckTables, row: Revision, epoch: int, where: str) -> Mapping[tuple[int, int], int]:
    """Return the trussness of each selected edge (a, b) at an epoch."""
    query = f"SELECT a, b, k FROM {{stored}} WHERE ({where}) AND epoch <= {epoch} GROUP BY a, b, k HAVING sum(diff) > 0"
    rows = tables.collect_rows(tables.select_rows(query, stored=tables.read_table("trussness", row)))
    return {(each["a"], each["b"]): each["k"] for each in rows}


def _vertex_names(tables: DuckTables, row: Revision, numbers: Sequence[int]) -> Mapping[int, Any]:
    """Return the names of vertices in the landed files, by number."""
    if tables.home.config.vertices.ids == "integer":
        return {number: number for number in numbers}
    query = f"SELECT id, name FROM {{book}} WHERE id IN ({', '.join(map(str, numbers))})"
    return {
        each["id"]: each["name"]
        for each in tables.collect_rows(tables.select_rows(query, book=tables.read_table("names", row)))
    }
