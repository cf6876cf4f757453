"""The choice between the plans of `triangles`, by estimated cost, and of `motifs`, without Spark: `altneu plan` uses
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

BROADCAST_ROWS = 1_000_000  # a side of a join with more rows is shuffled: about 150 bytes a row in every executor
# Up to this number of stored rows all of them are read: one more query would be needed to select those that a change
# touches.
WHOLE_ROWS = 20_000
WRONG, MATTERS = 2.0, 5.0  # an estimate is corrected that was wrong by more than this factor, and by more seconds
LEAST, LEARNED = 3, 5  # runs of a plan from which its correction is learned
NAMES = {"resume": "from the graph cache", "delta": "delta query", "bulk": "enumeration of all"}
MOTIF_NAMES = {"joins": "delta query in joins", "delta": "delta query in one task", "bulk": NAMES["bulk"]}


@dataclass(frozen=True)
class TrianglePlanChoice:
    """The plan by which a change is counted: the wanted one, or with "auto" the one that is estimated to cost less.

    index, delta: the edge intervals before the change, and those of the change. proposals: those of the delta query;
    None before they are counted (a scan of the index), when ten for each changed edge are assumed. has_graph_cache:
    whether the graph of the last run is available. corrections: by which factor earlier estimates of a plan were wrong.
    """

    requested_plan: str
    index: int
    delta: int
    proposals: int | None = None
    has_graph_cache: bool = False
    corrections: Mapping[str, float] = field(default_factory=dict)

    def estimated_seconds(self) -> dict[str, float]:
        """Estimate the seconds of each plan. They were measured on one machine of two cores: only trust the ratio."""
        edges = self.index + self.delta
        proposals = 10 * self.delta if self.proposals is None else self.proposals
        resume = {"resume": 0.5 + 0.1e-6 * self.index + 15e-6 * self.delta} if self.has_graph_cache else {}
        seconds = resume | {
            "delta": 1.0 + 0.4e-6 * self.index + 3e-6 * self.delta + 0.65e-6 * proposals,
            "bulk": 0.3 + 0.5e-6 * edges + 0.35e-9 * edges**1.5,
        }
        return {plan: estimate * self.corrections.get(plan, 1.0) for plan, estimate in seconds.items()}

    @property
    def plan(self) -> str:
        """Return the plan: `resume`, `delta` or `bulk`."""
        estimate = self.estimated_seconds()
        return (
            self.requested_plan if self.requested_plan in estimate else min(estimate, key=lambda name: estimate[name])
        )

    def describe(self) -> str:
        """Return the choice and its reason, for a person."""
        estimate = self.estimated_seconds()
        others = ", ".join(f"{NAMES[name]}: {estimate[name]:.1f} s" for name in estimate if name != self.plan)
        why = "as [triangles] plan says" if self.requested_plan == self.plan else "by cost"
        factors = [f"{NAMES[plan]} × {factor:.1f}" for plan, factor in self.corrections.items() if plan in estimate]
        learned = f"; corrected by what the last runs took: {', '.join(factors)}" if factors else ""
        return f"{NAMES[self.plan]}, {why}: about {estimate[self.plan]:.1f} s ({others}){learned}"


def learn_corrections(spent: Iterable[tuple[str, float, float]]) -> dict[str, float]:
    """Learn by which factor the estimates of each plan are wrong, from its last runs.

    A plan is corrected where the median of its last `LEARNED` runs took more than `WRONG` times the estimate and
    `MATTERS` seconds longer, or as much less.

    Args:
        spent: Runs, the oldest first: the plan, the estimated seconds without a correction, and those that it took.
    """
    by_plan: dict[str, list[tuple[float, float]]] = {}
    for plan, estimate, seconds in spent:
        by_plan.setdefault(plan, []).append((seconds / estimate, abs(seconds - estimate)))
    corrections = {}
    for plan, runs in sorted(by_plan.items()):
        factors, amounts = (median(column) for column in zip(*runs[-LEARNED:], strict=True))
        if len(runs) >= LEAST and not 1 / WRONG <= factors <= WRONG and amounts > MATTERS:
            corrections[plan] = round(factors, 2)
    return corrections


@dataclass(frozen=True)
class MotifPlanChoice:
    """The plan by which motifs are counted: the wanted one, or with "auto" the delta query if its rules read less than
    all rows.

    stored_rows, changed_rows: the intervals of the relations before the change, and those of the change. rules: the
    number of rules of the largest pattern, one for each of its edges. limit: with more intervals nothing is brought to
    one task, whatever is requested.
    """

    requested_plan: str
    stored_rows: int
    changed_rows: int
    rules: int
    limit: int

    @property
    def plan(self) -> str:
        """Return the plan: `delta` or `bulk`, both in one task, or `joins`."""
        if self.stored_rows + self.changed_rows > self.limit:
            return "joins"
        if not self.stored_rows:
            return "bulk"
        auto = "delta" if self.rules * self.changed_rows < self.stored_rows else "bulk"
        return self.requested_plan if self.requested_plan in ("delta", "bulk") else auto

    def describe(self) -> str:
        """Return the choice, for a person."""
        return MOTIF_NAMES[self.plan]
