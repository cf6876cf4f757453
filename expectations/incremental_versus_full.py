"""Suite `incremental_versus_full`: the rows on which the maintained result and a full recomputation differ.

The caller finds the rows that differ, by a plan that shares no code with the maintenance; this suite knows only that
there must be none, of any kind, at any audited epoch.
"""

from __future__ import annotations

from functools import partial

from .model import Expectation, no_difference

SUITE = "incremental_versus_full"
_REMEDY = (
    "do not use the numbers of epoch {epoch}; altneu audit {epoch} shows whether the published state is wrong too, the "
    "rows below show where, and altneu repair publishes a recomputation"
)

_expect_no_difference = partial(no_difference, SUITE, "differences", _REMEDY)


def _no_difference_of(kind: str, name: str, meaning: str) -> Expectation:
    return _expect_no_difference(kind, f"{name} equal a full recomputation", meaning)


# kinds that are judged only if the caller has compared them
OPTIONAL = ("wedges", "trusses", "motifs", "rows_of_batch", "quarantined_of_batch", "names")

QUERY_EXPECTATIONS = [
    _no_difference_of(
        "query_rows",
        "rows of queries",
        "Every declared query has the rows that its text gives, run on the landed rows as they are at this epoch.",
    )
]

EXPECTATIONS = [
    _no_difference_of("vertices", "vertex totals", "There are as many vertices with an edge as a fresh count finds."),
    _no_difference_of(
        "edges", "edge totals", "There are as many edges as a fresh count from the landed upserts finds at this epoch."
    ),
    _no_difference_of("triangles", "triangle totals", "There are as many triangles as a count from scratch finds."),
    _no_difference_of("max_trussness", "maximum trussness values", "The greatest trussness is that of a full peel."),
    _no_difference_of("wedges", "wedge totals", "There are as many pairs of edges that meet as fresh degrees make."),
    _no_difference_of("trusses", "truss sizes", "For every k as many edges have that trussness as a full peel finds."),
    _no_difference_of(
        "motifs", "motif totals", "There are as many occurrences of each motif as a count from scratch finds."
    ),
    _no_difference_of(
        "degree_at_vertex", "degrees of vertices", "Every vertex has as many edges as a fresh count finds."
    ),
    _no_difference_of(
        "triangles_at_vertex",
        "triangle counts of vertices",
        "Every vertex is in as many triangles as a count from scratch finds.",
    ),
    _no_difference_of(
        "trussness_of_edge",
        "trussness values of edges",
        "Every edge has the trussness that peeling the whole graph from scratch gives it.",
    ),
    _no_difference_of(
        "motif_at_vertex",
        "motif counts of vertices",
        "Every vertex is in as many occurrences of each motif as a count from scratch finds.",
    ),
    _expect_no_difference(
        "trussness_too_high",
        "trussness values are not too high",
        "Every edge of trussness k is in at least k - 2 triangles of edges of trussness k or more.",
    ),
    _expect_no_difference(
        "trussness_too_low",
        "trussness values are not too low",
        "There is no set of edges whose trussness could all be greater by one. Together with the check above "
        "this proves every value.",
    ),
    _expect_no_difference(
        "third_party",
        "triangle counts of vertices equal a third party's",
        "Every vertex is in as many triangles as GraphFrames finds, or GraphX if GraphFrames is not installed.",
    ),
    _expect_no_difference(
        "rows_of_batch",
        "batches have as many rows as are stored",
        "The number of rows that is shown for the epoch is the number of its stored rows.",
    ),
    _expect_no_difference(
        "quarantined_of_batch",
        "batches have as many quarantined rows as are stored",
        "The number of quarantined rows that is shown for the epoch is the number of those that are stored.",
    ),
    _expect_no_difference(
        "names", "every vertex has one name", "Each vertex of a landed row has a name, which no other vertex has."
    ),
    _no_difference_of("edge", "edges one by one", "At this epoch the edges follow from the landed upserts."),
]
