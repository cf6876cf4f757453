"""The facts that prove a trussness, counted in cells, against the definition."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from altneu.algorithms.graph.kernels.certificate_counts import count_certificate
from tests import seeds
from tests.truss.test_parts import after, random_graph


@pytest.mark.parametrize("seed", seeds.several(range(30)))
def test_cells_add_up_to_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = random_graph(rng)
    kappa, label = rng.integers(0, 4, a.size), rng.integers(0, 9, a.size)
    place = {pair: i for i, pair in enumerate(zip(a.tolist(), b.tolist(), strict=True))}
    triangles, backing = np.zeros((2, a.size), np.int64)
    for x, y, z in combinations(sorted({*a.tolist(), *b.tolist()}), 3):
        if (x, y) in place and (y, z) in place and (x, z) in place:
            three = [place[x, y], place[y, z], place[x, z]]
            for e in three:
                triangles[e] += 1
                backing[e] += kappa[e] == min(kappa[three])
    first = after(a, b, kappa, label)
    p = int(rng.integers(1, 5))
    of = rng.integers(0, p, int(b.max()) + 4)
    x, y = of[np.stack([a, b]) + 3]
    sums = np.zeros((3, a.size), np.int64)
    for cell in {tuple(sorted((i, j, k))) for i in range(p) for j in range(p) for k in range(p)}:
        at = np.array(
            [e for e in range(a.size) if any(tuple(sorted((x[e], y[e], z))) == cell for z in range(p))], np.int64
        )
        if at.size:
            colours = (lambda vertices: of[vertices + 3]) if len(set(cell)) == 2 else None
            sums[:, at] += np.stack(count_certificate(a[at], b[at], kappa[at], label[at], colours))
    assert sums.tolist() == [triangles.tolist(), backing.tolist(), first]
