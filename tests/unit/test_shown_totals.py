"""What SQL shows of epochs against what was counted afresh: each wrong number is a row, also where there is nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from altneu.pipeline.checking.reported_totals_check import ReportedTotals, differing_totals, reported_totals
from altneu.pipeline.state.records import StagedBatch
from tests import home_helpers

TRIANGLE = {("edges", 0): 3, ("vertices", 0): 3, ("triangles", 0): 1, ("wedges", 0): 3, ("max_trussness", 0): 3}
COUNTED = {1: {**TRIANGLE, ("trusses", 3): 3}, 2: {}}  # at 2 all has expired
DIFFS = [("edges", 0, 3), ("vertices", 0, 3), ("triangles", 0, 1), ("wedges", 0, 3), ("truss", 3, 3)]


def shown(folder: Path, *more: tuple[str, int, int, int], without: str = "") -> ReportedTotals:
    ledger = home_helpers.open_database(f"sqlite:///{folder / 'altneu.db'}")
    ledger.runs.create("r", 0, epochs=[1, 2], config={})
    rows = [(measure, k, epoch, n if epoch == 1 else -n) for epoch in (1, 2) for measure, k, n in DIFFS]
    sums = {(measure, k, epoch): diff for measure, k, epoch, diff in rows if measure != without}
    for measure, k, epoch, diff in more:
        sums[measure, k, epoch] = sums.get((measure, k, epoch), 0) + diff
    ledger.outputs.put_totals("r", {key[0] for key in sums}, [(*key, diff) for key, diff in sums.items()])
    ledger.outputs.put_batches("r", [StagedBatch(1, "d", 1, 3, 1)])
    ledger.publish_revision("r", 0, frontier=2, snapshots={}, digest="digest", mark=None)
    return reported_totals(ledger, ledger.revisions.get(), [1, 2])


def test_what_is_right_has_no_difference(tmp_path: Path) -> None:
    found = shown(tmp_path)
    assert found.batches == {1: (3, 1), 2: (0, 0)}
    assert differing_totals(found, COUNTED) == []


@pytest.mark.law(12)
@pytest.mark.parametrize(
    ("planted", "what", "row"),
    [
        (("triangles", 0, 1, 5), "triangles", {"epoch": 1, "a": None, "maintained": 6, "recomputed": 1}),
        (("edges", 0, 2, 1), "edges", {"epoch": 2, "a": None, "maintained": 1, "recomputed": 0}),
        (("wedges", 0, 1, -1), "wedges", {"epoch": 1, "a": None, "maintained": 2, "recomputed": 3}),
        (("vertices", 0, 1, -3), "vertices", {"epoch": 1, "a": None, "maintained": 0, "recomputed": 3}),
        (("truss", 3, 1, 1), "trusses", {"epoch": 1, "a": 3, "maintained": 4, "recomputed": 3}),
        (("truss", 9, 1, 1), "max_trussness", {"epoch": 1, "a": None, "maintained": 9, "recomputed": 3}),
        (("motif", 2, 1, 1), "motifs", {"epoch": 1, "a": 2, "maintained": 1, "recomputed": 0}),
    ],
)
def test_each_wrong_number_is_found(
    tmp_path: Path, planted: tuple[str, int, int, int], what: str, row: dict[str, object]
) -> None:
    found = [each for each in differing_totals(shown(tmp_path, planted), COUNTED) if each["what"] == what]
    assert found and row.items() <= found[0].items()


def test_a_total_of_no_known_measure_shows_nothing(tmp_path: Path) -> None:
    assert differing_totals(shown(tmp_path, ("colours", 0, 1, 5)), COUNTED) == []


def test_wedges_of_a_home_of_before_they_were_counted(tmp_path: Path) -> None:
    found = shown(tmp_path, without="wedges")
    assert "wedges" not in found.kinds and differing_totals(found, COUNTED) == []


def test_a_lost_measure_is_found(tmp_path: Path) -> None:
    found = differing_totals(shown(tmp_path, without="triangles"), COUNTED)
    assert [(row["epoch"], row["what"]) for row in found] == [(1, "triangles")]
