"""The choice between the delta query and the enumeration of all."""

from __future__ import annotations

from algorithms.triangle_plans import Choice


def test_a_first_load_is_enumerated_and_a_small_change_of_a_large_graph_is_not() -> None:
    assert Choice("auto", 0, 1_000_000).plan == "bulk"
    assert Choice("auto", 10_000_000, 1_000, 200_000).plan == "delta"


def test_more_proposals_tip_the_choice() -> None:
    plans = [Choice("auto", 2_000_000, 1_000, proposals).plan for proposals in (0, 10**4, 10**6, 10**7, 10**8)]
    assert plans[0] == "delta" and plans[-1] == "bulk" and plans == sorted(plans, reverse=True)


def test_what_the_configuration_says_is_done_and_said() -> None:
    forced = Choice("bulk", 10_000_000, 1, 1)
    assert forced.plan == "bulk"
    assert forced.words().startswith("enumeration of all, as [triangles] plan says: about ")
    facts = Choice("auto", 10_000_000, 1, 7).facts()
    assert facts["plan"] == "delta" and facts["proposals"] == 7 and set(facts["estimate"]) == {"delta", "bulk"}
    assert facts["chosen"].startswith("delta query, by cost: about ")
