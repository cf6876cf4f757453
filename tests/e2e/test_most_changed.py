"""What changed most at an epoch, for the report: in a first load, whose rows stand for themselves, and in a later run,
where those of an edge add up."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from pipeline.state.stage_results import TrianglesFacts, TrussFacts
from tests import home_helpers

pytestmark = pytest.mark.usefixtures("tiny")
FOUR = [(a, b, None, "upsert", place) for place, (a, b) in enumerate(combinations(range(4), 2))]


def test_what_changed_most(tmp_path: Path) -> None:
    home, ledger = home_helpers.make(tmp_path / "home")
    home_helpers.put(home, 0, FOUR)
    home_helpers.put(home, 1, [(0, 1, None, "delete", 0)])
    found = []
    for epoch in (0, 1):
        row = home_helpers.run(home, ledger, [epoch])
        assert row is not None
        edges = ledger.stages.get_facts(row.run_id, TrussFacts).top_edges[str(epoch)]
        vertices = ledger.stages.get_facts(row.run_id, TrianglesFacts).top_vertices[str(epoch)]
        found.append(
            (
                [(each["a"], each["b"], each["trussness"]) for each in edges],
                [(each["vertex"], each["triangles"]) for each in vertices],
            )
        )
    assert found == [
        ([(0, 1, 4), (0, 2, 4), (0, 3, 4), (1, 2, 4), (1, 3, 4)], [(v, 3) for v in range(4)]),
        ([(0, 1, -4), (0, 2, -1), (0, 3, -1), (1, 2, -1), (1, 3, -1)], [(0, -2), (1, -2), (2, -1), (3, -1)]),
    ]
