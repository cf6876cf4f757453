"""Trussness kept up to date on the part of a graph that a task knows; the task names the triangles that it lacks.

Law       After each batch the levels (kappa = trussness - 2) of the known edges equal a full peel of the whole graph,
          all others are unchanged, and label, own and backing are a certificate again (`truss_maintenance`).
Method    The kernels of `truss_maintenance` find triangles only by `level_sorted_graph.closing_edges`: those on an edge
          whose others have at least some level. Where the part may lack a triangle, that is noted, and the kernel goes
          on with a guess. The caller looks up what was noted and begins again from the stored values, until nothing is
          noted.
Contract  floor: both other edges of every triangle on an edge are known if they have a STORED level >= its floor, or
          come or go within the batches. Edges that come or go are opened at 0 before the first run.
Proof     A run in which nothing is noted takes the same steps as a run on the whole graph. Let a call for edge e at
          level `least` have a triangle in the whole graph, and let x be its edge of least stored level j. If
          j >= floor[e], the triangle was found with e. Otherwise j < floor[e] <= least, so x rose past j within these
          batches, and was looked at before, at a level <= j: so floor[x] <= j, and the triangle was found with x. An
          edge that comes was opened at 0. The look-ups end, because each opens an edge, or opens one to a lower floor.
Guesses   They matter for the number of look-ups alone. An edge that falls and lacks triangles falls by one; a candidate
          counts its own triangles that are not known as good. If not very many edges are needed, their known neighbours
          of like level are looked up as well; if few are needed, also the edges that the proof of the guess needs.
Proved    The prover follows the part as `incremental_prover` follows a whole graph. It begins with the stored counts,
          by which the facts held before.
Source    reference/truss/region of the design (33,778 random batches equal to a peel, at most 15 hops).
"""

# numba infers the types of kernels from the arrays that they receive.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

from time import perf_counter
from typing import NamedTuple

import numpy as np
from numba import njit

from altneu.algorithms.fingerprint import Fingerprint
from altneu.algorithms.graph.kernels.graph import Ints, Shorts, distinct_values
from altneu.algorithms.graph.kernels.incremental_prover import IncrementalProver, _FollowedEdges
from altneu.algorithms.graph.kernels.level_sorted_graph import EVALUATIONS, STEPS, UNASKED, UNKNOWN, count_at_level
from altneu.algorithms.graph.kernels.maintained_graph import UNLIMITED
from altneu.algorithms.graph.kernels.persistent_graph import PersistentGraph, StateMismatch, TrussCertificate
from altneu.algorithms.graph.kernels.replay import Batch, ReplayStep
from altneu.algorithms.graph.kernels.truss_maintenance import delete_edges, insert_edges
from altneu.algorithms.graph.proof_records import COLLECTIONS, GraphCounts, Proof, ProofScope, ProvedState

# This many edges are opened even if fewer are needed, but at most as many as have been opened so far: to look up a few
# thousand costs little, and saves hops.
GENEROUS = 5000
FEW = 0.01  # of the opened edges: if no more are needed, the guess is so close that what its proof needs is looked up
PATIENCE = 2000  # steps for each known edge, after which a run that lacks something is cut short
MISCOUNTED = "the triangle counts of the maintenance differ from those that the prover has followed"


class KnownEdges(NamedTuple):
    """The edges that are known, each once, in order of (a, b), a < b, any ids.

    level: kappa before the first batch, -1 if the edge is absent then; label int64, own, backing int32: its
    certificate; floor int32: the module docstring explains it; `UNASKED` if the edge has not been opened.
    """

    a: Ints
    b: Ints
    level: Shorts
    label: Ints
    own: Shorts
    backing: Shorts
    floor: Shorts


class MissingLookups(NamedTuple):
    """Look-ups that are missing.

    place int64[]: positions in `KnownEdges`; least int32[]: needed are the triangles on the edge whose other edges have
    at least this stored level, or come or go.
    """

    place: Ints
    least: Shorts


