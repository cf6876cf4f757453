"""The proof of one epoch in a thread of its own, while the next epochs are maintained.

`ConcurrentProver` takes the place of an `IncrementalProver` for the batches of a window.

Law     The proof is that of `incremental_prover` after each batch, number by number. What is wrong at an epoch is
        reported at that epoch, however far the maintenance is by then.
        The proof trusts nothing that the maintenance says. It has a copy of the graph with lists of its own. For each
        epoch it receives the batch, and the levels and labels that differ from those of the epoch before: they are
        found here, by a comparison of all edges. At the end the lists of the maintained graph have to be those of the
        copy, vertex by vertex, before the counts of the proof are given to that graph.
Bounds  At most `IN_FLIGHT` epochs wait for their proof; then the maintenance waits.
Cost    The copies, and two comparisons of 12 bytes for each edge and epoch. Memory: 36 bytes an edge besides the
        prover's, and an eighth of spare room; 20 bytes for each edge that has changed at an epoch in flight.
"""

# numba infers the types of kernels from the arrays that they receive.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple

import numpy as np
from numba import njit

from altneu.algorithms.graph.kernels.graph import Ints, Shorts
from altneu.algorithms.graph.kernels.incremental_prover import IncrementalProver
from altneu.algorithms.graph.kernels.level_sorted_graph import arrange_lists, set_level
from altneu.algorithms.graph.kernels.persistent_graph import PersistentGraph
from altneu.algorithms.graph.kernels.threads import occupy_core

IN_FLIGHT = 4
ARRANGE = 8  # if more than one edge in this number has another level, all lists are laid out again


class LevelChange(NamedTuple):
    """The edges whose level or label differs from the epoch before, and both as they are now."""

    edges: Shorts
    level: Shorts
    label: Ints


class ConcurrentProver:
    """A prover that lags behind the graph; a context, within which the batches of the window are applied.

    Without an error, leaving the context waits for all proofs, and gives the graph back to the prover.
    """

    def __init__(self, prover: IncrementalProver) -> None:
        self._prover, self._graph = prover, prover.graph
        levels = self._graph.levels
        self._level, self._label = levels.level.copy(), levels.label.copy()
        self._touched = np.zeros(levels.live.size, np.bool_)
        self._batch = np.empty(0, np.int32), np.empty(0, np.int32)
        self._pending = deque[Future[None]]()
        self._thread = ThreadPoolExecutor(1, "proof")
        prover.graph = self._graph.copy_lists()

    def __enter__(self) -> ConcurrentProver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            while kind is None and self._pending:
                self._pending.popleft().result()
        finally:
            self._thread.shutdown(cancel_futures=True)
        if kind is None:
            self._prover.adopt_graph(self._graph, np.flatnonzero(self._touched))

    def before_batch(self, removed: Shorts, inserted: Shorts) -> None:
        """Keep the next batch for its proof."""
        self._batch = removed.copy(), inserted.copy()

    def after_batch(self, epoch: int) -> None:
        """Find what has changed, and let the other thread prove it."""
        levels = self._graph.levels
        edges = np.flatnonzero((levels.level != self._level) | (levels.label != self._label)).astype(np.int32)
        change = LevelChange(edges, levels.level[edges], levels.label[edges])
        self._level[edges], self._label[edges] = change.level, change.label
        self._touched[levels.tail[edges]] = self._touched[levels.head[edges]] = True
        while len(self._pending) >= IN_FLIGHT:
            self._pending.popleft().result()
        self._pending.append(self._thread.submit(self._prove_epoch, epoch, *self._batch, change))

    def _prove_epoch(self, epoch: int, removed: Shorts, inserted: Shorts, change: LevelChange) -> None:
        with occupy_core():
            self._prover.before_batch(removed, inserted)
            _follow_change(self._prover.graph, change)
            self._prover.after_batch(epoch)


def _follow_change(copy: PersistentGraph, change: LevelChange) -> None:
    """Give the edges of a copy their new levels and labels."""
    edges, level, label = change
    before = copy.levels.level[edges]
    copy.make_room(edges[(before < 0) & (level >= 0)])
    if edges.size * ARRANGE > copy.kept.present:
        copy.levels.level[edges] = level
        arrange_lists(copy.levels)
    else:
        _set_levels(copy.levels, edges, level)
    copy.levels.label[edges] = label
    copy.kept.present += int((level >= 0).sum()) - int((before >= 0).sum())


@njit(cache=True, nogil=True)
def _set_levels(g, edges, level):
    for i in range(edges.size):
        if level[i] != g.level[edges[i]]:
            set_level(g, edges[i], level[i])
