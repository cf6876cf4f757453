"""Count triangles with libraries of Python, for `tests.benchmarks.incremental_or_full`: once, or after each batch.

    python python_peers.py FOLDER PEER…

Runs in a Python of its own, that has what it compares (`pip install numpy networkx igraph networkit pathway`), and
imports nothing of altneu. FOLDER holds `edges.npy`, rows of a and b with a < b, and for each batch `batch-K.npy`,
rows of a, b and +1 or -1. Prints JSON lines {"peer", "batch", "seconds", "triangles"}; the batch is null for a full
count of the edges, which includes the building of the library's own graph, from arrays in memory. A library that is
not installed is a line {"peer", "missing"}.
"""

import json
import sys
import threading
import time
from pathlib import Path

import numpy as np


def report(**line):
    print(json.dumps(line), flush=True)


def number_vertices(edges):
    """Return how many vertices there are, and the edges with the vertices numbered from 0."""
    vertices, numbers = np.unique(edges, return_inverse=True)
    return vertices.size, numbers.reshape(edges.shape)


def count_with_networkx(edges):
    import networkx

    graph = networkx.Graph()
    graph.add_edges_from(edges.tolist())
    return sum(networkx.triangles(graph).values()) // 3


def count_with_igraph(edges):
    import igraph

    vertices, numbered = number_vertices(edges)
    return len(igraph.Graph(vertices, numbered).list_triangles())


def count_with_networkit(edges):
    import networkit

    vertices, numbered = number_vertices(edges)
    tails, heads = numbered[:, 0].astype(np.uint64), numbered[:, 1].astype(np.uint64)
    graph = networkit.GraphFromCoo((tails, heads), n=vertices)
    graph.indexEdges()
    scores = networkit.sparsification.TriangleEdgeScore(graph)
    scores.run()
    return int(sum(scores.scores())) // 3


def follow_with_pathway(edges, batches):
    """Maintain the number of triangles by two joins; yield the seconds of each batch and the number after it."""
    import pathway

    ended, ends, totals, last = threading.Semaphore(0), [], [], [0]
    changes = [np.insert(edges, 2, 1, axis=1), *batches]

    class Edge(pathway.Schema):
        a: int = pathway.column_definition(primary_key=True)
        b: int = pathway.column_definition(primary_key=True)

    class Changes(pathway.io.python.ConnectorSubject):
        """Send each batch when the one before has been counted."""

        def run(self):
            for change in changes:
                ends.append([time.perf_counter()])
                for a, b, diff in change.tolist():
                    (self.next if diff > 0 else self.delete)(a=a, b=b)
                self.commit()
                ended.acquire()

    def record_total(key, row, time, is_addition):
        if is_addition:
            last[0] = row["n"]

    def record_end(moment):
        ends[-1].append(time.perf_counter())
        totals.append(last[0])
        ended.release()

    ab = pathway.io.python.read(Changes(session_type="upsert"), schema=Edge, autocommit_duration_ms=None)
    ac, bc = ab.copy(), ab.copy()
    wedges = ab.join(ac, ab.a == ac.a).select(b=ab.b, c=ac.b).filter(pathway.this.b < pathway.this.c)
    triangles = wedges.join(bc, wedges.b == bc.a, wedges.c == bc.b).select(one=1)
    # the sum changes with each batch, so that each has an end that can be timed
    total = triangles.reduce(n=pathway.reducers.count()).join(ab.reduce(e=pathway.reducers.sum(ab.a + ab.b)))
    pathway.io.subscribe(
        total.select(n=pathway.left.n, e=pathway.right.e), on_change=record_total, on_time_end=record_end
    )
    pathway.run(monitoring_level=pathway.MonitoringLevel.NONE)
    return [(end - begin, total) for (begin, end), total in zip(ends, totals, strict=True)]


COUNTS = {"networkx": count_with_networkx, "igraph": count_with_igraph, "networkit": count_with_networkit}


def main():
    folder, peers = Path(sys.argv[1]), sys.argv[2:]
    edges = np.load(folder / "edges.npy")
    batches = [np.load(path) for path in sorted(folder.glob("batch-*.npy"))]
    for peer in peers:
        try:
            if peer == "pathway":
                for batch, (seconds, triangles) in enumerate(follow_with_pathway(edges, batches)):
                    report(peer=peer, batch=batch, seconds=seconds, triangles=triangles)
                continue
            COUNTS[peer](np.array([[0, 1], [0, 2], [1, 2]]))  # what is imported and compiled is not what is measured
            begin = time.perf_counter()
            triangles = COUNTS[peer](edges)
            report(peer=peer, batch=None, seconds=time.perf_counter() - begin, triangles=triangles)
        except ImportError as error:
            report(peer=peer, missing=str(error))


if __name__ == "__main__":
    main()
