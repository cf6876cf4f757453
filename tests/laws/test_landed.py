"""The edges that landed rows leave, as the proof derives them a second time, against a slow reading of the rules."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from pyspark.sql import SparkSession

from pipeline.checking.landed import _last, _steps
from pipeline.run.suites import _alone
from tests import seeds

Stored = tuple[int, int, bool, int, int, bool, int]  # a, b, forth, epoch, seq, on, diff


def drawn(rng: random.Random) -> list[Stored]:
    """Rows of few pairs, with ties, copies, and rows that were taken back and came again."""
    rows: list[Stored] = []
    for _ in range(rng.randrange(30)):
        a = rng.randrange(3)
        row = (a, a + 1 + rng.randrange(2), rng.random() < 0.5, rng.randrange(4), rng.randrange(3), rng.random() < 0.6)
        rows += [(*row, 1)] + [(*row, -1)] * (rng.random() < 0.3) + [(*row, 1)] * (rng.random() < 0.2)
    rng.shuffle(rows)
    return rows


def slowly(rows: list[Stored], live_for: int | None) -> dict[tuple[int, int, int], int]:
    """(a, b, epoch) → diff of the edges, epoch by epoch."""
    there: Counter[tuple[int, int, bool, int, int, bool]] = Counter()
    for *row, diff in rows:
        there[tuple(row)] += diff  # type: ignore[index]
    present = [row for row, copies in there.items() if copies > 0]
    found = {}
    before: set[tuple[int, int]] = set()
    for epoch in range(12):
        edges = set()
        for a, b, forth, *_ in present:
            key = [(e, seq, on) for x, y, f, e, seq, on in present if (x, y, f) == (a, b, forth) and e <= epoch]
            if key:
                at, _, on = max(key)
                if on and (live_for is None or epoch < at + live_for):
                    edges.add((a, b))
        found |= {(*edge, epoch): 1 for edge in edges - before} | {(*edge, epoch): -1 for edge in before - edges}
        before = edges
    return found


@pytest.mark.parametrize("live_for", [None, 1, 3])
@pytest.mark.parametrize("seed", seeds.several(range(40)))
def test_edges_follow_from_the_rows(seed: int, live_for: int | None) -> None:
    rows = drawn(random.Random(seed))
    kinds = (np.int64, np.int64, np.bool_, np.int64, np.int64, np.bool_, np.int64)
    columns = [np.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
    a, b, epoch, diff = _steps(*_last(*columns), live_for)
    found = dict(zip(zip(a.tolist(), b.tolist(), epoch.tolist(), strict=True), diff.tolist(), strict=True))
    assert found == slowly(rows, live_for)


@pytest.mark.parametrize(
    ("rows", "alone"),
    {
        "none": ([], True),
        "numbered": ([(0, 1, 2, 1, 1), (0, 1, 2, 2, 1), (1, 1, 2, 1, 1)], True),
        "another direction": ([(0, 1, 2, 1, 1), (0, 2, 1, 1, 1)], True),
        "rivals": ([(0, 1, 2, 1, 1), (0, 1, 2, 1, 1)], False),
        "taken back": ([(0, 1, 2, 1, 1), (0, 1, 2, 1, -1)], False),
        "copies in one row": ([(0, 1, 2, 1, 2)], True),
    }.values(),
)
def test_whether_rows_are_alone(tiny: SparkSession, rows: list[tuple[int, ...]], alone: bool) -> None:
    frame = tiny.createDataFrame(rows, "epoch bigint, src bigint, dst bigint, seq bigint, diff bigint")
    assert _alone(frame) is alone