class EpochChange(NamedTuple):
    """The changes of a batch.

    place int64[]: the positions of the edges whose certificate differs from the one before. If the level is -1 the
    other values are zeros.
    """

    epoch: int
    place: Ints
    before: TrussCertificate
    after: TrussCertificate
    effort: ReplayStep


class SolvedRegion(NamedTuple):
    """The result of all batches.

    ends: the labels at which the next edges are put at the front and at the back; proof: the proof of the batches. It
    says nothing of the state before, because the part is not the whole graph.
    """

    epochs: list[EpochChange]
    ends: tuple[int, int]
    proof: Proof


def solve_region(
    known: KnownEdges, ends: tuple[int, int], batches: list[Batch], degrees: tuple[Ints, Ints]
) -> MissingLookups | SolvedRegion:
    """Apply batches in order; return the result, or the look-ups that are missing.

    Args:
        known: the known edges.
        ends: the labels at which the next edges are put at the front and at the back.
        batches: (epoch, positions of removed edges, positions of inserted edges).
        degrees: vertices, sorted, and the number of edges of each before the first batch. They include all vertices at
            which an edge comes or goes.

    Raises:
        StateMismatch: an edge is removed that is absent, or inserted that is present.
    """
    moving = distinct_values(
        np.concatenate([np.empty(0, np.int32), *(side for _, *sides in batches for side in sides)])
    )
    closed = moving[known.floor[moving] > 0].astype(np.int64)
    if closed.size:
        return MissingLookups(closed, np.zeros(closed.size, np.int32))
    for limit in (PATIENCE * (known.a.size + 1000), UNLIMITED):
        graph = _build_partial_graph(known, ends)
        prover = _RegionProver(graph, degrees)
        epochs = _apply_batches(graph, prover, batches, limit)
        asked = np.flatnonzero(graph.levels.asked < UNASKED)
        if asked.size:
            return _missing_lookups(graph, asked, known.level)
        if epochs is not None:
            break
    assert epochs is not None
    return SolvedRegion(epochs, graph.label_bounds, prover.get_proof())


def _build_partial_graph(known: KnownEdges, ends: tuple[int, int]) -> PersistentGraph:
    exists = known.level >= 0
    own, backing = (np.where(exists, column, 0).astype(np.int32) for column in (known.own, known.backing))
    values = TrussCertificate(known.level, np.where(exists, known.label, 0), own, backing)
    nothing = ProvedState({name: Fingerprint() for name in COLLECTIONS}, GraphCounts())
    graph = PersistentGraph.from_checkpoint(known.a, known.b, values, ends, nothing, spare=False)
    graph.levels.backing[~exists] = UNKNOWN
    graph.levels = graph.levels._replace(floor=known.floor.copy(), asked=np.full(known.a.size, UNASKED, np.int32))
    graph.kept.attach_arrays(graph.levels)
    return graph


def _apply_batches(
    graph: PersistentGraph, prover: _RegionProver, batches: list[Batch], limit: int
) -> list[EpochChange] | None:
    """Return the changes of each batch; None if the clock has passed `limit` steps.

    The result has no meaning if look-ups were noted.
    """
    levels, epochs = graph.levels, list[EpochChange]()
    widest = max(1, int(graph.room.max(initial=1)))
    scratch = np.empty(widest, np.int32), np.empty(widest, np.int32)
    clock, near = levels.clock, True  # near: almost nothing was missing so far
    few = FEW * (levels.floor < UNASKED).sum()
    for epoch, removed, inserted in batches:
        if (levels.level[removed] < 0).any() or (levels.level[inserted] >= 0).any():
            raise StateMismatch("an edge is removed that is absent, or inserted that is present")
        began, spent = perf_counter(), (int(clock[EVALUATIONS]), int(clock[STEPS]))
        before = _certificate_of(graph)
        if near:
            prover.before_batch(removed, inserted)
        for change, edges in ((delete_edges, removed), (insert_edges, inserted)):
            finished, *_ = change(levels, edges.astype(np.int32), True, limit, *scratch)
            if not finished:
                return None
        graph.kept.present += inserted.size - removed.size
        near = near and (levels.asked < UNASKED).sum() <= few
        if near:
            prover.after_batch(epoch)
        after = _certificate_of(graph)
        place = np.flatnonzero(after.differs_from(before))
        was, now = before.for_edges(place), after.for_edges(place)
        costs = int(clock[EVALUATIONS]) - spent[0], int(clock[STEPS]) - spent[1], 0, 0
        moved, seconds = int((was.level != now.level).sum()), round(perf_counter() - began, 6)
        effort = ReplayStep(epoch, inserted.size, removed.size, moved, "region", *costs, seconds)
        epochs.append(EpochChange(epoch, place, was, now, effort))
    return epochs


