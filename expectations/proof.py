"""Suite `proof`: what a run has written is what was proved of it, at every epoch that it may have changed.

The caller proves and compares (fingerprints of tables, not rows, so that the price follows the change); this suite
knows only that nothing may differ, of any kind, at any epoch.
"""

from __future__ import annotations

from functools import partial

from .model import no_difference

SUITE = "proof"
_REMEDY = (
    "do not use the numbers of epoch {epoch}; altneu audit {epoch} recomputes it and shows rows that differ, and "
    "altneu rebuild publishes what is computed again from the landed rows"
)


_holds = partial(no_difference, SUITE, "proof", _REMEDY)
OPTIONAL = ("part",)  # where a part of the vertices was recounted; said of the last epoch alone

EXPECTATIONS = [
    _holds(
        "landed",
        "edges follow from the landed rows",
        "Of every pair that landed again the edge is there exactly when its landed rows, taken afresh, leave it.",
    ),
    _holds(
        "stored",
        "stored rows are those that are proved",
        "Edges, degrees, triangle counts and trussness have the fingerprints of what was counted independently.",
    ),
    _holds(
        "totals",
        "totals are those that are proved",
        "Every total is what was counted independently of the maintenance.",
    ),
    _holds(
        "facts",
        "trussness values are proved",
        "Wherever something may have changed, each edge of trussness k has k - 2 triangles that hold it, and in the "
        "stored order at most k - 2 that it comes first in. With the state before, this proves every value.",
    ),
    _holds(
        "part",
        "a part of the vertices is as recounted",
        "Of one part of the vertices all edges, degrees, triangles and trussness were taken afresh; each run takes "
        "another part.",
    ),
]
