"""What changed most at an epoch, for the report: in a first load, whose rows stand for themselves, and in a later run,
where those of an edge add up."""

from __future__ import annotations

from pathlib import Path

from altneu.pipeline.state.stage_results import TrianglesFacts, TrussFacts
from tests.canonical import History


def test_what_changed_most(tmp_path: Path, held_correction: History) -> None:
    _, ledger = held_correction.copy(tmp_path / "home")
    (held,) = ledger.runs.list_held()
    found = []
    for run_id in (ledger.revisions.get().run_id, held.run_id):
        edges = ledger.stages.get_facts(run_id, TrussFacts).top_edges["0"]
        vertices = ledger.stages.get_facts(run_id, TrianglesFacts).top_vertices["0"]
        found.append(
            (
                [(each["a"], each["b"], each["trussness"]) for each in edges],
                [(each["vertex"], each["triangles"]) for each in vertices],
            )
        )
    assert found == [
        ([(0, 1, 4), (0, 2, 4), (0, 3, 4), (1, 2, 4), (1, 3, 4)], [(v, 3) for v in range(4)]),
        ([(0, 2, 3), (0, 3, 3), (1, 2, 3), (1, 3, 3), (2, 3, 3)], [(2, 2), (3, 2), (0, 1), (1, 1)]),
    ]
