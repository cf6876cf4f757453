"""Suite `plain`: the plain tables say what the collections add up to.

The caller adds up and compares; this suite knows only that nothing may differ. `sums`: columns added up over all rows,
at every epoch, against the totals. Of some epochs every row is compared besides.
"""

from __future__ import annotations

from functools import partial

from .model import no_difference

SUITE = "plain"
_REMEDY = (
    "do not use the plain tables of [publish] tables; altneu rebuild writes them again. The diff triples are judged by "
    "checks of their own"
)

_holds = partial(no_difference, SUITE, "plain", _REMEDY)
OPTIONAL = ("edge_now", "epoch_totals")  # said of the last epoch alone

EXPECTATIONS = [
    _holds(
        "vertex_history",
        "vertex_history says what the diff triples add up to",
        "At each epoch the rows that hold there say of every vertex its degree, triangles, trussness and motifs.",
    ),
    _holds(
        "edge_now",
        "edge_now says what has landed and the trussness",
        "At the frontier there is a row for each landed key in force, with its values, and the trussness of its edge.",
    ),
    _holds(
        "epoch_totals",
        "epoch_totals says the totals",
        "Every epoch from the first landed one to the frontier has one row, with the totals that are published.",
    ),
]
