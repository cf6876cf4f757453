"""Suite `incremental_versus_full`: the rows on which the maintained result and a full recomputation differ.

The caller finds the differing rows, by a plan that shares nothing with the maintenance; this suite knows only that
there must be none, of any kind, at any audited epoch.
"""

from __future__ import annotations

from functools import partial

from .model import Expectation, no_difference

SUITE = "incremental_versus_full"
_REMEDY = (
    "do not use the numbers of epoch {epoch}; altneu audit {epoch} shows whether the published state is wrong too, the "
    "rows below say where, and altneu repair publishes what was computed again"
)


_none = partial(no_difference, SUITE, "differences", _REMEDY)


def _no_difference_of(kind: str, name: str, meaning: str) -> Expectation:
    return _none(kind, f"{name} equal a full recomputation", meaning)


# kinds that are compared only where the caller has compared them
OPTIONAL = ("wedges", "trusses", "motifs", "rows_of_batch", "quarantined_of_batch", "names")

EXPECTATIONS = [
    _no_difference_of("vertices", "vertex totals", "As many vertices with an edge as a fresh count finds."),
    _no_difference_of(
        "edges", "edge totals", "As many edges as the landed upserts, taken afresh, leave at this epoch."
    ),
    _no_difference_of("triangles", "triangle totals", "As many triangles as counting them all from scratch finds."),
    _no_difference_of("max_trussness", "maximum trussness values", "The greatest trussness is that of a full peel."),
    _no_difference_of(
        "wedges", "wedge totals", "As many pairs of edges that meet as the degrees, counted afresh, make."
    ),
    _no_difference_of(
        "trusses", "truss sizes", "Of every k as many edges have that trussness as a full peel gives it."
    ),
    _no_difference_of(
        "motifs", "motif totals", "As many occurrences of each motif as counting them all from scratch finds."
    ),
    _no_difference_of(
        "degree_at_vertex", "degrees of vertices", "Every vertex has as many edges as a fresh count finds."
    ),
    _no_difference_of(
        "triangles_at_vertex",
        "triangle counts of vertices",
        "Every vertex is in as many triangles as counting them all from scratch finds.",
    ),
    _no_difference_of(
        "trussness_of_edge",
        "trussness values of edges",
        "Every edge has the trussness that peeling the whole graph from scratch gives it.",
    ),
    _no_difference_of(
        "motif_at_vertex",
        "motif counts of vertices",
        "Every vertex is in as many occurrences of each motif as counting them all from scratch finds.",
    ),
    _none(
        "trussness_too_high",
        "trussness values are not too high",
        "Every edge of trussness k is in k - 2 triangles of edges of trussness k or more: one look at every triangle.",
    ),
    _none(
        "trussness_too_low",
        "trussness values are not too low",
        "No set of edges could all have a trussness greater by one. With the check above it proves every value.",
    ),
    _none(
        "third_party",
        "triangle counts of vertices equal a third party's",
        "Every vertex is in as many triangles as GraphFrames, or where it is not at hand GraphX, finds.",
    ),
    _none(
        "rows_of_batch",
        "batches have as many rows as are stored",
        "The rows of an epoch that are shown are stored.",
    ),
    _none(
        "quarantined_of_batch",
        "batches have as many quarantined rows as are stored",
        "The quarantined rows of an epoch that are shown are stored.",
    ),
    _none("names", "every vertex has one name", "Each vertex of a landed row has a name, which no other has."),
    _no_difference_of("edge", "edges one by one", "The edges are those that the landed upserts leave at this epoch."),
]