def _certificate_of(graph: PersistentGraph) -> TrussCertificate:
    levels, exists = graph.levels, graph.levels.level >= 0
    own, backing = (np.where(exists, column, 0).astype(np.int32) for column in (levels.own, levels.backing))
    return TrussCertificate(levels.level.copy(), np.where(exists, levels.label, 0), own, backing)


def _missing_lookups(graph: PersistentGraph, asked: Ints, stored: Shorts) -> MissingLookups:
    """Return the look-ups that were noted, and some that may be needed next."""
    levels = graph.levels
    most = min(int((levels.floor < UNASKED).sum()), GENEROUS)
    least = levels.asked[asked]
    if asked.size >= most:
        return MissingLookups(asked, least)
    more = np.setdiff1d(_edges_beside(levels, asked, most), asked)
    return MissingLookups(
        np.concatenate([asked, more]), np.concatenate([least, np.maximum(stored[more], 1)]).astype(np.int32)
    )


class _RegionProver(IncrementalProver):
    """A prover of a part of a graph: it notes what the part lacks, and vertices may have edges that the part does not
    know.
    """

    def __init__(self, graph: PersistentGraph, degrees: tuple[Ints, Ints]) -> None:
        vertices, degree = degrees
        self._unknown = np.zeros(graph.ids.size, np.int64)
        at = np.minimum(np.searchsorted(vertices, graph.ids), max(vertices.size - 1, 0))
        if vertices.size:
            named = vertices[at] == graph.ids
            self._unknown[named] = degree[at[named]] - graph.levels.live[named]
        super().__init__(graph, ProofScope())

    def after_batch(self, epoch: int) -> None:
        super().after_batch(epoch)
        levels, counted = self.graph.levels, self._certificate_counts
        exists = levels.level >= 0
        if (levels.own != counted.own)[exists].any() or (levels.backing != counted.backing)[exists].any():
            self._note_state(MISCOUNTED)

    def _is_cheaper_to_enumerate(self, edges: int) -> bool:
        return False  # unknown triangles cannot be enumerated

    def _unknown_degrees(self, vertices: Ints) -> Ints:
        return self._unknown[vertices]

    def _follow_edges(self, edges: Shorts, *, leave: bool) -> _FollowedEdges:
        levels = self.graph.levels
        old, new = self._level[edges], levels.level[edges]
        least = np.zeros(edges.size, np.int32) if leave else np.where(old < 0, 0, np.minimum(old, new))
        short = least < levels.floor[edges]
        np.minimum.at(levels.asked, edges[short], least[short].astype(np.int32))
        return super()._follow_edges(edges, leave=leave)


@njit(cache=True, nogil=True)
def _edges_beside(g, asked, most):
    """Return known edges of like level at an end of a needed edge, if they are not opened."""
    out, seen = np.empty(most, np.int64), np.zeros(g.level.size, np.bool_)
    size = 0
    for e in asked:
        k = g.level[e]
        for v in (np.int64(g.tail[e]), np.int64(g.head[e])):
            for p in range(g.begin[v] + count_at_level(g, v, k + 1), g.begin[v] + count_at_level(g, v, k)):
                f = np.int64(g.edge[p])
                if size < most and g.floor[f] == UNASKED and not seen[f]:
                    seen[f] = True
                    out[size] = f
                    size += 1
    return out[:size]
