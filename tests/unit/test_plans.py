"""The choice between the delta query and the enumeration of all, of triangles and of motifs."""

from __future__ import annotations

import pytest

from altneu.algorithms.graph.cost_model import MotifPlanChoice, TrianglePlanChoice


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
