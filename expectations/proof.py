"""Suite `proof`: the rows that a run has written are those that were proved, at every epoch that it may have changed.

The caller proves and compares (fingerprints of tables, not rows, so that the cost follows the change); this suite knows
only that nothing may differ, of any kind, at any epoch.
"""

from __future__ import annotations

from functools import partial

from .model import no_difference

SUITE = "proof"
_REMEDY = (
    "do not use the numbers of epoch {epoch}; altneu audit {epoch} recomputes it and shows rows that differ, and "
    "altneu rebuild publishes a recomputation from the landed rows"
)

_holds = partial(no_difference, SUITE, "proof", _REMEDY)
OPTIONAL = ("part",)  # judged only if a part of the vertices was recounted, and only at the last epoch

EXPECTATIONS = [
    _holds(
        "landed",
        "edges follow from the landed rows",
        "For every pair that landed again the edge exists exactly if it follows from a fresh look at its landed rows.",
    ),
    _holds(
        "stored",
        "stored rows are those that are proved",
        "Edges, degrees, triangle counts and trussness have the fingerprints of an independent count.",
    ),
    _holds(
        "totals",
        "totals are those that are proved",
        "Every total equals a count that is independent of the maintenance.",
    ),
    _holds(
        "facts",
        "trussness values are proved",
        "Wherever something may have changed, each edge of trussness k has at least k - 2 triangles that support it, "
        "and comes first, in the stored order, in at most k - 2 triangles. With the proof of the state before, this "
        "proves every value.",
    ),
    _holds(
        "part",
        "a part of the vertices is as recounted",
        "For one part of the vertices all edges, degrees, triangles and trussness values were counted again; each run "
        "takes another part.",
    ),
]
