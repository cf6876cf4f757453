"""The trussness of every edge over a history, with an order that proves it: the rows of a certificate.

Law     At each epoch the edges alive, put in order by (trussness, place, a, b), have the two properties of
        `certificate_counts`: each edge has at least k - 2 triangles whose other edges have its trussness k or more, and
        comes first in at most k - 2 triangles.
Shapes  a, b, start, until: int64 vectors, one row per interval [start, until) in which edge a < b is alive.
Cost    That of `replay`, and one comparison of 12 bytes for each edge at each epoch with a change.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.algorithms.graph.kernels.graph import Ints
from altneu.algorithms.graph.kernels.replay import prepare_replay


class CertificateSpans(NamedTuple):
    """Rows of int64: edge (a, b) has this trussness and place in the order at the epochs [epoch, until).

    The spans of an edge do not overlap. `until` is 2**63 - 1 for what still holds at the last epoch.
    """

    a: Ints
    b: Ints
    epoch: Ints
    until: Ints
    trussness: Ints
    place: Ints


def certify_history(a: Ints, b: Ints, start: Ints, until: Ints, first: int, last: int) -> CertificateSpans:
    """Return the spans of all edges at the epochs first..last; what was before `first` begins there.

    >>> row = lambda *values: np.array(values, np.int64)
    >>> spans = certify_history(row(1, 1, 2), row(2, 3, 3), row(0, 0, 5), row(9, 9, 7), 4, 6)
    >>> sorted((a, b, epoch, k) for a, b, epoch, _, k, _ in zip(*(column.tolist() for column in spans)))
    [(1, 2, 4, 2), (1, 2, 5, 3), (1, 3, 4, 2), (1, 3, 5, 3), (2, 3, 5, 3)]
    """
    none = np.empty(0, np.int64)
    start = np.maximum(start, first)
    graph, steps, *_ = prepare_replay(a, b, start, until, none, none, none, first, last, kept=True)
    levels = graph.levels
    level, label, since = levels.level.copy(), levels.label.copy(), np.zeros(levels.level.size, np.int64)
    spans: list[tuple[Ints, ...]] = []

    def end_spans(edges: Ints, epoch: int) -> None:
        edges = edges[level[edges] >= 0]
        ends = np.full(edges.size, epoch, np.int64)
        spans.append((edges, since[edges], ends, level[edges].astype(np.int64) + 2, label[edges]))

    for epoch, removed, inserted in steps:
        graph.apply_batch(removed, inserted)
        moved = (levels.level != level) | ((levels.label != label) & (levels.level >= 0))
        changed = np.flatnonzero(moved)
        end_spans(changed, epoch)
        level[changed], label[changed], since[changed] = levels.level[changed], levels.label[changed], epoch
    end_spans(np.flatnonzero(level >= 0), FOREVER)
    edges, *columns = (np.concatenate(parts) for parts in zip(*spans, strict=True))
    return CertificateSpans(*graph.edge_ends(edges.astype(np.int32)), *columns)
