"""An order-free fingerprint of a collection: 128 bits that depend on its contents alone.

Law     The fingerprint of a collection is the sum over its rows of diff * hash(data), so it is linear: the fingerprint
        of the state before plus that of a delta is that of the state after, and rows that cancel leave no trace.
        Order, grouping, files and the revisions in which rows came change nothing (law 11). Two collections that
        differ have the same fingerprint with a chance of about 2**-128, unless somebody chose them on purpose: a
        fingerprint finds damage and faults, not forgery.
Shapes  Rows: data columns, `epoch`, `diff`. Aggregated by epoch, `lane_sums` are the fingerprint of the changes at
        each epoch; their sum up to an epoch is the fingerprint of the state at that epoch.
Cost    One scan and one aggregation by epoch; no row is moved. Importing this module loads neither Spark nor kernels.
Source  Clarke et al., "Incremental multiset hash functions" (2003): hashes are added; the hash is Spark's `xxhash64`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, Row

    from altneu.algorithms.graph.kernels.graph import Ints

_WORD = 1 << 64
_LANES = ("_l0", "_l1", "_l2", "_l3")


@dataclass(frozen=True)
class Fingerprint:
    """Two sums of hashes, each modulo 2**64.

    >>> import numpy as np
    >>> Fingerprint.from_rows([np.array([1, 2])], np.array([1, 1])) == Fingerprint.from_rows([np.array([2, 1])])
    True
    >>> bool(Fingerprint.from_rows([np.array([5, 5])], np.array([1, -1])))
    False
    """

    first: int = 0
    second: int = 0

    def __add__(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint.from_sums(self.first + other.first, self.second + other.second)

    def __neg__(self) -> Fingerprint:
        return Fingerprint.from_sums(-self.first, -self.second)

    def __sub__(self, other: Fingerprint) -> Fingerprint:
        return self + -other

    def __bool__(self) -> bool:
        return bool(self.first or self.second)

    def __str__(self) -> str:
        """Return 32 hexadecimal digits."""
        return f"{self.first:016x}{self.second:016x}"

    @classmethod
    def from_text(cls, text: str) -> Fingerprint:
        return cls(int(text[:16], 16), int(text[16:], 16))

    @classmethod
    def from_sums(cls, first: int, second: int) -> Fingerprint:
        """Return the fingerprint whose sums are these, modulo 2**64."""
        return cls(first % _WORD, second % _WORD)

    @classmethod
    def from_rows(cls, columns: Sequence[Ints], diff: Ints | None = None) -> Fingerprint:
        """Compute the fingerprint of rows of integers. `diff`: the multiplicity of each row; None: one."""
        import numpy as np

        from altneu.algorithms.graph.kernels.hashing import hash_rows, weighted_sum

        return cls(*weighted_sum(hash_rows(*columns), np.ones(columns[0].size, np.int64) if diff is None else diff))

    @classmethod
    def sum_all(cls, fingerprints: Iterable[Fingerprint]) -> Fingerprint:
        first, second = 0, 0
        for each in fingerprints:
            first, second = first + each.first, second + each.second
        return cls.from_sums(first, second)


def hash_lanes(data: Sequence[Column], diff: Column) -> list[Column]:
    """Return four columns whose sums make a fingerprint: halves of hashes, times `diff` (bigint, below 2**31 in all).

    With a diff of type decimal(20, 0) sums are exact whatever the diffs are, but slower.
    """
    from pyspark.sql import functions as F

    low = F.lit(0xFFFFFFFF)
    pair = F.xxhash64(*data), F.xxhash64(F.lit(1).cast("bigint"), *data)
    halves = [half for each in pair for half in (each.bitwiseAND(low), F.shiftrightunsigned(each, 32))]
    return [(half * diff).alias(name) for half, name in zip(halves, _LANES, strict=True)]


def lane_sums() -> list[Column]:
    """Return the aggregates over `hash_lanes`, whose results `from_lane_sums` takes."""
    from pyspark.sql import functions as F

    return [F.sum(name).alias(name) for name in _LANES]


def from_lane_sums(row: Row) -> Fingerprint:
    """Return a row of `lane_sums` as a fingerprint."""
    first, second = (int(row[low]) + (int(row[high]) << 32) for low, high in (_LANES[:2], _LANES[2:]))
    return Fingerprint.from_sums(first, second)
