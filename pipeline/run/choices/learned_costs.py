"""What the last runs teach about the estimates of plans: how long each plan took, beside what was estimated for it."""

from __future__ import annotations

from altneu.algorithms.graph.cost_model import learn_corrections

from ...state.ledger import Ledger
from ...state.stage_results import TrianglesFacts

RUNS = 30  # the newest published runs


def triangle_corrections(ledger: Ledger) -> dict[str, float]:
    """Return the factors by which the estimates of the plans for triangles are corrected: plan → factor."""
    spent = []
    for row in ledger.stages.list_recent(RUNS, TrianglesFacts.STAGE):
        facts = row.facts
        if (
            isinstance(facts, TrianglesFacts)
            and facts.plan
            and facts.plan in facts.estimate
            and row.seconds is not None
        ):
            estimate = facts.estimate[facts.plan] / facts.corrections.get(facts.plan, 1.0)
            spent.append((facts.plan, max(estimate, 0.01), row.seconds))
    return learn_corrections(spent)
