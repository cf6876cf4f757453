"""Suite `plain`: the serving tables equal the sums of the collections.

The caller adds up and compares; this suite knows only that nothing may differ. At every epoch the sums of columns over
all rows are compared with the totals. At some epochs every row is compared as well.
"""

from __future__ import annotations

from functools import partial

from .model import no_difference

SUITE = "plain"
_REMEDY = (
    "do not use the serving tables of [publish] tables; altneu rebuild writes them again. The diff triples have "
    "their own checks"
)

_holds = partial(no_difference, SUITE, "serving_tables", _REMEDY)
OPTIONAL = ("edge_now", "epoch_totals")  # judged only at the last epoch

EXPECTATIONS = [
    _holds(
        "vertex_history",
        "vertex_history says what the diff triples add up to",
        "At each epoch the row of every vertex has its degree, triangles, trussness and motifs.",
    ),
    _holds(
        "edge_now",
        "edge_now says what has landed and the trussness",
        "At the frontier each landed key in force has a row with its values and the trussness of its edge.",
    ),
    _holds(
        "epoch_totals",
        "epoch_totals says the totals",
        "Every epoch from the first landed one to the frontier has one row with the published totals.",
    ),
]
