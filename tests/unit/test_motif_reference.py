"""The audit's own reading of motifs: as many occurrences as by the product's, on any graph, and each pattern once."""

from __future__ import annotations

import numpy as np
import pytest

from altneu.algorithms.graph.kernels.motif_recount import count_motifs
from altneu.algorithms.graph.motif_patterns import parse_motif
from altneu.pipeline.checking.motif_reference import read_motifs
from tests import seeds

TEXTS = [
    "a-b, b-c, c-d, d-a",
    "a-b, a-c, a-d, b-c, b-d, c-d",
    "a->b, b->c, c->a",
    "a->b, b->a, b-c",
    "a - b where w in (1, 2), b-c where\nw  in (1,2)",
    "a-b, b-c, c-d, d-e, e-f, f-a",
    "m->x, m->y, m->z",
]


@pytest.mark.parametrize("text", TEXTS)
def test_both_readings_count_the_same(text: str) -> None:
    seed = seeds.one()
    rng = np.random.default_rng(seed)
    ours, (theirs,) = parse_motif(text), read_motifs({"m": text}).values()

    a, b = np.unique(rng.integers(0, 8, (30, 2)), axis=0).T
    directed = a[a != b], b[a != b]
    low, high = np.unique(np.sort(np.stack(directed), axis=0), axis=1)
    found = []
    for patterns in (ours, theirs):
        relations = {edge.relation: edge.is_directed for pattern in patterns for edge in pattern.edges}
        found.append(
            count_motifs(patterns, {name: directed if way else (low, high) for name, way in relations.items()})
        )
    assert [column.tolist() for column in found[0]] == [column.tolist() for column in found[1]], seed


def test_what_is_one_pattern_is_read_once() -> None:
    found = read_motifs(
        {"m": ["a-b, b-c", "x-y, y-z"], "n": ["a->b, b->c", "a->b, c->b"], "o": ["a-b where w>0", "x-y"]}
    )
    assert {name: len(patterns) for name, patterns in found.items()} == {"m": 1, "n": 2, "o": 2}
