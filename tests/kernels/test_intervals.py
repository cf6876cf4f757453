"""Signed intervals made disjoint, and rows put in order, against slow references."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.algorithms.graph.kernels.intervals import consolidate, make_disjoint, sort_order, to_longs
from tests import seeds

HUGE = [-(2**63), -(2**62), -1, 0, 1, 2**62, 2**63 - 1]
SMALL = list(range(-3, 4))


@pytest.mark.parametrize("ids", [SMALL, HUGE], ids=["fit into a long", "do not fit"])
@pytest.mark.parametrize("seed", seeds.several(range(30)))
def test_rows_come_in_the_order_of_their_columns(ids, seed):
    rng = np.random.default_rng(seed)
    columns = [rng.choice(ids, int(rng.integers(1, 40))) for _ in range(1)]
    columns += [rng.choice(ids, columns[0].size) for _ in range(int(rng.integers(0, 3)))]
    found = [tuple(int(column[i]) for column in columns) for i in sort_order(columns)]
    assert found == sorted(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("ids", [SMALL, HUGE], ids=["fit into a long", "do not fit"])
@pytest.mark.parametrize("seed", seeds.several(range(60)))
def test_signed_intervals_become_those_in_which_the_edge_is_there(ids, seed):
    rng = np.random.default_rng(seed)
    rows, expected = [], []
    for a in ids:
        for b in (b for b in ids if a < b):
            if rng.random() < 0.4:
                rows.append((a, b, 0, FOREVER, 1))  # what most edges have
                expected.append((a, b, 0, FOREVER))
                continue
            cuts = sorted(rng.choice(9, int(rng.choice([0, 2, 4, 6])), replace=False).tolist())
            spans = list(zip(cuts[::2], cuts[1::2], strict=True))
            expected += [(a, b, s, u) for s, u in spans]
            signed = [(s, u, 1) for s, u in spans]
            for i in range(len(signed)):  # as corrections leave them: longer, and a part taken back; or twice, and back
                s, u, _ = signed[i]
                if rng.random() < 0.5:
                    signed[i] = (s, FOREVER, 1)
                    signed.append((u, FOREVER, -1))
                if rng.random() < 0.2:
                    signed += [(s, u, 1), (s, u, -1)]
            rows += [(a, b, *row) for row in signed]
    rng.shuffle(rows)
    columns = np.array(rows, np.int64).reshape(-1, 5).T.copy()
    found = list(zip(*(column.tolist() for column in make_disjoint(*columns)), strict=True))
    merged = Counter()  # spans that touch are one
    for a, b, s, u in expected:
        merged[a, b, s] += 1
        merged[a, b, u] -= 1
    steps = sorted(key for key, n in merged.items() if n and key[2] != FOREVER)
    assert sorted((a, b, e) for a, b, s, u in found for e in (s, u) if e != FOREVER) == steps
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ((0, 9, -1), "edge (1, 2) exists -1 times at epoch 0"),
        ((0, 9, 2), "edge (1, 2) exists 2 times at epoch 0"),
        ((5, 2, 1), "edge (1, 2) exists -1 times at epoch 2"),
    ],
)
def test_an_edge_that_cannot_be_is_an_error(row, error):
    # edges before it, and after; one of them comes twice
    good = (0, 0, 0, 1, 1), (1, 9, 9, 1, 3), (3, 0, 6, 5, 3), (FOREVER, 4, 8, 9, 9)
    columns = [np.array([*some, value]) for some, value in zip(good, (1, 2, *row[:2]), strict=True)]
    with pytest.raises(ValueError, match=f"^{re.escape(error)}$"):
        make_disjoint(*columns, np.array([1, 1, 1, 1, 1, row[2]]))
    assert len(make_disjoint(*(column[:5] for column in columns), np.ones(5, np.int64))[0]) == 5


def test_rows_that_cancel_out_leave_nothing():
    a, b, start, until, diff = (np.array([value, value]) for value in (1, 2, 3, 9, 1))
    diff[1] = -1
    assert [column.tolist() for column in make_disjoint(a, b, start, until, diff)] == [[]] * 4
    assert [column.tolist() for column in consolidate([a, b], diff)] == [[]] * 3
    none = (np.array([value]) for value in (1, 2, 3, 9, 0))
    assert [column.tolist() for column in make_disjoint(*none)] == [[]] * 4


def test_of_no_rows_there_is_no_order():
    none = np.empty(0, np.int64)
    assert sort_order([none, none]).tolist() == []
    assert [column.tolist() for column in consolidate([none, none], none)] == [[]] * 3
    assert [column.tolist() for column in make_disjoint(none, none, none, none, none)] == [[]] * 4


@pytest.mark.parametrize("width", [2**62 - 2, 2**62 - 1, 2**62, 2**63 - 1])
def test_the_order_holds_where_the_columns_just_fit_into_a_long(width):
    """The greatest product that fits is 2**63 - 1: of 2**62 - 1 and 2 values, say."""
    rng = np.random.default_rng(seeds.one(3))
    columns = [rng.permutation(np.array([0, 0, 1, 1])), np.array([0, width - 1, width // 2, 1]) - width // 2]
    found = [tuple(int(column[i]) for column in columns) for i in sort_order(columns)]
    assert found == sorted(zip(*(column.tolist() for column in columns), strict=True))


def test_columns_of_a_table_come_as_longs_in_the_order_asked_for():
    table = pa.table({"a": pa.array([1, 2], pa.int32()), "b": pa.array([3, 4], pa.int64()), "c": ["x", "y"]})
    found = to_longs(table, ["b", "a"])
    assert [(column.dtype, column.tolist()) for column in found] == [(np.int64, [3, 4]), (np.int64, [1, 2])]
