"""The page of the rows behind an epoch's numbers.

It shows the first vertices and edges, the edges that came and went since the epoch before, the densest trusses as
pictures, and how they have changed. Unlike the page of an epoch, it reads the tables.

DuckDB reads them as a revision pins them where little is stored (`MAX_STORED_ROWS`); otherwise the page shows the
commands. This takes some tenths of a second and starts no Spark. A page always shows the state at the revision in its
name.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from typing import TYPE_CHECKING, Any

from ..errors import AltneuError
from ..state import filesystem
from ..state.ledger import Ledger
from ..state.records import Revision
from .epoch_page import Document
from .page_queries import totals_by_epoch

if TYPE_CHECKING:
    from ..storage.duckdb_tables import DuckTables

MAX_STORED_ROWS = 2_000_000  # stored rows up to which the tables are read
ROWS = 300  # rows of each table on the page
EPOCHS = 12  # epochs over which the trusses are followed
FOLLOWED = 400  # edges at each of these epochs up to which trusses are followed and drawn
MAX_CHANGES = 50_000  # changes at these epochs up to which trusses are followed
DRAWN, VERTICES = 6, 60  # pictures of communities, and vertices in each
NAMED_VERTICES = 8  # vertices that a list names
READ_TABLES = ("degrees", "triangle_counts", "trussness")

Edge = tuple[int, int]
Group = frozenset[int]  # the vertices of a community


def page_name(label: str, revision: int) -> str:
    """Return the file name of the page of an epoch's rows.

    >>> page_name("2004-05-15", 7)
    'rows=2004-05-15.revision=7.html'
    """
    return f"rows={label}.revision={revision}.html"


def import_in_background() -> None:
    """Import the reader of the tables in another thread while Spark works, because the import takes 0.3 s."""

    def load_modules() -> None:
        with suppress(ImportError):  # the error is raised where the module is used
            from ..storage import duckdb_tables  # noqa: F401

    threading.Thread(target=load_modules, daemon=True).start()


def describe_rows(ledger: Ledger, row: Revision, epoch: int, axis: Sequence[int], at: str) -> Document:
    """Return the facts of the page. It raises the errors of DuckDB and pyiceberg for tables that cannot be read.

    Args:
        ledger: The ledger of the home.
        row: The revision.
        epoch: The epoch.
        axis: The epochs that are shown, in order.
        at: The time now, as it is stored.

    Returns:
        The facts; `why` is the reason why no rows are shown, or None.
    """
    home = ledger.home
    label = home.schedule.format_label
    window = [each for each in axis if each <= epoch and (row.since is None or each >= row.since)][-EPOCHS:]
    document: Document = {
        "label": label(epoch),
        "before": label(window[-2]) if window[1:] else None,
        "revision": row.revision,
        "published_at": row.published_at,
        "at": at,
        "why": None,
        "tables": [],
        "trusses": None,
    }
    if filesystem.local_path(home.warehouse) is None:
        return {**document, "why": "the tables are not on a disk of this machine"}
    from ..storage.duckdb_tables import DuckTables

    tables = DuckTables(home)
    stored = tables.count_stored_rows(row, READ_TABLES)
    if stored > MAX_STORED_ROWS:
        return {**document, "why": f"{stored:,} rows are stored, and a page reads {MAX_STORED_ROWS:,} at most"}
    points = totals_by_epoch(ledger, row, window[0] - 1, epoch)
    return {
        **document,
        "tables": list(_row_tables(ledger, row, epoch, window, points(epoch))),
        "trusses": _truss_flows(tables, row, window, [points(each)["trusses"] for each in window]),
    }


# -- tables -----------------------------------------------------------------------------------------------------------


def _row_tables(
    ledger: Ledger, row: Revision, epoch: int, window: Sequence[int], point: Mapping[str, Any]
) -> Iterable[Document]:
    from ..reading.graph import Graph
    from ..reading.query_model import Engine, Question

    def refuse_spark() -> Any:
        raise AltneuError("a page starts no Spark.")

    graph, label = Graph.for_ledger(ledger, refuse_spark, Engine.duckdb), ledger.home.schedule.format_label
    moment: dict[str, Any] = {"as_of": label(epoch), "revision": row.revision}
    questions = [
        (
            "vertices",
            "Vertices",
            Question("vertices", top=ROWS, **moment),
            point["vertices"],
            "those with the most edges",
        ),
        ("edges", "Edges", Question("edges", top=ROWS, **moment), point["edges"], "those of the greatest trussness"),
    ]
    if window[1:]:
        span = (label(window[-2]), label(epoch))
        question = Question("changes", span, revision=row.revision, limit=ROWS + 1)
        questions.append(("changes", f"Edges that came (1) and went (−1) since {span[0]}", question, None, "the first"))
    for view, title, question, count, which in questions:
        answer = graph.ask(question)
        rows = [list(each.values()) for each in answer.iterate_rows()]
        words = [view, *question.span, *([f"--as-of {label(epoch)}"] if question.as_of else [])]
        yield {
            "view": view,
            "title": title,
            "columns": list(answer.columns),
            "rows": rows[:ROWS],
            "count": count if count is not None else len(rows) if len(rows) <= ROWS else None,
            "which": which,
            "command": f"altneu show {' '.join(words)} --revision {row.revision} --format csv",
        }


# -- trusses ----------------------------------------------------------------------------------------------------------


def _truss_flows(
    tables: DuckTables, row: Revision, window: Sequence[int], sizes: Sequence[Mapping[int, int]]
) -> Document | None:
    """Return how the communities of a k-truss have changed over some epochs, and those of the last epoch to draw.

    Args:
        tables: The tables of the home.
        row: The revision.
        window: The epochs.
        sizes: The number of edges of trussness k at each epoch, by k.

    Returns:
        The document, or None where there is no triangle.
    """
    label, most = tables.home.schedule.format_label, max(sizes[-1], default=0)
    ks = [k for k in range(3, most + 1) if all(_edges_inside(size, k) <= FOLLOWED for size in sizes)]
    if most < 3:
        return None
    if not ks:
        return {"k": most, "edges": _edges_inside(sizes[-1], most), "epochs": [], "drawn": []}
    k = ks[0]
    query = (
        f"SELECT a, b, k, greatest(epoch, {window[0]}) AS epoch, CAST(sum(diff) AS BIGINT) AS diff FROM {{stored}} "
        f"WHERE k >= {k} AND epoch <= {window[-1]} GROUP BY ALL HAVING sum(diff) <> 0 LIMIT {MAX_CHANGES + 1}"
    )
    diffs = tables.collect_rows(tables.select_rows(query, stored=tables.read_table("trussness", row)))
    if len(diffs) > MAX_CHANGES:
        return {"k": k, "edges": _edges_inside(sizes[-1], k), "epochs": [], "drawn": []}
    states = _trussness_by_epoch(diffs, window)
    ends = sorted({end for state in states for edge in state for end in edge})
    names: dict[int, Any] = {end: end for end in ends}
    if tables.home.config.vertices.ids != "integer" and ends:
        names_query = f"SELECT id, name FROM {{book}} WHERE id IN ({', '.join(map(str, ends))})"
        names = {
            each["id"]: each["name"]
            for each in tables.collect_rows(tables.select_rows(names_query, book=tables.read_table("names", row)))
        }
    groups = [edge_communities(state) for state in states]
    numbers = number_communities(groups)
    steps = []
    for place, epoch in enumerate(window):
        inside = {vertex for group in groups[place] for vertex in group}
        before = {vertex for group in groups[place - 1] for vertex in group} if place else inside
        steps.append(
            {
                "label": label(epoch),
                "communities": [
                    {"number": number, "vertices": len(group), "edges": len(edges)}
                    for number, (group, edges) in zip(numbers[place], groups[place].items(), strict=True)
                ],
                "flows": _community_flows(groups[place - 1], groups[place]) if place else [],
                "entered": _list_members(inside - before, names),
                "left": _list_members(before - inside, names),
                "said": list(_community_events(groups, numbers, place)),
            }
        )
    drawn = [
        _drawn_community(number, edges, states[-1], names)
        for number, edges in zip(numbers[-1], groups[-1].values(), strict=True)
    ]
    return {"k": k, "edges": len(states[-1]), "epochs": steps, "drawn": drawn[:DRAWN], "more": len(drawn[DRAWN:])}


def _edges_inside(sizes: Mapping[int, int], k: int) -> int:
    return sum(edges for each, edges in sizes.items() if each >= k)


def _trussness_by_epoch(diffs: Iterable[Mapping[str, Any]], window: Sequence[int]) -> list[dict[Edge, int]]:
    """Return the trussness of each edge at each epoch of the window."""
    by_epoch: dict[int, Counter[tuple[int, int, int]]] = defaultdict(Counter)
    for diff in diffs:
        by_epoch[diff["epoch"]][diff["a"], diff["b"], diff["k"]] += diff["diff"]
    now: Counter[tuple[int, int, int]] = Counter()
    states, moments = [], sorted(by_epoch)
    for epoch in window:
        while moments and moments[0] <= epoch:
            now.update(by_epoch[moments.pop(0)])
        states.append({(a, b): k for (a, b, k), count in now.items() if count > 0})
    return states


def edge_communities(edges: Iterable[Edge]) -> dict[Group, list[Edge]]:
    """Return the classes of edges that chains of triangles join, by their vertices; those with the most edges first.

    This is plain Python for the few edges of a picture. `altneu.algorithms.graph.kernels.communities` does the same for
    millions of edges, but takes seconds to load.

    >>> list(edge_communities([(1, 2), (1, 3), (2, 3), (3, 4), (3, 5), (4, 5)]).values())
    [[(1, 2), (1, 3), (2, 3)], [(3, 4), (3, 5), (4, 5)]]
    """
    listed = sorted(edges)
    parent = {edge: edge for edge in listed}
    beside: dict[int, set[int]] = defaultdict(set)
    for a, b in listed:
        beside[a].add(b)
        beside[b].add(a)

    def find_root(edge: Edge) -> Edge:
        while parent[edge] != edge:
            parent[edge] = parent[parent[edge]]
            edge = parent[edge]
        return edge

    for a, b in listed:
        for c in beside[a] & beside[b]:
            for other in ((min(a, c), max(a, c)), (min(b, c), max(b, c))):
                one, two = sorted((find_root((a, b)), find_root(other)))
                parent[two] = one
    classes: dict[Edge, list[Edge]] = defaultdict(list)
    for edge in listed:
        classes[find_root(edge)].append(edge)
    communities: dict[Group, list[Edge]] = {}
    for members in sorted(classes.values(), key=lambda members: (-len(members), members)):
        communities.setdefault(frozenset(end for edge in members for end in edge), []).extend(members)
    return communities


def _community_flows(before: Iterable[Group], after: Iterable[Group]) -> list[tuple[int, int, int]]:
    """Return pairs of communities before and after, by index, that share vertices, with the number of these.

    At least two vertices must be shared, because one vertex may be in many communities.
    """
    pairs = ((i, j, len(one & other)) for i, one in enumerate(before) for j, other in enumerate(after))
    return [pair for pair in pairs if pair[2] > 1]


def number_communities(groups: Sequence[Iterable[Group]]) -> list[list[int]]:
    """Number the communities of each epoch.

    A community keeps the number of that community of the epoch before with which it shares the most vertices, unless
    another community shares more with it. Otherwise it gets the next number.
    """
    numbers: list[list[int]] = []
    last = 0
    for place, now in enumerate(groups):
        own_numbers: dict[int, int] = {}
        if place:
            taken: set[int] = set()
            flows = sorted(_community_flows(groups[place - 1], now), key=lambda flow: (-flow[2], flow[0], flow[1]))
            for i, j, _ in flows:
                if i not in taken and j not in own_numbers:
                    taken.add(i)
                    own_numbers[j] = numbers[-1][i]
        row = []
        for j, _ in enumerate(now):
            if j not in own_numbers:
                last += 1
                own_numbers[j] = last
            row.append(own_numbers[j])
        numbers.append(row)
    return numbers


def _community_events(groups: Sequence[Iterable[Group]], numbers: Sequence[Sequence[int]], place: int) -> Iterable[str]:
    """Yield what has happened to the communities whose numbers have come or gone since the epoch before."""
    if not place:
        return
    old, new = numbers[place - 1], numbers[place]
    flows = sorted(_community_flows(groups[place - 1], groups[place]), key=lambda flow: (-flow[2], flow[0], flow[1]))
    for i, number in enumerate(old):
        if number not in new:
            into = next((new[j] for at, j, _ in flows if at == i), None)
            yield f"{number} is gone" if into is None else f"{number} merged into {into}"
    for j, number in enumerate(new):
        if number not in old:
            of = next((old[i] for i, at, _ in flows if at == j), None)
            yield f"{number} is new" if of is None else f"{number} split from {of}"


def _list_members(vertices: Iterable[int], called: Mapping[int, Any]) -> Document:
    every = sorted(vertices)
    return {"count": len(every), "first": [called[vertex] for vertex in every[:NAMED_VERTICES]]}


def _drawn_community(
    number: int, edges: Sequence[Edge], k_of: Mapping[Edge, int], called: Mapping[int, Any]
) -> Document:
    """Return a community to draw; of a large one only the vertices with the most edges in it are drawn."""
    degree = Counter(end for edge in edges for end in edge)
    drawn_vertices = sorted(degree, key=lambda vertex: (-degree[vertex], vertex))[:VERTICES]
    place = {vertex: position for position, vertex in enumerate(sorted(drawn_vertices))}
    present = set(edges)
    shown = [pair for pair in combinations(sorted(drawn_vertices), 2) if pair in present]
    return {
        "number": number,
        "k": max(k_of[edge] for edge in edges),
        "vertices": len(degree),
        "edges": len(edges),
        "names": [str(called[vertex]) for vertex in sorted(drawn_vertices)],
        "lines": [(place[a], place[b], k_of[a, b]) for a, b in shown],
    }
