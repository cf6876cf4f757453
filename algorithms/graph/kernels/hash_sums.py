"""Sums by key inside compiled kernels: an open hash table of int64, or a plain array if there are few keys.

Shapes  keys, sums: int64[2^k]; a key of -1 is free. Without keys (size 0) `sums` is indexed by the key itself.
Cost    A hash and a few probes for each addition; a table is at most half full. Nothing is ever removed.
"""

# numba infers the types of kernels from the arrays that they receive.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

import numpy as np
from numba import njit

from altneu.algorithms.graph.kernels.intervals import Longs

SMALL = 1 << 20  # up to this number of places there is always a plain array


def make_table(places: int, rows: int) -> tuple[Longs, Longs]:
    """Return an empty table for keys below `places`, to which about `rows` rows will be added."""
    if places <= 2 * rows + SMALL:
        return np.empty(0, np.int64), np.zeros(places, np.int64)
    return np.full(1024, -1, np.int64), np.zeros(1024, np.int64)


def nonzero_sums(keys: Longs, sums: Longs) -> tuple[Longs, Longs]:
    """Return the keys and sums that are not zero."""
    places = np.flatnonzero((sums != 0) & (keys >= 0) if keys.size else sums)
    return (keys[places] if keys.size else places), sums[places]


@njit(cache=True, nogil=True)
def add_to_key(keys, sums, key, diff):
    """Add to a key's sum; return 1 if the key is new. The table must have room: `grow_table` makes some."""
    if not keys.size:
        sums[key] += diff
        return 0
    mask = keys.size - 1
    at = ((key * -7046029254386353131) >> 20) & mask
    while keys[at] != key:
        if keys[at] < 0:
            keys[at] = key
            sums[at] = diff
            return 1
        at = (at + 1) & mask
    sums[at] += diff
    return 0


@njit(cache=True, nogil=True)
def grow_table(keys, sums):
    """Return a table of twice the size with the same sums."""
    wide, total = np.full(2 * keys.size, -1, np.int64), np.zeros(2 * keys.size, np.int64)
    for i in range(keys.size):
        if keys[i] >= 0:
            add_to_key(wide, total, keys[i], sums[i])
    return wide, total
