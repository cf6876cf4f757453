"""A graph whose trussness is kept up to date: it is built once, then changed by batches of removed and inserted edges.

All edges that may ever be present are known at the start. A batch costs as much as its changes can reach
(`truss_maintenance`), or one batch peel (`truss`) if that is estimated to be less. The estimate comes from a small
sample: the cost of looking at a changed edge, times the triangles that lie on it, times how far changes spread (learnt
from earlier batches). Maintenance is tried if it should cost at most 0.6 of a peel. If it exceeds that, it is abandoned
for the peel, so that a batch never costs more than about 1.6 peels. Without labels, and if no further batch will come,
as in a run of one epoch, it may cost 1.3 peels in steps: these steps take 0.4 to 1.1 of the time of the peel's. All
costs are counted in steps along neighbour lists: the choice does not depend on the clock, and the same input gives the
same choices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from altneu.algorithms.graph.kernels.graph import Shorts, by_degree
from altneu.algorithms.graph.kernels.level_sorted_graph import (
    BACK,
    EVALUATIONS,
    FRONT,
    LABEL_GAP,
    STEPS,
    UNKNOWN,
    Levels,
    arrange_lists,
)
from altneu.algorithms.graph.kernels.truss import ordered_peel
from altneu.algorithms.graph.kernels.truss_maintenance import delete_edges, insert_edges, peel_steps, probe_steps

# Measured on R-MAT and the real graphs of the benchmarks (tests/benchmarks/RESULTS-kernels.md).
PEEL_EDGE = 30.0  # steps that the peel spends on an edge besides walking its lists
PEEL_STEP = 1.4  # the cost of one step of the peel in steps of a descent
LIFT_STEP = 1.6  # the cost of one step of a lift in steps of a descent
SPREAD = {"descend": 0.5, "lift": 2.0, "unlabelled lift": 8.0}  # first guess: cost of a batch over its own triangles
PATIENCE = 0.6  # the greatest cost of maintenance, in peels
ALONE = 1.3  # this limit for a last batch without labels: its steps are cheaper, and nothing uses a peel's labels
SAMPLE = 256
UNLIMITED = 2**62


class BatchResult(NamedTuple):
    """The result of one batch: the edges int64[c] whose level differs, kappa before and after (int32[c], -1 absent).

    effort: the method, evaluations, steps, the estimate, and the cost of a peel.
    """

    edges: Shorts
    before: Shorts
    after: Shorts
    effort: tuple[str, int, int, int, int]


class MaintainedGraph:
    """A graph whose levels are right, updated in place.

    widest: the greatest number of neighbours that a vertex may have. spread, rent and certified come from an earlier
    object of the same graph: the learnt values of SPREAD; the cost of lifts without labels so far; whether labels, own
    and backing are right.
    """

    def __init__(
        self,
        graph: Levels,
        widest: int,
        spread: dict[str, float] | None = None,
        rent: int = 0,
        certified: bool = False,
    ):
        self.spread, self.rent = dict(spread or SPREAD), rent
        self.present = int((graph.level >= 0).sum())
        self._sampled = (-1, 0.0)
        self.certified = certified or self.present == 0  # the labels of a graph without edges are right, and stay right
        self._left = self._right = np.empty(0, np.int32)
        self.attach_arrays(graph, widest)

    def attach_arrays(self, graph: Levels, widest: int = 0) -> None:
        """Go on with arrays that have grown; `widest` is the greatest number of neighbours that a vertex may have by
        now.
        """
        self.graph = graph
        if widest > self._left.size:
            self._left, self._right = np.empty(widest, np.int32), np.empty(widest, np.int32)

    def apply_batch(self, removed: Shorts, inserted: Shorts, method: str = "auto", last: bool = False) -> BatchResult:
        """Remove edges that are present and insert edges that are absent, by the method auto, incremental or peel.

        last: no further batch will come, so that the labels that a peel makes are of no use.
        """
        if not removed.size and not inserted.size:
            return self._batch_result(np.empty(0, np.int32), np.empty(0, np.int32), ("none", 0, 0, 0, 0))
        clock = self.graph.clock
        evaluations, spent = int(clock[EVALUATIONS]), 0
        peel = self._peel_cost()
        descend, lift = self._probe_cost(removed), self._probe_cost(inserted)
        estimate = int(descend * self.spread["descend"] + lift * self.spread[self._lift_method])
        self.present += inserted.size - removed.size
        edges, before = np.concatenate([removed, inserted]), np.full(removed.size + inserted.size, -1, np.int32)
        before[: removed.size] = self.graph.level[removed]
        name = {"incremental": "mixed", "peel": "peel"}.get(method)
        patience = ALONE if last and not self.certified else PATIENCE
        if name is None:
            # Once lifts without certificates have cost as much as a peel, the peel that makes certificates pays for
            # itself.
            worn = inserted.size > 0 and not self.certified and self.rent > peel and not last
            name = "peel" if estimate > patience * peel or worn else "mixed"
        if name == "mixed":
            limit = UNLIMITED if method == "incremental" else int(patience * peel)
            finished, spent, lowered, raised = self._maintain_levels(removed, inserted, (descend, lift), limit)
            edges = np.concatenate([edges, lowered[0], raised[0]])
            before = np.concatenate([before, lowered[1], raised[1]])
            name = "peel" if not finished else "mixed" if removed.size and inserted.size else ""
            name = name or ("descend" if removed.size else "lift")
        if name == "peel":
            edges, before = self._peel_all(edges, before, removed, inserted)
            spent += peel
        effort = (name, int(clock[EVALUATIONS]) - evaluations, spent, estimate, peel)
        return self._batch_result(edges, before, effort)

    def relabel(self) -> Shorts:
        """Make the labels by a peel; return the edges whose level the peel has changed."""
        none = np.empty(0, np.int32)
        return self._peel_all(none, none, none, none)[0]

    @property
    def _lift_method(self) -> str:
        return "lift" if self.certified else "unlabelled lift"

    def _maintain_levels(
        self, removed: Shorts, inserted: Shorts, own: tuple[float, float], limit: int
    ) -> tuple[bool, int, tuple[Shorts, Shorts], tuple[Shorts, Shorts]]:
        """Descend, then lift; return (finished within the limit, cost, (edges, levels before) lowered, the same
        raised).
        """
        none = np.empty(0, np.int32), np.empty(0, np.int32)
        lowered, raised, finished, spent = none, none, True, 0
        clock, scratch = self.graph.clock, (self._left, self._right)
        if removed.size:
            begun = int(clock[STEPS])
            finished, *log = delete_edges(self.graph, removed, self.certified, begun + limit, *scratch)
            lowered = log[0], log[1]
            spent = int(clock[STEPS]) - begun
            self._learn_cost("descend", spent, own[0], finished=finished)
        if inserted.size and finished:
            begun = int(clock[STEPS])
            stop = begun + int((limit - spent) / LIFT_STEP)
            finished, *log = insert_edges(self.graph, inserted, self.certified, stop, *scratch)
            raised = log[0], log[1]
            cost = int((int(clock[STEPS]) - begun) * LIFT_STEP)
            self._learn_cost(self._lift_method, cost, own[1], finished=finished)
            self.rent += 0 if self.certified else cost
            spent += cost
        return finished, spent, lowered, raised

    def _peel_all(self, edges: Shorts, before: Shorts, removed: Shorts, inserted: Shorts) -> tuple[Shorts, Shorts]:
        """Compute all levels and labels again.

        The changes that maintenance has made so far (edges, before; oldest first) are undone first.
        """
        graph = self.graph
        old = graph.level.copy()
        old[edges[::-1]] = before[::-1]
        present = old >= 0
        present[removed] = False
        present[inserted] = True
        ids = np.flatnonzero(present).astype(np.int32)
        n = graph.live.size
        _, indptr, tail, head, origin = by_degree(n, graph.tail[ids], graph.head[ids])
        order = ordered_peel(indptr, tail, head)
        ids = ids[origin]
        del indptr, tail, head, origin
        graph.level[:] = -1
        graph.backing[:] = UNKNOWN
        graph.level[ids], graph.own[ids], graph.backing[ids] = order.kappa, order.own, order.backing
        graph.label[ids] = order.place * np.int64(LABEL_GAP)
        graph.clock[FRONT], graph.clock[BACK] = -LABEL_GAP, (ids.size + 1) * LABEL_GAP
        graph.state[:] = 0
        arrange_lists(graph)
        self.certified, self.rent, self._sampled = True, 0, (-1, 0.0)
        self._peel_cost()  # after a peel its cost is negligible
        changed = np.flatnonzero(old != graph.level).astype(np.int32)
        return changed, old[changed]

    def _batch_result(self, edges: Shorts, before: Shorts, effort: tuple[str, int, int, int, int]) -> BatchResult:
        """Return the first level before of each edge in the log, and the level now, where they differ."""
        if not (edges[1:] > edges[:-1]).all():
            edges, oldest = np.unique(edges, return_index=True)
            before = before[oldest]
        after = self.graph.level[edges]
        differ = before != after
        return BatchResult(edges[differ], before[differ], after[differ], effort)

    def _probe_cost(self, edges: Shorts) -> float:
        """Return the cost of looking once at all triangles of these edges and at their neighbours, from a sample."""
        if not edges.size:
            return 0.0
        sample = edges if edges.size <= SAMPLE else edges[:: edges.size // SAMPLE]
        return float(probe_steps(self.graph, sample, self._left, self._right)) * edges.size / sample.size

    def _peel_cost(self) -> int:
        """Return the steps a peel would take, from a sample of edges, which is drawn again when a tenth of the graph
        has changed.
        """
        at, cost = self._sampled
        if at < 0 or abs(self.present - at) * 10 > at:
            sample = np.arange(0, self.graph.level.size, max(1, self.graph.level.size // 2048), dtype=np.int32)
            sample = sample[self.graph.level[sample] >= 0]
            walked = peel_steps(self.graph, sample) / max(1, sample.size)
            cost = PEEL_EDGE + PEEL_STEP * walked
            self._sampled = self.present, cost
        return int(cost * max(self.present, 1))

    def _learn_cost(self, kind: str, spent: int, own: float, *, finished: bool) -> None:
        """Move the spread half-way to what this batch showed; an unfinished batch showed only a lower bound."""
        shown = spent / max(own, 1.0) * (1.0 if finished else 1.5)
        if finished or shown > self.spread[kind]:
            self.spread[kind] += 0.5 * (shown - self.spread[kind])
