"""The choice between the delta query and the enumeration of all, of triangles and of motifs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from altneu.algorithms.graph.cost_model import (
    LEAST,
    MATTERS,
    WRONG,
    MotifPlanChoice,
    TrianglePlanChoice,
    learn_corrections,
)
from altneu.pipeline.run.choices.learned_costs import triangle_corrections
from altneu.pipeline.state.records import StageState
from altneu.pipeline.state.stage_results import TrianglesFacts
from tests import home_helpers


def test_a_first_load_is_enumerated_and_a_small_change_of_a_large_graph_is_not() -> None:
    assert TrianglePlanChoice("auto", 0, 1_000_000).plan == "bulk"
    assert TrianglePlanChoice("auto", 10_000_000, 1_000, 200_000).plan == "delta"


def test_more_proposals_tip_the_choice() -> None:
    plans = [
        TrianglePlanChoice("auto", 2_000_000, 1_000, proposals).plan for proposals in (0, 10**4, 10**6, 10**7, 10**8)
    ]
    assert plans[0] == "delta" and plans[-1] == "bulk" and plans == sorted(plans, reverse=True)


def test_what_the_configuration_says_is_done_and_said() -> None:
    forced = TrianglePlanChoice("bulk", 10_000_000, 1, 1)
    assert forced.plan == "bulk"
    assert forced.describe().startswith("enumeration of all, as [triangles] plan says: about ")
    choice = TrianglePlanChoice("auto", 10_000_000, 1, 7)
    assert choice.plan == "delta" and set(choice.estimated_seconds()) == {"delta", "bulk"}
    assert choice.describe().startswith("delta query, by cost: about ")


def test_an_estimate_that_was_wrong_is_corrected_and_said() -> None:
    choice = TrianglePlanChoice("auto", 3_000_000, 1_000, 10_000)
    assert choice.plan == "delta" and "corrected" not in choice.describe()
    slow = TrianglePlanChoice("auto", 3_000_000, 1_000, 10_000, corrections={"delta": 4.0})
    assert slow.plan == "bulk" and slow.describe().endswith("by what the last runs took: delta query × 4.0")
    assert slow.estimated_seconds()["delta"] == 4 * choice.estimated_seconds()["delta"]


@pytest.mark.parametrize(
    ("spent", "corrections"),
    [
        ([("delta", 2.0, 12.0)] * LEAST, {"delta": 6.0}),
        ([("delta", 40.0, 4.0)] * LEAST, {"delta": 0.1}),  # too dear
        ([("delta", 2.0, 12.0)] * (LEAST - 1), {}),
        ([("delta", 10.0, 10.0 * WRONG)] * LEAST, {}),
        ([("delta", 1.0, 1.0 + MATTERS)] * LEAST, {}),  # what is short is never dear
        ([("delta", 2.0, 2.0)] * 2 + [("delta", 2.0, 90.0)] + [("bulk", 1.0, 9.0)] * 9, {"bulk": 9.0}),
        ([("bulk", 1.0, 90.0)] * 9 + [("bulk", 1.0, 1.0)] * 3, {}),  # the last ones count
    ],
)
def test_corrections_are_learned_from_the_last_runs_of_a_plan(
    spent: list[tuple[str, float, float]], corrections: dict[str, float]
) -> None:
    assert learn_corrections(spent) == corrections


def test_runs_teach_by_what_they_estimated_before_a_correction(tmp_path: Path) -> None:
    ledger = home_helpers.open_database(f"sqlite:///{tmp_path}/db", writes=True)
    for revision in range(LEAST):
        factor = {"delta": 3.0} if revision else {}
        estimate = {"delta": 2.0 * factor.get("delta", 1.0), "bulk": 9.0}
        facts = TrianglesFacts(rows=1, plan="delta", proposals=5, estimate=estimate, corrections=factor)
        ledger.runs.create(f"r{revision}", revision, epochs=[revision], config={})
        ledger.stages.record(f"r{revision}", "triangles", StageState.DONE, time.time() - 20, facts)
        ledger.publish_revision(f"r{revision}", revision, frontier=1, snapshots={}, digest="digest", mark=None)
    assert triangle_corrections(ledger)["delta"] == pytest.approx(10, rel=0.05)
    ledger.runs.create("open", LEAST, epochs=[9], config={})  # not published
    ledger.stages.record("open", "triangles", StageState.DONE, time.time() - 900, facts)
    assert triangle_corrections(ledger)["delta"] == pytest.approx(10, rel=0.05)


@pytest.mark.parametrize(
    ("wanted", "stored", "changed", "plan"),
    [
        ("auto", 1_000, 100, "delta"),
        ("auto", 1_000, 200, "bulk"),  # six rules would see as many edges as there are
        ("bulk", 1_000, 1, "bulk"),
        ("delta", 1_000, 900, "delta"),
        ("delta", 0, 10, "bulk"),  # there is nothing to build on
        ("bulk", 9_000, 1_001, "joins"),  # more than one task may hold
    ],
)
def test_the_plan_of_motifs(wanted: str, stored: int, changed: int, plan: str) -> None:
    assert MotifPlanChoice(wanted, stored, changed, rules=6, limit=10_000).plan == plan
